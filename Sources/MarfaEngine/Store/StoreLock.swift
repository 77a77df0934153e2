import CLinux
import Glibc

/// The right to write a store: an advisory lock on a file beside it, held by the process that has it open and gone with
/// that process however it dies (fcntl's open-file-description locks; not the database file itself, whose own POSIX
/// locks SQLite needs).
final class StoreLock: Sendable {
  private let file: Descriptor

  /// Takes the lock, or answers `nil` when another opener has it.
  init?(beside path: String) throws(Errno) {
    file = try Descriptor.open(path + ".lock", O_RDWR | O_CREAT, mode: 0o600)
    while flock(file.raw, LOCK_EX | LOCK_NB) != 0 {
      let error = Errno.last
      if error.code == EWOULDBLOCK { return nil }
      if error.code != EINTR { throw error }
    }
    // Whose it is, for a person who looks. The lock itself is the truth.
    try file.truncate(to: 0)
    try file.write(Array("\(getpid())\n".utf8), at: 0)
  }

  /// Given back by word, not only by closing: a program just being started from this process has a copy of the
  /// descriptor until it runs.
  deinit { flock(file.raw, LOCK_UN) }

  /// The process that says it holds the lock.
  static func holder(beside path: String) -> Int? {
    guard let line = try? Descriptor.open(path + ".lock", O_RDONLY).prefix(32) else { return nil }
    return Int(String(decoding: line.prefix { $0 != 0x0a }, as: UTF8.self))
  }
}
