import Testing

@testable import MarfaEngine

@Suite("A file removed")
struct FileRemovedTests {
  @Test("before its writes went out takes them all back, and its bytes go")
  func unsent() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.answer()
      let node = try scratch.write("D/f", "one")
      try scratch.tree.setTags(node.number, ["a", "b"])
      let hash = try #require(try scratch.item("D/f")?.blob)
      try scratch.unlink("D/f")
      #expect(try scratch.queue() == [])
      #expect(try scratch.list("D") == [])
      #expect(try scratch.tree.node(node.number) == nil)
      scratch.copy.tree.settle()
      #expect(!isThere(scratch.copy.blobStore.files.held(hash)))
      try scratch.answer()
    }
  }

  @Test("is one of many whose bytes go together")
  func many() throws {
    try withScratch { scratch in
      let hashes = try (0..<100).map { number in
        try scratch.write("f\(number)", "bytes \(number)")
        return try #require(try scratch.item("f\(number)")?.blob)
      }
      scratch.copy.tree.settle()
      let before = scratch.copy.commits
      for number in 0..<100 { try scratch.unlink("f\(number)") }
      scratch.copy.tree.settle()
      #expect(scratch.copy.commits - before < 150)
      #expect(hashes.allSatisfy { !isThere(scratch.copy.blobStore.files.held($0)) })
    }
  }

  @Test("that the server has goes to the bin, and stands where it stood when it comes back")
  func answered() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/f", "one")
      try scratch.answer()
      let id = try #require(try scratch.item("D/f")?.id)
      try scratch.unlink("D/f")
      #expect(try scratch.queue() == ["1 trash \"f\""])
      #expect(try scratch.copy.items.get(id)?.state == .trashed)
      try scratch.answer()
      #expect(try scratch.list("D") == [])
      try scratch.copy.items.restore(id)
      #expect(try scratch.list("D") == ["f"])
      try scratch.answer()
    }
  }

  @Test("while its writes are under way is removed behind them")
  func goneOut() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/f", "one")
      try scratch.sendOut()
      try scratch.unlink("D/f")
      #expect(
        try scratch.queue().suffix(2) == ["5 detach \"f\" from \"D\" <- 4", "6 trash \"f\" after 3"])
      try scratch.answer()
    }
  }

  @Test("after a change that has not gone out takes the change back, with its upload")
  func changed() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/f", "one")
      try scratch.answer()
      try scratch.write("D/f", "two")
      let hash = try #require(try scratch.item("D/f")?.blob)
      try scratch.unlink("D/f")
      #expect(try scratch.queue() == ["1 trash \"f\""])
      scratch.copy.tree.settle()
      #expect(!isThere(scratch.copy.blobStore.files.held(hash)))
      try scratch.answer()
    }
  }

  @Test("whose bytes another file has too leaves those")
  func shared() throws {
    try withScratch { scratch in
      try scratch.write("a", "one")
      try scratch.write("b", "one")
      #expect(try scratch.queue().count == 3)
      try scratch.unlink("a")
      #expect(try scratch.queue() == ["1 upload \"one\"", "2 create file \"b\" of \"one\" <- 1"])
      #expect(try scratch.read("b") == "one")
      try scratch.answer()
    }
  }

  @Test("that is not there, or is a directory, is refused")
  func refused() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      #expect(throws: MarfaError.file(.notFound)) { try scratch.unlink("f") }
      #expect(throws: MarfaError.file(.isDirectory)) { try scratch.unlink("D") }
    }
  }
}

@Suite("A file deleted while open")
struct FileDeletedWhileOpenTests {
  @Test("is gone from its folder at once")
  func gone() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let file = try scratch.tree.open(try #require(try scratch.item("f")?.blob), size: nil)
      try scratch.unlink("f")
      #expect(try scratch.list() == [])
      #expect(try file.prefix(10) == Array("one".utf8))
    }
  }

  @Test("can still be read through what was opened before")
  func readable() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let file = try scratch.tree.open(try #require(try scratch.item("f")?.blob), size: nil)
      try scratch.write("f", "two")
      try scratch.unlink("f")
      try scratch.write("f", "three")
      #expect(try file.prefix(10) == Array("one".utf8))
      #expect(try scratch.read("f") == "three")
    }
  }

  @Test("and synced before leaves no bytes behind")
  func synced() throws {
    try withScratch { scratch in
      let staged = try scratch.open("f")
      try staged.append([1, 2, 3])
      _ = try scratch.tree.adopt(staged, mtime: .now, durably: true)
      try scratch.unlink("f")
      try scratch.reopen()
      #expect(try scratch.list() == [])
      #expect(scratch.copy.recoveredFiles() == [])
    }
  }
}

