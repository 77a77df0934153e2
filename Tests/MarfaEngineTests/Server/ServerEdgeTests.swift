import ContractServer
import Testing

@testable import MarfaEngine

/// Contract "Shapes": edges.
@Suite("Edges of the tests' server")
struct ServerEdgeTests {
  @Test("an edge is drawn, acknowledged under its own id, and refused under another as a duplicate")
  func duplicate() throws {
    let fixture = try ServerFixture()
    let (a, b) = (try fixture.createNote("a"), try fixture.createNote("b"))
    let id = EdgeID.mint().description
    let first = try fixture.createEdge("references", from: a, to: b, id: id)
    #expect(first.status == 201)
    #expect(first.edge["version"] == 1)
    let again = try fixture.createEdge("references", from: a, to: b, id: id)
    #expect(again.status == 200)
    #expect(again.json["acknowledged"] == true)
    let other = try fixture.createEdge("references", from: a, to: b)
    #expect(other.status == 400)
    #expect(other.code == "edge_constraint_violation")
    #expect(other.details["reason"] == "duplicate")
  }

  @Test("a child has one parent, moves by its edge's source, and is never above its parent")
  func parents() throws {
    let fixture = try ServerFixture()
    let ids = try (0..<3).map { try fixture.createNote("\($0)") }
    let edge = try fixture.createEdge("parent-of", from: ids[0], to: ids[1])
    let second = try fixture.createEdge("parent-of", from: ids[2], to: ids[1])
    #expect(second.code == "edge_constraint_violation")
    #expect(second.details["reason"] == "cardinality")
    let cycle = try fixture.createEdge("parent-of", from: ids[1], to: ids[0])
    #expect(cycle.details["reason"] == "cycle")
    let id = try #require(edge.edge["id"]?.string)
    let moved = try fixture.write("PATCH", "/edges/\(id)", ["version": 1, "source_id": .string(ids[2])])
    #expect(moved.status == 200)
    #expect(moved.edge["id"]?.string == id)
    #expect(moved.edge["version"] == 2)
    let stale = try fixture.write("PATCH", "/edges/\(id)", ["version": 1, "source_id": .string(ids[0])])
    #expect(stale.status == 409)
    #expect(stale.code == "version_conflict")
    #expect(stale.details["current"]?.object?["version"] == 2)
    let deleted = try fixture.write("DELETE", "/edges/\(id)")
    #expect(deleted.json == ["ok": true])
    #expect(fixture.violations.isEmpty)
  }

  @Test("an attachment's source is a file, and its ends are not in the bin")
  func ends() throws {
    let fixture = try ServerFixture()
    let (a, b) = (try fixture.createNote("a"), try fixture.createNote("b"))
    #expect(try fixture.createEdge("attached-to", from: a, to: b).code == "edge_constraint_violation")
    let file = try fixture.server.change { try $0.createFile("f", [1]) }
    _ = try fixture.write("DELETE", "/items/\(b)")
    let binned = try fixture.createEdge("attached-to", from: file, to: b)
    #expect(binned.status == 404)
    #expect(binned.details["trashed"] == true)
  }

  @Test("the bin keeps a host's attachments, a purge takes the edges at both ends")
  func attachments() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { device in
      let host = try device.createNote("host")
      let file = try device.createFile("f", [1], attachedTo: host)
      try device.trash(host)
      #expect(try device.edges().count == 1)
      #expect(try device.item(file)?.state == "active")
      try device.purge(host)
      #expect(try device.edges().isEmpty)
      #expect(try device.events().map(\.name).suffix(1) == ["item.purged"])
    }
  }
}

/// Contract "Reading".
@Suite("Listings of the tests' server")
struct ServerListingTests {
  /// Every page of a listing.
  private func pages(_ fixture: ServerFixture, _ target: String) throws -> [[JSON]] {
    var pages: [[JSON]] = []
    var next: String? = target
    while let asked = next {
      let answer = try fixture.ask("GET", asked)
      try #require(answer.status == 200)
      pages.append(answer.data)
      next = answer.json["next_cursor"]?.string.map { "\(target)&cursor=\($0)" }
    }
    return pages
  }

  private func titles(_ rows: [JSON]) -> [String] {
    rows.compactMap { $0.object?["item"]?.object?["properties"]?.object?["title"]?.string }
  }

