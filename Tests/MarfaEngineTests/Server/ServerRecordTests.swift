import ContractServer
import Testing

@testable import MarfaEngine

/// Contract "Requests and answers": the idempotency record.
@Suite("Keyed writes to the tests' server")
struct ServerRecordTests {
  @Test("a repeat under its key is answered from the record, whatever has happened since")
  func replay() throws {
    let fixture = try ServerFixture()
    let note = ServerFixture.note()
    let first = try fixture.write("POST", "/items", note.body, under: "K")
    try fixture.server.change { _ = try $0.updateItem(note.id, ["title": "Since"]) }
    let again = try fixture.write("POST", "/items", note.body, under: "K")
    #expect(again.status == 201)
    #expect(again["idempotency-replayed"] == "true")
    #expect(again.body == first.body)
    #expect(first["idempotency-replayed"] == nil)
    #expect(fixture.violations.isEmpty)
  }

  @Test("a refusal is recorded too, with its code")
  func refusals() throws {
    let fixture = try ServerFixture()
    let body: JSON.Object = ["type": "core.note", "properties": ["title": "no body"]]
    _ = try fixture.write("POST", "/items", body, under: "K")
    let again = try fixture.write("POST", "/items", body, under: "K")
    #expect(again.status == 400)
    #expect(again["idempotency-replayed"] == "true")
    #expect(again["x-error-code"] == "validation_error")
  }

  @Test("403 is not recorded")
  func forbidden() throws {
    let fixture = try ServerFixture { $0.keys = [APIKey("reader", secret: "K", types: ["*": .read])] }
    let note = ServerFixture.note()
    for _ in 0..<2 {
      let answer = try fixture.write("POST", "/items", note.body, under: "K")
      #expect(answer.status == 403)
      #expect(answer.details["grant"]?.string == "type_permissions:core.note:write")
      #expect(answer["idempotency-replayed"] == nil)
    }
  }

  @Test("a key used for other bytes, another query or another path is refused and noted")
  func reuse() throws {
    let fixture = try ServerFixture()
    let id = try fixture.createNote()
    let patch: JSON.Object = ["version": 1, "properties": ["title": "x"]]
    #expect(try fixture.write("PATCH", "/items/\(id)?conflict=auto", patch, under: "K").status == 200)
    for (target, body) in [
      ("/items/\(id)?conflict=auto", ["version": 1, "properties": ["title": "y"]]), ("/items/\(id)", patch),
    ] as [(String, JSON.Object)] {
      let answer = try fixture.write("PATCH", target, body, under: "K")
      #expect(answer.status == 422)
      #expect(answer.code == "idempotency_key_reused")
    }
    #expect(fixture.violations == [.keyReused, .keyReused])
  }

  @Test("a result that is kept no more is said to be so")
  func forgotten() throws {
    let fixture = try ServerFixture()
    let note = ServerFixture.note()
    _ = try fixture.write("POST", "/items", note.body, under: "K")
    try fixture.server.forgetResults()
    let answer = try fixture.write("POST", "/items", note.body, under: "K")
    #expect(answer.status == 422)
    #expect(answer.code == "idempotency_result_not_retained")
    #expect(try fixture.server.change { try $0.items().count } == 1)
  }

  @Test("a key under way is refused until it is answered")
  func inFlight() throws {
    let fixture = try ServerFixture()
    let note = ServerFixture.note()
    fixture.server.faults.add(Fault(.stall(seconds: nil), method: "POST", path: "/items"))
    let body = Array(JSON.object(note.body).text.utf8)
    let headers = [
      "Authorization": "Bearer \(fixture.key)", "Content-Type": "application/json", "Idempotency-Key": "K",
    ]
    let first = try RawClient(fixture.server.url)
    try first.send("POST", "/items", headers, body: body)
    _ = fixture.server.waitForRequests { $0.contains { $0.method == "POST" && $0.bodyHash != nil } ? true : nil }
    let second = try fixture.write("POST", "/items", note.body, under: "K")
    #expect(second.status == 409)
    #expect(second.code == "idempotency_key_in_flight")
    fixture.server.faults.release()
    #expect(try first.receive()?.status == 201)
  }

  @Test("tags run again without a record")
  func tags() throws {
    let fixture = try ServerFixture()
    let id = try fixture.createNote()
    for _ in 0..<2 {
      let answer = try fixture.write("POST", "/items/\(id)/tags", ["tags": ["a"]], under: "K")
      #expect(answer["idempotency-replayed"] == nil)
      #expect(answer.json["metadata"]?.object?["tags"] == ["a"])
    }
    #expect(fixture.violations.isEmpty)
  }
}

/// Contract "Reading": keys.
@Suite("Keys with grants at the tests' server")
struct ServerGrantTests {
  private func fixture() throws -> (ServerFixture, note: String, file: String) {
    let fixture = try ServerFixture { options in
      options.keys = [
        APIKey("files", secret: "K", types: ["core.file": .write, "core.note": .read], edges: ["attached-to": .read])
      ]
    }
    let (note, file) = try fixture.server.change { device in
      let note = try device.createNote("n")
      try device.createItem("core.task", ["title": "t"])
      let file = try device.createFile("f", [1], attachedTo: note)
      try device.createEdge("references", from: file, to: note)
      return (note, file)
    }
    return (fixture, note, file)
  }

  @Test("a key is told what it may do")
  func current() throws {
    let (fixture, _, _) = try fixture()
    let grants = try fixture.ask("GET", "/keys/current").json
    #expect(grants["type_permissions"] == ["core.file": "write", "core.note": "read"])
    #expect(grants["edge_permissions"] == ["attached-to": "read"])
  }

  @Test("it sees no other types' rows or edges, and asking for them is refused by name")
  func reading() throws {
    let (fixture, _, file) = try fixture()
    #expect(try fixture.ask("GET", "/items").data.count == 2)
    #expect(try fixture.ask("GET", "/items?type=core.task").details["grant"] != nil)
    let item = try fixture.ask("GET", "/items/\(file)?include=edges").item
    #expect(item["edges"]?.object?.members.map(\.key) == ["attached-to"])
    #expect(try fixture.ask("GET", "/edges?edge_type=references").status == 403)
  }

  @Test("it writes what it may write, subtypes too, and nothing else")
  func writing() throws {
    let (fixture, note, file) = try fixture()
    #expect(
      try fixture.write("PATCH", "/items/\(file)?conflict=auto", ["version": 1, "properties": ["title": "g"]]).status
        == 200)
    let refused = try fixture.write("DELETE", "/items/\(note)")
    #expect(refused.status == 403)
    #expect(refused.code == "permission_denied")
    #expect(try fixture.createEdge("attached-to", from: file, to: note).details["grant"] != nil)
  }
}
