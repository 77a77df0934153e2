import ContractServer
import Testing

@testable import MarfaEngine

@Suite("What a server tells")
struct FollowedEventTests {
  /// Applies the same events to a copy without a network.
  private func event(_ id: String, _ name: String, _ content: ServerEvent.Content) -> ServerEvent {
    ServerEvent(id: id, name: name, content: content, raw: [:])
  }

  private func row(
    _ id: ItemID, _ title: String, version: Int64, type: String = "core.note", state: ItemState = .active,
    tags: [String]? = []
  ) -> ItemRow {
    ItemRow(
      id: id, type: type, properties: ["title": .string(title), "unknown": [1, 2]], state: state, tier: .library,
      version: version, rest: ["schema_version": 7],
      metadata: tags.map { ItemMetadata(tags: $0, extensions: [:]) }, edges: [], carriesEdges: false)
  }

  private func edge(
    _ id: EdgeID, _ source: ItemID, _ target: ItemID, version: Int64 = 1, type: String = Edge.parentOf
  ) -> ServerEvent.Content {
    .edge(
      EdgeRow(id: id, source: source, target: target, type: type, properties: [:], version: version, rest: [:]),
      sourceType: "core.note")
  }

  private func withCopy(_ body: (WorkingCopy) throws -> Void) throws {
    let folder = try TemporaryFolder()
    let copy = try WorkingCopy(path: folder.path + "/store.db")
    defer { copy.close() }
    try body(copy)
    // A ring's last edge can't be shown.
    let breaches = try invariantBreaches(copy).filter { !$0.holdsText("is shown nowhere") }
    #expect(breaches.isEmpty, "\(breaches)")
  }

  @Test("is applied when it is as new as what is here, skipped when it is older, and moves the cursor either way")
  func versions() throws {
    try withCopy { copy in
      let id = ItemID.mint()
      try copy.apply([event("5", "item.created", .item(row(id, "three", version: 3)))])
      #expect(try copy.names() == ["three"])
      try copy.apply([event("6", "item.updated", .item(row(id, "two", version: 2)))])
      #expect(try copy.names() == ["three"])
      #expect(try copy.cursor() == "6")
      try copy.apply([event("7", "item.updated", .item(row(id, "equal", version: 3)))])
      #expect(try copy.names() == ["equal"])
      #expect(try copy.items.get(id)?.properties["unknown"] == [1, 2])
      try copy.apply([event("0", "later.kind", .unknown)])
      #expect(try copy.cursor() == "0")
      // An event nobody knows is treated by what it carries.
      try copy.apply([event("9", "item.polished", .item(row(id, "polished", version: 4)))])
      #expect(try copy.names() == ["polished"])
      try copy.apply([event("10", "tags.shuffled", .metadata(id, ItemMetadata(tags: ["x"], extensions: ["a": [:]])))])
      #expect(try copy.items.get(id)?.tags == ["x"])
      try copy.apply([event("11", "item.deleted", .item(row(id, "polished", version: 4, state: .trashed)))])
      #expect(try copy.names() == [])
      #expect(try copy.items.get(id)?.state == .trashed)
      try copy.apply([event("12", "item.restored", .item(row(id, "polished", version: 4)))])
      #expect(try copy.names() == ["polished"])
      try copy.apply([event("13", "item.purged", .purged(id))])
      #expect(try copy.items.get(id) == nil)
    }
  }

