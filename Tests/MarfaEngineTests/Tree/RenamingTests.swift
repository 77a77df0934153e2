import Testing

@testable import MarfaEngine

@Suite("A file renamed in its directory")
struct FileRenamedTests {
  @Test("before its writes went out is created under the new title")
  func unsent() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.answer()
      try scratch.write("D/a.txt", "one")
      let before = try scratch.existing("D/a.txt")
      try scratch.move("D/a.txt", "D/b.txt")
      #expect(
        try scratch.queue() == [
          "1 upload \"one\"", "2 create file \"b.txt\" of \"one\" <- 1", "3 attach \"b.txt\" to \"D\" <- 2",
        ])
      #expect(try scratch.list("D") == ["b.txt"])
      #expect(try scratch.existing("D/b.txt").number == before.number)
      #expect(try scratch.existing("D/b.txt").item == before.item)
      try scratch.answer()
    }
  }

  @Test("that the server has is an update of the title")
  func answered() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/a.txt", "one")
      try scratch.answer()
      try scratch.move("D/a.txt", "D/b.txt")
      try scratch.move("D/b.txt", "D/c.txt")
      #expect(try scratch.queue() == ["1 update \"c.txt\": title \"c.txt\" @1"])
      try scratch.answer()
      #expect(try scratch.item("D/c.txt")?.version == 2)
    }
  }

  @Test("while its writes are under way is an update behind them")
  func goneOut() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      try scratch.sendOut()
      try scratch.move("a.txt", "b.txt")
      #expect(
        try scratch.queue() == [
          "1 upload \"one\" !", "2 create file \"a.txt\" of \"one\" <- 1 !",
          "3 update \"b.txt\": title \"b.txt\" @0 <- 2",
        ])
      try scratch.answer()
    }
  }

  @Test("and changed is one update")
  func changed() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      try scratch.answer()
      try scratch.move("a.txt", "b.txt")
      try scratch.write("b.txt", "two")
      #expect(
        try scratch.queue() == ["1 update \"b.txt\": title \"b.txt\", bytes \"two\" @1 <- 2", "2 upload \"two\""])
      try scratch.answer()
    }
  }

  @Test("to the name it has is nothing")
  func same() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      try scratch.answer()
      try scratch.move("a.txt", "a.txt")
      #expect(try scratch.queue() == [])
    }
  }

  @Test("that is not there is refused")
  func missing() throws {
    try withScratch { scratch in
      #expect(throws: MarfaError.file(.notFound)) { try scratch.move("a", "b") }
      #expect(throws: MarfaError.file(.notFound)) { try scratch.move("a", "b", .refusing) }
      try scratch.mkdir("D")
      #expect(throws: MarfaError.file(.notFound)) { try scratch.move("D", "nowhere/D") }
      try scratch.write("f", "one")
      #expect(throws: MarfaError.file(.notDirectory)) { try scratch.move("D", "f/D") }
    }
  }

  @Test("keeps its place in a listing that is under way")
  func cookie() throws {
    try withScratch { scratch in
      for name in ["a", "b", "c"] { try scratch.write(name, name) }
      var cookies: [Int64] = []
      try scratch.tree.list(Node.root, after: 0) { entry in
        cookies.append(entry.cookie)
        return true
      }
      try scratch.move("b", "z")
      var rest: [String] = []
      try scratch.tree.list(Node.root, after: cookies[0]) { entry in
        rest.append(entry.name.title)
        return true
      }
      #expect(rest == ["z", "c"])
    }
  }
}

