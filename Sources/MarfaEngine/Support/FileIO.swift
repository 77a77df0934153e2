import CLinux
import Glibc

/// A file descriptor that is closed with its last reference.
public final class Descriptor: Sendable {
  /// The number, valid as long as this object lives.
  public let raw: CInt

  /// Takes over an open descriptor.
  public init(owning raw: CInt) { self.raw = raw }

  deinit { close(raw) }

  /// Opens a path. `CLOEXEC` always; interrupted opens are begun again.
  public static func open(_ path: String, _ flags: CInt, mode: mode_t = 0) throws(Errno) -> Descriptor {
    while true {
      let raw = marfa_openat(AT_FDCWD, path, flags | O_CLOEXEC, mode)
      if raw >= 0 { return Descriptor(owning: raw) }
      let error = Errno.last
      if error.code != EINTR { throw error }
    }
  }

  /// `fstat`.
  public func status() throws(Errno) -> stat {
    var status = stat()
    guard fstat(raw, &status) == 0 else { throw Errno.last }
    return status
  }

  /// Reads up to `buffer.count` bytes at an offset; less only at the end of the file.
  public func read(into buffer: UnsafeMutableRawBufferPointer, at offset: Int64) throws(Errno) -> Int {
    var done = 0
    while done < buffer.count {
      let count = pread(raw, buffer.baseAddress! + done, buffer.count - done, off_t(offset) + done)
      if count > 0 {
        done += count
      } else if count == 0 {
        break
      } else if errno != EINTR {
        throw Errno.last
      }
    }
    return done
  }

  /// The first bytes, fewer in a shorter file.
  func prefix(_ count: Int) throws(Errno) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    let result: Result<Int, Errno> = bytes.withUnsafeMutableBytes { buffer in
      Result { () throws(Errno) in try read(into: buffer, at: 0) }
    }
    return Array(bytes.prefix(try result.get()))
  }

  /// Writes all of `buffer` at an offset.
  public func write(_ buffer: UnsafeRawBufferPointer, at offset: Int64) throws(Errno) {
    var done = 0
    while done < buffer.count {
      let count = pwrite(raw, buffer.baseAddress! + done, buffer.count - done, off_t(offset) + done)
      if count >= 0 { done += count } else if errno != EINTR { throw Errno.last }
    }
  }

  /// Writes all of `bytes` at an offset.
  public func write(_ bytes: [UInt8], at offset: Int64) throws(Errno) {
    let result: Result<Void, Errno> = bytes.withUnsafeBytes { buffer in
      Result { () throws(Errno) in try write(buffer, at: offset) }
    }
    try result.get()
  }

  /// Sets the length, growing with zeroes.
  public func truncate(to size: Int64) throws(Errno) {
    guard ftruncate(raw, off_t(size)) == 0 else { throw Errno.last }
  }

  /// The bytes and the metadata needed to read them are on the disk when it returns.
  public func synchronize() throws(Errno) {
    guard fdatasync(raw) == 0 else { throw Errno.last }
  }
}

/// Operations on paths.
public enum Path {
  /// Makes a directory when it is not there.
  public static func makeDirectory(_ path: String, mode: mode_t) throws(Errno) {
    guard mkdir(path, mode) == 0 || errno == EEXIST else { throw Errno.last }
  }

  /// Removes a file; a missing one is no error.
  public static func remove(_ path: String) throws(Errno) {
    guard unlink(path) == 0 || errno == ENOENT else { throw Errno.last }
  }

  /// Moves a file within one volume, replacing what stands there.
  public static func move(_ from: String, to target: String) throws(Errno) {
    guard rename(from, target) == 0 else { throw Errno.last }
  }

  /// A directory's own entries are on the disk when it returns.
  public static func synchronizeDirectory(_ path: String) throws(Errno) {
    let directory = try Descriptor.open(path, O_RDONLY | O_DIRECTORY)
    guard fsync(directory.raw) == 0 else { throw Errno.last }
  }

  /// `stat`, `nil` when nothing is there.
  public static func status(_ path: String) throws(Errno) -> stat? {
    var status = stat()
    if stat(path, &status) == 0 { return status }
    let error = Errno.last
    if error == .notFound || error == .notDirectory { return nil }
    throw error
  }

  /// All of a file of /proc, which tells no size.
  public static func procContents(_ path: String) throws(Errno) -> [UInt8] {
    let file = try Descriptor.open(path, O_RDONLY)
    var contents: [UInt8] = []
    var block = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      let offset = Int64(contents.count)
      let result: Result<Int, Errno> = block.withUnsafeMutableBytes { buffer in
        Result { () throws(Errno) in try file.read(into: buffer, at: offset) }
      }
      let count = try result.get()
      contents += block.prefix(count)
      if count < block.count { return contents }
    }
  }

  /// A path without symbolic links; what is not there yet stays as it is named, in its folder's real place.
  public static func resolved(_ path: String) -> String {
    func real(_ path: String) -> String? {
      guard let resolved = realpath(path, nil) else { return nil }
      defer { free(resolved) }
      return String(cString: resolved)
    }
    if let whole = real(path) { return whole }
    guard let folder = real(parent(path)) else { return path }
    return (folder == "/" ? "" : folder) + "/" + lastComponent(path)
  }

  /// The names in a directory, without `.` and `..`, in no order.
  public static func names(in path: String) throws(Errno) -> [String] {
    guard let stream = opendir(path) else { throw Errno.last }
    defer { closedir(stream) }
    var names: [String] = []
    while let entry = readdir(stream) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
        String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
      }
      if name != "." && name != ".." { names.append(name) }
    }
    return names
  }

  /// The last component: what a file is called.
  public static func lastComponent(_ path: String) -> String {
    String(path.split(separator: "/", omittingEmptySubsequences: true).last ?? "")
  }

  /// The path without its last component; `.` for a bare name.
  public static func parent(_ path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }
}

/// The room on a volume, in bytes.
public struct VolumeRoom: Sendable, Equatable {
  /// All of the volume.
  public var total: Int64
  /// What this process can still write.
  public var available: Int64

  /// Wraps both.
  public init(total: Int64, available: Int64) {
    self.total = total
    self.available = available
  }

  /// What is kept free so that the store itself can always record what happened: a fiftieth of the volume, at least 4 MiB
  /// and at most 32 MiB.
  public var reserve: Int64 { max(4 << 20, min(32 << 20, total / 50)) }

  /// Asks the kernel about the volume `path` is on (statvfs(3)).
  public static func of(_ path: String) throws(Errno) -> VolumeRoom {
    var status = statvfs()
    guard statvfs(path, &status) == 0 else { throw Errno.last }
    let unit = Int64(status.f_frsize)
    return VolumeRoom(total: Int64(status.f_blocks) * unit, available: Int64(status.f_bavail) * unit)
  }
}
