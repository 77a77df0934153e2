import Testing

@testable import MarfaEngine

@Suite("An item changed by the engine's own calls")
struct ItemTests {
  @Test("is shown, changed and taken back")
  func life() throws {
    try withScratch { scratch in
      let (item, write) = try scratch.copy.items.create(type: "core.note", properties: ["title": "N", "body": "b"])
      #expect(try scratch.copy.items.get(item.id) == item)
      #expect(try scratch.writes().map(\.id) == [write])
      #expect(try scratch.node("N")?.kind == .directory)
      #expect(try scratch.copy.items.delete(item.id) == nil)
      #expect(try scratch.queue() == [])
      #expect(try scratch.copy.items.get(item.id) == nil)
      #expect(try scratch.list() == [])
    }
  }

  @Test("is an edit on the version held, each behind the one before")
  func updates() throws {
    try withScratch { scratch in
      let item = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      try scratch.answer()
      try scratch.copy.items.update(item.id, ["body": "one"])
      try scratch.copy.items.update(item.id, ["body": "two", "title": "M"])
      #expect(
        try scratch.queue() == [
          "1 update \"M\": body \"one\" @1", "2 update \"M\": body \"two\", title \"M\" @1 after 1",
        ])
      #expect(try scratch.list() == ["M"])
      try scratch.answer()
      #expect(try scratch.copy.items.get(item.id)?.version == 3)
    }
  }

  @Test("goes to the bin, out of sight, and comes back where it was")
  func bin() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.mkdir("D/E")
      try scratch.answer()
      let id = try #require(try scratch.item("D/E")?.id)
      #expect(try scratch.copy.items.delete(id) != nil)
      #expect(try scratch.list("D") == [])
      #expect(try scratch.copy.items.get(id)?.state == .trashed)
      try scratch.answer()
      try scratch.copy.items.restore(id)
      #expect(try scratch.list("D") == ["E"])
      #expect(try scratch.queue() == ["1 restore \"E\""])
      try scratch.answer()
    }
  }

  @Test("leaves what it held in the root when it goes")
  func children() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      _ = try scratch.copy.items.attach(to: host.id, file: scratch.folder.file("a.txt", "one"))
      try scratch.mkdir("N/sub")
      try scratch.copy.items.delete(host.id)
      #expect(try scratch.list() == ["a.txt", "sub"])
      try scratch.answer()
    }
  }

  @Test("stays in sight, on this device only, for what it held that is on this device only")
  func locals() throws {
    try withScratch { scratch in
      try scratch.mkdir("N")
      try scratch.write("N/.f.swp", "swap")
      try scratch.write("N/empty", "")
      try scratch.write("N/f", "one")
      try scratch.copy.items.delete(try #require(try scratch.item("N")?.id))
      #expect(try scratch.list() == ["N", "f"])
      #expect(try scratch.read("N/.f.swp") == "swap")
      try scratch.write("N/g", "two")
      try scratch.mkdir("N/sub")
      try scratch.move("N", "M")
      #expect(try scratch.list("M") == [".f.swp", "empty", "g", "sub"])
      try scratch.answer()
    }
  }

  @Test("is archived and active again")
  func transition() throws {
    try withScratch { scratch in
      let id = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item.id
      try scratch.copy.items.transition(id, to: .archived)
      #expect(try scratch.queue().last == "2 move \"N\" to archived <- 1")
      #expect(try scratch.list() == ["N"])
      for state in [ItemState.trashed, .revoked] {
        #expect(throws: MarfaError.self) { try scratch.copy.items.transition(id, to: state) }
      }
      try scratch.copy.items.transition(id, to: .active)
      try scratch.answer()
    }
  }

  @Test("has its tags written one by one, or as one")
  func tags() throws {
    try withScratch { scratch in
      let id = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item.id
      try scratch.copy.items.addTag(id, "b")
      try scratch.copy.items.addTag(id, "a")
      #expect(try scratch.copy.items.get(id)?.tags == ["a", "b"])
      try scratch.answer()
      try scratch.copy.items.setMetadata(id, tags: ["c"], replacing: true)
      try scratch.copy.items.setMetadata(id, tags: ["d"], replacing: false)
      #expect(try scratch.copy.items.get(id)?.tags == ["c", "d"])
      #expect(try scratch.queue() == ["1 replace the tags of \"N\"", "2 add to the tags of \"N\" after 1"])
      #expect(throws: MarfaError.self) { try scratch.copy.items.addTag(id, "") }
      #expect(throws: MarfaError.self) { try scratch.copy.items.setMetadata(id, tags: [""], replacing: true) }
      try scratch.answer()
    }
  }

  @Test("that is not there is refused")
  func missing() throws {
    try withScratch { (scratch) throws in
      let id = ItemID.mint()
      let items = scratch.copy.items
      #expect(try items.get(id) == nil)
      #expect(throws: MarfaError.itemNotFound(id)) { try items.update(id, ["a": 1]) }
      #expect(throws: MarfaError.itemNotFound(id)) { try items.delete(id) }
      #expect(throws: MarfaError.itemNotFound(id)) { try items.restore(id) }
      #expect(throws: MarfaError.itemNotFound(id)) { try items.transition(id, to: .archived) }
      #expect(throws: MarfaError.itemNotFound(id)) { try items.addTag(id, "a") }
      #expect(throws: MarfaError.itemNotFound(id)) { try items.removeTag(id, "a") }
      #expect(throws: MarfaError.itemNotFound(id)) { try items.setMetadata(id, tags: [], replacing: true) }
      #expect(throws: MarfaError.itemNotFound(id)) { try items.setExtension(id, "n", nil) }
      #expect(try scratch.queue() == [])
    }
  }

  @Test("needs a type that is one", arguments: ["", "*"])
  func type(type: String) throws {
    try withScratch { (scratch) throws in
      #expect(throws: MarfaError.self) { try scratch.copy.items.create(type: type, properties: [:]) }
    }
  }
}

