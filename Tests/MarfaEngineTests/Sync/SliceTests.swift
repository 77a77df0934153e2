import ContractServer
import Testing

@testable import MarfaEngine

@Suite("A copy that declared a part of a server")
struct SliceTests {
  @Test(
    "refuses none and all as what it declares, before anything is asked",
    arguments: [[], ["*"], ["core.note", "*"], [""]])
  func nothing(_ types: [String]) throws {
    let shared = try Shared()
    let copy = try shared.copy()
    #expect(throws: MarfaError.self) { try copy.connect(try shared.options { $0.types = types }) }
    #expect(shared.server.requests.isEmpty)
    #expect(try copy.hydration() == .never)
    #expect(try copy.origin() == nil)
  }

  @Test("is bound to the first server that answered, and refuses another with both names")
  func origin() throws {
    let shared = try Shared()
    let other = try Shared()
    let wrong = try shared.copy()
    // An address where nothing answers binds nothing.
    var nowhere = RemoteOptions(try Origin("http://127.0.0.1:9"))
    nowhere.waits = (0.05, 0.1)
    try wrong.connect(nowhere)
    try wrong.mkdir("Sicily")
    try eventually("it tried") { wrong.serverStatus?.trouble != nil }
    let copy = try shared.reopened(wrong)
    #expect(try copy.origin() == nil)
    try copy.connect(try shared.options())
    try #require(copy.waitUntilLive(seconds: 60))
    #expect(try copy.origin() == (try Origin(shared.server.url)).description)
    let next = try shared.reopened(copy)
    do {
      try next.connect(try other.options())
      Issue.record("it is connected to another server")
    } catch {
      let words = "\(error)"
      #expect(words.holdsText(shared.server.url) && words.holdsText(other.server.url), "\(words)")
    }
    #expect(other.server.requests.isEmpty)
  }

  @Test("holds types with what is under them by name and by declaration, of its tier only")
  func subtypes() throws {
    let shared = try Shared()
    try shared.server.change { device in
      try device.createFile("a.jpg", [1], mime: "image/jpeg")
      try device.createFile("b.scan", [2], type: "acme.scan")
      try device.createFile("c.txt", [3], mime: "text/plain")
      try device.createNote("note")
      try device.createItem("core.task", ["title": "feed"], tier: "feed")
      try device.createItem("core.task", ["title": "task"])
    }
    let files = try shared.connected { $0.types = ["core.file"] }
    #expect(try files.names() == ["a.jpg", "b.scan", "c.txt"])
    let feed = try shared.connected {
      $0.types = ["core.task"]
      $0.tier = .feed
    }
    #expect(try feed.names() == ["feed"])
    let all = try shared.connected {
      $0.types = ["core.task", "core.note"]
      $0.tier = .all
    }
    #expect(try all.names() == ["feed", "note", "task"])
    for copy in [files, feed, all] { try checkInvariants(copy) }
    // What a copy declared is what it declares later, until it declares something else.
    let next = try shared.reopened(files)
    try next.connect(try shared.options())
    try #require(next.waitUntilLive(seconds: 60))
    #expect(try next.names() == ["a.jpg", "b.scan", "c.txt"])
    let again = try shared.reopened(next)
    try again.connect(try shared.options { $0.types = ["core.note"] })
    try eventually("it holds what it declares now") { try again.names() == ["note"] }
    shared.expectNoViolations()
  }

  @Test("lets a row go that leaves it, with the edges it draws, and takes it back with tags and edges")
  func leaving() throws {
    let shared = try Shared()
    let (note, other) = try shared.server.change { device in
      let note = try device.createNote("Sicily", tags: ["travel"])
      let other = try device.createNote("Etna")
      for number in 0..<60 {
        let target = try device.createNote("\(number)")
        try device.createEdge("references", from: note, to: target)
      }
      try device.createEdge("references", from: other, to: note)
      return (note, other)
    }
    let copy = try shared.connected { $0.types = ["core.note"] }
    let (id, from) = (try #require(ItemID(note)), try #require(ItemID(other)))
    #expect(try copy.edges.from(id, type: "references").count == 60)
    try shared.server.change { _ = try $0.updateItem(note, tier: "feed") }
    try eventually("it is gone") { try copy.items.get(id) == nil }
    #expect(try copy.edges.from(id, type: "references").isEmpty)
    #expect(try copy.edges.from(from, type: "references").count == 1)
    try shared.server.change { _ = try $0.updateItem(note, tier: "library") }
    try eventually("it is back, with all its edges") {
      try copy.edges.from(id, type: "references").count == 60
    }
    #expect(try copy.items.get(id)?.tags == ["travel"])
    try shared.server.change { _ = try $0.updateItem(note, type: "core.task") }
    try eventually("it is gone again") { try copy.items.get(id) == nil }
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("keeps a pinned row that leaves it, with its edges, and over a hydration")
  func pinned() throws {
    let shared = try Shared()
    let (note, gone) = try shared.server.change { device in
      let note = try device.createNote("Sicily")
      let target = try device.createNote("Etna")
      try device.createEdge("references", from: note, to: target)
      return (note, try device.createNote("Gone"))
    }
    let copy = try shared.connected { $0.types = ["core.note"] }
    let (id, lost) = (try #require(ItemID(note)), try #require(ItemID(gone)))
    try copy.store.write { (connection) throws(MarfaError) in
      try connection.setItem(id, pinned: true)
      try connection.setItem(lost, pinned: true)
    }
    try shared.server.change { _ = try $0.updateItem(note, ["title": "Away"], tier: "feed") }
    try eventually("it is as it is now") { try copy.items.get(id)?.title == "Away" }
    #expect(try copy.items.get(id)?.pinned == true)
    #expect(try copy.edges.from(id, type: "references").count == 1)
    // The log is lost, and with it that one of them was purged.
    shared.server.faults.add(Fault(.refuse(status: 503), path: "/events", count: 1))
    shared.server.cutStreams()
    try shared.server.change { try $0.purge(gone) }
    try shared.server.change { _ = try $0.createNote("filler") }
    try shared.server.retireEvents(keeping: 1)
    try eventually("what is gone is gone, pinned or not") { try copy.items.get(lost) == nil }
    try eventually("it is complete") { try copy.hydration() == .complete }
    try eventually("its edges are read again") { try copy.edges.from(id, type: "references").count == 1 }
    #expect(try copy.items.get(id)?.pinned == true)
    shared.expectNoViolations()
  }

  @Test("reads what the key may read")
  func grants() throws {
    var options = ServerOptions()
    options.keys.append(APIKey("guest", secret: "mk_test_guest", types: ["core.note": .write], edges: [:]))
    let shared = try Shared(options)
    try shared.server.change { device in
      try device.createNote("note")
      try device.createItem("core.task", ["title": "task"])
    }
    let copy = try shared.copy()
    try copy.connect(try shared.options(key: "mk_test_guest"))
    try #require(copy.waitUntilLive(seconds: 30), "\(String(describing: copy.serverStatus))")
    #expect(try copy.names() == ["note"])
    shared.expectNoViolations()
  }
}

extension String {
  /// Foundation's `contains` of a text is not here.
  func holdsText(_ part: String) -> Bool {
    let (whole, part) = (Array(utf8), Array(part.utf8))
    guard part.count <= whole.count else { return false }
    return (0...whole.count - part.count).contains { whole[$0..<$0 + part.count].elementsEqual(part) }
  }
}
