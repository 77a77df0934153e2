import Testing

@testable import MarfaEngine

@Suite("A file with several names")
struct LinkTests {
  @Test("in several directories has an edge to each")
  func edges() throws {
    try withScratch { scratch in
      for name in ["A", "B", "C"] { try scratch.mkdir(name) }
      try scratch.answer()
      try scratch.write("A/f", "one")
      try scratch.link("A/f", "B/f")
      #expect(
        try scratch.queue() == [
          "1 upload \"one\"", "2 create file \"f\" of \"one\" <- 1", "3 attach \"f\" to \"A\" <- 2",
          "4 attach \"f\" to \"B\" <- 2",
        ])
      try scratch.answer()
      try scratch.link("B/f", "C/g")
      #expect(try scratch.queue() == ["1 attach \"f\" to \"C\""])
      let node = try scratch.existing("C/g")
      #expect(node.links == 3)
      #expect(try scratch.existing("A/f").number == node.number)
      #expect(try scratch.tree.paths(of: node.number) == ["A/f", "B/f", "C/g"])
      try scratch.answer()
    }
  }

  @Test("in one directory has one edge to it, as long as one of them is there")
  func oneDirectory() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.write("A/f", "one")
      try scratch.answer()
      try scratch.link("A/f", "A/g")
      #expect(try scratch.queue() == [])
      try scratch.unlink("A/g")
      #expect(try scratch.queue() == [])
      try scratch.link("A/f", "A/g")
      try scratch.unlink("A/f")
      #expect(try scratch.queue() == ["1 update \"g\": title \"g\" @1"])
      try scratch.answer()
      try scratch.unlink("A/g")
      #expect(try scratch.queue() == ["1 trash \"g\""])
      try scratch.answer()
    }
  }

  @Test("loses the edge with the last name in a directory, and its item with the very last")
  func unlink() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.write("A/f", "one")
      try scratch.link("A/f", "B/f")
      try scratch.answer()
      try scratch.unlink("A/f")
      #expect(try scratch.queue() == ["1 detach \"f\" from \"A\""])
      #expect(try scratch.read("B/f") == "one")
      #expect(try scratch.existing("B/f").links == 1)
      try scratch.answer()
      try scratch.unlink("B/f")
      #expect(try scratch.queue() == ["1 trash \"f\""])
      try scratch.answer()
    }
  }

  @Test("has the same bytes under each, whichever is written")
  func bytes() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.write("A/f", "one")
      try scratch.link("A/f", "g")
      try scratch.answer()
      try scratch.write("g", "two")
      #expect(try scratch.read("A/f") == "two")
      #expect(try scratch.queue() == ["1 upload \"two\"", "2 update \"f\": bytes \"two\" @1 <- 1"])
      try scratch.answer()
    }
  }

  @Test("can be linked while it is written, and has its edges once it is closed")
  func open() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.answer()
      let staged = try scratch.open("A/f")
      try staged.append([0x78])
      try scratch.link("A/f", "B/f")
      try scratch.close(staged)
      #expect(
        try scratch.queue() == [
          "1 upload \"x\"", "2 create file \"f\" of \"x\" <- 1", "3 attach \"f\" to \"A\" <- 2",
          "4 attach \"f\" to \"B\" <- 2",
        ])
      try scratch.answer()
    }
  }

  @Test("is a file: a directory has one name only")
  func directories() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.write("f", "one")
      #expect(throws: MarfaError.file(.notPermitted)) { try scratch.link("A", "B") }
      #expect(throws: MarfaError.file(.exists)) { try scratch.link("f", "A") }
      #expect(throws: MarfaError.file(.exists)) { try scratch.link("f", "f") }
      #expect(throws: MarfaError.file(.notDirectory)) { try scratch.link("f", "f/g") }
    }
  }

  @Test("becomes an item when an editor's own file gets a name of a person's, and is called by that")
  func promoted() throws {
    try withScratch { scratch in
      try scratch.write(".f.swp", "one")
      try scratch.link(".f.swp", "f.txt")
      #expect(try scratch.item("f.txt")?.title == "f.txt")
      #expect(try scratch.item("f.txt")?.mimeType == "text/plain")
      try scratch.unlink(".f.swp")
      #expect(try scratch.queue() == ["1 upload \"one\"", "2 create file \"f.txt\" of \"one\" <- 1"])
      try scratch.answer()
    }
  }

  @Test("stays on this device with a second name that stays there too")
  func local() throws {
    try withScratch { scratch in
      try scratch.write(".f.swp", "one")
      try scratch.link(".f.swp", "f~")
      #expect(try scratch.queue() == [])
      try scratch.unlink(".f.swp")
      #expect(try scratch.read("f~") == "one")
      #expect(try scratch.queue() == [])
    }
  }
}
