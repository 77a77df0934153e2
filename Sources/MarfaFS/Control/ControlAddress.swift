import Glibc
import MarfaEngine

/// Where a store's process is asked: a Unix socket beside the store. The writer's is `STORE.sock`; each reader has one of
/// its own, `STORE.PID.sock`.
///
/// A socket's address holds 108 bytes and no more (unix(7)), whatever paths may be. So every call goes through
/// `/proc/self/fd`, where any folder and any socket has a short name.
public struct ControlAddress: Sendable, Equatable {
  /// The socket's path.
  public let path: String

  /// The address of the process that writes the store.
  public init(writerOf store: String) { path = store + ".sock" }

  /// The address of a process that reads it.
  public init(readerOf store: String, pid: pid_t) { path = "\(store).\(pid).sock" }

  private init(path: String) { self.path = path }

  /// The addresses of all processes that have a store, the writer's first. Some may be of processes that died.
  public static func all(of store: String) -> [ControlAddress] {
    let prefix = Path.lastComponent(store) + "."
    let folder = Path.parent(store)
    let readers = ((try? Path.names(in: folder)) ?? []).filter { name in
      guard name.hasPrefix(prefix), name.hasSuffix(".sock") else { return false }
      return pid_t(name.dropFirst(prefix.utf8.count).dropLast(".sock".utf8.count)) != nil
    }
    return [ControlAddress(writerOf: store)] + readers.sorted().map { ControlAddress(path: "\(folder)/\($0)") }
  }

  // MARK: Serving

  /// A socket that listens at an address.
  struct Listener: Sendable {
    let socket: Descriptor
    private let address: ControlAddress
    private let identity: [UInt64]

    fileprivate init(_ socket: Descriptor, _ address: ControlAddress, _ identity: [UInt64]) {
      self.socket = socket
      self.address = address
      self.identity = identity
    }

    /// Takes the name away, unless another process has put its own there.
    func remove() {
      guard (try? address.identity()) == identity else { return }
      _ = try? Path.remove(address.path)
    }
  }

  /// Listens. What a dead process left under the name is replaced; nobody but this person can connect.
  func listen() throws(Errno) -> Listener {
    if let found = try Self.kind(path), found != S_IFSOCK { throw .exists }
    let folder = try Self.openPath(Path.parent(path), O_DIRECTORY)
    // A name of its own first, and short: the final name may be too long for an address, and appears complete.
    let temporary = ".marfa-\(getpid()).sock"
    let temporaryPath = "\(Path.parent(path))/\(temporary)"
    try Path.remove(temporaryPath)
    let socket = try Self.makeSocket()
    try Self.withAddress(of: folder, "/\(temporary)") { (address, size) throws(Errno) in
      guard bind(socket.raw, address, size) == 0 else { throw Errno.last }
    }
    do throws(Errno) {
      guard chmod(temporaryPath, 0o600) == 0 else { throw Errno.last }
      guard Glibc.listen(socket.raw, 64) == 0 else { throw Errno.last }
      guard fcntl(socket.raw, F_SETFL, O_NONBLOCK) == 0 else { throw Errno.last }
      try Path.move(temporaryPath, to: path)
      return Listener(socket, self, try identity())
    } catch {
      _ = try? Path.remove(temporaryPath)
      throw error
    }
  }

  /// Which file the name leads to now.
  private func identity() throws(Errno) -> [UInt64] {
    var status = stat()
    guard lstat(path, &status) == 0 else { throw Errno.last }
    return [UInt64(status.st_dev), UInt64(status.st_ino)]
  }

  private static func kind(_ path: String) throws(Errno) -> mode_t? {
    var status = stat()
    if lstat(path, &status) == 0 { return status.st_mode & S_IFMT }
    let error = Errno.last
    if error == .notFound { return nil }
    throw error
  }

  // MARK: Asking

  /// Connects; no longer than `seconds` when the other side's queue is full.
  func connect(seconds: Int) throws(Errno) -> Descriptor {
    // Not followed: a link would lead to a socket of somebody else's choice.
    let file = try Self.openPath(path, O_NOFOLLOW)
    let socket = try Self.makeSocket()
    var limit = timeval(tv_sec: seconds, tv_usec: 0)
    setsockopt(socket.raw, SOL_SOCKET, SO_SNDTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    try Self.withAddress(of: file, "") { (address, size) throws(Errno) in
      while Glibc.connect(socket.raw, address, size) != 0 {
        let error = Errno.last
        if error.code != EINTR { throw error }
      }
    }
    return socket
  }

  // MARK: System calls

  /// `O_PATH`: the file itself, without a right to its content (open(2); Swift's Glibc does not show it).
  private static let pathOnly: CInt = 0o10000000

  static func openPath(_ path: String, _ flags: CInt = 0) throws(Errno) -> Descriptor {
    try Descriptor.open(path, pathOnly | flags)
  }

  private static func makeSocket() throws(Errno) -> Descriptor {
    let raw = socket(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    guard raw >= 0 else { throw Errno.last }
    return Descriptor(owning: raw)
  }

  /// The short address of an open file, or of something in an open folder.
  private static func withAddress(
    of file: Descriptor, _ rest: String, _ body: (UnsafePointer<sockaddr>, socklen_t) throws(Errno) -> Void
  ) throws(Errno) {
    let path = "/proc/self/fd/\(file.raw)\(rest)"
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let fits = withUnsafeMutableBytes(of: &address.sun_path) { room in
      guard path.utf8.count < room.count else { return false }
      room.copyBytes(from: path.utf8)
      return true
    }
    guard fits else { throw .nameTooLong }
    let size = socklen_t(MemoryLayout<sockaddr_un>.size)
    let result: Result<Void, Errno> = withExtendedLifetime(file) {
      withUnsafePointer(to: &address) { pointer in
        pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
          Result { () throws(Errno) in try body(pointer, size) }
        }
      }
    }
    try result.get()
  }
}

/// The process at the other end of a connection, as the kernel vouches for it (`SO_PEERCRED`, unix(7)).
struct Peer: Sendable, Equatable {
  var pid: pid_t
  var uid: uid_t

  /// Who connected, or listens.
  init(of socket: Descriptor) throws(Errno) {
    // `struct ucred`: three 32-bit numbers (Swift's Glibc does not show it).
    var credentials: (pid: pid_t, uid: uid_t, gid: gid_t) = (0, 0, 0)
    var size = socklen_t(MemoryLayout.size(ofValue: credentials))
    guard getsockopt(socket.raw, SOL_SOCKET, SO_PEERCRED, &credentials, &size) == 0 else { throw Errno.last }
    pid = credentials.pid
    uid = credentials.uid
  }

  /// True for this person and for root: nobody else may ask.
  var isTrusted: Bool { uid == geteuid() || uid == 0 }
}