@Suite("A directory removed")
struct DirectoryRemovedTests {
  @Test("before it went out is taken back")
  func unsent() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("A/B")
      try scratch.rmdir("A/B")
      #expect(try scratch.queue() == ["1 create note \"A\""])
      try scratch.rmdir("A")
      #expect(try scratch.queue() == [])
      try scratch.answer()
    }
  }

  @Test("that the server has goes to the bin")
  func answered() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("A/B")
      try scratch.answer()
      try scratch.rmdir("A/B")
      #expect(try scratch.queue() == ["1 trash \"B\""])
      try scratch.answer()
      #expect(try scratch.list("A") == [])
    }
  }

  @Test("is refused while it shows anything", arguments: ["D/f", "D/.f.swp", "D/empty", "D/sub", "D/link"])
  func notEmpty(path: String) throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      switch path {
      case "D/sub": try scratch.mkdir(path)
      case "D/link": try scratch.symlink(path, to: "x")
      default: try scratch.write(path, path == "D/empty" ? "" : "one")
      }
      #expect(throws: MarfaError.file(.notEmpty)) { try scratch.rmdir("D") }
    }
  }

  @Test("that is no directory is refused")
  func refused() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      #expect(throws: MarfaError.file(.notDirectory)) { try scratch.rmdir("f") }
      #expect(throws: MarfaError.file(.notFound)) { try scratch.rmdir("g") }
    }
  }

  @Test("with all it held, bottom up, leaves nothing")
  func all() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("A/B")
      try scratch.write("A/B/f", "one")
      try scratch.write("A/g", "two")
      try scratch.answer()
      try scratch.unlink("A/B/f")
      try scratch.rmdir("A/B")
      try scratch.unlink("A/g")
      try scratch.rmdir("A")
      #expect(
        try scratch.queue() == [
          "1 trash \"f\"", "2 trash \"B\"", "3 trash \"g\"", "4 trash \"A\" <- 2",
        ])
      try scratch.answer()
      #expect(try scratch.copy.status().files == 0)
    }
  }

  @Test("after a child was moved out of it does not take the child along")
  func movedOut() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("A/B")
      try scratch.write("A/B/f", "one")
      try scratch.answer()
      try scratch.mkdir("C")
      try scratch.move("A/B", "C/B")
      try scratch.rmdir("A")
      try scratch.answer()
      #expect(try scratch.read("C/B/f") == "one")
    }
  }
}

@Suite("A write that takes another back")
struct TakenBackTests {
  @Test("leaves those behind it in their order")
  func order() throws {
    try withScratch { scratch in
      let number = try scratch.write("f", "one").number
      try scratch.answer()
      try scratch.tree.setProperty(number, "description", "d")
      try scratch.sendOut()
      try scratch.tree.setTags(number, ["a"])
      try scratch.tree.setTags(number, ["a", "b"])
      try scratch.tree.setTags(number, ["b"])
      #expect(try scratch.queue() == ["1 update \"f\": description \"d\" @1 !", "2 tag \"f\" b after 1"])
      try scratch.answer()
    }
  }

  @Test("never touches one that has gone out")
  func goneOut() throws {
    try withScratch { scratch in
      let number = try scratch.write("f", "one").number
      try scratch.answer()
      try scratch.tree.setTags(number, ["a"])
      try scratch.sendOut()
      try scratch.tree.setTags(number, [])
      #expect(try scratch.queue() == ["1 tag \"f\" a !", "2 untag \"f\" a after 1"])
      try scratch.answer()
    }
  }

  @Test("of a tag is all there is to it when the tag comes and goes")
  func tag() throws {
    try withScratch { scratch in
      let number = try scratch.write("f", "one").number
      try scratch.answer()
      try scratch.tree.setTags(number, ["a", "b"])
      try scratch.tree.setTags(number, ["b"])
      #expect(try scratch.queue() == ["1 tag \"f\" b"])
      try scratch.answer()
      try scratch.tree.setTags(number, [])
      try scratch.tree.setTags(number, ["b"])
      #expect(try scratch.queue() == [])
      #expect(try scratch.item("f")?.tags == ["b"])
    }
  }
}
