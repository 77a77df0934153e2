import Testing

@testable import MarfaEngine

/// What a file is to a person besides its bytes, for a dance to leave alone.
private struct Identity: Equatable {
  var id: ItemID
  var tags: [String]
  var description: JSON?
  var hosts: [ItemID]
  var attribute: [UInt8]?
}

@Suite("A file saved by an editor's dance")
struct SafeSaveTests {
  private static let attribute = Array("user.color".utf8)

  enum State: CaseIterable { case unsent, answered, underWay }

  /// `D/f.md`, tagged, described, with an attribute, attached to two items, in each state of its writes.
  private func prepare(_ scratch: Scratch, _ state: State) throws {
    try scratch.mkdir("D")
    try scratch.mkdir("E")
    let node = try scratch.write("D/f.md", "one")
    try scratch.tree.setTags(node.number, ["blue", "wide"])
    try scratch.tree.setProperty(node.number, "description", "of the sea")
    try scratch.tree.setAttribute(node.number, Self.attribute, [7], mode: .create)
    switch state {
    case .unsent: break
    case .answered: try scratch.answer()
    case .underWay: try scratch.sendOut()
    }
  }

  private func identity(_ scratch: Scratch) throws -> Identity {
    let node = try scratch.existing("D/f.md")
    let item = try #require(try scratch.item("D/f.md"))
    return Identity(
      id: item.id, tags: item.tags, description: item.properties["description"],
      hosts: try scratch.copy.edges.from(item.id, type: Edge.attachedTo).map(\.target),
      attribute: try scratch.tree.attribute(node.number, Self.attribute))
  }

  /// The file is what it was, with the new bytes, one upload for them, and the server agrees.
  private func expectSaved(_ scratch: Scratch, _ before: Identity, _ state: State, _ names: [String] = ["f.md"]) throws
  {
    #expect(try identity(scratch) == before)
    #expect(try scratch.read("D/f.md") == "two")
    #expect(try scratch.list("D") == names)
    let item = try #require(try scratch.item("D/f.md"))
    #expect(item.title == "f.md")
    #expect(item.mimeType == "text/markdown")
    let queue = try scratch.queue()
    #expect(
      queue.filter { $0.contains(" upload ") && !$0.hasSuffix("!") }.map { $0.dropFirst(2) } == ["upload \"two\""])
    #expect(!queue.contains { $0.contains("trash") })
    if state == .answered {
      #expect(queue.count == 2)
      #expect(queue.contains { $0.contains("@1") })
    }
    try scratch.answer()
    if state != .unsent { #expect(try scratch.item("D/f.md")?.version == item.version + (state == .answered ? 1 : 2)) }
  }

  @Test("in place", arguments: State.allCases)
  func inPlace(state: State) throws {
    try withScratch { scratch in
      try prepare(scratch, state)
      let before = try identity(scratch)
      try scratch.write("D/f.md", "two")
      try expectSaved(scratch, before, state)
    }
  }

  @Test(
    "through a temporary renamed over it", arguments: State.allCases,
    [".goutputstream-X1", "f.md.tmp", ".f.md.swp", "f.md~", "4913"])
  func temporary(state: State, name: String) throws {
    try withScratch { scratch in
      try prepare(scratch, state)
      let before = try identity(scratch)
      try scratch.write("D/\(name)", "two")
      try scratch.move("D/\(name)", "D/f.md")
      try expectSaved(scratch, before, state)
    }
  }

  @Test("through a temporary renamed over it before it is closed", arguments: State.allCases)
  func temporaryOpen(state: State) throws {
    try withScratch { scratch in
      try prepare(scratch, state)
      let before = try identity(scratch)
      let staged = try scratch.open("D/f.tmp")
      try staged.append(Array("two".utf8))
      try scratch.move("D/f.tmp", "D/f.md")
      try scratch.close(staged)
      try expectSaved(scratch, before, state)
    }
  }

  @Test("through a temporary synced, then renamed over it, then closed", arguments: State.allCases)
  func temporarySynced(state: State) throws {
    try withScratch { scratch in
      try prepare(scratch, state)
      let before = try identity(scratch)
      let staged = try scratch.open("D/f.tmp")
      try staged.append(Array("two".utf8))
      _ = try scratch.tree.adopt(staged, mtime: .now, durably: true)
      try scratch.move("D/f.tmp", "D/f.md")
      try scratch.close(staged)
      try expectSaved(scratch, before, state)
    }
  }

