import ContractServer
import Testing

@testable import MarfaEngine

/// What goes wrong on demand.
@Suite("Faults of the tests' server")
struct ServerFaultTests {
  private let bytes = (0..<50_000).map { UInt8(truncatingIfNeeded: $0) }

  private func withBlob() throws -> (ServerFixture, String) {
    let fixture = try ServerFixture()
    try fixture.server.change { _ = try $0.createFile("f", bytes) }
    return (fixture, "/blobs/\(BlobHash(of: bytes))")
  }

  private func get(_ fixture: ServerFixture, _ target: String, range: String? = nil) throws -> RawClient.Response? {
    var headers = ["Authorization": "Bearer \(fixture.key)"]
    headers["Range"] = range
    return try fixture.client.ask("GET", target, headers)
  }

  @Test("a rule hits the requests it is for: so many, after so many")
  func rules() throws {
    let fixture = try ServerFixture()
    fixture.server.faults.add(Fault(.refuse(status: 503), method: "GET", path: "/types", skip: 1, count: 2))
    let statuses = try (0..<5).map { _ in try fixture.ask("GET", "/types").status }
    #expect(statuses == [200, 503, 503, 200, 200])
    #expect(fixture.server.faults.waiting == 0)
    #expect(try fixture.ask("GET", "/edge-types").status == 200)
  }

  @Test("a connection ends before the answer, with the write done or not")
  func drops() throws {
    let fixture = try ServerFixture()
    let headers = [
      "Authorization": "Bearer \(fixture.key)", "Content-Type": "application/json", "Idempotency-Key": "K",
    ]
    let note = ServerFixture.note()
    let body = Array(JSON.object(note.body).text.utf8)
    fixture.server.faults.add(Fault(.drop, path: "/items"))
    #expect(try fixture.client.ask("POST", "/items", headers, body: body) == nil)
    #expect(try fixture.server.item(note.id) == nil)
    fixture.server.faults.add(Fault(.applyAndDrop, path: "/items"))
    #expect(try fixture.client.ask("POST", "/items", headers, body: body) == nil)
    #expect(try fixture.server.item(note.id) != nil)
    let answer = try fixture.write("POST", "/items", note.body, under: "K")
    #expect(answer.status == 201)
    #expect(answer["idempotency-replayed"] == "true")
  }

  @Test("a body ends early though more was declared")
  func shortBody() throws {
    let (fixture, blob) = try withBlob()
    fixture.server.faults.add(Fault(.dropAfter(bytes: 1000), path: "/blobs"))
    let answer = try #require(try get(fixture, blob))
    #expect(answer["content-length"] == "50000")
    #expect(answer.body == Array(bytes[..<1000]))
    #expect(!answer.isWhole)
    #expect(fixture.server.stats.blobBytesSent == 1000)
  }

  @Test("an upload is cut off in its middle")
  func upload() throws {
    let fixture = try ServerFixture()
    fixture.server.faults.add(Fault(.dropRequest(afterBytes: 100_000), path: "/blobs"))
    let bytes = [UInt8](repeating: 7, count: 4 << 20)
    let headers = ["Authorization": "Bearer \(fixture.key)", "Content-Type": "a/b"]
    let answer = try? fixture.client.ask("POST", "/blobs", headers, body: bytes)
    #expect(answer == nil)
    #expect(try fixture.server.change { try $0.blobs() }.isEmpty)
  }

  @Test("a byte is another, counted within the blob, also for a range")
  func altered() throws {
    let (fixture, blob) = try withBlob()
    fixture.server.faults.add(Fault(.alter(at: 20_005), path: "/blobs"))
    let answer = try #require(try get(fixture, blob, range: "bytes=20000-20009"))
    var expected = Array(bytes[20_000...20_009])
    expected[5] ^= 0x55
    #expect(answer.body == expected)
  }

  @Test("a range is ignored")
  func ignoredRange() throws {
    let (fixture, blob) = try withBlob()
    fixture.server.faults.add(Fault(.ignoreRange, path: "/blobs"))
    let answer = try #require(try get(fixture, blob, range: "bytes=0-9"))
    #expect(answer.status == 200)
    #expect(answer.body == bytes)
  }

  @Test("a body stands still until it is let go, and nobody else with it")
  func stall() throws {
    let (fixture, blob) = try withBlob()
    fixture.server.faults.add(Fault(.stallBody(afterBytes: 1000, seconds: nil), path: "/blobs"))
    let slow = try RawClient(fixture.server.url)
    try slow.send("GET", blob, ["Authorization": "Bearer \(fixture.key)"])
    let stands: Bool? = fixture.server.waitForRequests {
      $0.contains { $0.sent == 1000 && $0.ended == nil } ? true : nil
    }
    #expect(stands == true)
    #expect(try fixture.ask("GET", "/types").status == 200)
    fixture.server.faults.release()
    #expect(try slow.receive()?.body == bytes)
  }

