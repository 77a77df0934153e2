import Testing

@testable import MarfaEngine

@Suite("An identity")
struct IdentifierTests {
  @Test(
    "is read from its text and written as it",
    arguments: [
      "00000000-0000-0000-0000-000000000000", "0198c3f2-7d1a-7abc-8def-0123456789ab",
      "ffffffff-ffff-ffff-ffff-ffffffffffff",
    ])
  func text(text: String) { #expect(ItemID(text)?.description == text) }

  @Test(
    "is nothing else",
    arguments: [
      "", "0198c3f2", "0198C3F2-7d1a-7abc-8def-0123456789ab", "0198c3f27d1a7abc8def0123456789ab",
      "0198c3f2-7d1a-7abc-8def-0123456789a", "0198c3f2-7d1a-7abc-8def-0123456789abc",
      "0198c3f2-7d1a-7abc-8def_0123456789ab",
      "g198c3f2-7d1a-7abc-8def-0123456789ab", "{0198c3f2-7d1a-7abc-8def-0123456789ab}",
      "0198c3f2-7d1a-7abc-8def-0123456789a漢",
    ])
  func refused(text: String) {
    #expect(ItemID(text) == nil)
    #expect(EdgeID(text) == nil)
  }

  @Test("minted here is of version 7, of now, and never twice the same")
  func minted() throws {
    let before = Timestamp.now.milliseconds
    let ids = (0..<1000).map { _ in ItemID.mint() }
    let after = Timestamp.now.milliseconds
    #expect(Set(ids).count == ids.count)
    for id in ids {
      let text = Array(id.description)
      #expect(text[14] == "7")
      #expect("89ab".contains(text[19]))
      let milliseconds = Int64(id.bytes.high >> 16)
      #expect(before <= milliseconds && milliseconds <= after)
      #expect(ItemID(id.description) == id)
    }
  }
}

@Suite("The name of bytes")
struct BlobHashTests {
  static let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

  @Test("is read with its scheme or without, and written with it")
  func text() {
    #expect(BlobHash(Self.empty)?.description == "sha256:" + Self.empty)
    #expect(BlobHash("sha256:" + Self.empty)?.hex == Self.empty)
  }

  @Test(
    "is nothing else",
    arguments: [
      "", "sha256:", "sha256:e3b0", "md5:" + BlobHashTests.empty, "SHA256:" + BlobHashTests.empty,
      BlobHashTests.empty.uppercased(), BlobHashTests.empty + "0", "../" + BlobHashTests.empty.dropFirst(3),
      "sha256:sha256:" + BlobHashTests.empty,
    ])
  func refused(text: String) { #expect(BlobHash(text) == nil) }

  @Test("is what every other program says it is", arguments: [0, 1, 55, 56, 63, 64, 65, 1000, 1 << 20])
  func sum(count: Int) throws {
    let folder = try TemporaryFolder()
    let bytes = (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 2_654_435_761 >> 7) }
    let sha = try SHA256()
    // In pieces: as a writer comes.
    for start in stride(from: 0, to: count, by: 333) {
      bytes[start..<min(start + 333, count)].withUnsafeBytes { sha.update($0) }
    }
    let answer = try Program.run(["sha256sum", folder.file("f", bytes)])
    #expect(answer.output.hasPrefix(sha.finish().hex + " "))
  }
}