@Suite("A file moved to another directory")
struct FileMovedTests {
  @Test("before its writes went out is attached there and nowhere else")
  func unsent() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.answer()
      try scratch.write("A/f", "one")
      try scratch.move("A/f", "B/f")
      #expect(
        try scratch.queue() == [
          "1 upload \"one\"", "2 create file \"f\" of \"one\" <- 1", "3 attach \"f\" to \"B\" <- 2",
        ])
      try scratch.answer()
    }
  }

  @Test("that the server has is an edge drawn there, then the edge here taken away")
  func answered() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.write("A/f", "one")
      try scratch.answer()
      let before = try scratch.existing("A/f")
      try scratch.move("A/f", "B/f")
      #expect(try scratch.queue() == ["1 attach \"f\" to \"B\"", "2 detach \"f\" from \"A\""])
      #expect(try scratch.existing("B/f").number == before.number)
      #expect(try scratch.existing("B/f").item == before.item)
      #expect(try scratch.list("A") == [])
      try scratch.answer()
    }
  }

  @Test("under another name is given its new title too")
  func renamed() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.write("A/f", "one")
      try scratch.answer()
      try scratch.move("A/f", "B/g")
      #expect(
        try scratch.queue() == [
          "1 update \"g\": title \"g\" @1", "2 attach \"g\" to \"B\"", "3 detach \"g\" from \"A\"",
        ])
      try scratch.answer()
    }
  }

  @Test("to the root loses its edge")
  func toRoot() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.write("A/f", "one")
      try scratch.answer()
      try scratch.move("A/f", "f")
      #expect(try scratch.queue() == ["1 detach \"f\" from \"A\""])
      try scratch.answer()
    }
  }

  @Test("from the root gains one")
  func fromRoot() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.write("f", "one")
      try scratch.answer()
      try scratch.move("f", "A/f")
      #expect(try scratch.queue() == ["1 attach \"f\" to \"A\""])
      try scratch.answer()
    }
  }

  @Test("to the root before anything went out is a file item alone")
  func unsentToRoot() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.answer()
      try scratch.write("A/f", "one")
      try scratch.move("A/f", "f")
      #expect(try scratch.queue() == ["1 upload \"one\"", "2 create file \"f\" of \"one\" <- 1"])
      try scratch.answer()
    }
  }

  @Test("while it is written and not closed yet is made where it is then")
  func open() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.answer()
      let staged = try scratch.open("A/f")
      try staged.append([0x78])
      try scratch.move("A/f", "B/g")
      #expect(try scratch.queue() == [])
      try scratch.close(staged)
      #expect(
        try scratch.queue() == ["1 upload \"x\"", "2 create file \"g\" of \"x\" <- 1", "3 attach \"g\" to \"B\" <- 2"])
      try scratch.answer()
    }
  }

  @Test("there and back, on the server's own edge, is taken by the server whatever the queue makes of it")
  func thereAndBack() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.write("A/f", "one")
      try scratch.answer()
      try scratch.move("A/f", "B/f")
      try scratch.move("B/f", "A/f")
      try scratch.answer()
      #expect(try scratch.list("A") == ["f"])
    }
  }
}

