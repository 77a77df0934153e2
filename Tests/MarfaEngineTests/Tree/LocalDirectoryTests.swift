import Testing

@testable import MarfaEngine

@Suite("A directory of this device only")
struct LocalDirectoryTests {
  @Test("holds files and directories that are never queued")
  func never() throws {
    try withScratch { scratch in
      try scratch.mkdir(".Trash-1000")
      try scratch.mkdir(".Trash-1000/files")
      try scratch.write(".Trash-1000/files/f", "one")
      try scratch.write(".Trash-1000/info", "two")
      #expect(try scratch.queue() == [])
      try scratch.unlink(".Trash-1000/files/f")
      try scratch.rmdir(".Trash-1000/files")
      #expect(try scratch.queue() == [])
    }
  }

  @Test("takes a file out of the queue that is moved into it, before it went out")
  func fileIn() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.mkdir(".Trash-1000")
      try scratch.answer()
      try scratch.write("D/f", "one")
      try scratch.move("D/f", ".Trash-1000/f")
      #expect(try scratch.queue() == [])
      #expect(try scratch.read(".Trash-1000/f") == "one")
      try scratch.answer()
    }
  }

  @Test("sends a file to the bin that is moved into it, and keeps the bytes here")
  func knownFileIn() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.mkdir(".Trash-1000")
      try scratch.write("D/f", "one")
      try scratch.answer()
      try scratch.move("D/f", ".Trash-1000/f")
      #expect(try scratch.queue() == ["1 trash \"f\""])
      #expect(try scratch.read(".Trash-1000/f") == "one")
      try scratch.answer()
      #expect(try scratch.read(".Trash-1000/f") == "one")
    }
  }

  @Test("gives back what is moved out of it as an item")
  func fileOut() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.mkdir(".Trash-1000")
      try scratch.write("D/f.txt", "one")
      try scratch.answer()
      try scratch.move("D/f.txt", ".Trash-1000/f.2.trashed")
      try scratch.answer()
      try scratch.move(".Trash-1000/f.2.trashed", "D/f.txt")
      #expect(
        try scratch.queue() == ["1 create file \"f.txt\" of \"one\"", "2 attach \"f.txt\" to \"D\" <- 1"])
      try scratch.answer()
    }
  }

  @Test("gives a file back with its tags, description and source")
  func saidOfIt() throws {
    try withScratch { scratch in
      try scratch.mkdir(".Trash-1000")
      let node = try scratch.write("f", "one")
      try scratch.tree.setTags(node.number, ["a", "b"])
      try scratch.tree.setProperty(node.number, "description", "d")
      try scratch.tree.setProperty(node.number, "source_url", "https://example.org/")
      try scratch.move("f", ".Trash-1000/f")
      try scratch.move(".Trash-1000/f", "f")
      let item = try #require(try scratch.item("f"))
      #expect(item.tags == ["a", "b"])
      #expect(item.properties["description"] == "d")
      #expect(item.properties["source_url"] == "https://example.org/")
      try scratch.answer()
    }
  }

  @Test("takes a whole directory in, and gives it back whole")
  func directory() throws {
    try withScratch { scratch in
      try scratch.mkdir(".Trash-1000")
      try scratch.mkdir("A")
      try scratch.mkdir("A/B")
      try scratch.write("A/B/f", "one")
      try scratch.write("A/g", "two")
      try scratch.write("A/.g.swp", "swap")
      try scratch.symlink("A/l", to: "g")
      try scratch.answer()
      try scratch.move("A", ".Trash-1000/A")
      #expect(try scratch.read(".Trash-1000/A/B/f") == "one")
      try scratch.answer()
      #expect(try scratch.copy.status().items == 0)
      try scratch.move(".Trash-1000/A", "C")
      #expect(
        try scratch.queue() == [
          "1 create note \"C\"", "2 create note \"B\"", "3 put \"B\" into \"C\" <- 1,2",
          "4 create file \"g\" of \"two\"", "5 attach \"g\" to \"C\" <- 1,4", "6 create file \"f\" of \"one\"",
          "7 attach \"f\" to \"B\" <- 2,6",
        ])
      #expect(try scratch.existing("C/.g.swp").local)
      try scratch.answer()
      #expect(try scratch.list("C") == ["B", "g", ".g.swp", "l"])
    }
  }

  @Test("takes a directory in whose file has two names there, once")
  func twoNames() throws {
    try withScratch { scratch in
      try scratch.mkdir(".Trash-1000")
      try scratch.mkdir("A")
      try scratch.mkdir("A/B")
      try scratch.write("A/f", "one")
      try scratch.link("A/f", "A/B/g")
      try scratch.move("A", ".Trash-1000/A")
      #expect(try scratch.queue() == [])
      try scratch.move(".Trash-1000/A", "A")
      #expect(try scratch.existing("A/f").number == scratch.existing("A/B/g").number)
      #expect(try scratch.queue().filter { $0.contains("create file") }.count == 1)
      try scratch.answer()
    }
  }

  @Test("leaves a file an item that has another name among items")
  func otherName() throws {
    try withScratch { scratch in
      try scratch.mkdir(".Trash-1000")
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.write("A/f", "one")
      try scratch.link("A/f", "B/f")
      try scratch.answer()
      let id = try scratch.item("B/f")?.id
      try scratch.move("A/f", ".Trash-1000/f")
      #expect(try scratch.item("B/f")?.id == id)
      #expect(try scratch.queue() == ["1 detach \"f\" from \"A\""])
      try scratch.answer()
    }
  }

  @Test("leaves a file an item when the directory that goes has only one of its names")
  func otherNameOfDirectory() throws {
    try withScratch { scratch in
      try scratch.mkdir(".Trash-1000")
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.write("A/f", "one")
      try scratch.link("A/f", "B/f")
      try scratch.answer()
      let id = try scratch.item("B/f")?.id
      try scratch.move("A", ".Trash-1000/A")
      #expect(try scratch.item("B/f")?.id == id)
      try scratch.answer()
      #expect(try scratch.read("B/f") == "one")
    }
  }

  @Test("seals what is written in it under its own name only")
  func written() throws {
    try withScratch { scratch in
      try scratch.mkdir(".Trash-1000")
      let staged = try scratch.open("f")
      try staged.append([1])
      try scratch.move("f", ".Trash-1000/f")
      try scratch.close(staged)
      #expect(try scratch.queue() == [])
      #expect(try scratch.existing(".Trash-1000/f").local)
    }
  }

  @Test("given a person's name becomes an item, and one of a person's name stays an item")
  func renamed() throws {
    try withScratch { scratch in
      try scratch.mkdir("D~")
      try scratch.write("D~/f", "one")
      try scratch.move("D~", "D")
      #expect(
        try scratch.queue() == [
          "1 create note \"D\"", "2 upload \"one\"", "3 create file \"f\" of \"one\" <- 2",
          "4 attach \"f\" to \"D\" <- 1,3",
        ])
      try scratch.move("D", "D~")
      #expect(try scratch.queue().first == "1 create note \"D~\"")
      try scratch.answer()
    }
  }
}
