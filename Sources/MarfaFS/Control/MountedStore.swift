import Glibc
import MarfaEngine

/// A store that this process has mounted: the filesystem, the session with the kernel, and the socket beside the store,
/// from the first to the last.
public final class MountedStore: Sendable {
  private let copy: WorkingCopy
  private let session: MountSession
  private let server: ControlServer?

  /// How many seconds commands that are under way have to end when the mount does.
  private static let stopLimit = 5.0

  /// Mounts a working copy. `whenReady` is called once, from another thread, when the mount answers.
  public static func mount(
    _ copy: WorkingCopy, _ configuration: MountConfiguration, log: String?,
    whenReady: @escaping @Sendable () -> Void
  ) throws(MountError) -> MountedStore {
    let since = Timestamp.now
    let invalidator = Invalidator()
    let fileSystem = FileSystem(copy, invalidator: invalidator)
    let session = try MountSession.mount(
      configuration, fileSystem, invalidator: invalidator, whenReady: whenReady,
      whenStopping: { fileSystem.stop() })
    let mountPoint = session.mountPoint
    let commands = Commands(
      copy,
      mount: Commands.Mount(
        facts: {
          MountFacts(
            mountPoint: mountPoint, pid: Int(getpid()), since: since, passthrough: fileSystem.usesPassthrough, log: log)
        }, unmount: { session.requestStop() }))
    var server: ControlServer?
    do throws(Errno) { server = try ControlServer(commands) } catch {
      // A read-only folder has no place for it. The mount is as good without.
      Log.warning("commands can't ask this mount anything: no socket beside \(copy.path): \(error)")
    }
    return MountedStore(copy, session, server)
  }

  private init(_ copy: WorkingCopy, _ session: MountSession, _ server: ControlServer?) {
    self.copy = copy
    self.session = session
    self.server = server
  }

  /// The directory mounted on, absolute and without symbolic links.
  public var mountPoint: String { session.mountPoint }

  /// Has the mount end. Returns at once.
  public func requestStop() { session.requestStop() }

  /// Waits until the mount has ended, whatever ends it, and the store is closed.
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