  @Test("a slow line takes its time, a round trip too")
  func slow() throws {
    let (fixture, blob) = try withBlob()
    fixture.server.faults.add(Fault(.slow(bytesPerSecond: 500_000), path: "/blobs"))
    let clock = ContinuousClock()
    #expect(try clock.measure { _ = try get(fixture, blob) } >= .milliseconds(90))
    fixture.server.link = Link(roundTrip: 0.05, bytesPerSecond: 1_000_000)
    #expect(try clock.measure { _ = try get(fixture, blob) } >= .milliseconds(95))
    fixture.server.link = Link()
    #expect(try get(fixture, blob)?.body == bytes)
  }

  @Test("a refusal is the server's or a proxy's, as asked for")
  func refusals() throws {
    let fixture = try ServerFixture()
    fixture.server.faults.add(
      Fault(.refuse(status: 429, code: "rate_limited", details: ["a": 1], retryAfter: 7), path: "/types"))
    let own = try fixture.ask("GET", "/types")
    #expect(own.status == 429)
    #expect(own.code == "rate_limited")
    #expect(own.details == ["a": 1])
    #expect(own["retry-after"] == "7")
    #expect(own["x-marfa-contract"] == "0")
    fixture.server.faults.add(Fault(.refuse(status: 401, contract: nil), path: "/items"))
    let proxy = try fixture.ask("GET", "/items")
    #expect(proxy.status == 401)
    #expect(proxy["x-marfa-contract"] == nil)
    #expect(proxy.code == nil)
  }

  @Test("an answer names another contract, two, or none", arguments: [["1"], ["0", "1"], []])
  func contracts(_ values: [String]) throws {
    let fixture = try ServerFixture()
    fixture.server.faults.add(Fault(.contract(values)))
    #expect(try fixture.ask("GET", "/types").all("x-marfa-contract") == values)
  }

  @Test("a link is over, or leads on to another link to the bytes")
  func links() throws {
    let (fixture, blob) = try withBlob()
    let url = try #require(try fixture.ask("GET", blob + "/url").json["url"]?.string)
    let target = String(url.dropFirst(fixture.server.storeURL.count))
    let store = try RawClient(url)
    fixture.server.faults.add(Fault(.expireLink, origin: .store))
    #expect(try store.ask("GET", target)?.status == 403)
    fixture.server.faults.add(Fault(.redirect(to: nil), origin: .store))
    let redirect = try #require(try store.ask("GET", target))
    #expect(redirect.status == 302)
    let next = try #require(redirect["location"])
    #expect(next != url)
    #expect(try store.ask("GET", String(next.dropFirst(fixture.server.storeURL.count)))?.body == bytes)
    fixture.server.faults.add(Fault(.redirect(to: nil), path: "/types"))
    #expect(try fixture.ask("GET", "/types")["location"] == fixture.server.elsewhereURL)
    #expect(fixture.violations.isEmpty)
  }

  @Test("an upload is answered with another hash, a success with something unreadable")
  func nonsense() throws {
    let fixture = try ServerFixture()
    fixture.server.faults.add(Fault(.wrongHash, path: "/blobs"))
    #expect(try fixture.upload([1]).json["hash"]?.string != BlobHash(of: [1]).description)
    fixture.server.faults.add(Fault(.body("{\"error\":"), path: "/types"))
    let answer = try fixture.ask("GET", "/types")
    #expect(answer.status == 200)
    #expect(answer.text == "{\"error\":")
  }

  @Test(
    "an event stream ends as asked for",
    arguments: [
      (Fault.Effect.logRetired, "catchup_too_old"), (.cursorAhead, "cursor_ahead"),
      (.streamIncomplete(reason: "r"), "stream_incomplete"), (.cutStream(afterEvents: 1), "item.created"),
    ])
  func streams(_ effect: Fault.Effect, _ last: String) throws {
    let fixture = try ServerFixture()
    try fixture.server.change { device in for _ in 0..<3 { try device.createNote("n") } }
    fixture.server.faults.add(Fault(effect, path: "/events"))
    let stream = try fixture.events(after: 0)
    var names: [String] = []
    while let event = try stream.event() { names.append(event.name) }
    #expect(names.first == "stream_cursor")
    #expect(names.last == last)
  }

  @Test("a request is never answered, and stopping ends it")
  func never() throws {
    let fixture = try ServerFixture()
    fixture.server.faults.add(Fault(.neverAnswer, path: "/types"))
    try fixture.client.send("GET", "/types", ["Authorization": "Bearer \(fixture.key)"])
    _ = fixture.server.waitForRequests { $0.contains { $0.bodyHash != nil } ? true : nil }
    fixture.server.stop()
    #expect(try fixture.client.receive() == nil)
  }
}

