import Glibc
import MarfaEngine

/// A store that is mounted, as the kernel's table of mounts has it.
public struct MarfaMount: Sendable, Equatable {
  /// The mount's number.
  public var id: Int
  /// The filesystem's device number, `major:minor`.
  public var device: String
  /// Where it is mounted.
  public var mountPoint: String
  /// The store's path.
  public var store: String
}

/// The stores that are mounted. Looking them up asks no filesystem anything it could keep us waiting for.
public enum MarfaMounts {
  /// All of them, the latest last.
  public static func all() throws(Errno) -> [MarfaMount] { ours(among: try MountTable.entries()) }

  static func ours(among entries: [MountEntry]) -> [MarfaMount] {
    entries.compactMap { entry in
      guard entry.type == MountPoint.type else { return nil }
      return MarfaMount(
        id: entry.id, device: entry.device, mountPoint: String(decoding: entry.path, as: UTF8.self),
        store: String(decoding: entry.source, as: UTF8.self))
    }
  }

  /// The mounts of a store.
  public static func of(store path: String) throws(Errno) -> [MarfaMount] { try all().filter { $0.store == path } }

  /// The mount that a path is in, or would be: it need not exist. The path is absolute.
  public static func holding(_ path: String) throws(Errno) -> MarfaMount? {
    let mounts = try all()
    guard !mounts.isEmpty else { return nil }
    if let file = try? ControlAddress.openPath(path) {
      // The kernel's own word, which sees through links and mounts on mounts.
      guard let id = try mountID(of: file) else { return nil }
      return mounts.last { $0.id == id }
    }
    // Nothing there, or a mount that does not answer: the longest mount point that the path begins with.
    return mounts.filter { isInside(path, $0.mountPoint) }.max { $0.mountPoint.utf8.count <= $1.mountPoint.utf8.count }
  }

  /// The inode number of what a path leads to, and whether it is a directory; `nil` when nothing is there.
  public static func node(_ path: String) throws(Errno) -> (number: Int64, isDirectory: Bool)? {
    guard let status = try Path.status(path) else { return nil }
    return (Int64(truncatingIfNeeded: status.st_ino), status.st_mode & S_IFMT == S_IFDIR)
  }

  /// True for a folder itself and for everything under it, by their names.
  static func isInside(_ path: String, _ folder: String) -> Bool {
    path == folder || folder == "/" || path.hasPrefix(folder + "/")
  }

  // MARK: /proc

  /// `mnt_id` of proc(5)'s fdinfo.
  private static func mountID(of file: Descriptor) throws(Errno) -> Int? {
    let text = String(decoding: try Path.procContents("/proc/self/fdinfo/\(file.raw)"), as: UTF8.self)
    for line in text.split(separator: "\n") where line.hasPrefix("mnt_id:") {
      return Int(line.dropFirst("mnt_id:".count).drop { $0 == "\t" || $0 == " " })
    }
    return nil
  }
}
