import Glibc
import MarfaEngine
import MarfaFS

/// `unmount`: takes mounts away and waits until the processes that served them have ended.
enum UnmountCommand {
  /// How many seconds a mount has to end. What was closed and not hashed yet is hashed first.
  private static let patience = 60.0

  static func run(_ line: CommandLineParser.Line) throws(CommandFailure) {
    guard line.operands.count == 1, let word = line.operands.first, !word.isEmpty else {
      throw CommandLineParser.usage("name the one folder or store to unmount")
    }
    var ended: [JSON] = []
    let mounts = try mounts(word)
    // Where this was started may be what is to go.
    chdir("/")
    for mount in mounts {
      let pid = try unmount(mount, byForce: line.has(.force))
      guard Unmounting.waitForEnd(of: mount, pid: pid, seconds: patience) else {
        let who = pid.map { "process \($0)" } ?? "its process"
        throw CommandFailure(
          .environment, "still_ending",
          "\(mount.mountPoint) is being unmounted, and \(who) has not ended in \(Int(patience)) seconds; "
            + "nothing is lost when it is left to itself")
      }
      ended.append([
        "mount_point": .string(mount.mountPoint), "store": .string(mount.store),
        "pid": pid.map { .integer($0) } ?? .null,
      ])
      if !line.has(.json) { try Output.print("Unmounted \(Output.safe(mount.mountPoint))") }
    }
    if line.has(.json) { try Output.print(["unmounted": .array(ended)]) }
  }

  /// The mounts that a word means: the one at a folder, or all of a store. The latest first.
  private static func mounts(_ word: String) throws(CommandFailure) -> [MarfaMount] {
    let path = Locations.absolute(word)
    if let mount = try StoreTarget.mount(holding: path) {
      errno = 0
      // What does not exist in it is no mount point; a mount whose process has died says ENOTCONN.
      let isInside = Locations.canonical(path).map { $0 != mount.mountPoint } ?? (errno == ENOENT || errno == ENOTDIR)
      guard !isInside else {
        throw CommandFailure(
          .refused, "not_a_mount_point",
          "\(word) is inside the mount at \(mount.mountPoint). To end that: "
            + "\(CommandHint(unmounting: mount.mountPoint))")
      }
      return [mount]
    }
    let store = Locations.canonicalStore(path)
    let mounts: [MarfaMount]
    do throws(Errno) { mounts = try MarfaMounts.of(store: store) } catch {
      throw CommandFailure(.environment, "no_mount_table", "the kernel's table of mounts can't be read: \(error)")
    }
    guard !mounts.isEmpty else {
      throw CommandFailure(.refused, "not_mounted", "\(word) is not mounted")
    }
    return mounts.reversed()
  }

  /// Takes a mount away, and tells the process that serves it.
  private static func unmount(_ mount: MarfaMount, byForce: Bool) throws(CommandFailure) -> Int? {
    // A mount whose process won't talk can be taken away all the same.
    let process = try? MountProcess.of(mount)
    guard byForce else {
      try Unmounting.gently(mount)
      return process?.pid
    }
    do throws(CommandFailure) {
      guard let process else { throw CommandFailure(.environment, "no_answer", "") }
      _ = try process.ask(ControlRequest("unmount"))
    } catch {
      try Unmounting.forcibly(mount)
    }
    return process?.pid
  }
}

/// The process that serves one mount, found among those that have its store.
struct MountProcess {
  /// Its number.
  var pid: Int
  private var address: ControlAddress

  /// Asks each until one has this mount; `nil` when none does.
  static func of(_ mount: MarfaMount) throws(CommandFailure) -> MountProcess? {
    for address in ControlAddress.all(of: mount.store) {
      guard let client = try ControlClient(address) else { continue }
      let mounted = try client.ask(ControlRequest("status"))["mount"]?.object?["mount_point"]?.string
      if mounted == mount.mountPoint { return MountProcess(pid: client.pid, address: address) }
    }
    return nil
  }

  /// Asks it something.
  func ask(_ request: ControlRequest) throws(CommandFailure) -> JSON.Object {
    try StoreAccess.mounted(address).run(request)
  }
}