/// What a client must never do, noticed.
@Suite("What the tests' server notes of a client")
struct ServerViolationTests {
  @Test("a write without a key, an upload with one, an update without a version, an edge update that wants merging")
  func writes() throws {
    let fixture = try ServerFixture()
    let (a, b) = (try fixture.createNote("a"), try fixture.createNote("b"))
    let edge = try #require(try fixture.createEdge("references", from: a, to: b).edge["id"]?.string)
    #expect(fixture.violations.isEmpty)
    _ = try fixture.ask("DELETE", "/items/\(b)")
    _ = try fixture.write("POST", "/blobs")
    _ = try fixture.write("PATCH", "/items/\(a)?conflict=auto", ["properties": ["title": "x"]])
    let answer = try fixture.write("PATCH", "/edges/\(edge)?conflict=auto", ["version": 1, "properties": [:]])
    #expect(answer.status == 400)
    _ = try fixture.write("POST", "/items/\(a)/transition", ["state": "archived", "why": "x"])
    _ = try fixture.ask(
      "POST", "/items/\(a)/restore", nil, ["Idempotency-Key": "a", "Content-Type": "text/plain", "Content-Length": "0"])
    #expect(
      fixture.violations == [
        .writeWithoutKey, .keyOnUpload, .updateWithoutVersion, .edgeConflictKey, .undeclaredKey,
      ])
  }

  @Test("an edge before its ends' creates were answered, and one whose end was never created")
  func edges() throws {
    let fixture = try ServerFixture()
    let host = try fixture.createNote()
    let note = ServerFixture.note()
    let headers = [
      "Authorization": "Bearer \(fixture.key)", "Content-Type": "application/json", "Idempotency-Key": "K",
    ]
    fixture.server.faults.add(Fault(.applyAndDrop, path: "/items"))
    #expect(
      try fixture.client.ask("POST", "/items", headers, body: Array(JSON.object(note.body).text.utf8)) == nil)
    _ = try fixture.createEdge("references", from: note.id, to: host)
    #expect(fixture.violations == [.beforeItsCreate])
    _ = try fixture.createEdge("references", from: host, to: ItemID.mint().description)
    #expect(fixture.violations == [.beforeItsCreate, .beforeItsCreate])
    // Once its repeat is answered, all is well.
    _ = try fixture.write("POST", "/items", note.body, under: "K")
    #expect(try fixture.createEdge("references", from: host, to: note.id).status == 201)
    #expect(fixture.violations.count == 2)
  }

  @Test("a row naming bytes before their upload was answered")
  func uploads() throws {
    let fixture = try ServerFixture()
    let create: JSON.Object = [
      "id": .string(ItemID.mint().description), "type": "core.file",
      "properties": ["blob_ref": .string(BlobHash(of: [1]).description), "mime_type": "a/b"],
    ]
    #expect(try fixture.write("POST", "/items", create).status == 201)
    #expect(fixture.violations == [.beforeItsUpload])
    _ = try fixture.upload([1])
    var second = create
    second["id"] = .string(ItemID.mint().description)
    _ = try fixture.write("POST", "/items", second)
    #expect(fixture.violations == [.beforeItsUpload])
  }

  @Test("a create whose answer was lost and that comes again under another id")
  func twice() throws {
    let fixture = try ServerFixture()
    // Two notes alike are two notes.
    _ = try (fixture.createNote("same"), fixture.createNote("same"))
    #expect(fixture.violations.isEmpty)
    let note = ServerFixture.note("lost")
    let headers = [
      "Authorization": "Bearer \(fixture.key)", "Content-Type": "application/json", "Idempotency-Key": "K",
    ]
    fixture.server.faults.add(Fault(.applyAndDrop, path: "/items"))
    #expect(
      try fixture.client.ask("POST", "/items", headers, body: Array(JSON.object(note.body).text.utf8)) == nil)
    let over: Bool? = fixture.server.waitForRequests { $0.last?.ended != nil ? true : nil }
    #expect(over == true)
    _ = try fixture.write("POST", "/items", ServerFixture.note("lost").body)
    #expect(fixture.violations == [.createdTwice])
  }

  @Test("two writes to one row at once, of one key; another key's are another device's")
  func concurrent() throws {
    let fixture = try ServerFixture {
      $0.keys = [APIKey("one", secret: "K1"), APIKey("two", secret: "K2")]
    }
    let id = try fixture.createNote()
    fixture.server.faults.add(Fault(.stall(seconds: nil), path: "/items/\(id)"))
    let first = try RawClient(fixture.server.url)
    let headers = ["Authorization": "Bearer K1", "Idempotency-Key": "first"]
    try first.send("DELETE", "/items/\(id)", headers)
    _ = fixture.server.waitForRequests { $0.contains { $0.method == "DELETE" && $0.bodyHash != nil } ? true : nil }
    fixture.key = "K2"
    _ = try fixture.write("POST", "/items/\(id)/tags", ["tags": ["a"]])
    #expect(fixture.violations.isEmpty)
    fixture.key = "K1"
    _ = try fixture.write("POST", "/items/\(id)/tags", ["tags": ["b"]])
    #expect(fixture.violations == [.concurrentWrites])
    fixture.server.faults.release()
    #expect(try first.receive()?.status == 200)
  }

  @Test("a retry before the wait that was asked for")
  func haste() throws {
    let fixture = try ServerFixture()
    fixture.server.faults.add(Fault(.refuse(status: 429, retryAfter: 60), path: "/types"))
    _ = try fixture.ask("GET", "/types")
    _ = try fixture.ask("GET", "/types")
    #expect(fixture.violations == [.tooEarly])
  }
}