  @Test("through a temporary of another directory", arguments: State.allCases)
  func elsewhere(state: State) throws {
    try withScratch { scratch in
      try prepare(scratch, state)
      let before = try identity(scratch)
      try scratch.write("E/f.tmp", "two")
      try scratch.move("E/f.tmp", "D/f.md")
      try expectSaved(scratch, before, state)
      #expect(try scratch.list("E") == [])
    }
  }

  @Test(
    "by a backup, the name anew and the backup deleted", arguments: State.allCases, ["f.md~", "f.md.bak", ".#f.md"])
  func backup(state: State, name: String) throws {
    try withScratch { scratch in
      try prepare(scratch, state)
      let before = try identity(scratch)
      try scratch.move("D/f.md", "D/\(name)")
      try scratch.write("D/f.md", "two")
      #expect(try scratch.read("D/\(name)") == "one")
      try scratch.unlink("D/\(name)")
      try expectSaved(scratch, before, state)
    }
  }

  @Test("by a backup and a temporary renamed to the name", arguments: State.allCases, ["f.md~", "f.md.bak"])
  func backupAndTemporary(state: State, name: String) throws {
    try withScratch { scratch in
      try prepare(scratch, state)
      let before = try identity(scratch)
      try scratch.write("D/f.tmp", "two")
      try scratch.move("D/f.md", "D/\(name)")
      try scratch.move("D/f.tmp", "D/f.md")
      try scratch.unlink("D/\(name)")
      try expectSaved(scratch, before, state)
    }
  }

  @Test("by a backup that is kept: an editor's own stays on this device", arguments: State.allCases)
  func localBackup(state: State) throws {
    try withScratch { scratch in
      try prepare(scratch, state)
      let before = try identity(scratch)
      try scratch.move("D/f.md", "D/f.md~")
      try scratch.write("D/f.md", "two")
      #expect(try scratch.existing("D/f.md~").local)
      #expect(try scratch.read("D/f.md~") == "one")
      try expectSaved(scratch, before, state, ["f.md~", "f.md"])
    }
  }

  @Test("by a backup that is kept: any other is an item of its own", arguments: State.allCases)
  func itemBackup(state: State) throws {
    try withScratch { scratch in
      try prepare(scratch, state)
      let before = try identity(scratch)
      try scratch.move("D/f.md", "D/f.orig")
      try scratch.write("D/f.md", "two")
      #expect(try identity(scratch) == before)
      let backup = try #require(try scratch.item("D/f.orig"))
      #expect(backup.id != before.id)
      #expect(backup.title == "f.orig")
      #expect(try scratch.read("D/f.orig") == "one")
      #expect(try scratch.read("D/f.md") == "two")
      try scratch.answer()
    }
  }

  @Test("by a copy to a backup and a write in place", arguments: State.allCases)
  func copied(state: State) throws {
    try withScratch { scratch in
      try prepare(scratch, state)
      let before = try identity(scratch)
      try scratch.write("D/f.md~", "one")
      try scratch.write("D/f.md", "two")
      try scratch.unlink("D/f.md~")
      try expectSaved(scratch, before, state)
    }
  }

  @Test("many times over is the same file still, with one upload waiting")
  func repeated() throws {
    try withScratch { scratch in
      try prepare(scratch, .answered)
      let before = try identity(scratch)
      for round in 1...10 {
        try scratch.write("D/.goutputstream-\(round)", "round \(round)")
        try scratch.move("D/.goutputstream-\(round)", "D/f.md")
      }
      for round in 1...10 {
        try scratch.move("D/f.md", "D/f.md~")
        try scratch.write("D/f.md", round == 10 ? "two" : "other \(round)")
        try scratch.unlink("D/f.md~")
      }
      try expectSaved(scratch, before, .answered)
    }
  }