  @Test("a type is listed with what is under it, by name and by declaration")
  func subtree() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { device in
      for (title, type) in [("a", "core.file"), ("b", "core.file.image"), ("c", "acme.scan")] {
        try device.createFile(title, [1], type: type)
      }
      try device.createNote("d")
    }
    #expect(titles(try pages(fixture, "/items?type=core.file")[0]) == ["a", "b", "c"])
    #expect(titles(try pages(fixture, "/items?type=core.file.image")[0]) == ["b"])
    #expect(titles(try pages(fixture, "/items?limit=200")[0]) == ["a", "b", "c", "d"])
  }

  @Test("tier and state choose, with library and active where nothing is said")
  func tiers() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { device in
      try device.createNote("a")
      try device.createItem("core.note", ["title": "b", "body": ""], tier: "feed")
      try device.transition(try device.createNote("c"), to: "archived")
      try device.trash(try device.createNote("d"))
      try device.createNote("e", tags: ["red", "blue"])
    }
    for (query, expected) in [
      ("", ["a", "e"]), ("tier=feed", ["b"]), ("tier=all", ["a", "b", "e"]), ("state=archived", ["c"]),
      ("state=trashed", ["d"]), ("state=any&tier=all", ["a", "b", "c", "d", "e"]), ("tags=red,blue", ["e"]),
    ] {
      #expect(titles(try pages(fixture, "/items?type=core.note&\(query)")[0]) == expected, "\(query)")
    }
  }

  @Test("pages follow each other by their cursor, each row once")
  func pageByPage() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { device in for index in 0..<450 { try device.createNote("\(index)") } }
    let all = try pages(fixture, "/items?type=core.note&limit=200")
    #expect(all.map(\.count) == [200, 200, 50])
    #expect(titles(all.flatMap { $0 }) == (0..<450).map(String.init))
  }

  @Test("an item carries up to 50 edges of a type, the rest by the block's cursor")
  func overflow() throws {
    let fixture = try ServerFixture()
    let parent = try fixture.server.change { device in
      let parent = try device.createNote("parent")
      for index in 0..<120 {
        try device.createEdge("parent-of", from: parent, to: try device.createNote("\(index)"))
      }
      try device.createEdge("references", from: parent, to: parent)
      return parent
    }
    let item = try fixture.ask("GET", "/items/\(parent)?include=edges,metadata").item
    let blocks = try #require(item["edges"]?.object)
    #expect(blocks.members.map(\.key).sorted() == ["parent-of", "references"])
    let block = try #require(blocks["parent-of"]?.object)
    #expect(block["data"]?.array?.count == 50)
    let cursor = try #require(block["next_cursor"]?.string)
    let rest = try fixture.ask("GET", "/items/\(parent)/edges?edge_type=parent-of&limit=200&cursor=\(cursor)")
    #expect(rest.data.count == 70)
    let ids = ((block["data"]?.array ?? []) + rest.data).compactMap { $0.object?["target_id"]?.string }
    #expect(Set(ids).count == 120)
    #expect(try pages(fixture, "/edges?edge_type=parent-of&limit=50").map(\.count) == [50, 50, 20])
    #expect(try fixture.ask("GET", "/items/\(parent)/backrefs").data.count == 1)
  }

  @Test("a search finds words of a title or a text, the best first")
  func search() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { device in
      try device.createNote("red")
      try device.createNote("red house")
      try device.createNote("tree")
    }
    #expect(titles(try fixture.ask("GET", "/search?q=red+house&type=core.note&limit=10").data) == ["red house", "red"])
  }

  @Test("a seed's rows are like any other")
  func seed() throws {
    let fixture = try ServerFixture()
    try fixture.server.change { try $0.seed(notes: 3, filesEach: 2) }
    #expect(titles(try pages(fixture, "/items?type=core.note")[0]) == ["note 1", "note 2", "note 3"])
    let files = try pages(fixture, "/items?type=core.file&include=edges")[0]
    #expect(titles(files) == ["file 1.1", "file 1.2", "file 2.1", "file 2.2", "file 3.1", "file 3.2"])
    let (items, edges) = try fixture.server.change { (try $0.items(), try $0.edges()) }
    #expect(edges.map(\.target) == [items[0], items[0], items[1], items[1], items[2], items[2]].map(\.id))
    // What is sent of them is what is kept of them, and they can be changed.
    let file = items[3]
    let answer = try fixture.ask("GET", "/items/\(file.id)")
    #expect(answer.item["properties"]?.object == file.properties)
    #expect(ItemID(file.id) != nil)
    let update: JSON.Object = ["version": 1, "properties": ["title": "changed"]]
    #expect(try fixture.write("PATCH", "/items/\(file.id)?conflict=auto", update).item["version"] == 2)
    #expect(try fixture.ask("GET", "/blobs/\(try #require(file.blob))").text == "seeded\n")
  }

  @Test("twenty thousand items with their edges are walked in pages of 200")
  func manyItems() throws {
    let fixture = try ServerFixture()
    let count = 20_000
    try fixture.server.change { try $0.seed(notes: 200, filesEach: 100) }
    let clock = ContinuousClock()
    var pages = 0
    let time = try clock.measure {
      var cursor = ""
      repeat {
        let answer = try fixture.ask(
          "GET", "/items?type=core.file&tier=all&state=any&include=edges,metadata&limit=200\(cursor)")
        pages += 1
        // Only the end is read: this measures the server.
        let tail = String(decoding: answer.body.suffix(40), as: UTF8.self)
        cursor = tail.split(separator: "\"").first { $0.hasPrefix("n~") }.map { "&cursor=\($0)" } ?? ""
      } while !cursor.isEmpty
    }
    #expect(pages == count / 200)
    #expect(time < .seconds(30), "\(time)")
  }
}
