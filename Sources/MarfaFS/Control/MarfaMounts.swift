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
  public static func all() throws(Errno) -> [MarfaMount] { parse(try contents(of: "/proc/self/mountinfo")) }

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
    let text = String(decoding: try contents(of: "/proc/self/fdinfo/\(file.raw)"), as: UTF8.self)
    for line in text.split(separator: "\n") where line.hasPrefix("mnt_id:") {
      return Int(line.dropFirst("mnt_id:".count).drop { $0 == "\t" || $0 == " " })
    }
    return nil
  }

  /// All of a file of /proc, which tells no size.
  static func contents(of path: String) throws(Errno) -> [UInt8] {
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

  /// Reads the lines of proc(5)'s mountinfo: `36 35 98:0 /root /mount/point options [fields] - type source options`.
  static func parse(_ contents: [UInt8]) -> [MarfaMount] {
    contents.split(separator: UInt8(ascii: "\n")).compactMap { line in
      let fields = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
      guard fields.count > 6, let dash = fields[6...].firstIndex(where: { $0.elementsEqual([UInt8(ascii: "-")]) }),
        dash + 2 < fields.count, fields[dash + 1].elementsEqual(MountPoint.type.utf8),
        let id = Int(String(decoding: fields[0], as: UTF8.self))
      else { return nil }
      return MarfaMount(
        id: id, device: String(decoding: fields[2], as: UTF8.self), mountPoint: unescape(fields[4]),
        store: unescape(fields[dash + 2]))
    }
  }

  /// Blanks, tabs, newlines, backslashes and `#` stand as `\` and three octal digits.
  private static func unescape(_ field: ArraySlice<UInt8>) -> String {
    var result: [UInt8] = []
    var rest = field
    while let byte = rest.popFirst() {
      let digits = rest.prefix(3)
      if byte == UInt8(ascii: "\\"), digits.count == 3, digits.allSatisfy({ (0x30...0x37).contains($0) }) {
        result.append(UInt8(truncatingIfNeeded: digits.reduce(0) { $0 << 3 | Int($1 & 7) }))
        rest = rest.dropFirst(3)
      } else {
        result.append(byte)
      }
    }
    return String(decoding: result, as: UTF8.self)
  }
}