  @Test("in the root is that item still")
  func root() throws {
    try withScratch { scratch in
      try scratch.write("f.md", "one")
      try scratch.answer()
      let id = try scratch.item("f.md")?.id
      try scratch.write("tmp", "two")
      try scratch.move("tmp", "f.md")
      #expect(try scratch.item("f.md")?.id == id)
      #expect(try scratch.queue() == ["1 upload \"two\"", "2 update \"f.md\": bytes \"two\" @1 <- 1"])
      try scratch.answer()
    }
  }

  @Test("through a temporary that was empty is empty here, and what the server has is its next version's base")
  func emptied() throws {
    try withScratch { scratch in
      try prepare(scratch, .answered)
      let before = try identity(scratch)
      try scratch.write("D/tmp", "")
      try scratch.move("D/tmp", "D/f.md")
      #expect(try scratch.read("D/f.md") == "")
      #expect(try scratch.queue() == [])
      try scratch.write("D/f.md", "two")
      try expectSaved(scratch, before, .answered)
    }
  }

  @Test("through an empty temporary, before anything went out, is that item still")
  func emptiedUnsent() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let id = try scratch.item("f")?.id
      try scratch.write("tmp", "")
      try scratch.move("tmp", "f")
      #expect(try scratch.read("f") == "")
      #expect(try scratch.item("f")?.id == id)
      try scratch.write("f", "two")
      #expect(try scratch.queue() == ["1 create file \"f\" of \"two\" <- 2", "2 upload \"two\""])
      try scratch.answer()
    }
  }

  @Test("over an empty one becomes an item")
  func overEmpty() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/f", "")
      try scratch.write("D/.goutputstream-1", "two")
      try scratch.move("D/.goutputstream-1", "D/f")
      #expect(try scratch.item("D/f")?.title == "f")
      try scratch.answer()
      #expect(try scratch.read("D/f") == "two")
    }
  }

  @Test("of an item pinned stays pinned")
  func pinned() throws {
    try withScratch { scratch in
      try prepare(scratch, .answered)
      try scratch.tree.setPinned(try scratch.existing("D/f.md").number, true)
      try scratch.write("D/tmp", "two")
      try scratch.move("D/tmp", "D/f.md")
      #expect(try scratch.item("D/f.md")?.pinned == true)
    }
  }

  @Test("long after its name was given away is another file")
  func late() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let id = try scratch.item("f")?.id
      try scratch.move("f", "g")
      scratch.tree.displaced.withLock { $0 = Displaced() }
      try scratch.write("f", "two")
      #expect(try scratch.item("g")?.id == id)
      #expect(try scratch.item("f")?.id != id)
      try scratch.answer()
    }
  }
}

@Suite("An editor's own file")
struct EditorsFileTests {
  @Test("is never queued, whatever happens to it")
  func never() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.answer()
      try scratch.write("D/.f.swp", "one")
      try scratch.write("D/.f.swp", "two")
      try scratch.move("D/.f.swp", "D/.f.swo")
      try scratch.link("D/.f.swo", "D/f~")
      try scratch.write("D/f~", "")
      try scratch.write("D/f~", "three")
      try scratch.move("D/f~", ".#f")
      try scratch.symlink("D/.#f", to: "user@host")
      try scratch.unlink("D/.f.swo")
      #expect(try scratch.queue() == [])
      #expect(try scratch.read(".#f") == "three")
      #expect(try scratch.copy.status().localFiles == 1)
      try scratch.unlink(".#f")
      #expect(try scratch.queue() == [])
    }
  }

  @Test("becomes an item under a person's name, and its type is by that name")
  func promoted() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.answer()
      try scratch.write("D/.goutputstream-1", "{}")
      try scratch.move("D/.goutputstream-1", "D/f.json")
      #expect(
        try scratch.queue() == [
          "1 upload \"{}\"", "2 create file \"f.json\" of \"{}\" <- 1", "3 attach \"f.json\" to \"D\" <- 2",
        ])
      #expect(try scratch.item("D/f.json")?.mimeType == "application/json")
      try scratch.answer()
    }
  }

  @Test("never takes an item's place in the queue: an item stays one under whatever name")
  func itemStays() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      try scratch.answer()
      try scratch.move("f", "f~")
      #expect(try scratch.queue() == ["1 update \"f~\": title \"f~\" @1"])
      try scratch.answer()
    }
  }
}