@Suite("A directory moved")
struct DirectoryMovedTests {
  @Test("to another is one change of its edge's source")
  func another() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.mkdir("C")
      try scratch.mkdir("A/D")
      try scratch.write("A/D/f", "one")
      try scratch.answer()
      try scratch.move("A/D", "B/D")
      #expect(try scratch.queue() == ["1 put \"D\" into \"B\" instead @1"])
      try scratch.move("B/D", "C/D")
      #expect(try scratch.queue() == ["1 put \"D\" into \"C\" instead @1"])
      #expect(try scratch.read("C/D/f") == "one")
      try scratch.answer()
    }
  }

  @Test("before anything went out changes what is queued")
  func unsent() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.mkdir("A/D")
      try scratch.move("A/D", "B/E")
      #expect(
        try scratch.queue() == [
          "1 create note \"A\"", "2 create note \"B\"", "3 create note \"E\"", "4 put \"E\" into \"B\" <- 2,3",
        ])
      try scratch.answer()
    }
  }

  @Test("into one that is only queued waits for it")
  func intoQueued() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("A/D")
      try scratch.answer()
      try scratch.mkdir("B")
      try scratch.move("A/D", "B/D")
      #expect(try scratch.queue() == ["1 create note \"B\"", "2 put \"D\" into \"B\" instead @1 <- 1"])
      try scratch.answer()
    }
  }

  @Test("to the root loses its edge")
  func toRoot() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("A/D")
      try scratch.answer()
      try scratch.move("A/D", "D")
      #expect(try scratch.queue() == ["1 take \"D\" out of \"A\""])
      try scratch.answer()
    }
  }

  @Test("from the root gains one")
  func fromRoot() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("D")
      try scratch.answer()
      try scratch.move("D", "A/E")
      #expect(try scratch.queue() == ["1 update \"E\": title \"E\" @1", "2 put \"E\" into \"A\""])
      try scratch.answer()
    }
  }

  @Test("out and in again never has two parents")
  func outAndIn() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("A/D")
      try scratch.mkdir("B")
      try scratch.answer()
      try scratch.move("A/D", "D")
      try scratch.move("D", "B/D")
      try scratch.answer()
      #expect(try scratch.list("B") == ["D"])
    }
  }

  @Test("while its edge is under way is a change behind it")
  func goneOut() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.mkdir("A/D")
      try scratch.sendOut()
      try scratch.move("A/D", "B/D")
      #expect(try scratch.queue().last == "5 put \"D\" into \"B\" instead @0 <- 2,3,4")
      try scratch.answer()
    }
  }

  @Test("into itself or into what it holds is refused", arguments: ["A/A", "A/B/A", "A/B/C/A"])
  func loop(target: String) throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("A/B")
      try scratch.mkdir("A/B/C")
      try scratch.answer()
      #expect(throws: MarfaError.file(.invalid)) { try scratch.move("A", target) }
      #expect(throws: MarfaError.file(.invalid)) { try scratch.move("A", target, .refusing) }
      #expect(try scratch.queue() == [])
    }
  }

  @Test("takes what lives on this device only along")
  func locals() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.mkdir("A/D")
      try scratch.write("A/D/.f.swp", "swap")
      try scratch.write("A/D/empty", "")
      try scratch.symlink("A/D/link", to: "empty")
      try scratch.move("A/D", "B/D")
      #expect(try scratch.list("B/D") == [".f.swp", "empty", "link"])
      try scratch.answer()
    }
  }
}

@Suite("A rename onto what is there")
struct RenameOntoTests {
  @Test("of a directory onto an empty one takes its place, and the other's item goes")
  func emptyDirectory() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.answer()
      let id = try scratch.item("A")?.id
      try scratch.move("A", "B")
      #expect(try scratch.list() == ["B"])
      #expect(try scratch.item("B")?.id == id)
      #expect(try scratch.queue() == ["1 trash \"B\"", "2 update \"B\": title \"B\" @1"])
      try scratch.answer()
    }
  }

  @Test("of a directory onto one that holds something is refused")
  func fullDirectory() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.write("B/.f.swp", "even an editor's own file")
      #expect(throws: MarfaError.file(.notEmpty)) { try scratch.move("A", "B") }
      try scratch.mkdir("A/C")
      #expect(throws: MarfaError.file(.notEmpty)) { try scratch.move("A/C", "A") }
    }
  }

  @Test("of a directory onto a file, or of a file onto a directory, is refused")
  func mixed() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("f", "one")
      try scratch.symlink("l", to: "f")
      #expect(throws: MarfaError.file(.notDirectory)) { try scratch.move("D", "f") }
      #expect(throws: MarfaError.file(.notDirectory)) { try scratch.move("D", "l") }
      #expect(throws: MarfaError.file(.isDirectory)) { try scratch.move("f", "D") }
      #expect(throws: MarfaError.file(.isDirectory)) { try scratch.move("l", "D") }
      #expect(try scratch.list() == ["D", "f", "l"])
    }
  }

  @Test("is refused where the program asked for that")
  func refusing() throws {
    try withScratch { scratch in
      try scratch.write("a", "one")
      try scratch.write("b", "two")
      try scratch.mkdir("D")
      for target in ["b", "a", "D"] {
        #expect(throws: MarfaError.file(.exists)) { try scratch.move("a", target, .refusing) }
      }
      try scratch.move("a", "c", .refusing)
      #expect(try scratch.list() == ["c", "b", "D"])
    }
  }

  @Test("of one of a file's names onto another of its names is nothing")
  func sameFile() throws {
    try withScratch { scratch in
      try scratch.write("a", "one")
      try scratch.link("a", "b")
      try scratch.answer()
      try scratch.move("a", "b")
      #expect(try scratch.list() == ["a", "b"])
      #expect(try scratch.queue() == [])
    }
  }

  @Test("of a file onto one with other names leaves those what they are")
  func otherNames() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("a", "one")
      try scratch.link("a", "D/a")
      let kept = try scratch.item("a")?.id
      try scratch.write("b", "two")
      let moved = try scratch.item("b")?.id
      try scratch.answer()
      try scratch.move("b", "a")
      #expect(try scratch.read("a") == "two")
      #expect(try scratch.item("a")?.id == moved)
      #expect(try scratch.read("D/a") == "one")
      #expect(try scratch.item("D/a")?.id == kept)
      try scratch.answer()
    }
  }

  @Test("of a link onto a file takes its place")
  func symlink() throws {
    try withScratch { scratch in
      try scratch.write("a", "one")
      try scratch.symlink("l", to: "elsewhere")
      try scratch.answer()
      try scratch.move("l", "a")
      #expect(try scratch.node("a")?.kind == .special)
      #expect(try scratch.queue() == ["1 trash \"a\""])
      try scratch.answer()
    }
  }
}

