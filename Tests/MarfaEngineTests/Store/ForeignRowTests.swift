import Testing

@testable import MarfaEngine

@Suite("What a row carries that nobody here knows")
struct ForeignRowTests {
  private static let properties =
    "{\"title\":\"n\",\"body\":\"\",\"mood\":{\"deep\":[1.50,1e400,123456789012345678901234567890,null]},\"\u{e9}\":1,\"e\u{301}\":2}"

  @Test("is kept, numbers with their text, whatever is changed beside it")
  func properties() throws {
    try withScratch { scratch in
      let properties = try #require(try JSON(reading: Self.properties).object)
      let item = try scratch.copy.items.create(type: "core.note", properties: properties).item
      try scratch.copy.items.update(item.id, ["body": "text"])
      try scratch.move("n", "renamed")
      try scratch.reopen()
      var expected = properties
      expected["body"] = "text"
      expected["title"] = "renamed"
      let kept = try #require(try scratch.copy.items.get(item.id)?.properties)
      #expect(kept == expected)
      #expect(JSON.object(kept).text.contains("[1.50,1e400,123456789012345678901234567890,null]"))
      try scratch.answer()
    }
  }

  @Test("of an edge is kept when it is moved")
  func edge() throws {
    try withScratch { scratch in
      for name in ["A", "B", "C"] { try scratch.mkdir(name) }
      let (a, b, c) = (
        try #require(try scratch.item("A")?.id), try #require(try scratch.item("B")?.id),
        try #require(try scratch.item("C")?.id)
      )
      let edge = try scratch.copy.edges.create(
        from: a, to: c, type: Edge.parentOf, properties: ["order": .number("1.50")]
      ).edge
      try scratch.answer()
      try scratch.move("A/C", "B/C")
      let moved = try #require(try scratch.copy.edges.get(edge.id))
      #expect(moved.source == b)
      #expect(moved.properties == ["order": .number("1.50")])
      try scratch.answer()
    }
  }

  @Test("is an edge of another type, which the tree does not show and does not take away")
  func otherEdge() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.write("A/f", "one")
      let (a, f) = (try #require(try scratch.item("A")?.id), try #require(try scratch.item("A/f")?.id))
      let edge = try scratch.copy.edges.create(from: a, to: f, type: "references").edge
      try scratch.answer()
      try scratch.move("A/f", "f")
      #expect(try scratch.copy.edges.get(edge.id) != nil)
      #expect(try scratch.queue() == ["1 detach \"f\" from \"A\""])
      try scratch.answer()
    }
  }

  @Test("is an extension's values")
  func extensions() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      let id = try #require(try scratch.item("A")?.id)
      try scratch.answer()
      let value: JSON.Object = ["a": .number("1.0"), "b": [["c": .null]]]
      try scratch.copy.items.setExtension(id, "org.example", value)
      try scratch.reopen()
      #expect(try scratch.copy.items.extensionValue(id, "org.example") == value)
      #expect(try scratch.queue() == ["1 extend \"A\" by org.example"])
      try scratch.copy.items.setExtension(id, "org.example", nil)
      #expect(try scratch.copy.items.extensionValue(id, "org.example") == nil)
      try scratch.answer()
    }
  }

  @Test(
    "is a type nobody knows: a directory, or a file when it is under core.file",
    arguments: ["org.example.trip", "core.file.scan"])
  func type(type: String) throws {
    try withScratch { scratch in
      let folder = try TemporaryFolder()
      if FileTypes.isFileType(type) {
        let added = try scratch.copy.items.addFile(
          try folder.file("f", "one"), Attachment(title: "x", type: type))
        #expect(try scratch.copy.items.get(added.file)?.type == type)
        #expect(try scratch.node("x")?.kind == .file)
        try scratch.write("x", "two")
        #expect(try scratch.copy.items.get(added.file)?.type == type)
      } else {
        _ = try scratch.copy.items.create(type: type, properties: ["title": "x"])
        #expect(try scratch.node("x")?.kind == .directory)
      }
      try scratch.answer()
    }
  }
}
