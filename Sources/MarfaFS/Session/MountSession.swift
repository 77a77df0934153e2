import CFuse3
import CLinux
import Glibc
import MarfaEngine

/// What is to be mounted where, and how.
public struct MountConfiguration: Sendable {
  /// The directory to mount on.
  public var mountPoint: String
  /// What the kernel's table of mounts names as the source: the store's path.
  public var source: String
  /// Nothing can be written.
  public var isReadOnly = false
  /// The person's own `-o` options, each as it was given.
  public var options: [String] = []
  /// How many bytes the kernel reads ahead of a program that reads in order, and at most asks for in one read; `nil` for
  /// its own setting, 128 KiB, which only root can raise. It also reads so much around a page of a mapped file.
  public var readAhead: Int?
  /// The kernel is to read held files by itself where it can (passthrough).
  public var passesThrough = false
  /// How many seconds the end may take before what is stuck is left behind.
  public var stopLimit = 5.0
  /// How many seconds of these open files and calls under way are given to end by themselves.
  public var grace = 0.5

  /// A mount of `source` on `mountPoint`.
  public init(mountPoint: String, source: String) {
    self.mountPoint = mountPoint
    self.source = source
  }
}

/// One mount, from when the kernel has it until nothing of it is left.
///
/// It ends when somebody unmounts it, or by ``requestStop()``; either way in a bounded time, whatever is stuck. A thread of
/// its own sees to that; ``wait()`` waits for it.
public final class MountSession: Sendable {
  /// How a mount ended.
  public enum Ending: Sendable, Equatable {
    /// Somebody else unmounted it.
    case unmounted
    /// We were asked to stop.
    case stopped
    /// The kernel and we could not agree, or the device failed: the log says how.
    case failed
  }

  private struct State {
    var stopRequested = false
    var ending: Ending?
  }

  /// The directory mounted on, absolute and without symbolic links.
  public let mountPoint: String
  /// The filesystem's device number in the kernel's table, `major:minor`.
  let device: String

  private let configuration: MountConfiguration
  private let session: SessionHandle
  private let driver: Driver
  private let workers: Workers
  private let invalidator: Invalidator
  private let backing: BackingFiles
  private let whenStopping: @Sendable () -> Void
  private let state = Monitor(State())

  /// Mounts a filesystem.
  ///
  /// - `invalidator`: it tells the kernel of changes from now until the end.
  /// - `backing`: through it files are given to the kernel to read by itself, from when the mount answers until the end.
  /// - `whenReady` is called once, from another thread, when the mount answers.
  /// - `whenStopping` is called once, from another thread, when the end begins: replies that wait for something should be
  ///   answered now, since nobody waits for them any more.
  static func mount(
    _ configuration: MountConfiguration, _ operations: any FileSystemOperations, invalidator: Invalidator,
    backing: BackingFiles = BackingFiles(), workers limits: Workers.Limits = Workers.Limits(),
    whenReady: @escaping @Sendable () -> Void = {},
    whenStopping: @escaping @Sendable () -> Void = {}
  ) throws(MountError) -> MountSession {
    let path = try MountPoint.prepare(configuration.mountPoint)
    let driver = Driver(operations, backing: backing) {
      backing.tryOut()
      if let readAhead = configuration.readAhead { MountPoint.setReadAhead(readAhead, at: path) }
      whenReady()
    }
    let session = try Library.makeSession(configuration, driver)
    do throws(MountError) { try Library.mount(session, on: path) } catch {
      Library.destroy(session, driver)
      throw error
    }
    let entry = try? MountTable.top(at: path)
    let mount = MountSession(
      configuration, path, device: entry?.device ?? "", session, driver, Workers(session, driver, limits: limits),
      invalidator, backing, whenStopping)
    do throws(Errno) { try mount.start() } catch {
      backing.stop()
      _ = MountPoint.detach(path, device: mount.device)
      Library.destroy(session, driver)
      throw .refused("no thread can be started: \(error)")
    }
    return mount
  }