  @Test("is applied with its cursor or not at all")
  func oneTransaction() throws {
    try withCopy { copy in
      let id = ItemID.mint()
      try copy.apply([event("1", "item.created", .item(row(id, "one", version: 1)))])
      // A row the store can't take: nothing of the batch stays.
      #expect(throws: MarfaError.self) {
        try copy.apply([
          event("2", "item.updated", .item(row(id, "two", version: 2))),
          event("3", "item.created", .item(row(.mint(), "bad", version: -1, type: ""))),
        ])
      }
      #expect(try copy.cursor() == "1")
      #expect(try copy.names() == ["one"])
    }
  }

  @Test("moves the cursor to where the replay ended, when that is further on")
  func live() throws {
    try withCopy { copy in
      try copy.apply([
        event("5", "x", .unknown), ServerEvent(id: nil, name: "stream_live", content: .streamLive("9"), raw: [:]),
      ])
      #expect(try copy.cursor() == "9")
      try copy.apply([ServerEvent(id: nil, name: "stream_live", content: .streamLive("7"), raw: [:])])
      #expect(try copy.cursor() == "9")
      try copy.apply([ServerEvent(id: nil, name: "stream_live", content: .streamLive(nil), raw: [:])])
      #expect(try copy.cursor() == "9")
      try copy.apply([ServerEvent(id: nil, name: "stream_live", content: .streamLive("10"), raw: [:])])
      #expect(try copy.cursor() == "10")
    }
  }

  @Test("never hangs or loses a directory, whatever rings and second parents it draws")
  func rings() throws {
    try withCopy { copy in
      let ids = (0..<4).map { _ in ItemID.mint() }
      let edges = (0..<8).map { _ in EdgeID.mint() }
      try copy.apply(ids.enumerated().map { event("\($0)", "item.created", .item(row($1, "\($0)", version: 1))) })
      // 0 > 1 > 2 > 0, each itself's parent, and a second parent.
      try copy.apply([
        event("10", "edge.created", edge(edges[0], ids[0], ids[1])),
        event("11", "edge.created", edge(edges[1], ids[1], ids[2])),
        event("12", "edge.created", edge(edges[2], ids[2], ids[0])),
        event("13", "edge.created", edge(edges[3], ids[3], ids[3])),
        event("14", "edge.created", edge(edges[4], ids[3], ids[2])),
      ])
      #expect(try copy.paths() == ["0/", "0/1/", "0/1/2/", "3/"])
      // The ring opens elsewhere: what had waited is shown.
      try copy.apply([event("15", "edge.deleted", edge(edges[0], ids[0], ids[1]))])
      #expect(try copy.paths() == ["1/", "1/2/", "1/2/0/", "3/"])
      // The first parent lets go: the second has it.
      try copy.apply([event("16", "edge.deleted", edge(edges[1], ids[1], ids[2]))])
      #expect(try copy.paths() == ["1/", "3/", "3/2/", "3/2/0/"])
      // Turned around in one batch, in an order that makes a ring for a moment.
      try copy.apply([
        event("17", "edge.created", edge(edges[5], ids[0], ids[3])),
        event("18", "edge.deleted", edge(edges[4], ids[3], ids[2])),
      ])
      #expect(try copy.paths() == ["1/", "2/", "2/0/", "2/0/3/"])
      // In the bin, the middle lets the ends go; back, it has them again.
      try copy.apply([event("19", "item.deleted", .item(row(ids[0], "0", version: 1, state: .trashed)))])
      #expect(try copy.paths() == ["1/", "2/", "3/"])
      try copy.apply([event("20", "item.restored", .item(row(ids[0], "0", version: 1)))])
      #expect(try copy.paths() == ["1/", "2/", "2/0/", "2/0/3/"])
    }
  }

  @Test("is shown once a program here takes away what kept it from being shown")
  func ringOpenedHere() throws {
    try withCopy { copy in
      let (trip, day) = (ItemID.mint(), ItemID.mint())
      try copy.apply([
        event("1", "item.created", .item(row(trip, "Sicily", version: 1))),
        event("2", "item.created", .item(row(day, "Monday", version: 1))),
      ])
      try copy.move("Monday", "Sicily/Monday")
      // The other way about, elsewhere and first.
      try copy.apply([event("3", "edge.created", edge(.mint(), day, trip))])
      #expect(try copy.paths() == ["Sicily/", "Sicily/Monday/"])
      try copy.move("Sicily/Monday", "Monday")
      #expect(try copy.paths() == ["Monday/", "Monday/Sicily/"])
    }
  }

  @Test("moves a child by its edge, and drops edges at both ends with what is purged")
  func edges() throws {
    let shared = try Shared()
    let (b, child, moved) = try shared.server.change { device in
      let (a, b, child) = (try device.createNote("a"), try device.createNote("b"), try device.createNote("child"))
      return (b, child, try device.createEdge("parent-of", from: a, to: child))
    }
    let copy = try shared.connected()
    let number = try copy.node(at: "a/child")?.number
    try shared.server.change { try $0.updateEdge(moved, source: b) }
    try eventually("moved") { try copy.paths() == ["a/", "b/", "b/child/"] }
    #expect(try copy.node(at: "b/child")?.number == number)
    try shared.server.change { device in
      try device.createEdge("references", from: child, to: b)
      try device.setExtension(child, "acme", ["x": 1])
      try device.addTags(child, ["t"])
    }
    let id = try #require(ItemID(child))
    try eventually("tagged") { try copy.items.get(id)?.tags == ["t"] }
    #expect(try copy.items.extensionValue(id, "acme") == ["x": 1])
    #expect(try copy.edges.from(id, type: "references").count == 1)
    try shared.server.change { try $0.purge(b) }
    try eventually("purged") { try copy.paths() == ["a/", "child/"] }
    #expect(try copy.edges.from(id, type: "references").isEmpty)
    #expect(try copy.edges.get(try #require(EdgeID(moved))) == nil)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("gives a name back to the one that came under it before the older one went, and to no other")
  func passedOn() throws {
    try withCopy { copy in
      let ids = (0..<4).map { _ in ItemID.mint() }
      let edge = EdgeID.mint()
      try copy.apply([
        event("1", "item.created", .item(row(ids[0], "Sicily", version: 1))),
        event("2", "item.created", .item(row(ids[1], "Sicily", version: 1))),
        event("3", "item.created", .item(row(ids[2], "Sicily", version: 1))),
        event("4", "item.created", .item(row(ids[3], "Sicily (4)", version: 1))),
      ])
      #expect(try copy.names() == ["Sicily", "Sicily (2)", "Sicily (3)", "Sicily (4)"])
      // In the bin.
      try copy.apply([event("5", "item.deleted", .item(row(ids[0], "Sicily", version: 1, state: .trashed)))])
      #expect(try copy.names() == ["Sicily", "Sicily (3)", "Sicily (4)"])
      #expect(try copy.item(at: "Sicily")?.id == ids[1])
      // Called something else.
      try copy.apply([event("6", "item.updated", .item(row(ids[1], "Malta", version: 2)))])
      #expect(try copy.names() == ["Malta", "Sicily", "Sicily (4)"])
      #expect(try copy.item(at: "Sicily")?.id == ids[2])
      // Gone to another place, where nobody has its name; and what a person called so is called so.
      try copy.apply([event("7", "edge.created", self.edge(edge, ids[1], ids[2]))])
      #expect(try copy.paths() == ["Malta/", "Malta/Sicily/", "Sicily (4)/"])
    }
  }

  @Test("of a file that was removed and made anew shows one file of that name, in whatever order it is heard")
  func removedAndMade() throws {
    let shared = try Shared()
    let (copy, other) = (try shared.connected(), try shared.connected())
    try copy.write("a.txt", "old")
    try copy.mkdir("D")
    try copy.write("D/a.txt", "old")
    try copy.drained()
    try eventually("they are there") { try other.paths() == ["D/", "D/a.txt", "a.txt"] }
    // The removals are answered last.
    shared.server.faults.add(Fault(.delay(seconds: 0.5), method: "DELETE", count: nil))
    for path in ["a.txt", "D/a.txt"] {
      try copy.unlink(path)
      try copy.write(path, "new")
    }
    try copy.drained()
    let head = shared.server.head
    try eventually("it heard") { try other.isAt(head) }
    #expect(try other.paths() == ["D/", "D/a.txt", "a.txt"])
    #expect(try copy.paths() == ["D/", "D/a.txt", "a.txt"])
    for path in ["a.txt", "D/a.txt"] {
      #expect(try other.node(at: path)?.item == copy.node(at: path)?.item)
      #expect(try other.node(at: path)?.blob == BlobHash(of: Array("new".utf8)))
    }
    shared.expectNoViolations()
    try checkInvariants(other)
  }

  @Test("is heard to the end, however often the stream breaks off")
  func cut() throws {
    let shared = try Shared()
    let copy = try shared.connected { $0.waits = (0.01, 0.05) }
    for index in 0..<6 {
      shared.server.faults.add(Fault(.cutStream(afterEvents: 3), path: "/events", skip: index * 2, count: 1))
      shared.server.faults.add(Fault(.streamIncomplete(reason: "busy"), path: "/events", skip: index * 3, count: 1))
    }
    shared.server.faults.add(Fault(.refuse(status: 503), path: "/events", skip: 4, count: 3))
    for number in 0..<60 {
      try shared.server.change { _ = try $0.createNote("\(number)") }
      if number.isMultiple(of: 10) { shared.server.cutStreams(incomplete: number.isMultiple(of: 20) ? "test" : nil) }
    }
    let head = shared.server.head
    try eventually("all were heard") { try copy.isAt(head) }
    #expect(try copy.names().count == 60)
    #expect(shared.server.stats["GET /types"].requests == 1)
    shared.expectNoViolations()
  }

  @Test("may be thousands of events at once")
  func burst() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try shared.server.change { device in
      for number in 0..<6000 { _ = try device.createNote("\(number)", body: String(repeating: "x", count: 2000)) }
    }
    let head = shared.server.head
    try eventually("all are here", seconds: 180) { try copy.isAt(head) }
    #expect(try copy.names().count == 6000)
    shared.expectNoViolations()
  }
}
