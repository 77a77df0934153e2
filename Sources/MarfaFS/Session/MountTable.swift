import Glibc
import MarfaEngine

/// One line of the kernel's table of mounts.
struct MountEntry: Equatable {
  /// The device number, `major:minor`: one for each mounted filesystem.
  var device: String
  /// Where it is mounted, as bytes.
  var path: [UInt8]
  /// The filesystem's type, such as `fuse.marfa`.
  var type: String
}

/// The kernel's table of this process's mounts. Reading it asks no filesystem anything, so no dead one can hold it up.
enum MountTable {
  /// Every mount, the latest last.
  static func entries() throws(Errno) -> [MountEntry] { parse(try contents()) }

  /// What a path that is a mount point shows: the latest of the mounts on it.
  static func top(at path: String) throws(Errno) -> MountEntry? {
    let bytes = Array(path.utf8)
    return try entries().last { $0.path == bytes }
  }

  private static func contents() throws(Errno) -> [UInt8] {
    let file = try Descriptor.open("/proc/self/mountinfo", O_RDONLY)
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
  static func parse(_ contents: [UInt8]) -> [MountEntry] {
    contents.split(separator: UInt8(ascii: "\n")).compactMap { line in
      let fields = line.split(separator: UInt8(ascii: " "), omittingEmptySubsequences: false)
      guard fields.count > 6, let dash = fields[6...].firstIndex(where: { $0.elementsEqual([UInt8(ascii: "-")]) }),
        dash + 1 < fields.count
      else { return nil }
      return MountEntry(
        device: String(decoding: fields[2], as: UTF8.self), path: unescape(fields[4]),
        type: String(decoding: fields[dash + 1], as: UTF8.self))
    }
  }

  /// Blanks, tabs, newlines and backslashes stand as `\` and three octal digits.
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
