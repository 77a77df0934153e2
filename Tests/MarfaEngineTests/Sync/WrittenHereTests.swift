import ContractServer
import Testing

@testable import MarfaEngine

@Suite("A file that is written here")
struct WrittenHereTests {
  private func file(_ shared: Shared) throws -> (copy: WorkingCopy, id: String) {
    let id = try shared.server.change { device in
      let trip = try device.createNote("Sicily")
      return try device.createFile("a.txt", Array("base".utf8), mime: "text/plain", attachedTo: trip)
    }
    return (try shared.connected(), id)
  }

  private func blobs(_ shared: Shared) throws -> [String] {
    try shared.server.change { device in
      try device.items().filter { $0.type == "core.file" && $0.state == "active" }.compactMap(\.blob)
        .map { String(decoding: try device.blobBytes($0), as: UTF8.self) }.sorted()
    }
  }

  @Test("and was replaced elsewhere meanwhile leaves both versions, whoever is first")
  func both() throws {
    let shared = try Shared()
    let (copy, id) = try file(shared)
    let staged = try copy.open("Sicily/a.txt")
    try staged.append(Array("ours".utf8))
    try shared.server.change { _ = try $0.replaceBytes(id, Array("theirs".utf8)) }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    try copy.close(staged)
    try copy.drained()
    try eventually("both are here") { try copy.names("Sicily").count == 2 }
    #expect(try blobs(shared) == ["ours", "theirs"])
    #expect(try copy.text("Sicily/a.txt") == "ours")
    try eventually("it is counted") { try copy.status().conflictedCopies == 1 }
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test(
    "under the longest name there may be leaves both versions too",
    arguments: [String(repeating: "n", count: 251) + ".txt", String(repeating: "名", count: 85)])
  func bothOfLongNames(_ name: String) throws {
    try #require(name.utf8.count == FileName.limit)
    let shared = try Shared()
    let id = try shared.server.change { try $0.createFile(name, Array("base".utf8), mime: "text/plain") }
    let copy = try shared.connected()
    let staged = try copy.open(name)
    try staged.append(Array("ours".utf8))
    try shared.server.change { _ = try $0.replaceBytes(id, Array("theirs".utf8)) }
    try copy.close(staged)
    try copy.drained()
    try eventually("both are here") { try copy.names().count == 2 }
    let names = try copy.names()
    #expect(names.contains(name))
    #expect(names.allSatisfy { $0.utf8.count <= FileName.limit })
    #expect(try copy.text(name) == "ours")
    #expect(try blobs(shared) == ["ours", "theirs"])
    // The other can be called by its name as well.
    let other = try #require(names.first { $0 != name })
    #expect(try copy.item(at: other)?.tags.contains("conflicted-copy") == true)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("with bytes that another's row named is uploaded: that row may be gone, and would not lend them any more")
  func lent() async throws {
    let shared = try Shared()
    let (copy, id) = try file(shared)
    shared.server.faults.add(Fault(.refuse(status: 503), path: "/events", count: nil))
    shared.server.cutStreams()
    try shared.server.change { _ = try $0.replaceBytes(id, Array("other".utf8)) }
    let staged = try copy.open("Sicily/b.txt")
    try staged.append(Array("base".utf8))
    try copy.close(staged)
    try copy.drained()
    shared.server.faults.removeAll()
    let other = try shared.connected()
    let hash = try #require(try other.node(at: "Sicily/b.txt")?.blob)
    let text = try await other.blobs.withFile(hash) { String(decoding: try contents($0), as: UTF8.self) }
    #expect(text == "base")
    shared.expectNoViolations()
  }

  @Test("is uploaded again under another key, which may never have uploaded the bytes; under the same one it is not")
  func otherKey() throws {
    var server = ServerOptions()
    server.keys.append(APIKey("another", secret: "mk_another_device"))
    let shared = try Shared(server)
    let uploads = { shared.server.stats.kinds["POST /blobs"]?.requests ?? 0 }
    var copy = try shared.connected()
    let file = try shared.folder.file("a.txt", "bytes")
    _ = try copy.items.addFile(file)
    try copy.drained()
    #expect(uploads() == 1)
    copy = try shared.reopened(copy)
    try copy.connect(try shared.options())
    _ = try copy.items.addFile(file)
    try copy.drained()
    #expect(uploads() == 1, "the same key has uploaded them")
    // A create that waited for nothing but its turn when the key was changed.
    copy = try shared.reopened(copy)
    _ = try copy.items.addFile(file)
    try #require(try copy.queue.counts().total == 1)
    try copy.connect(try shared.options(key: "mk_another_device"))
    try copy.drained()
    #expect(uploads() == 2)
    let mark = try copy.store.read { (connection) throws(MarfaError) in try connection.setting("key_mark") }
    #expect(mark?.split(separator: " ").last.map { $0.utf8.count <= 4 } == true)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  enum Going: CaseIterable { case trashed, purged, removed }

  @Test("and went elsewhere before that was sent keeps its bytes here, where they were", arguments: Going.allCases)
  func goneElsewhere(_ going: Going) throws {
    let shared = try Shared()
    let (copy, id) = try file(shared)
    try copy.queue.pause()
    let staged = try copy.open("Sicily/a.txt")
    try staged.append(Array("ours".utf8))
    try copy.close(staged)
    switch going {
    case .trashed: try shared.server.change { try $0.trash(id) }
    case .purged: try shared.server.change { try $0.purge(id) }
    case .removed:
      let other = try shared.connected()
      try other.unlink("Sicily/a.txt")
      try other.drained()
    }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    #expect(try copy.paths() == ["Sicily/", "Sicily/a.txt"])
    try copy.queue.resume()
    try copy.drained()
    #expect(try copy.queue.writes().map(\.state) == [.refused])
    #expect(try copy.paths() == ["Sicily/", "Sicily/a.txt"])
    #expect(try copy.text("Sicily/a.txt") == "ours")
    #expect(try copy.node(at: "Sicily/a.txt")?.item == nil)
    shared.expectNoViolations()
  }

  @Test("with the bytes of a file whose length nobody knew tells that length too")
  func unsized() throws {
    let shared = try Shared()
    for method in ["HEAD", "GET"] {
      shared.server.faults.add(Fault(.refuse(status: 503), method: method, path: "/blobs", count: nil))
    }
    let (copy, _) = try file(shared)
    try copy.queue.pause()
    try #require(try copy.node(at: "Sicily/a.txt")?.size == nil)
    let staged = try copy.open("Sicily/b.txt")
    try staged.append(Array("base".utf8))
    try copy.close(staged)
    #expect(try copy.node(at: "Sicily/a.txt")?.size == 4)
    try checkInvariants(copy)
  }

  @Test("and was renamed elsewhere meanwhile is one file still")
  func renamed() throws {
    let shared = try Shared()
    let (copy, id) = try file(shared)
    let staged = try copy.open("Sicily/a.txt")
    try staged.append(Array("ours".utf8))
    try shared.server.change { _ = try $0.updateItem(id, ["title": "b.txt"]) }
    try eventually("renamed") { try copy.names("Sicily") == ["b.txt"] }
    try copy.close(staged)
    try copy.drained()
    #expect(try blobs(shared) == ["ours"])
    #expect(try copy.names("Sicily") == ["b.txt"])
    shared.expectNoViolations()
  }

  @Test("with another change of it queued behind the server's keeps what the server had")
  func foldedBehind() throws {
    let shared = try Shared()
    let (copy, id) = try file(shared)
    try copy.queue.pause()
    let staged = try copy.open("Sicily/a.txt")
    try staged.append(Array("ours".utf8))
    try shared.server.change { _ = try $0.replaceBytes(id, Array("theirs".utf8)) }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    // A change of the newer version, and then the bytes of the older one.
    try copy.move("Sicily/a.txt", "Sicily/c.txt")
    try copy.close(staged)
    try copy.queue.resume()
    try copy.drained()
    #expect(try blobs(shared) == ["ours", "theirs"])
    shared.expectNoViolations()
  }

  @Test("and closed by a process that ended before it was sealed keeps the version it began with")
  func sealedLater() throws {
    let shared = try Shared()
    let (copy, id) = try file(shared)
    let staged = try copy.open("Sicily/a.txt")
    try staged.append(Array("ours".utf8))
    _ = try copy.tree.adopt(staged, mtime: .now, durably: false)
    try shared.server.change { _ = try $0.replaceBytes(id, Array("theirs".utf8)) }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    let next = try shared.reopened(copy)
    try next.connect(try shared.options())
    try eventually("it is sealed and sent") { try blobs(shared) == ["ours", "theirs"] }
    try next.drained()
    shared.expectNoViolations()
  }

  @Test("is not written over by an event about its older bytes")
  func notOverwritten() throws {
    let shared = try Shared()
    let (copy, id) = try file(shared)
    try copy.queue.pause()
    try copy.write("Sicily/a.txt", "ours")
    try shared.server.change { _ = try $0.addTags(id, ["x"]) }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    #expect(try copy.text("Sicily/a.txt") == "ours")
    #expect(try copy.item(at: "Sicily/a.txt")?.tags == ["x"])
    try copy.queue.resume()
    try copy.drained()
    #expect(try blobs(shared) == ["ours"])
    shared.expectNoViolations()
  }
}
