import CFuse3
import Glibc
import MarfaEngine

/// Tells the kernel what it knows wrongly by now, from a thread of its own.
///
/// Telling can wait for a page or a directory that a request holds which waits for us; so nobody who answers requests, and
/// nobody who holds a lock, ever does it himself: he leaves word here, which never waits. The same thing said twice before
/// it is told is told once.
public final class Invalidator: Sendable {
  /// One thing to be told.
  enum Notice: Hashable, Sendable {
    /// What this name in this directory leads to, or that it leads nowhere.
    case entry(parent: UInt64, name: [UInt8])
    /// A node's attributes and all its cached bytes (or, of a directory, its cached listing).
    case inode(UInt64)
    /// A node's attributes only.
    case attributes(UInt64)
  }

  private enum Phase { case waiting, running, stopping, ended }

  private struct State {
    var phase = Phase.waiting
    var queue: [Notice] = []
    var queued: Set<Notice> = []
    /// What was taken out of the queue is still being told.
    var isTelling = false
  }

  private let state = Monitor(State())

  /// Makes an invalidator of no session yet. Before there is one, the kernel knows nothing and is told nothing.
  public init() {}

  /// The name in the directory changed, came, or went.
  public func entry(parent: UInt64, name: UnsafeRawBufferPointer) { post(.entry(parent: parent, name: Array(name))) }

  /// The name in the directory changed, came, or went.
  public func entry(parent: UInt64, name: [UInt8]) { post(.entry(parent: parent, name: name)) }

  /// The node's bytes and attributes changed, or a directory's listing.
  public func inode(node: UInt64) { post(.inode(node)) }

  /// The node's attributes changed, and its bytes did not.
  public func attributes(node: UInt64) { post(.attributes(node)) }

  private func post(_ notice: Notice) {
    state.update { state in
      guard state.phase == .running, state.queued.insert(notice).inserted else { return }
      state.queue.append(notice)
    }
  }

  /// Waits until the kernel has been told everything there is by now, for so many seconds at most. Not under a lock, and
  /// not in a request during which the kernel holds a directory or a page.
  func settle(seconds: Double) {
    _ = state.wait(until: .after(seconds: seconds)) { state in
      state.phase != .running || (state.queue.isEmpty && !state.isTelling) ? true : nil
    }
  }

  /// Starts telling the kernel of `session`.
  func start(_ session: SessionHandle) {
    state.update { $0.phase = .running }
    startThread(named: "marfa-invalidate") { self.run(session) }
  }

  /// Stops, with what is not told yet left untold, and waits until it has: `false` when the kernel keeps it waiting past
  /// the deadline. The session must not be torn down then.
  func stop(by deadline: Deadline) -> Bool {
    state.update { state in
      switch state.phase {
      case .waiting: state.phase = .ended
      case .running: state.phase = .stopping
      case .stopping, .ended: break
      }
      state.queue = []
      state.queued = []
    }
    return state.wait(until: deadline) { $0.phase == .ended ? true : nil } ?? false
  }

  private func run(_ session: SessionHandle) {
    while let notices = next() {
      for notice in notices {
        if state.read({ $0.phase != .running }) { break }
        tell(notice, session)
      }
      state.update { $0.isTelling = false }
    }
    state.update { $0.phase = .ended }
  }

  /// All that is to be told now; `nil` when it is time to stop.
  private func next() -> [Notice]? {
    state.wait { state -> [Notice]?? in
      if state.phase != .running { return .some(nil) }
      if state.queue.isEmpty { return nil }
      // What changes from here on is to be told again, even what is about to be told.
      let notices = state.queue
      state.queue = []
      state.queued = []
      state.isTelling = true
      return .some(notices)
    } ?? nil
  }

  private func tell(_ notice: Notice, _ session: SessionHandle) {
    let code: CInt
    switch notice {
    case .entry(let parent, let name):
      // libfuse sends one byte more than the name has, and the kernel wants a NUL there.
      var name = name
      let count = name.count
      name.append(0)
      code = name.withUnsafeBytes { bytes in
        fuse_lowlevel_notify_inval_entry(
          session.raw, parent, bytes.baseAddress?.assumingMemoryBound(to: CChar.self), count)
      }
    case .inode(let node): code = fuse_lowlevel_notify_inval_inode(session.raw, node, 0, 0)
    case .attributes(let node): code = fuse_lowlevel_notify_inval_inode(session.raw, node, -1, 0)
    }
    // ENOENT: the kernel knows nothing of it, and so nothing wrong. ENOTDIR: what it knows there is no directory.
    // ENOTCONN, ENODEV, EBADF: the mount is ending.
    if ![0, -ENOENT, -ENOTDIR, -ENOTCONN, -ENODEV, -EBADF].contains(code) {
      Log.warning("the kernel could not be told that \(notice) changed: \(Errno(-code))")
    }
  }
}
