import ContractServer
import Testing

@testable import MarfaEngine

@Suite("Bytes that a server has")
struct ServedBytesTests {
  @Test("that come say that the server is there again: it is followed at once")
  func back() throws {
    let shared = try Shared()
    let bytes = MemorySource.pattern(1 << 20)
    let id = try shared.server.change { try $0.createFile("f", bytes) }
    // Of its own, the copy would not try again before the test is over.
    let copy = try shared.connected { $0.waits = (shortest: 3600, longest: 3600) }
    let hash = try #require(try shared.item(ItemID(id) ?? .mint())?.blob.flatMap { BlobHash($0) })
    shared.server.stop()
    try eventually("it is not followed") { copy.serverStatus?.isOnline == false }
    try shared.server.start()
    let reader = try copy.blobs.open(hash)
    defer { reader.close() }
    try eventually("bytes come") { (try? Read(reader, at: 0, 10).get()) == Array(bytes.prefix(10)) }
    #expect(copy.waitUntilLive(seconds: 60))
  }

  @Test("leave their connection open for the next that are asked for")
  func connections() throws {
    let shared = try Shared()
    let bytes = MemorySource.pattern(2 << 20)
    let id = try shared.server.change { try $0.createFile("f", bytes) }
    let copy = try shared.connected()
    let hash = try #require(try shared.item(ItemID(id) ?? .mint())?.blob.flatMap { BlobHash($0) })
    try eventually("its size is known") {
      try copy.store.read { (connection) throws(MarfaError) in try connection.blob(hash)?.size } != nil
    }
    let before = shared.server.stats.connections
    let reader = try copy.blobs.open(hash)
    defer { reader.close() }
    for block in stride(from: Int64(0), to: 32, by: 2) {
      // The end of a block, which comes when its request is through.
      let offset = (block + 1) * Block.size - 4096
      #expect(try Read(reader, at: offset, 4096).get() == Array(bytes[Int(offset)..<Int(offset) + 4096]))
    }
    // The origin's, one for the link's question, the link's host's; not one for each.
    #expect(shared.server.stats.connections - before <= 4)
    shared.expectNoViolations()
  }
}
