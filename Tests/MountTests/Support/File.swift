import CLinux
import Foundation
import Testing

/// An open file, by the system's own calls: what a program does that no command does.
final class File {
  private(set) var descriptor: CInt

  init(_ path: String, _ flags: CInt, mode: mode_t = 0o644) throws {
    descriptor = marfa_openat(AT_FDCWD, path, flags | O_CLOEXEC, mode)
    guard descriptor >= 0 else { throw SystemError("opening \(path)") }
  }

  deinit { if descriptor >= 0 { Glibc.close(descriptor) } }

  /// Closes it, and tells what close(2) said.
  func close() throws {
    let result = Glibc.close(descriptor)
    descriptor = -1
    guard result == 0 else { throw SystemError("closing") }
  }

  func write(_ bytes: [UInt8], at offset: Int) throws {
    var done = 0
    while done < bytes.count {
      let count = bytes[done...].withUnsafeBytes {
        pwrite(descriptor, $0.baseAddress, $0.count, off_t(offset + done))
      }
      guard count > 0 else { throw SystemError("writing") }
      done += count
    }
  }

  func write(_ text: String, at offset: Int = 0) throws { try write(Array(text.utf8), at: offset) }

  func read(_ count: Int, at offset: Int = 0) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var done = 0
    while done < count {
      let got = bytes[done...].withUnsafeMutableBytes {
        pread(descriptor, $0.baseAddress, $0.count, off_t(offset + done))
      }
      guard got >= 0 else { throw SystemError("reading") }
      if got == 0 { break }
      done += got
    }
    return Array(bytes.prefix(done))
  }

  func text(_ count: Int = 1 << 16) throws -> String { String(decoding: try read(count), as: UTF8.self) }

  func truncate(to size: Int) throws {
    guard ftruncate(descriptor, off_t(size)) == 0 else { throw SystemError("truncating") }
  }

  func synchronize() throws {
    guard fsync(descriptor) == 0 else { throw SystemError("syncing") }
  }

  func status() throws -> stat {
    var status = stat()
    guard fstat(descriptor, &status) == 0 else { throw SystemError("looking at a file") }
    return status
  }

  var size: Int { get throws { Int(try status().st_size) } }
}

/// What a system call said.
struct SystemError: Error, Equatable, CustomStringConvertible {
  var code: CInt
  var doing: String

  init(_ doing: String, _ code: CInt = errno) {
    self.code = code
    self.doing = doing
  }

  var description: String { "\(doing): \(String(cString: strerror(code)))" }
}

/// The error a call answers with; 0 when it succeeds.
func errorOf(_ call: () -> CInt) -> CInt { call() == 0 ? 0 : errno }

/// The error a body throws; 0 when it does not.
func errorThrown(by body: () throws -> Void) rethrows -> CInt {
  do {
    try body()
    return 0
  } catch let error as SystemError {
    return error.code
  }
}

/// The names in a folder, as bytes, without `.` and `..`.
func listing(_ folder: String) throws -> [[UInt8]] {
  guard let stream = opendir(folder) else { throw SystemError("opening \(folder)") }
  defer { closedir(stream) }
  var names: [[UInt8]] = []
  while true {
    errno = 0
    guard let entry = readdir(stream) else {
      if errno != 0 { throw SystemError("listing \(folder)") }
      return names
    }
    let name = withUnsafeBytes(of: &entry.pointee.d_name) { Array($0.prefix { $0 != 0 }) }
    if name != [0x2e] && name != [0x2e, 0x2e] { names.append(name) }
  }
}

func isThere(_ path: String) -> Bool {
  var status = stat()
  return lstat(path, &status) == 0
}

/// What one thread tells another.
final class Flag: @unchecked Sendable {
  // Safe: what changes is behind `lock`.
  private let lock = NSLock()
  private var value = false
  var isSet: Bool { lock.withLock { value } }
  func set() { lock.withLock { value = true } }
}
