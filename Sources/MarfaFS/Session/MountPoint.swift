import CLinux
import Glibc
import MarfaEngine

/// The directory a store is mounted on: looked at before, and given back after.
public enum MountPoint {
  /// The type our mounts have in the kernel's table.
  static let type = "fuse.marfa"
  /// How long a mount that is there has to say whether it lives.
  private static let patience = 3.0

  /// Makes sure that a mount can be made at `path`, and tells its absolute path without symbolic links. A mount of ours
  /// whose process has ended is taken away first.
  public static func prepare(_ path: String) throws(MountError) -> String {
    let path = try resolve(path)
    // A crashed mount may have another one under it.
    while let found = try top(at: path) {
      guard try clear(found, at: path) else { break }
    }
    try checkDirectory(path)
    try checkDevice()
    return path
  }

  /// Takes away what is mounted at `path`, if it is the filesystem of that device number, without waiting for those who
  /// still use it. `nil` when it is gone now or was before.
  static func detach(_ path: String, device: String) -> Errno? {
    let found: MountEntry?
    do { found = try MountTable.top(at: path) } catch { return error }
    guard let found, found.device == device else { return nil }
    if umount2(path, CInt(MNT_DETACH) | CInt(UMOUNT_NOFOLLOW)) == 0 { return nil }
    let error = Errno.last
    guard error == .notPermitted else { return error }
    // Not root: the helper may take away what it mounted for us.
    return Helper.unmount(path).map { wait(for: $0) } == 0 ? nil : error
  }

  /// The same for a dead mount, and answers once nothing is mounted there any more: the kernel then still drops what it knew
  /// of its files, which takes seconds where there are a million, and nobody has to wait for that.
  private static func takeAway(_ found: MountEntry, at path: String) -> Errno? {
    let isRoot = geteuid() == 0
    let started =
      isRoot ? marfa_umount_apart(path, CInt(MNT_DETACH) | CInt(UMOUNT_NOFOLLOW)) : Helper.unmount(path) ?? -1
    guard started > 0 else { return isRoot ? .last : .notPermitted }
    let end = Monitor<CInt?>(nil)
    startThread(named: "marfa-unmount") {
      let status = wait(for: started)
      end.update { $0 = .some(status) }
    }
    while true {
      if let status = end.wait(until: .after(seconds: 0.001), for: { $0 }) {
        return status == 0 ? nil : isRoot ? Errno(status) : .notPermitted
      }
      if let there = try? MountTable.top(at: path), there == found { continue }
      return nil
    }
  }

  private static func wait(for child: pid_t) -> CInt {
    var status: CInt = 0
    while waitpid(child, &status, 0) < 0 { if errno != EINTR { return ECHILD } }
    return marfa_exit_status(status)
  }

  /// Sets how many bytes the kernel reads ahead in what is mounted at `path`. It takes the setting over from INIT, so this
  /// works only once the mount answers. Where it may not be set, it stays as it is.
  static func setReadAhead(_ bytes: Int, at path: String) {
    do throws(Errno) {
      guard let entry = try MountTable.top(at: path), entry.type == type else { return }
      let setting = try Descriptor.open("/sys/class/bdi/\(entry.device)/read_ahead_kb", O_WRONLY)
      try setting.write(Array("\(bytes / 1024)".utf8), at: 0)
    } catch {
      Log.debug("\(path): the kernel reads ahead as it likes: \(error)")
    }
  }

  // MARK: What is there

  /// The path without symbolic links. The last component of a crashed mount may not be looked into, and need not be.
  private static func resolve(_ path: String) throws(MountError) -> String {
    if let resolved = realPath(path) { return resolved }
    let error = Errno.last
    if error == .notFound { throw .missing(path: path) }
    if error == .notDirectory { throw .notDirectory(path: path) }
    guard isDead(error), let parent = realPath(Path.parent(trimmed(path))) else {
      throw .unreadable(path: path, error)
    }
    return parent == "/" ? "/" + Path.lastComponent(path) : parent + "/" + Path.lastComponent(path)
  }