@Suite("An edge drawn by the engine's own calls")
struct EdgeTests {
  private func notes(_ scratch: Scratch, _ titles: String...) throws -> [ItemID] {
    try titles.map { try scratch.copy.items.create(type: "core.note", properties: ["title": .string($0)]).item.id }
  }

  @Test("puts a child into its parent, and takes it out")
  func parent() throws {
    try withScratch { scratch in
      let ids = try notes(scratch, "A", "B")
      let edge = try scratch.copy.edges.create(from: ids[0], to: ids[1], type: Edge.parentOf).edge
      #expect(try scratch.list() == ["A"])
      #expect(try scratch.list("A") == ["B"])
      try scratch.answer()
      #expect(try scratch.copy.edges.delete(edge.id) != nil)
      #expect(try scratch.list() == ["A", "B"])
      try scratch.answer()
      #expect(throws: MarfaError.edgeNotFound(edge.id)) { try scratch.copy.edges.delete(edge.id) }
    }
  }

  @Test("moves a child by a new source of the same edge")
  func move() throws {
    try withScratch { scratch in
      let ids = try notes(scratch, "A", "B", "C")
      let edge = try scratch.copy.edges.create(from: ids[0], to: ids[2], type: Edge.parentOf).edge
      try scratch.answer()
      let number = try scratch.existing("A/C").number
      try scratch.copy.edges.move(edge.id, toParent: ids[1])
      #expect(try scratch.existing("B/C").number == number)
      #expect(try scratch.queue() == ["1 put \"C\" into \"B\" instead @1"])
      try scratch.answer()
    }
  }

  @Test("is one a triple, one parent a child, and no ring")
  func refused() throws {
    try withScratch { scratch in
      let ids = try notes(scratch, "A", "B", "C")
      let edges = scratch.copy.edges
      _ = try edges.create(from: ids[0], to: ids[1], type: Edge.parentOf)
      let second = try edges.create(from: ids[1], to: ids[2], type: Edge.parentOf).edge
      #expect(throws: MarfaError.self) { try edges.create(from: ids[0], to: ids[1], type: Edge.parentOf) }
      #expect(throws: MarfaError.self) { try edges.create(from: ids[0], to: ids[2], type: Edge.parentOf) }
      #expect(throws: MarfaError.self) { try edges.create(from: ids[2], to: ids[0], type: Edge.parentOf) }
      #expect(throws: MarfaError.self) { try edges.create(from: ids[0], to: ids[0], type: Edge.parentOf) }
      #expect(throws: MarfaError.self) { try edges.move(second.id, toParent: ids[2]) }
      #expect(throws: MarfaError.self) { try edges.create(from: ids[0], to: ids[1], type: "") }
      let missing = ItemID.mint()
      #expect(throws: MarfaError.itemNotFound(missing)) {
        try edges.create(from: missing, to: ids[0], type: "references")
      }
      try scratch.answer()
    }
  }

  @Test("has its properties changed on the version held")
  func properties() throws {
    try withScratch { scratch in
      let ids = try notes(scratch, "A", "B")
      let edge = try scratch.copy.edges.create(from: ids[0], to: ids[1], type: "references", properties: ["a": 1]).edge
      try scratch.answer()
      try scratch.copy.edges.update(edge.id, properties: ["b": 2])
      #expect(try scratch.copy.edges.get(edge.id)?.properties == ["a": 1, "b": 2])
      #expect(try scratch.writes().first?.baseVersion == 1)
      try scratch.answer()
      #expect(try scratch.copy.edges.get(edge.id)?.version == 2)
    }
  }
}
