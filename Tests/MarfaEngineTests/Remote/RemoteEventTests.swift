import Testing

@testable import MarfaEngine

@Suite("A stream of events, taken apart")
struct EventStreamTests {
  private func frames(_ text: String, cut size: Int, limit: Int = 1000) throws -> [EventFrame] {
    var parser = EventStreamParser(limit: limit)
    var frames: [EventFrame] = []
    let bytes = Array(text.utf8)
    var at = 0
    while at < bytes.count {
      let piece = Array(bytes[at..<min(at + size, bytes.count)])
      frames += try piece.withUnsafeBytes { buffer in
        Result { () throws(EventStreamParser.TooLarge) in try parser.take(buffer) }
      }.get()
      at += size
    }
    return frames
  }

  private func frame(_ id: String?, _ name: String, _ data: String) -> EventFrame {
    EventFrame(id: id, name: name, data: Array(data.utf8))
  }

  static let stream =
    "\u{feff}: hello\n\nid: 7\nevent: item.created\ndata: {\"a\":\ndata:  1}\n\n:ping\r\n\r\nevent:x\r\ndata\r\n\r\ndata: c\rid:8\r\r"
    + "event: nothing\n\nid: 9\n\nretry: 5\nfoo: bar\nevent:\ndata: é€\n\ndata: cut"

  @Test("gives the same events wherever its pieces are cut", arguments: 1...12)
  func cuts(size: Int) throws {
    #expect(
      try frames(Self.stream, cut: size) == [
        frame("7", "item.created", "{\"a\":\n 1}"), frame(nil, "x", ""), frame("8", "message", "c"),
        frame(nil, "message", "é€"),
      ])
  }

  @Test(
    "ends where one event is larger than allowed, in one line or in many",
    arguments: ["data: ", "data: x\ndata: ", "event: "])
  func tooLarge(start: String) throws {
    let text = start + String(repeating: "y", count: 500)
    #expect(throws: EventStreamParser.TooLarge()) { try frames(text, cut: 7, limit: 400) }
    #expect(throws: EventStreamParser.TooLarge()) {
      try frames(String(repeating: "data: 0123456789\n", count: 50), cut: 100, limit: 400)
    }
    #expect(throws: EventStreamParser.TooLarge()) {
      try frames(String(repeating: "unknown: 0123456789\n", count: 50), cut: 100, limit: 400)
    }
  }

  @Test("may keep alive for ever")
  func comments() throws {
    #expect(try frames(String(repeating: ": ping\n", count: 1000), cut: 64, limit: 400) == [])
    #expect(try frames(String(repeating: ": ping\n\n", count: 1000) + "data: x\n\n", cut: 64, limit: 400).count == 1)
  }
}

@Suite("The stream of events")
struct RemoteEventTests {
  private static let head = "HTTP/1.1 200 OK\r\nX-Marfa-Contract: 0\r\nContent-Type: text/event-stream\r\n\r\n"

  private func event(_ name: String, _ data: String, id: String? = "5") throws -> ServerEvent {
    try ServerEvent(EventFrame(id: id, name: name, data: Array(data.utf8)), values: 100_000)
  }

