/// Whether a file's first bytes are worth asking libmagic about. It takes half a millisecond to say that it does not know
/// some bytes and two to say that a text is one (measured), and a working tree has thousands of such files.
enum ContentSniff {
  case plainText
  /// No format begins so.
  case nothingKnown
  case worthAsking

  /// How many bytes are looked at.
  static let length = 512

  /// Looks at the first ``length`` bytes of a file, or all of a shorter one.
  static func of(_ start: [UInt8]) -> ContentSniff {
    if isText(start) {
      // Scripts, markup, formats written as text: their first character says so. (An e-mail or a program's source looks
      // like any other text, and its name says what it is.)
      let first = start.first { $0 != 0x20 && $0 != 0x09 && $0 != 0x0a && $0 != 0x0d }
      return [0x23, 0x3c, 0x25, 0x7b, 0x5b].contains(first ?? 0x41) ? .worthAsking : .plainText
    }
    return signatures.contains { isAt(start, $0.offset, $0.bytes) } ? .worthAsking : .nothingKnown
  }

  /// UTF-8 without control characters; the last character may be cut.
  private static func isText(_ bytes: [UInt8]) -> Bool {
    var index = 0
    while index < bytes.count {
      let byte = bytes[index]
      switch byte {
      case 0x09, 0x0a, 0x0c, 0x0d, 0x1b, 0x20..<0x7f: index += 1
      case 0xc2..<0xf5:
        let length = byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4
        let end = min(index + length, bytes.count)
        guard bytes[(index + 1)..<end].allSatisfy({ $0 & 0xc0 == 0x80 }) else { return false }
        if end < index + length { return bytes.count == Self.length }
        index = end
      default: return false
      }
    }
    return true
  }

  private static func isAt(_ bytes: [UInt8], _ offset: Int, _ signature: [UInt8]) -> Bool {
    bytes.count >= offset + signature.count && bytes[offset..<offset + signature.count].elementsEqual(signature)
  }

  private static func text(_ text: StaticString, at offset: Int = 0) -> (offset: Int, bytes: [UInt8]) {
    (offset, Array("\(text)".utf8))
  }

  /// What the formats people keep begin with: images, sound, video, documents, archives, programs, databases, fonts, and
  /// texts in two bytes a character.
  private static let signatures: [(offset: Int, bytes: [UInt8])] = [
    (0, [0x89, 0x50, 0x4e, 0x47]), (0, [0xff, 0xd8, 0xff]), text("GIF8"), text("RIFF"), text("BM"), (0, [0x49, 0x49]),
    (0, [0x4d, 0x4d, 0x00]), text("8BPS"), text("ftyp", at: 4), text("qoif"), (0, [0x00, 0x00, 0x01, 0x00]),
    (0, [0xff, 0x0a]), (0, [0x00, 0x00, 0x00, 0x0c]), text("gimp xcf"), text("ID3"), (0, [0xff, 0xfb]),
    (0, [0xff, 0xf3]), (0, [0xff, 0xf1]), (0, [0xff, 0xf9]), text("fLaC"), text("OggS"), text("FORM"), text("MThd"),
    text(".snd"), text("MAC "), text("wvpk"), text("#!AMR"), (0, [0x1a, 0x45, 0xdf, 0xa3]), text("FLV"),
    (0, [0x00, 0x00, 0x01, 0xba]), (0, [0x00, 0x00, 0x01, 0xb3]), (0, [0x30, 0x26, 0xb2, 0x75]), text("moov", at: 4),
    text("mdat", at: 4), text("%PDF"), text("%!"), (0, [0xd0, 0xcf, 0x11, 0xe0]), text("{\\rtf"), text("AT&TFORM"),
    text("BOOKMOBI", at: 60), text("PK"), (0, [0x1f, 0x8b]), text("BZh"), (0, [0xfd, 0x37, 0x7a, 0x58]),
    (0, [0x28, 0xb5, 0x2f, 0xfd]), (0, [0x37, 0x7a, 0xbc, 0xaf]), text("Rar!"), text("ustar", at: 257),
    (0, [0x04, 0x22, 0x4d, 0x18]), (0, [0x5d, 0x00, 0x00]), text("!<arch>"), text("MSCF"), (0, [0x78, 0x01]),
    (0, [0x78, 0x9c]), (0, [0x78, 0xda]), (0, [0x7f, 0x45, 0x4c, 0x46]), text("MZ"), (0, [0xca, 0xfe, 0xba, 0xbe]),
    (0, [0xcf, 0xfa, 0xed, 0xfe]), (0, [0x00, 0x61, 0x73, 0x6d]), text("dex\n"), text("SQLite format 3"),
    text("OTTO"), (0, [0x00, 0x01, 0x00, 0x00]), text("wOFF"), text("wOF2"), text("ttcf"), text("PACK"),
    (0, [0xfe, 0xff]), (0, [0xff, 0xfe]), (0, [0xef, 0xbb, 0xbf]), (0, [0xed, 0xab, 0xee, 0xdb]),
    (0, [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59]), (0, [0x89, 0x48, 0x44, 0x46]), text("GRIB"), text("SIMPLE"),
  ]
}
