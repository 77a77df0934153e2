import CLinux
import Glibc
import MarfaEngine
import MarfaFS

/// The file a mount in the background writes its log to.
enum LogFile {
  /// A log larger than this is set aside when a mount starts, and the one set aside before goes.
  private static let limit = 8 << 20

  /// Opens the log for adding to it, and makes it with its folder when it is not there.
  static func open(_ path: String) throws(CommandFailure) -> Descriptor {
    do throws(Errno) {
      try Locations.makeFolder(of: path)
      if let status = try Path.status(path), status.st_mode & S_IFMT == S_IFREG, status.st_size > limit {
        try Path.move(path, to: path + ".1")
      }
      return try Descriptor.open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY, mode: 0o600)
    } catch {
      throw CommandFailure(
        .environment, "log", "the log \(path) can't be written: \(error). Name another one with --log")
    }
  }

  /// Makes it this process's standard error, where the log goes; answers what that was before.
  static func take(_ file: Descriptor) -> Descriptor? {
    let before = fcntl(2, F_DUPFD_CLOEXEC, 3)
    dup2(file.raw, 2)
    return before < 0 ? nil : Descriptor(owning: before)
  }

  /// Makes standard error what it was.
  static func giveBack(_ before: Descriptor?) { if let before { dup2(before.raw, 2) } }
}
