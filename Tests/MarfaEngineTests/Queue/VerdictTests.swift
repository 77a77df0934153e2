import ContractServer
import Glibc
import Testing

@testable import MarfaEngine

@Suite("A write that is answered")
struct VerdictTests {
  /// A connected copy that has a note "Sicily" of the server's, and its id.
  private func note(_ shared: Shared) throws -> (copy: WorkingCopy, id: ItemID) {
    let id = try shared.server.change { try $0.createNote("Sicily", body: "one") }
    let copy = try shared.connected()
    return (copy, try #require(ItemID(id)))
  }

  @Test("leaves the queue when it is accepted, and its row is the server's")
  func accepted() throws {
    let shared = try Shared()
    let (copy, id) = try note(shared)
    try copy.items.update(id, ["body": "two"])
    try copy.items.setExtension(id, "acme", ["a": 1])
    try copy.items.setMetadata(id, tags: ["x", "y"], replacing: true)
    try copy.items.setMetadata(id, tags: ["z"], replacing: false)
    try copy.items.transition(id, to: .archived)
    try copy.drained()
    let row = try #require(try shared.item(id))
    #expect(row.properties["body"] == "two")
    #expect(row.extensions["acme"] == ["a": 1])
    #expect(row.tags.sorted() == ["x", "y", "z"])
    #expect(row.state == "archived")
    #expect(try copy.items.get(id)?.version == row.version)
    #expect(try copy.items.get(id)?.state == .archived)
    #expect(try copy.items.extensionValue(id, "acme") == ["a": 1])
    try copy.items.setExtension(id, "acme", nil)
    try copy.items.removeTag(id, "x")
    try copy.drained()
    #expect(try shared.item(id)?.extensions["acme"] == nil)
    #expect(try shared.item(id)?.tags.sorted() == ["y", "z"])
    shared.expectNoViolations()
  }

  @Test("is merged with what another device changed beside it")
  func merged() throws {
    let shared = try Shared()
    let (copy, id) = try note(shared)
    try copy.queue.pause()
    try copy.items.update(id, ["title": "Etna"])
    try shared.server.change { _ = try $0.updateItem("\(id)", ["body": "theirs"]) }
    try eventually("theirs is under ours") { try copy.items.get(id)?.properties["body"] == "theirs" }
    #expect(try copy.items.get(id)?.title == "Etna")
    try copy.queue.resume()
    try copy.drained()
    #expect(try shared.item(id)?.title == "Etna")
    #expect(try shared.item(id)?.properties["body"] == "theirs")
    #expect(try copy.items.get(id)?.version == 3)
    shared.expectNoViolations()
  }

  @Test("leaves both values when the server can't merge it: a copy appears beside the original")
  func conflicted() throws {
    let shared = try Shared()
    let trip = try shared.server.change { device in
      let trip = try device.createNote("Sicily")
      try device.createFile("a.txt", Array("base".utf8), mime: "text/plain", attachedTo: trip)
      return trip
    }
    let copy = try shared.connected()
    try copy.queue.pause()
    let file = try copy.id(at: "Sicily/a.txt")
    try copy.write("Sicily/a.txt", "ours")
    let theirs = try shared.server.change { try $0.replaceBytes("\(file)", Array("theirs".utf8)) }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    #expect(try copy.text("Sicily/a.txt") == "ours")
    try copy.queue.resume()
    try copy.drained()
    try eventually("both are here") { try copy.names("Sicily") == ["a (2).txt", "a.txt"] }
    let blobs = try Set(copy.names("Sicily").map { try copy.item(at: "Sicily/\($0)")?.blob })
    #expect(blobs.contains(BlobHash(theirs)))
    #expect(blobs.count == 2)
    #expect(try copy.item(at: "Sicily/a (2).txt")?.tags == ["conflicted-copy"])
    #expect(try copy.text("Sicily/a.txt") == "ours")
    #expect(try shared.item(try #require(ItemID(trip)))?.state == "active")
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("is put back when it is refused, with what waited on it, and kept until it is discarded")
  func refused() throws {
    let shared = try Shared()
    let (copy, id) = try note(shared)
    try copy.queue.pause()
    let first = try copy.items.update(id, ["body": "two"])
    let second = try copy.items.update(id, ["title": "Etna"])
    shared.server.faults.add(Fault(.refuse(status: 400, code: "validation_error"), method: "PATCH"))
    try copy.queue.resume()
    try eventually("both are refused: \(copy.queueText)") { try copy.queue.counts().byState[.refused] == 2 }
    #expect(try copy.items.get(id)?.title == "Sicily")
    #expect(try copy.items.get(id)?.properties["body"] == "one")
    #expect(try copy.names() == ["Sicily"])
    let writes = try copy.queue.writes()
    guard case .refused(let refusal) = try #require(writes.first { $0.id == first }?.verdict),
      case .refused(let waiting) = try #require(writes.first { $0.id == second }?.verdict)
    else {
      Issue.record("not refused")
      return
    }
    #expect(refusal.code == "validation_error")
    #expect(refusal.becauseOf == nil)
    #expect(waiting.becauseOf == first)
    #expect(writes.first { $0.id == first }?.body["properties"]?.object?["body"] == "two")
    // The server refused it: it is never released; what was not sent is, on its own.
    #expect(throws: MarfaError.self) { try copy.queue.release(first) }
    try copy.queue.release(second)
    try copy.drained()
    #expect(try shared.item(id)?.title == "Etna")
    try copy.queue.discard(first)
    #expect(try copy.queue.writes().isEmpty)
    #expect(try copy.items.get(id)?.title == "Etna")
    #expect(try copy.names() == ["Etna"])
    try eventually("nothing is owed") { try copy.store.read { (c) throws(MarfaError) in try c.owed(limit: 9) }.isEmpty }
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("leaves a file whose create is refused where it is, as one of this device")
  func refusedCreate() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.mkdir("Sicily")
    try copy.drained()
    try copy.queue.pause()
    let node = try copy.write("Sicily/a.txt", "ours")
    let item = try #require(node.item)
    shared.server.faults.add(
      Fault(.refuse(status: 400, code: "validation_error"), method: "POST", path: "/items"))
    try copy.queue.resume()
    try eventually("refused: \(copy.queueText)") { try copy.queue.counts().waiting == 0 }
    #expect(try copy.queue.counts().byState[.refused] == 2)
    #expect(try copy.names("Sicily") == ["a.txt"])
    #expect(try copy.text("Sicily/a.txt") == "ours")
    let kept = try #require(try copy.node(at: "Sicily/a.txt"))
    #expect(kept.number == node.number)
    #expect(kept.item == nil)
    #expect(kept.local)
    #expect(try copy.items.get(item) == nil)
    // Discarded, it is a file of this device like any other.
    let create = try #require(try copy.queue.writes(about: item).first)
    try copy.queue.discard(create.id)
    #expect(try copy.queue.writes().isEmpty)
    #expect(try copy.text("Sicily/a.txt") == "ours")
    try checkInvariants(copy)
    shared.expectNoViolations()
  }

  @Test("refuses an upload whose bytes are gone, naming them, with what waited on it")
  func bytesGone() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.queue.pause()
    let node = try copy.write("a.txt", "ours")
    let hash = try #require(node.blob)
    try Path.remove(copy.blobStore.files.held(hash))
    try copy.queue.resume()
    try eventually("refused: \(copy.queueText)") { try copy.queue.counts().byState[.refused] == 2 }
    guard case .refused(let refusal) = try copy.queue.upload(of: hash)?.verdict else {
      Issue.record("not refused")
      return
    }
    #expect(refusal.message.holdsText(hash.hex))
    #expect(shared.server.stats["POST /blobs"].requests == 0)
    shared.expectNoViolations()
  }

  @Test("goes on when bytes of another can't be opened now, and is not counted")
  func bytesShut() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.queue.pause()
    let shut = try #require(try copy.write("a.txt", "shut").blob)
    let path = copy.blobStore.files.held(shut)
    try Path.move(path, to: path + ".away")
    // A directory opens for reading as a file does, and can't be read.
    try Path.makeDirectory(path, mode: 0o700)
    try copy.write("b.txt", "open")
    try copy.queue.resume()
    try eventually("the other is there") { try copy.item(at: "b.txt")?.version == 1 }
    #expect(try copy.queue.upload(of: shut)?.state != .refused)
    rmdir(path)
    try Path.move(path + ".away", to: path)
    copy.retryNow()
    try copy.drained()
    #expect(try copy.item(at: "a.txt")?.version == 1)
    shared.expectNoViolations()
  }

