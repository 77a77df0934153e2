import Testing

@testable import MarfaEngine

@Suite("A file changed")
struct FileChangedTests {
  @Test("before its writes went out changes what is queued")
  func unsent() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.answer()
      let number = try scratch.write("D/a.txt", "one").number
      let id = try scratch.item("D/a.txt")?.id
      #expect(try scratch.write("D/a.txt", "two").number == number)
      #expect(try scratch.item("D/a.txt")?.id == id)
      #expect(
        try scratch.queue() == [
          "1 create file \"a.txt\" of \"two\" <- 3", "2 attach \"a.txt\" to \"D\" <- 1", "3 upload \"two\"",
        ])
      try scratch.answer()
    }
  }

  @Test("that the server has is an upload and an update on the version held")
  func answered() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/a.txt", "one")
      try scratch.answer()
      let id = try scratch.item("D/a.txt")?.id
      try scratch.write("D/a.txt", "two")
      #expect(try scratch.queue() == ["1 upload \"two\"", "2 update \"a.txt\": bytes \"two\" @1 <- 1"])
      try scratch.answer()
      #expect(try scratch.item("D/a.txt")?.version == 2)
      #expect(try scratch.item("D/a.txt")?.id == id)
      try scratch.write("D/a.txt", "three")
      try scratch.write("D/a.txt", "four")
      #expect(try scratch.queue() == ["1 update \"a.txt\": bytes \"four\" @2 <- 2", "2 upload \"four\""])
      try scratch.answer()
    }
  }

  @Test("while its writes are under way is a change behind them")
  func goneOut() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/a.txt", "one")
      try scratch.sendOut()
      try scratch.write("D/a.txt", "two")
      #expect(
        try scratch.queue() == [
          "1 create note \"D\" !", "2 upload \"one\" !", "3 create file \"a.txt\" of \"one\" <- 2 !",
          "4 attach \"a.txt\" to \"D\" <- 1,3 !", "5 upload \"two\"", "6 update \"a.txt\": bytes \"two\" @0 <- 3,5",
        ])
      try scratch.sendOut()
      try scratch.write("D/a.txt", "three")
      let queue = try scratch.queue()
      #expect(queue.count == 8)
      #expect(queue[4...5] == ["5 upload \"two\" !", "6 update \"a.txt\": bytes \"two\" @0 <- 3,5 !"])
      try scratch.answer()
      #expect(try scratch.read("D/a.txt") == "three")
    }
  }

  @Test("to what it was is no change")
  func same() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      try scratch.answer()
      try scratch.write("a.txt", "one")
      #expect(try scratch.queue() == [])
      try scratch.write("a.txt", "two")
      try scratch.write("a.txt", "one")
      #expect(try scratch.read("a.txt") == "one")
      try scratch.answer()
    }
  }

  @Test("lets its old bytes go when nothing else shows them")
  func oldBytes() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      let old = try #require(try scratch.item("a.txt")?.blob)
      try scratch.write("a.txt", "two")
      #expect(try !scratch.copy.blobs.isHeld(old))
      scratch.copy.tree.settle()
      #expect(!isThere(scratch.copy.blobStore.files.held(old)))
    }
  }

  @Test("by two programs at once has the bytes of the last to close")
  func twoWriters() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      let first = try scratch.open("a.txt")
      let second = try scratch.open("a.txt")
      try first.append(Array("first".utf8))
      try second.append(Array("second".utf8))
      try scratch.close(second)
      try scratch.close(first)
      #expect(try scratch.read("a.txt") == "first")
      try scratch.answer()
    }
  }

  @Test("after it was unlinked is nothing to anybody")
  func unlinked() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      let staged = try scratch.open("a.txt")
      try staged.append(Array("two".utf8))
      try scratch.unlink("a.txt")
      #expect(try scratch.close(staged) == nil)
      #expect(try scratch.list() == [])
      #expect(try scratch.queue() == [])
    }
  }
}

@Suite("A file emptied")
struct FileEmptiedTests {
  @Test("before its writes went out stays the item it is, and its next bytes are that item's")
  func unsent() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.answer()
      let number = try scratch.write("D/a.txt", "one").number
      try scratch.tree.setTags(number, ["blue"])
      try scratch.tree.setProperty(number, "description", "of the sea")
      let before = try #require(try scratch.item("D/a.txt"))
      let queued = try scratch.queue()
      try scratch.write("D/a.txt", "")
      #expect(try scratch.existing("D/a.txt").content == .empty)
      #expect(try scratch.item("D/a.txt") == before)
      #expect(try scratch.queue() == queued)
      try scratch.write("D/a.txt", "two")
      #expect(try scratch.existing("D/a.txt").number == number)
      let item = try #require(try scratch.item("D/a.txt"))
      #expect(item.id == before.id)
      #expect(item.tags == ["blue"])
      #expect(item.properties["description"] == "of the sea")
      let uploads = try scratch.queue().filter { $0.contains("upload") }
      #expect(uploads.count == 1 && uploads.allSatisfy { $0.contains("two") }, "\(uploads)")
      try scratch.answer()
    }
  }

  @Test("that the server has stays the item it is, and its next bytes are that item's")
  func answered() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/a.txt", "one")
      try scratch.answer()
      let id = try scratch.item("D/a.txt")?.id
      try scratch.write("D/a.txt", "")
      #expect(try scratch.queue() == [])
      #expect(try scratch.existing("D/a.txt").content == .empty)
      #expect(try scratch.item("D/a.txt")?.id == id)
      try scratch.write("D/a.txt", "two")
      #expect(try scratch.item("D/a.txt")?.id == id)
      #expect(try scratch.queue() == ["1 upload \"two\"", "2 update \"a.txt\": bytes \"two\" @1 <- 1"])
      try scratch.answer()
    }
  }

  @Test("and filled with what the server has is no change")
  func refilled() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      try scratch.answer()
      try scratch.write("a.txt", "")
      try scratch.write("a.txt", "one")
      #expect(try scratch.queue() == [])
      #expect(try scratch.read("a.txt") == "one")
    }
  }

  @Test("while its writes are under way leaves them alone")
  func goneOut() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      try scratch.sendOut()
      let before = try scratch.queue()
      try scratch.write("a.txt", "")
      #expect(try scratch.queue() == before)
      try scratch.write("a.txt", "two")
      try scratch.answer()
      #expect(try scratch.read("a.txt") == "two")
    }
  }

  @Test("and removed is gone, whatever the server has")
  func removed() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      try scratch.answer()
      try scratch.write("a.txt", "")
      try scratch.unlink("a.txt")
      #expect(try scratch.queue() == ["1 trash \"a.txt\""])
      try scratch.answer()
    }
  }
}
