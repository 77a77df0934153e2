import Glibc
import MarfaEngine

/// One line of the kernel's table of mounts.
struct MountEntry: Equatable {
  /// The mount's number.
  var id: Int
  /// The device number, `major:minor`: one for each mounted filesystem.
  var device: String
  /// Where it is mounted, as bytes.
  var path: [UInt8]
  /// The filesystem's type, such as `fuse.marfa`.
  var type: String
  /// What is mounted, as bytes: a store's path for one of ours.
  var source: [UInt8]
}

/// The kernel's table of this process's mounts. Reading it asks no filesystem anything, so no dead one can hold it up.
enum MountTable {
  /// Every mount, the latest last.
  static func entries() throws(Errno) -> [MountEntry] { parse(try Path.procContents("/proc/self/mountinfo")) }

  /// What a path that is a mount point shows: the latest of the mounts on it.
  static func top(at path: String) throws(Errno) -> MountEntry? {
    let bytes = Array(path.utf8)
    return try entries().last { $0.path == bytes }
  }

  /// Reads the lines of proc(5)'s mountinfo: `36 35 98:0 /root /mount/point options [fields] - type source options`.
  static func parse(_ contents: [UInt8]) -> [MountEntry] {
    contents.split(separator: UInt8(ascii: "\n")).compactMap { line in
      let fields = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
      guard fields.count > 6, let dash = fields[6...].firstIndex(where: { $0.elementsEqual([UInt8(ascii: "-")]) }),
        dash + 2 < fields.count, let id = Int(String(decoding: fields[0], as: UTF8.self))
      else { return nil }
      return MountEntry(
        id: id, device: String(decoding: fields[2], as: UTF8.self), path: unescape(fields[4]),
        type: String(decoding: fields[dash + 1], as: UTF8.self), source: unescape(fields[dash + 2]))
    }
  }

  /// Blanks, tabs, newlines, backslashes and `#` stand as `\` and three octal digits.
  private static func unescape(_ field: ArraySlice<UInt8>) -> [UInt8] {
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
    return result
  }
}