  @Test("is dead the fifth time it fails for no reason that passes, and can be released")
  func dead() throws {
    let shared = try Shared()
    let (copy, id) = try note(shared)
    shared.server.faults.add(Fault(.body("no json"), method: "PATCH", count: 5))
    let write = try copy.items.update(id, ["body": "two"])
    try eventually("dead: \(copy.queueText)") { try copy.queue.counts().byState[.dead] == 1 }
    #expect(shared.server.requests.filter { $0.method == "PATCH" }.count == 5)
    let before = try #require(try copy.queue.writes().first)
    // What it says is still the person's.
    #expect(try copy.items.get(id)?.properties["body"] == "two")
    try copy.queue.release(write)
    try copy.drained()
    #expect(try shared.item(id)?.properties["body"] == "two")
    #expect(try copy.queue.writes().isEmpty)
    let keys = shared.server.requests.filter { $0.method == "PATCH" }.map { $0.headers["idempotency-key"] ?? "" }
    #expect(keys.count == 6)
    #expect(Set(keys.prefix(5)) == [before.idempotencyKey ?? ""])
    #expect(keys.last != before.idempotencyKey)
    shared.expectNoViolations()
  }

  @Test("is read back when it was done and its result is not retained")
  func notRetained() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.queue.pause()
    let trip = try copy.mkdir("Sicily")
    try copy.mkdir("Sicily/Etna")
    shared.server.faults.add(Fault(.applyAndDrop, method: "POST", count: 2))
    try copy.queue.resume()
    try eventually("two were lost") { shared.server.faults.waiting == 0 }
    try shared.server.forgetResults()
    try copy.items.update(trip, ["body": "later"])
    try copy.drained()
    #expect(try copy.queue.writes().isEmpty)
    #expect(try shared.item(trip)?.properties["body"] == "later")
    #expect(try copy.paths() == ["Sicily/", "Sicily/Etna/"])
    #expect(try copy.item(at: "Sicily/Etna")?.version == 1)
    try eventually("versions are the server's") { try copy.items.get(trip)?.version == 2 }
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("reads an edge back that was drawn and whose result is not retained")
  func edgeNotRetained() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.mkdir("Sicily")
    try copy.drained()
    shared.server.faults.add(Fault(.applyAndDrop, method: "POST", path: "/edges"))
    shared.server.faults.add(Fault(.refuse(status: 503), method: "POST", path: "/edges", skip: 1, count: 3))
    try copy.mkdir("Sicily/Etna")
    try eventually("it was lost") { shared.server.faults.waiting == 1 }
    try shared.server.forgetResults()
    shared.server.faults.removeAll()
    try copy.drained()
    #expect(try copy.paths() == ["Sicily/", "Sicily/Etna/"])
    #expect(try copy.edges.to(copy.id(at: "Sicily/Etna"), type: Edge.parentOf).map(\.version) == [1])
    shared.expectNoViolations()
    try checkInvariants(copy)
  }
}
