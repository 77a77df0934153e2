import ContractServer
import Testing

@testable import MarfaEngine

/// Contract "Shapes", "The queue": item writes.
@Suite("Item writes to the tests' server")
struct ServerItemTests {
  @Test("a create keeps the client's id, starts at version 1, and is acknowledged when it comes again")
  func create() throws {
    let fixture = try ServerFixture()
    let note = ServerFixture.note()
    let first = try fixture.write("POST", "/items", note.body)
    #expect(first.status == 201)
    #expect(first.item["id"]?.string == note.id)
    #expect(first.item["version"] == 1)
    #expect(first.item["state"] == "active")
    #expect(first.item["source_id"] == nil)
    #expect(first.json["metadata"]?.object?["item_id"]?.string == note.id)
    let again = try fixture.write("POST", "/items", note.body)
    #expect(again.status == 200)
    #expect(again.json["acknowledged"] == true)
    var other = note.body
    other["properties"] = ["title": "Another", "body": ""]
    let reused = try fixture.write("POST", "/items", other)
    #expect(reused.status == 409)
    #expect(reused.code == "id_reused")
    #expect(fixture.violations == [.idReused])
  }

  @Test(
    "a create that is not what its type declares is refused",
    arguments: [
      (["type": "core.note", "properties": ["title": "No body"]], "validation_error"),
      (["type": "core.note", "properties": ["title": 1, "body": ""]], "validation_error"),
      (["type": "core.file", "properties": ["title": "x", "mime_type": "a/b"]], "validation_error"),
      (
        [
          "type": "core.file.image",
          "properties": ["blob_ref": .string("sha256:" + String(repeating: "0", count: 64))],
        ], "validation_error"
      ),
      (["type": "core.file", "properties": ["blob_ref": "abc", "mime_type": "a/b"]], "validation_error"),
      (["type": "core.nothing", "properties": [:]], "unknown_type"),
      (["type": "core.task", "tier": "cellar"], "invalid_request"),
      (["type": "core.task", "id": "019A0000-0000-7000-8000-000000000000"], "invalid_request"),
      (["type": "core.task", "id": "019a0000-0000-4000-8000-000000000000"], "invalid_request"),
      (["type": "core.task", "colour": "red"], "invalid_request"),
    ] as [(JSON.Object, String)])
  func validation(_ body: JSON.Object, _ code: String) throws {
    let fixture = try ServerFixture()
    let answer = try fixture.write("POST", "/items", body)
    #expect(answer.status == 400)
    #expect(answer.code == code)
    #expect(try fixture.server.change { try $0.items() }.isEmpty)
  }

  @Test("an update merges, a null changes nothing, and only a replace clears")
  func update() throws {
    let fixture = try ServerFixture()
    let id = try fixture.createNote("One", body: "text")
    let merged = try fixture.write(
      "PATCH", "/items/\(id)?conflict=auto",
      ["version": 1, "properties": ["title": "Two", "body": .null, "mood": "x"]])
    #expect(merged.status == 200)
    #expect(merged.item["version"] == 2)
    #expect(merged.item["properties"]?.object == ["title": "Two", "body": "text", "mood": "x"])
    #expect(merged.json["conflict_resolution"] == nil)
    let replaced = try fixture.write(
      "PATCH", "/items/\(id)?conflict=auto",
      ["version": 2, "properties": ["title": "Two", "body": ""], "properties_mode": "replace"])
    #expect(replaced.item["properties"]?.object == ["title": "Two", "body": ""])
    #expect(fixture.violations.isEmpty)
  }

  @Test("tags, states, the bin and coming back move no version")
  func version() throws {
    let fixture = try ServerFixture()
    let id = try fixture.createNote()
    #expect(try fixture.write("POST", "/items/\(id)/tags", ["tags": ["a", "b c"]]).status == 200)
    #expect(try fixture.write("DELETE", "/items/\(id)/tags/b%20c").json["metadata"]?.object?["tags"] == ["a"])
    #expect(try fixture.write("POST", "/items/\(id)/transition", ["state": "archived"]).item["state"] == "archived")
    #expect(try fixture.write("DELETE", "/items/\(id)").item["state"] == "trashed")
    let back = try fixture.write("POST", "/items/\(id)/restore")
    #expect(back.item["state"] == "archived")
    #expect(back.item["version"] == 1)
    #expect(fixture.violations.isEmpty)
  }

  @Test("metadata is replaced or merged, extensions put and deleted")
  func metadata() throws {
    let fixture = try ServerFixture()
    let id = try fixture.createNote()
    _ = try fixture.write("PUT", "/items/\(id)/metadata", ["tags": ["a"], "extensions": ["x.y": ["n": 1]]])
    let merged = try fixture.write("PATCH", "/items/\(id)/metadata", ["tags": ["b"], "extensions": ["x.y": ["m": 2]]])
    let metadata = try #require(merged.json["metadata"]?.object)
    #expect(metadata["tags"] == ["a", "b"])
    #expect(metadata["extensions"]?.object?["x.y"]?.object == ["n": 1, "m": 2])
    let put = try fixture.write("PUT", "/items/\(id)/extensions/z", ["k": "v"])
    #expect(put.json["extensions"]?.object?["z"] == ["k": "v"])
    let deleted = try fixture.write("DELETE", "/items/\(id)/extensions/x.y")
    #expect(deleted.json["extensions"] == ["z": ["k": "v"]])
  }