@Suite("Two entries exchanged")
struct ExchangeTests {
  @Test("in one directory exchange their titles")
  func oneDirectory() throws {
    try withScratch { scratch in
      try scratch.write("a", "one")
      try scratch.write("b", "two")
      try scratch.answer()
      let (a, b) = (try scratch.item("a")?.id, try scratch.item("b")?.id)
      try scratch.move("a", "b", .exchanging)
      #expect(try scratch.read("a") == "two")
      #expect(try scratch.read("b") == "one")
      #expect(try scratch.item("a")?.id == b)
      #expect(try scratch.item("b")?.id == a)
      #expect(try scratch.queue() == ["1 update \"b\": title \"b\" @1", "2 update \"a\": title \"a\" @1"])
      try scratch.answer()
    }
  }

  @Test("in two directories exchange their edges")
  func twoDirectories() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("B")
      try scratch.write("A/f", "one")
      try scratch.mkdir("B/d")
      try scratch.write("B/d/g", "two")
      try scratch.answer()
      try scratch.move("A/f", "B/d", .exchanging)
      #expect(try scratch.read("B/d") == "one")
      #expect(try scratch.read("A/f/g") == "two")
      try scratch.answer()
    }
  }

  @Test("where one holds the other are refused")
  func loop() throws {
    try withScratch { scratch in
      try scratch.mkdir("A")
      try scratch.mkdir("A/B")
      try scratch.write("A/f", "one")
      #expect(throws: MarfaError.file(.invalid)) { try scratch.move("A", "A/B", .exchanging) }
      #expect(throws: MarfaError.file(.invalid)) { try scratch.move("A/B", "A", .exchanging) }
      #expect(throws: MarfaError.file(.invalid)) { try scratch.move("A", "A/f", .exchanging) }
      #expect(throws: MarfaError.file(.invalid)) { try scratch.move("A/f", "A", .exchanging) }
    }
  }

  @Test("must both be there")
  func missing() throws {
    try withScratch { scratch in
      try scratch.write("a", "one")
      #expect(throws: MarfaError.file(.notFound)) { try scratch.move("a", "b", .exchanging) }
      #expect(throws: MarfaError.file(.notFound)) { try scratch.move("b", "a", .exchanging) }
      try scratch.link("a", "c")
      try scratch.move("a", "c", .exchanging)
      #expect(try scratch.list() == ["a", "c"])
    }
  }

  @Test("where one is an editor's own file become what their names say")
  func local() throws {
    try withScratch { scratch in
      try scratch.write("a", "one")
      try scratch.write(".a.swp", "two")
      try scratch.answer()
      try scratch.move("a", ".a.swp", .exchanging)
      #expect(try scratch.read("a") == "two")
      #expect(try scratch.read(".a.swp") == "one")
      try scratch.answer()
    }
  }
}