  private init(
    _ configuration: MountConfiguration, _ path: String, device: String, _ session: SessionHandle, _ driver: Driver,
    _ workers: Workers, _ invalidator: Invalidator, _ backing: BackingFiles,
    _ whenStopping: @escaping @Sendable () -> Void
  ) {
    self.configuration = configuration
    mountPoint = path
    self.device = device
    self.session = session
    self.driver = driver
    self.workers = workers
    self.invalidator = invalidator
    self.backing = backing
    self.whenStopping = whenStopping
  }

  private func start() throws(Errno) {
    backing.attach(session)
    try workers.start()
    invalidator.start(session)
    startThread(named: "marfa-mount") { self.supervise() }
  }

  /// Has the mount end. Returns at once, from any thread; asking twice is asking once.
  public func requestStop() {
    state.update { $0.stopRequested = true }
    workers.setOver()
  }

  /// Waits until the mount has ended and nothing of it is left.
  @discardableResult
  public func wait() -> Ending { state.wait { $0.ending } ?? .failed }

  /// As `wait`, for so many seconds at most; `nil` when it has not ended then.
  public func wait(seconds: Double) -> Ending? { state.wait(until: .after(seconds: seconds)) { $0.ending } }

  /// How many threads carry requests now.
  var threadCount: Int { workers.count }

  // MARK: The end

  private func supervise() {
    _ = workers.waitUntilOver()
    let wasRequested = state.read { $0.stopRequested }
    let hasFailed = !wasRequested && isMounted
    tearDown(by: .after(seconds: configuration.stopLimit))
    state.update { $0.ending = wasRequested ? .stopped : hasFailed ? .failed : .unmounted }
  }

  private var isMounted: Bool { (try? MountTable.top(at: mountPoint))?.device == device }

  /// Ends everything in the one order that works: first whoever tells the kernel something, then the mount, then the
  /// threads, then what they used. Each step waits a bounded time; what is stuck is left behind.
  private func tearDown(by deadline: Deadline) {
    // In a thread of its own: whatever it takes, the end does not wait for it.
    let whenStopping = whenStopping
    startThread(named: "marfa-stopping") { whenStopping() }
    let hasInvalidatorEnded = invalidator.stop(by: .earlier(deadline, .after(seconds: 1)))
    unmount(by: deadline)
    session.exit()
    let haveWorkersEnded = workers.stop(by: deadline)
    let unanswered = waitForReplies(by: deadline)
    backing.stop()
    if hasInvalidatorEnded && haveWorkersEnded && unanswered == 0 {
      Library.destroy(session, driver)
    } else {
      Log.warning(
        "\(mountPoint): \(unanswered) requests did not end in \(configuration.stopLimit) s and were left behind")
      // Freeing what they use would crash them when they go on. Closing the device is enough: whoever waits for an
      // answer is told that there is none.
      Library.disconnect(session)
    }
  }

  /// Takes the mount away at once, even with files open, and then gives those who use it a moment to end. The threads
  /// still work: the kernel may write out pages of a mapped file first.
  private func unmount(by deadline: Deadline) {
    let result = Monitor<Errno??>(nil)
    let (path, device) = (mountPoint, device)
    startThread(named: "marfa-unmount") {
      let error = MountPoint.detach(path, device: device)
      result.update { $0 = .some(error) }
    }
    switch result.wait(until: .earlier(deadline, .after(seconds: configuration.stopLimit / 2)), for: { $0 }) {
    case .none: Log.warning("\(path): unmounting takes long; going on without it")
    case .some(.some(let error)): Log.warning("\(path): could not be unmounted: \(error)")
    case .some(.none): break
    }
    let grace = Deadline.earlier(deadline, .after(seconds: configuration.grace))
    while !session.hasExited && !grace.hasPassed { usleep(5_000) }
  }

  private func waitForReplies(by deadline: Deadline) -> Int {
    while driver.outstanding > 0 && !deadline.hasPassed { usleep(5_000) }
    return driver.outstanding
  }
}
