import Glibc
import MarfaEngine

/// A store that this process has mounted: the filesystem, the session with the kernel, and the socket beside the store,
/// from the first to the last.
public final class MountedStore: Sendable {
  private let copy: WorkingCopy
  private let session: MountSession
  private let server: ControlServer?
  private let isReady: Monitor<Bool>

  /// How many seconds commands that are under way have to end when the mount does.
  private static let stopLimit = 5.0

  /// How many seconds the kernel has for the first exchange.
  private static let readyLimit = 30.0

  /// Mounts a working copy. `log` is where this process's log goes, for `status`.
  public static func mount(
    _ copy: WorkingCopy, _ configuration: MountConfiguration, log: String?
  ) throws(MountError) -> MountedStore {
    let isReady = Monitor(false)
    let since = Timestamp.now
    let invalidator = Invalidator()
    let backing = BackingFiles(wanted: configuration.passesThrough, probe: copy.path + ".lock")
    let session = try MountSession.mount(
      configuration, FileSystem(copy, invalidator: invalidator, backing: backing), invalidator: invalidator,
      backing: backing, whenReady: { isReady.update { $0 = true } })
    let mountPoint = session.mountPoint
    let commands = Commands(
      copy,
      mount: Commands.Mount(
        facts: {
          MountFacts(
            mountPoint: mountPoint, pid: Int(getpid()), since: since, whyNotPassthrough: backing.standing.why,
            passing: backing.count, log: log)
        }, unmount: { session.requestStop() }))
    var server: ControlServer?
    do throws(Errno) { server = try ControlServer(commands) } catch {
      // A read-only folder has no place for it. The mount is as good without.
      Log.warning("commands can't ask this mount anything: no socket beside \(copy.path): \(error)")
    }
    return MountedStore(copy, session, server, isReady)
  }

  private init(_ copy: WorkingCopy, _ session: MountSession, _ server: ControlServer?, _ isReady: Monitor<Bool>) {
    self.copy = copy
    self.session = session
    self.server = server
    self.isReady = isReady
  }

  /// The directory mounted on, absolute and without symbolic links.
  public var mountPoint: String { session.mountPoint }

  /// Waits until the mount answers: `false` when it ended before, or never does.
  public func waitUntilReady() -> Bool {
    let deadline = Deadline.after(seconds: Self.readyLimit)
    while !deadline.hasPassed {
      if isReady.wait(until: .after(seconds: 0.1), for: { $0 ? true : nil }) ?? false { return true }
      if session.wait(seconds: 0) != nil { return false }
    }
    return false
  }

  /// Has the mount end. Returns at once.
  public func requestStop() { session.requestStop() }

  /// Waits until the mount has ended, whatever ends it, and the store is closed.
  @discardableResult
  public func wait() -> MountSession.Ending {
    let ending = session.wait()
    guard server?.stop(seconds: Self.stopLimit) ?? true else {
      // Nothing is lost: what they had not finished was not promised, and the store mends itself.
      Log.warning("a command was still at work when the mount ended")
      return ending
    }
    copy.close()
    return ending
  }
}