  private static func realPath(_ path: String) -> String? {
    guard let resolved = realpath(path, nil) else { return nil }
    defer { free(resolved) }
    return String(cString: resolved)
  }

  private static func trimmed(_ path: String) -> String {
    var path = Substring(path)
    while path.count > 1, path.hasSuffix("/") { path.removeLast() }
    return String(path)
  }

  private static func top(at path: String) throws(MountError) -> MountEntry? {
    do { return try MountTable.top(at: path) } catch { throw .unreadable(path: "/proc/self/mountinfo", error) }
  }

  /// Deals with what is mounted at `path`. `true`: it was taken away. `false`: it is another filesystem, which one may
  /// mount on.
  private static func clear(_ found: MountEntry, at path: String) throws(MountError) -> Bool {
    guard found.type == "fuse" || found.type.hasPrefix("fuse.") else { return false }
    let dead = isDead(probe(path))
    guard found.type == type else {
      if dead { throw .deadMount(path: path, type: found.type) }
      return false
    }
    guard dead else { throw .alreadyMounted(path: path) }
    if let error = takeAway(found, at: path) { throw .cannotDetach(path: path, error) }
    Log.notice("\(path): took away the mount that a process which has ended left there")
    return true
  }

  /// Asks what is mounted at `path` something that the kernel never answers out of a cache, and waits a bounded time: a
  /// process may live and not answer. `nil`: it lives.
  private static func probe(_ path: String) -> Errno? {
    let answer = Monitor<Errno??>(nil)
    startThread(named: "marfa-probe") {
      var status = statvfs()
      let error = statvfs(path, &status) == 0 ? nil : Errno.last
      answer.update { $0 = .some(error) }
    }
    return answer.wait(until: .after(seconds: patience)) { $0 } ?? nil
  }

  /// What the kernel says for a filesystem whose process is gone, or was when the question was under way.
  private static func isDead(_ error: Errno?) -> Bool {
    error?.code == ENOTCONN || error?.code == ECONNABORTED
  }

  private static func checkDirectory(_ path: String) throws(MountError) {
    do throws(Errno) {
      guard let status = try Path.status(path) else { throw .notFound }
      guard status.st_mode & S_IFMT == S_IFDIR else { throw .notDirectory }
      guard try Path.names(in: path).isEmpty else { throw .notEmpty }
    } catch {
      switch error {
      case .notFound: throw .missing(path: path)
      case .notDirectory: throw .notDirectory(path: path)
      case .notEmpty: throw .notEmpty(path: path)
      default: throw .unreadable(path: path, error)
      }
    }
  }

  // MARK: What it takes

  private static func checkDevice() throws(MountError) {
    // libfuse opens it itself first, whoever we are.
    do { _ = try Descriptor.open("/dev/fuse", O_RDWR) } catch {
      throw [ENOENT, ENODEV, ENXIO].contains(error.code) ? .noDevice : .deviceRefused(error)
    }
    guard geteuid() == 0 || Helper.isInstalled else { throw .noHelper }
  }
}

/// The program that mounts and unmounts for those who are not root.
enum Helper {
  private static let name = "fusermount3"

  /// Whether it is where programs are.
  static var isInstalled: Bool {
    let path = getenv("PATH").map { String(cString: $0) } ?? ""
    return (["/usr/bin", "/bin"] + path.split(separator: ":").map(String.init)).contains { folder in
      access("\(folder)/\(name)", X_OK) == 0
    }
  }

  /// Has it unmount `path` lazily. Answers its process, to be waited for.
  static func unmount(_ path: String) -> pid_t? {
    var words = [name, "-u", "-q", "-z", "--", path].map { (word: String) in strdup(word) }
    defer { for word in words { free(word) } }
    words.append(nil)
    // The child must not inherit that signals are blocked here.
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
    var child = pid_t()
    return posix_spawnp(&child, name, nil, &attributes, words, environ) == 0 ? child : nil
  }
}
