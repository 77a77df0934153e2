import CLinux
import Glibc
import MarfaEngine

/// Taking a mount away, from outside the process that serves it.
public enum Unmounting {
  /// Unmounts unless a program uses it: then says which, and nothing is changed.
  public static func gently(_ mount: MarfaMount) throws(CommandFailure) {
    guard let error = unmount(mount, lazily: isDead(mount)) else { return }
    guard error.code == EBUSY else { throw failure(mount, error) }
    let users = users(of: mount.mountPoint)
    let words =
      users.isEmpty
      ? "a program of somebody else's, or another mount inside, is using it"
      : users.prefix(5).map { $0.description }.joined(separator: "; ")
        + (users.count > 5 ? "; and \(users.count - 5) more" : "")
    throw CommandFailure(
      .refused, "busy",
      "\(mount.mountPoint) is in use: \(words). Close that and try again, or unmount all the same with --force",
      details: ["users": .array(users.map { $0.json })])
  }

  /// Unmounts at once. Programs that have files open get errors from then on.
  public static func forcibly(_ mount: MarfaMount) throws(CommandFailure) {
    if let error = unmount(mount, lazily: true) { throw failure(mount, error) }
  }

  /// Waits until a mount is gone and the process that served it has ended; `false` when that takes longer.
  public static func waitForEnd(of mount: MarfaMount, pid: Int?, seconds: Double) -> Bool {
    let deadline = Deadline.after(seconds: seconds)
    while true {
      // By all that is known of it: the kernel gives a mount's number, and its device's, to the next one made.
      let isMounted = (try? MarfaMounts.all())?.contains(mount) ?? false
      if !isMounted && !(pid.map { isAlive($0) } ?? false) { return true }
      if deadline.hasPassed { return false }
      usleep(20_000)
    }
  }

  /// True as long as a process runs. One that ended and was not waited for is none.
  static func isAlive(_ pid: Int) -> Bool {
    guard let line = try? Path.procContents("/proc/\(pid)/stat"),
      let name = line.lastIndex(of: UInt8(ascii: ")")), name + 2 < line.count
    else { return false }
    return line[name + 2] != UInt8(ascii: "Z") && line[name + 2] != UInt8(ascii: "X")
  }

  // MARK: The system's ways

  private static func failure(_ mount: MarfaMount, _ error: Errno) -> CommandFailure {
    CommandFailure(.environment, "unmount_failed", "\(mount.mountPoint) could not be unmounted: \(error)")
  }

  /// True when the process that served it has ended and left the mount behind: nobody can have use for it.
  public static func isDead(_ mount: MarfaMount) -> Bool {
    var status = statvfs()
    guard statvfs(mount.mountPoint, &status) != 0 else { return false }
    return errno == ENOTCONN || errno == ECONNABORTED
  }

  private static func unmount(_ mount: MarfaMount, lazily: Bool) -> Errno? {
    let flags = CInt(UMOUNT_NOFOLLOW) | (lazily ? CInt(MNT_DETACH) : 0)
    if umount2(mount.mountPoint, flags) == 0 { return nil }
    let error = Errno.last
    guard error == .notPermitted else { return error }
    // Not root: the helper takes away what it mounted for this person.
    let words = ["fusermount3", "-u"] + (lazily ? ["-z"] : []) + ["--", mount.mountPoint]
    guard let result = ChildProcess.run(words) else { return .notFound }
    if result.status == 0 { return nil }
    return result.errors.contains("busy") ? Errno(EBUSY) : error
  }

  // MARK: Who is in the way

  /// A program that has something of the mount.
  struct User: Equatable, CustomStringConvertible {
    var pid: Int
    var name: String
    var path: String

    var description: String { "\(name) (process \(pid)) has \(path)" }
    var json: JSON { ["pid": .integer(pid), "name": .string(name), "path": .string(path)] }
  }

  /// The other programs that have a file under a folder open, stand in it, or run from it, as far as this person may know.
  static func users(of folder: String) -> [User] {
    let others = ((try? Path.names(in: "/proc")) ?? []).compactMap { Int($0) }.filter { $0 != Int(getpid()) }
    return others.sorted().compactMap { pid in
      let fixed = ["cwd", "root", "exe"].map { "/proc/\(pid)/\($0)" }
      let open = ((try? Path.names(in: "/proc/\(pid)/fd")) ?? []).map { "/proc/\(pid)/fd/\($0)" }
      let mapped = ((try? Path.names(in: "/proc/\(pid)/map_files")) ?? []).map { "/proc/\(pid)/map_files/\($0)" }
      for link in fixed + open + mapped {
        guard let target = linkTarget(link), MarfaMounts.isInside(target, folder) else { continue }
        let name = ((try? Path.procContents("/proc/\(pid)/comm")) ?? []).prefix { $0 != 0x0a }
        return User(pid: pid, name: String(decoding: name, as: UTF8.self), path: target)
      }
      return nil
    }
  }

  private static func linkTarget(_ path: String) -> String? {
    var buffer = [CChar](repeating: 0, count: Int(PATH_MAX))
    let count = readlink(path, &buffer, buffer.count)
    guard count > 0 else { return nil }
    return String(decoding: buffer.prefix(count).map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }
}
