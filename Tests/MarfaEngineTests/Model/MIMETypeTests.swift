import Testing

@testable import MarfaEngine

@Suite("A file's MIME type")
struct MIMETypeTests {
  @Test(
    "is by its name where that says enough",
    arguments: [
      ("a.txt", "text/plain"), ("a.TXT", "text/plain"), ("a.tar.gz", "application/gzip"), ("a.md", "text/markdown"),
      ("letter.odt", "application/vnd.oasis.opendocument.text"),
    ])
  func name(name: String, type: String) { #expect(MIMEType.byName(Array(name.utf8)) == type) }

  @Test("is not by a name that says nothing", arguments: ["a", ".txt", "a.", "a.unheardof", ""])
  func nothing(name: String) { #expect(MIMEType.byName(Array(name.utf8)) == nil) }

  @Test(
    "is by its content then",
    arguments: [
      ("hello, world\n", "text/plain"), ("\u{89}PNG", "application/octet-stream"), ("%PDF-1.4\n%", "application/pdf"),
    ])
  func content(text: String, type: String) throws {
    let folder = try TemporaryFolder()
    let bytes = text.hasPrefix("\u{89}") ? [0x00, 0x01, 0x02, 0xfe, 0xff] as [UInt8] : Array(text.utf8)
    let path = try folder.file("f", bytes)
    #expect(MIMEType.of(Array("f".utf8), path: path) == type)
  }

  @Test("of what cannot be read is unknown")
  func missing() { #expect(MIMEType.of([], path: "/nowhere/at/all") == MIMEType.unknown) }

  @Test(
    "gives the type of a file item",
    arguments: [
      ("image/png", "core.file.image"), ("audio/ogg", "core.file.audio"), ("video/mp4", "core.file.video"),
      ("text/plain", "core.file"), ("imagery/x", "core.file"), ("", "core.file"),
    ])
  func type(mimeType: String, type: String) {
    #expect(FileTypes.type(forMIME: mimeType) == type)
    #expect(FileTypes.isFileType(type))
    #expect(!FileTypes.isFileType("core.filet"))
  }
}
