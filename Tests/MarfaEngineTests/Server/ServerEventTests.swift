import ContractServer
import Testing

@testable import MarfaEngine

/// Contract "Events".
@Suite("The event streams of the tests' server")
struct ServerEventTests {
  @Test("a stream tells the log's head, then that it is live, then what happens")
  func live() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { _ = try $0.createNote("before") }
    let stream = try fixture.events()
    let first = try #require(try stream.event())
    #expect(first.id == nil)
    #expect(first.name == "stream_cursor")
    #expect(first.data == ["event_type": "stream_cursor", "cursor": "1"])
    let live = try #require(try stream.event())
    #expect(live.name == "stream_live")
    #expect(live.data["cursor"] == .null)
    let id = try fixture.createNote("now")
    let event = try #require(try stream.event())
    #expect(event.id == "2")
    #expect(event.name == "item.created")
    #expect(event.data["event_type"] == "item.created")
    #expect(event.data["item"]?.object?["id"]?.string == id)
    #expect(event.data["item"]?.object?["edges"] == nil)
    #expect(event.data["metadata"]?.object?["item_id"]?.string == id)
  }

  @Test("the replay comes after the cursor asked for, in order, and says where it ends")
  func replay() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { device in for index in 0..<500 { try device.createNote("\(index)") } }
    let stream = try fixture.events(after: 100)
    #expect(try stream.event()?.data["cursor"] == "500")
    for number in 101...500 { try #require(try stream.event()?.id == String(number)) }
    let live = try #require(try stream.event())
    #expect(live.name == "stream_live")
    #expect(live.data["cursor"] == "500")
  }

  @Test("a stream that was slower than the log is kept ends, and does not pass over what is gone")
  func outrun() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { device in
      for index in 0..<1000 {
        try device.createNote("\(index)", body: String(repeating: "more than fits on the way. ", count: 1000))
      }
    }
    let stream = try fixture.events(after: 0)
    try #require(try stream.event()?.name == "stream_cursor")
    for number in 1...10 { try #require(try stream.event()?.id == String(number)) }
    try fixture.server.retireEvents(keeping: 2)
    var last = 10
    while let event = try stream.event(), event.id != nil {
      last += 1
      try #require(event.id == String(last))
    }
    #expect(last < 998)
    #expect(try fixture.events(after: Int64(last)).event()?.name == "stream_cursor")
  }

  @Test("zero is a cursor")
  func zero() throws {
    let fixture = try ServerFixture()
    #expect(try fixture.events(after: 0).event()?.data["cursor"] == "0")
  }

  @Test("each kind of write is told by its own event")
  func kinds() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { device in
      let (a, b) = (try device.createNote("a"), try device.createNote("b"))
      try device.updateItem(a, ["title": "c"])
      try device.addTags(a, ["t"])
      try device.addTags(a, ["t"])
      try device.transition(a, to: "archived")
      let edge = try device.createEdge("parent-of", from: a, to: b)
      try device.updateEdge(edge, source: b, target: a)
      try device.trash(b)
      try device.restore(b)
      try device.deleteEdge(edge)
      try device.purge(b)
    }
    #expect(
      try fixture.server.change { try $0.events().map(\.name) } == [
        "item.created", "item.created", "item.updated", "metadata.changed", "item.state_changed", "edge.created",
        "edge.updated", "item.deleted", "item.deleted", "item.restored", "item.restored", "edge.deleted",
        "item.purged",
      ])
  }

  @Test("an edge's event names its source's type")
  func edges() throws {
    let fixture = try ServerFixture()
    let file = try fixture.server.change { device in
      try device.createFile("f", [1], attachedTo: try device.createNote("n"))
    }
    let stream = try fixture.events(after: 2)
    _ = try stream.event()
    let event = try #require(try stream.event())
    #expect(event.name == "edge.created")
    #expect(event.data["source_type"] == "core.file")
    #expect(event.data["edge"]?.object?["source_id"]?.string == file)
  }

  @Test("a cursor the log no longer reaches ends the stream")
  func retired() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { device in for _ in 0..<10 { try device.createNote("n") } }
    try fixture.server.retireEvents(keeping: 3)
    let stream = try fixture.events(after: 6)
    _ = try stream.event()
    let end = try #require(try stream.event())
    #expect(end.id == nil)
    #expect(end.name == "catchup_too_old")
    #expect(end.data["min_retained_id"] == "8")
    #expect(end.data["requested"] == "6")
    #expect(try stream.event() == nil)
    // The last one that reaches.
    let reaching = try fixture.events(after: 7)
    _ = try reaching.event()
    #expect(try reaching.event()?.id == "8")
  }

  @Test("a server restored from a backup knows nothing of the cursor")
  func ahead() throws {
    let fixture = try ServerFixture()
    let id = try fixture.createNote("kept")
    try fixture.server.takeSnapshot()
    let lost = try fixture.createNote("lost")
    try fixture.server.restoreSnapshot()
    #expect(try fixture.server.item(id) != nil)
    #expect(try fixture.server.item(lost) == nil)
    let stream = try fixture.events(after: 2)
    _ = try stream.event()
    let end = try #require(try stream.event())
    #expect(end.name == "cursor_ahead")
    #expect(end.data["head"] == "1")
    #expect(end.data["requested"] == "2")
  }

  @Test("a key is told of what it may read, and where the log is past the rest")
  func grants() throws {
    let fixture = try ServerFixture { options in
      options.keys = [APIKey("notes", secret: "K", types: ["core.note": .read])]
    }
    try fixture.server.change { device in
      try device.createNote("n")
      try device.createItem("core.task", ["title": "t"])
    }
    let stream = try fixture.events(after: 0)
    #expect(try stream.event()?.data["cursor"] == "2")
    #expect(try stream.event()?.id == "1")
    let live = try #require(try stream.event())
    #expect(live.name == "stream_live")
    #expect(live.data["cursor"] == "2")
  }

  @Test("a quiet stream is kept alive by comments")
  func pings() throws {
    let fixture = try ServerFixture { $0.pingInterval = 0.05 }
    let stream = try fixture.events()
    for _ in 0..<2 { _ = try stream.frame() }
    #expect(try stream.frame() == ":ping")
  }

  @Test("streams end plainly, or saying that they are incomplete, when told to")
  func cut() throws {
    let fixture = try ServerFixture()
    let streams = [try fixture.events(), try fixture.events()]
    #expect(fixture.server.waitForStreams(2))
    for stream in streams { for _ in 0..<2 { _ = try stream.event() } }
    fixture.server.cutStreams(incomplete: "maintenance")
    for stream in streams {
      let end = try #require(try stream.event())
      #expect(end.name == "stream_incomplete")
      #expect(end.data["reason"] == "maintenance")
      #expect(end.data["cursor"] == "0")
      #expect(try stream.event() == nil)
    }
  }

  @Test("older instances name events the old way")
  func oldNames() throws {
    let fixture = try ServerFixture { $0.namesEventsOldWay = true }
    #expect(try fixture.events().event()?.data == ["type": "stream_cursor", "cursor": "0"])
  }

  @Test("many streams are held, and nobody waits for them")
  func many() throws {
    let fixture = try ServerFixture()
    let streams = try (0..<50).map { _ in try fixture.events() }
    #expect(fixture.server.waitForStreams(50))
    _ = try fixture.createNote()
    for stream in streams {
      for _ in 0..<2 { _ = try stream.event() }
      #expect(try stream.event()?.name == "item.created")
    }
  }
}