  @Test("is read by what each event carries")
  func kinds() throws {
    guard case .item(let row) = try event("item.updated", Wire.row()).content else { throw Missing() }
    #expect(row.metadata?.tags == ["a", "b"])
    #expect(!row.carriesEdges)
    guard case .item = try event("item.invented", Wire.row()).content else { throw Missing() }
    let edge = #"{"edge":\#(Wire.edge()),"source_type":"core.file"}"#
    guard case .edge(let edgeRow, let type) = try event("edge.invented", edge).content else { throw Missing() }
    #expect(edgeRow.version == 1)
    #expect(type == "core.file")
    let id = try #require(ItemID(Wire.id))
    let tags = #"{"metadata":{"item_id":"\#(Wire.id)","tags":["x"],"extensions":{}}}"#
    #expect(try event("metadata.changed", tags).content == .metadata(id, ItemMetadata(tags: ["x"], extensions: [:])))
    #expect(try event("item.purged", #"{"item":{"id":"\#(Wire.id)"}}"#).content == .purged(id))
    #expect(try event("weather.changed", #"{"rain":true}"#).content == .unknown)
    #expect(try event("stream_weather", "{}", id: nil).id == nil)
    #expect(try event("stream_cursor", #"{"cursor":"0"}"#, id: nil).content == .streamCursor("0"))
    #expect(try event("stream_live", #"{"cursor":null}"#, id: nil).content == .streamLive(nil))
    #expect(try event("stream_live", #"{"cursor":12}"#, id: nil).content == .streamLive("12"))
    let old = #"{"min_retained_id":"90","requested":"3"}"#
    #expect(try event("catchup_too_old", old, id: nil).content == .catchupTooOld(minRetained: "90"))
    #expect(try event("cursor_ahead", #"{"head":"4","requested":"9"}"#, id: nil).content == .cursorAhead(head: "4"))
    let incomplete = try event("stream_incomplete", #"{"reason":"slow","cursor":"8"}"#, id: nil)
    #expect(incomplete.content == .streamIncomplete(reason: "slow", cursor: "8"))
    #expect(try event("item.updated", Wire.row()).id == "5")
  }

  struct Missing: Error {}

  @Test(
    "is refused where an event is not what it must be",
    arguments: [
      ("item.updated", "{", "1"), ("item.updated", "[]", "1"), ("item.updated", Wire.row(), nil),
      ("item.updated", Wire.row(), "x"),
      ("item.updated", Wire.row(), "-1"), ("item.updated", Wire.row(), "123456789012345678901"),
      ("item.updated", #"{"item":{}}"#, nil), ("stream_cursor", "{}", nil), ("stream_cursor", #"{"cursor":"a"}"#, nil),
      ("stream_live", #"{"cursor":-4}"#, nil),
    ] as [(String, String, String?)])
  func hostile(name: String, data: String, id: String?) {
    #expect { try event(name, data, id: id) } throws: { error in
      if case RemoteFailure.unreadable = error { true } else { false }
    }
  }

  private static let unreadable: [(String, String, String)] = [
    ("item.updated", #"{"item":{}}"#, "an item"), ("edge.created", #"{"edge":{}}"#, "an edge"),
    ("item.purged", "{}", "an item"), ("metadata.changed", #"{"metadata":{"tags":[]}}"#, "an item"),
    ("metadata.changed", #"{"metadata":{"item_id":"\#(Wire.id)","tags":["a\u0000"]}}"#, "an item"),
    ("item.updated", #"{"item":\#(Wire.item(version: "0"))}"#, "core.note \(Wire.id)"),
  ]

  @Test("that carries a row that can't be understood moves the cursor, and changes nothing", arguments: unreadable)
  func passedOver(name: String, data: String, says: String) throws {
    let event = try event(name, data, id: "5")
    guard case .unreadable(let row) = event.content else { return #expect(Bool(false), "it was read") }
    #expect(event.id == "5" && row.description.hasPrefix(says), "\(row)")
    let shared = try Shared()
    let copy = try shared.copy()
    try copy.apply([event])
    #expect(try copy.cursor() == "5")
    #expect(try copy.status().passedOver == 1)
  }

  @Test("goes on from the cursor, in order, until the server ends it")
  func stream() throws {
    let fixture = try RemoteFixture { request, connection in
      connection.write(Self.head + "event: stream_cursor\ndata: {\"cursor\":\"9\"}\n\n:ping\n\n")
      connection.write(
        "id: 8\nevent: item.created\ndata: \(Wire.row())\n\nid: 9\nevent: item.updated\ndata: \(Wire.row())\n\n")
      connection.write("event: stream_live\ndata: {\"cursor\":null}\n\n")
      connection.close()
    }
    let taker = EventTaker()
    _ = fixture.server.events(after: "7", taker)
    #expect(taker.failure() == nil)
    #expect(taker.names == ["stream_cursor", "item.created", "item.updated", "stream_live"])
    #expect(taker.events.map(\.id) == [nil, "8", "9", nil])
    #expect(fixture.raw.requests.first?["last-event-id"] == "7")
    #expect(fixture.raw.requests.first?["authorization"] == "Bearer the-key")
    let fresh = EventTaker()
    _ = fixture.server.events(after: nil, fresh)
    #expect(fresh.failure() == nil)
    #expect(fixture.raw.requests.last?["last-event-id"] == nil)
  }

  @Test("stands still while its taker pauses, in the middle of one piece too, and loses nothing")
  func pause() throws {
    let count = 400
    let fixture = try RemoteFixture { _, connection in
      connection.write(Self.head + (1...count).map { "id: \($0)\nevent: weather\ndata: {}\n\n" }.joined())
      connection.close()
    }
    let taker = EventTaker { _ in .pause }
    let transfer = fixture.server.events(after: "0", taker)
    for number in 1...count {
      #expect(comesTrue { taker.events.count == number })
      transfer.resume()
    }
    #expect(taker.failure() == nil)
    #expect(taker.events.map(\.id) == (1...count).map { "\($0)" })
  }

  @Test("ends where its taker stops, and at an event that can't be read, after those before it")
  func stop() throws {
    let fixture = try RemoteFixture { request, connection in
      connection.write(
        Self.head + "id: 1\nevent: a\ndata: {}\n\nid: 2\nevent: b\ndata: nonsense\n\nid: 3\nevent: c\ndata: {}\n\n")
      connection.waitForEnd()
    }
    let stopping = EventTaker { _ in .stop }
    _ = fixture.server.events(after: nil, stopping)
    #expect(stopping.failure() == .canceled)
    #expect(stopping.names == ["a"])
    let taker = EventTaker()
    _ = fixture.server.events(after: nil, taker)
    guard case .unreadable = taker.failure() else { return #expect(Bool(false), "nonsense was read") }
    #expect(taker.names == ["a"])
  }

  @Test("lives by its comments alone, and is over when it falls silent")
  func silence() throws {
    var limits = ServerLimits()
    limits.eventSilence = .seconds(2)
    let fixture = try RemoteFixture(limits) { _, connection in
      connection.write(Self.head)
      for _ in 0..<25 {
        connection.write(":\n")
        sleepMilliseconds(100)
      }
      connection.waitForEnd()
    }
    let taker = EventTaker()
    let start = Monotonic.now
    _ = fixture.server.events(after: nil, taker)
    #expect(taker.failure() == .timedOut("nothing came for 2 s"))
    #expect(Monotonic.now - start >= 4_000_000_000)
  }

  @Test("that is refused, of another contract, or none at all says so")
  func refused() throws {
    let fixture = try RemoteFixture { request, connection in
      switch request["last-event-id"] {
      case "1": connection.contract(401, #"{"error":{"code":"unauthorized","message":"no"}}"#)
      case "2": connection.reply(200, ["Content-Type: text/event-stream"])
      case "3": connection.reply(502)
      default: connection.contract(200, "{}")
      }
    }
    func failure(_ cursor: String) -> RemoteFailure? {
      let taker = EventTaker()
      _ = fixture.server.events(after: cursor, taker)
      return taker.failure()
    }
    #expect(failure("1") == .refused(RemoteRefusal(status: 401, code: "unauthorized", message: "no", requestID: "r-1")))
    #expect(failure("2") == .contractMismatch(named: []))
    #expect(failure("3") == .notTheServers(status: 502, retryAfter: nil))
    #expect(failure("4") == .unreadable("it is no stream of events"))
  }

  @Test("with an event larger than allowed is over")
  func large() throws {
    var limits = ServerLimits()
    limits.eventBytes = 50_000
    let fixture = try RemoteFixture(limits) { _, connection in
      connection.write(Self.head + "data: ")
      while connection.write([UInt8](repeating: 0x78, count: 10_000)) {}
    }
    let taker = EventTaker()
    _ = fixture.server.events(after: nil, taker)
    guard case .unreadable = taker.failure() else { return #expect(Bool(false), "it was read") }
  }
}