  @Test("what stands in the bin cannot be found, and a write to it says so")
  func bin() throws {
    let fixture = try ServerFixture()
    let id = try fixture.createNote()
    _ = try fixture.write("DELETE", "/items/\(id)")
    let read = try fixture.ask("GET", "/items/\(id)")
    #expect(read.status == 404)
    #expect(read.details["trashed"] == nil)
    let write = try fixture.write("PATCH", "/items/\(id)?conflict=auto", ["version": 1, "properties": ["title": "x"]])
    #expect(write.status == 404)
    #expect(write.code == "item_not_found")
    #expect(write.details["trashed"] == true)
  }

  @Test("trashing a parent trashes its children; restoring it restores what its trash took, and no more")
  func families() throws {
    let fixture = try ServerFixture()
    let ids = try (0..<4).map { try fixture.createNote("\($0)") }
    for (parent, child) in [(0, 1), (1, 2), (0, 3)] {
      #expect(try fixture.createEdge("parent-of", from: ids[parent], to: ids[child]).status == 201)
    }
    _ = try fixture.write("DELETE", "/items/\(ids[3])")
    _ = try fixture.write("DELETE", "/items/\(ids[0])")
    #expect(try fixture.server.change { try $0.items() }.map(\.state) == ["trashed", "trashed", "trashed", "trashed"])
    let early = try fixture.write("POST", "/items/\(ids[1])/restore")
    #expect(early.status == 409)
    #expect(early.code == "ancestor_unavailable")
    _ = try fixture.write("POST", "/items/\(ids[0])/restore")
    #expect(try fixture.server.change { try $0.items() }.map(\.state) == ["active", "active", "active", "trashed"])
  }
}

/// Contract "The queue": stale updates.
@Suite("Two devices changing one item of the tests' server")
struct ServerConflictTests {
  private func stale(_ properties: JSON.Object, query: String = "?conflict=auto") throws -> (
    ServerFixture, String, RawClient.Response
  ) {
    let fixture = try ServerFixture()
    let id = try fixture.createNote("One", body: "first")
    try fixture.server.change { device in
      try device.addTags(id, ["kept"])
      try device.updateItem(id, ["body": "theirs", "title": "Theirs"])
    }
    let answer = try fixture.write("PATCH", "/items/\(id)\(query)", ["version": 1, "properties": .object(properties)])
    return (fixture, id, answer)
  }

  @Test("other fields are merged, and the answer says which")
  func merged() throws {
    let (_, _, answer) = try stale(["mood": "mine"])
    #expect(answer.status == 200)
    #expect(answer.item["properties"]?.object == ["title": "Theirs", "body": "theirs", "mood": "mine"])
    #expect(answer.item["version"] == 3)
    #expect(answer.json["conflict_resolution"]?.object?["fields"] == ["mood"])
    #expect(answer.json["conflicted_copy_id"] == nil)
  }

  @Test("of a field whose last writer wins the later value stays")
  func lastWriter() throws {
    let (_, _, answer) = try stale(["title": "Mine"])
    #expect(answer.item["properties"]?.object == ["title": "Mine", "body": "theirs"])
    #expect(answer.json["conflict_resolution"] == ["fields": ["title"], "strategy": "last_writer_wins"])
  }

  @Test("of a field that keeps both a sibling holds what lost, with tags and edges, told before the original's change")
  func bothCopies() throws {
    let fixture = try ServerFixture()
    let (host, file) = try fixture.server.change { device in
      let host = try device.createNote("Host")
      return (host, try device.createFile("f", [1], attachedTo: host))
    }
    let stream = try fixture.events()
    for _ in 0..<2 { _ = try stream.event() }
    let hash = try fixture.server.change { try $0.replaceBytes(file, [2]) }
    _ = try fixture.upload([3])
    let mine = BlobHash(of: [3]).description
    let answer = try fixture.write(
      "PATCH", "/items/\(file)?conflict=auto", ["version": 1, "properties": ["blob_ref": .string(mine)]])
    #expect(answer.item["properties"]?.object?["blob_ref"]?.string == mine)
    #expect(answer.json["conflict_resolution"]?.object?["strategy"] == "keep_both_copies")
    let copy = try #require(answer.json["conflicted_copy_id"]?.string)
    let (item, edges) = try fixture.server.change { device in
      (try #require(try device.item(copy)), try device.edges().filter { $0.source == copy })
    }
    #expect(item.blob == hash)
    #expect(item.tags == ["conflicted-copy"])
    #expect(edges.map { "\($0.type) \($0.target)" } == ["derived-from \(file)", "attached-to \(host)"])
    var names: [String] = []
    for _ in 0..<5 { names.append(try #require(try stream.event()).name) }
    #expect(names == ["item.updated", "item.created", "edge.created", "edge.created", "item.updated"])
    #expect(fixture.violations.isEmpty)
  }

  @Test("without leave to resolve it is refused, naming what is there")
  func refused() throws {
    let (_, id, answer) = try stale(["body": "mine"], query: "")
    #expect(answer.status == 409)
    #expect(answer.code == "version_conflict")
    #expect(answer.details["current"]?.object?["id"]?.string == id)
    #expect(answer.details["current"]?.object?["version"] == 2)
  }
}

extension BlobHash {
  /// The hash of bytes.
  init(of bytes: [UInt8]) {
    // Only without memory is there no digest.
    let digest = try! SHA256()
    bytes.withUnsafeBytes { digest.update($0) }
    self = digest.finish()
  }
}
