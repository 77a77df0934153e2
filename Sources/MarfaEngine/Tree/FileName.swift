/// A name in a directory: one to 255 bytes, none of them `/` or NUL, not `.` or `..`. Bytes and no text: two names may
/// differ only in what Unicode calls the same.
public struct FileName: Hashable, Sendable {
  /// The bytes, as the kernel has them.
  public let bytes: [UInt8]

  /// The longest name Linux takes.
  public static let limit = 255

  /// Takes a name as a program gave it. Throws `ENAMETOOLONG` over 255 bytes, `EINVAL` for what no directory can hold.
  public init(checking bytes: some Collection<UInt8>) throws(MarfaError) {
    guard bytes.count <= FileName.limit else { throw .file(.nameTooLong) }
    let bytes = Array(bytes)
    guard !bytes.isEmpty, bytes != [0x2e], bytes != [0x2e, 0x2e], !bytes.contains(0x2f), !bytes.contains(0) else {
      throw .file(.invalid)
    }
    self.bytes = bytes
  }

  /// Bytes that are known to be a name: they come from the store, which checks them.
  init(stored bytes: [UInt8]) { self.bytes = bytes }

  /// The text a person reads, and a title made of this name: the bytes as UTF-8, each byte that is none as `\xNN`.
  public var title: String { FileName.text(of: bytes) }

  /// UTF-8 as it is, every other byte as `\xNN` (as Coven's `path_text`).
  public static func text(of bytes: [UInt8]) -> String {
    if let text = String(validUTF8: bytes) { return text }
    var out = ""
    var index = 0
    while index < bytes.count {
      let length = utf8Length(bytes, at: index)
      if length > 0, let text = String(validUTF8: bytes[index..<index + length]) {
        out += text
        index += length
      } else {
        out += "\\x" + [bytes[index] >> 4, bytes[index] & 15].map { String($0, radix: 16, uppercase: true) }.joined()
        index += 1
      }
    }
    return out
  }

  private static func utf8Length(_ bytes: [UInt8], at index: Int) -> Int {
    let length =
      switch bytes[index] {
      case 0..<0x80: 1
      case 0xc2..<0xe0: 2
      case 0xe0..<0xf0: 3
      case 0xf0..<0xf5: 4
      default: 0
      }
    return index + length <= bytes.count ? length : 0
  }
}

extension FileName {
  /// The name under which an item of this title is shown (SEMANTICS.md, "Names"): the title itself; what no Linux name
  /// can hold is replaced, and what is too long is cut before its extension.
  static func showing(title: String, type: String, id: ItemID) -> FileName {
    var bytes: [UInt8] = []
    for byte in title.utf8 {
      switch byte {
      case 0x2f: bytes += Array("\u{ff0f}".utf8)
      case 0: bytes += Array("\u{2400}".utf8)
      default: bytes.append(byte)
      }
    }
    if bytes.isEmpty || bytes == [0x2e] || bytes == [0x2e, 0x2e] {
      let kind = type.split(separator: ".").last.map(String.init) ?? "item"
      // A type is outside's word too.
      bytes = Array("\(kind.split(separator: "/").joined()) \(id)".utf8).filter { $0 != 0 }
    }
    return FileName(stored: cut(bytes, suffix: []))
  }

  /// The `number`th name of entries that would all be called this: `name (2).ext`.
  func numbered(_ number: Int) -> FileName { labelled("\(number)") }

  /// This name with words in brackets before its extension.
  func labelled(_ words: String) -> FileName {
    FileName(stored: FileName.cut(bytes, suffix: Array(" (\(words))".utf8)))
  }

  /// What this name and its numbered ones begin with.
  var stem: [UInt8] {
    let dot = bytes.lastIndex(of: 0x2e) ?? bytes.count
    return Array(bytes[..<(dot > 0 && bytes.count - dot <= 32 ? dot : bytes.count)].prefix(200))
  }

  /// `bytes` with `suffix` before the extension, cut on a character with `…` where it would pass the limit.
  private static func cut(_ bytes: [UInt8], suffix: [UInt8]) -> [UInt8] {
    let dot = bytes.lastIndex(of: 0x2e) ?? bytes.count
    // A leading dot hides a file, and a long "extension" is a sentence with a full stop in it.
    let split = dot > 0 && bytes.count - dot <= 32 ? dot : bytes.count
    let tail = suffix + bytes[split...]
    var stem = Array(bytes[..<split])
    guard stem.count + tail.count > limit else { return stem + tail }
    let ellipsis = Array("…".utf8)
    stem = Array(stem.prefix(limit - tail.count - ellipsis.count))
    // Not in the middle of a character: drop its beginning too.
    while let last = stem.last, last >= 0x80 {
      let start = stem.lastIndex { $0 < 0x80 || $0 >= 0xc0 } ?? 0
      if utf8Length(stem, at: start) == stem.count - start { break }
      if start == 0 { break }
      stem.removeLast(stem.count - start)
    }
    return stem + ellipsis + tail
  }
}

/// Names of an editor's own files: they live on this device only and are never queued (SEMANTICS.md, "Files that stay
/// here"). A pattern has `*` for any bytes and `?` for one.
public struct LocalNames: Sendable, Equatable {
  /// The patterns.
  public let patterns: [String]
  private let compiled: [[UInt8]]

  /// Wraps patterns.
  public init(_ patterns: [String]) {
    self.patterns = patterns
    compiled = patterns.map { Array($0.utf8) }
  }

  /// What editors, office programs, desktops and NFS leave beside a person's files.
  public static let standard = LocalNames([
    ".*.sw?", ".*.sw??", ".#*", "#*#", "*~", ".goutputstream-*", ".~lock.*#", "~$*", ".nfs*", ".fuse_hidden*", "._*",
    ".DS_Store", ".Trash-*", ".Trash", "Thumbs.db", "desktop.ini", ".~*.tmp",
  ])

  /// True when a new file of this name stays on this device.
  public func matches(_ name: FileName) -> Bool {
    compiled.contains { LocalNames.matches($0, name.bytes) }
  }

  /// Only the last star passed is ever tried again, further on: what an earlier one could take, the last can too. So
  /// the work is the product of the lengths at most, whatever the pattern.
  private static func matches(_ pattern: [UInt8], _ name: [UInt8]) -> Bool {
    var at = 0
    var index = 0
    var star: (pattern: Int, name: Int)?
    while index < name.count {
      if at < pattern.count, pattern[at] == UInt8(ascii: "*") {
        star = (at, index)
        at += 1
      } else if at < pattern.count, pattern[at] == UInt8(ascii: "?") || pattern[at] == name[index] {
        at += 1
        index += 1
      } else if let last = star {
        star = (last.pattern, last.name + 1)
        at = last.pattern + 1
        index = last.name + 1
      } else {
        return false
      }
    }
    return pattern[at...].allSatisfy { $0 == UInt8(ascii: "*") }
  }
}
