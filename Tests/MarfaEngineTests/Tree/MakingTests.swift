import Glibc
import Testing

@testable import MarfaEngine

@Suite("A directory made")
struct DirectoryMadeTests {
  @Test("in the root is an item, and nothing else")
  func root() throws {
    try withScratch { scratch in
      let node = try scratch.mkdir("D")
      #expect(try scratch.queue() == ["1 create note \"D\""])
      let write = try #require(try scratch.writes().first)
      #expect(write.body["properties"] == ["body": "", "title": "D"])
      #expect(write.body["tier"] == "library")
      #expect(write.item == node.item)
      #expect(node.fileMode == S_IFDIR | 0o755)
      #expect(node.uid == 1000 && node.gid == 1000)
      try scratch.answer()
    }
  }

  @Test("in another is an item that the other is the parent of, waiting for both")
  func below() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.mkdir("D/E")
      #expect(
        try scratch.queue() == ["1 create note \"D\"", "2 create note \"E\"", "3 put \"E\" into \"D\" <- 1,2"])
      try scratch.answer()
      try scratch.mkdir("D/E/F")
      #expect(try scratch.queue() == ["1 create note \"F\"", "2 put \"F\" into \"E\" <- 1"])
      try scratch.answer()
    }
  }

  @Test("is an item of the type that is set")
  func type() throws {
    var options = WorkingCopy.Options()
    options.tree.directoryType = "core.project"
    try withScratch(options) { scratch in
      try scratch.mkdir("D")
      #expect(try scratch.queue() == ["1 create project \"D\""])
      #expect(try scratch.item("D")?.properties == ["title": "D"])
    }
  }

  @Test("under a name that is taken is refused")
  func taken() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("f", "one")
      #expect(throws: MarfaError.file(.exists)) { try scratch.mkdir("D") }
      #expect(throws: MarfaError.file(.exists)) { try scratch.mkdir("f") }
      #expect(throws: MarfaError.file(.notDirectory)) { try scratch.mkdir("f/g") }
      #expect(throws: MarfaError.file(.notFound)) { try scratch.mkdir("nowhere/g") }
      #expect(try scratch.queue().count == 3)
    }
  }

  @Test("hands the group on when its parent has the set-group bit")
  func setGroup() throws {
    try withScratch { scratch in
      let parent = try scratch.tree.makeDirectory(
        Node.root, FileName(checking: "D".utf8), mode: 0o2775, owner: Owner(uid: 1, gid: 77))
      #expect(parent.mode == 0o2775)
      let child = try scratch.mkdir("D/E")
      #expect(child.gid == 77)
      #expect(child.mode == 0o2755)
      #expect(try scratch.write("D/f", "one").gid == 77)
    }
  }
}

@Suite("A file written and closed")
struct FileMadeTests {
  @Test("in a directory is an upload, a file item and an edge, each waiting for what it names")
  func inDirectory() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.answer()
      let node = try scratch.write("D/a.txt", "one")
      #expect(
        try scratch.queue() == [
          "1 upload \"one\"", "2 create file \"a.txt\" of \"one\" <- 1", "3 attach \"a.txt\" to \"D\" <- 2",
        ])
      let item = try #require(try scratch.item("D/a.txt"))
      #expect(item.type == "core.file")
      #expect(item.mimeType == "text/plain")
      #expect(item.title == "a.txt")
      #expect(item.tier == .library)
      #expect(node.size == 3)
      #expect(try scratch.read("D/a.txt") == "one")
      try scratch.answer()
    }
  }

  @Test("in the root is an upload and a file item")
  func inRoot() throws {
    try withScratch { scratch in
      try scratch.write("a.txt", "one")
      #expect(try scratch.queue() == ["1 upload \"one\"", "2 create file \"a.txt\" of \"one\" <- 1"])
      try scratch.answer()
    }
  }

  @Test("in a directory that is itself only queued waits for that too")
  func inQueuedDirectory() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/a.txt", "one")
      #expect(
        try scratch.queue() == [
          "1 create note \"D\"", "2 upload \"one\"", "3 create file \"a.txt\" of \"one\" <- 2",
          "4 attach \"a.txt\" to \"D\" <- 1,3",
        ])
      try scratch.answer()
    }
  }

  @Test(
    "is of a type by its MIME type",
    arguments: [
      ("p.png", "core.file.image", "image/png"), ("s.mp3", "core.file.audio", "audio/mpeg"),
      ("f.mp4", "core.file.video", "video/mp4"), ("d.pdf", "core.file", "application/pdf"),
      ("P.JPG", "core.file.image", "image/jpeg"),
    ])
  func type(name: String, type: String, mimeType: String) throws {
    try withScratch { scratch in
      try scratch.write(name, "bytes")
      let item = try #require(try scratch.item(name))
      #expect(item.type == type)
      #expect(item.mimeType == mimeType)
    }
  }

  @Test("is nothing to the queue until it is closed")
  func notYetClosed() throws {
    try withScratch { scratch in
      let staged = try scratch.open("a.txt")
      try staged.append(Array("one".utf8))
      #expect(try scratch.list() == ["a.txt"])
      #expect(try scratch.existing("a.txt").content == .empty)
      #expect(try scratch.queue() == [])
      try scratch.close(staged)
      #expect(try scratch.queue().count == 2)
    }
  }

  @Test("with nothing in it lives on this device only")
  func empty() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.answer()
      try scratch.write("D/a.txt", "")
      #expect(try scratch.queue() == [])
      #expect(try scratch.list("D") == ["a.txt"])
      #expect(try scratch.existing("D/a.txt").size == 0)
      #expect(try scratch.item("D/a.txt") == nil)
      try scratch.write("D/a.txt", "one")
      #expect(try scratch.queue().count == 3)
      try scratch.answer()
    }
  }

  @Test("keeps the time its program sets")
  func time() throws {
    try withScratch { scratch in
      let staged = try scratch.open("a.txt")
      try staged.append([1])
      let time = Timestamp(nanoseconds: 1_234_567_890_123_456_789)
      #expect(try scratch.close(staged, mtime: time)?.mtime == time)
      try scratch.reopen()
      #expect(try scratch.existing("a.txt").mtime == time)
    }
  }

  @Test("is settled a while before it may go out")
  func settling() throws {
    var options = WorkingCopy.Options()
    options.tree.settling = 3_000_000_000
    try withScratch(options) { scratch in
      try scratch.write("a.txt", "one")
      for write in try scratch.writes() {
        #expect(write.notBefore.nanoseconds - write.queuedAt.nanoseconds == 3_000_000_000)
      }
    }
  }

  @Test("has an idempotency key for each write but the upload, and the keys are all different")
  func keys() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/a.txt", "one")
      let writes = try scratch.writes()
      #expect(writes.map { $0.idempotencyKey == nil } == [false, true, false, false])
      let keys = writes.compactMap(\.idempotencyKey)
      #expect(Set(keys).count == keys.count)
      #expect(keys.allSatisfy { ItemID($0) != nil })
    }
  }

  @Test("under a name that is taken is refused")
  func taken() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      let name = try FileName(checking: "D".utf8)
      #expect(throws: MarfaError.file(.exists)) {
        try scratch.tree.createFile(Node.root, name, mode: 0o644, owner: scratch.owner, writing: true)
      }
    }
  }
}

@Suite("A symbolic link")
struct SymlinkTests {
  @Test("lives on this device only")
  func local() throws {
    try withScratch { scratch in
      try scratch.symlink("link", to: "user@host.1234:5678")
      #expect(try scratch.queue() == [])
      let node = try scratch.existing("link")
      #expect(node.kind == .special && node.local && node.size == 19)
      #expect(node.fileMode == S_IFLNK | 0o777)
      #expect(try scratch.tree.linkTarget(node.number) == Array("user@host.1234:5678".utf8))
      try scratch.mkdir("D")
      try scratch.move("link", "D/renamed")
      try scratch.link("D/renamed", "D/twice")
      try scratch.unlink("D/renamed")
      #expect(try scratch.tree.linkTarget(try scratch.existing("D/twice").number) != nil)
      try scratch.unlink("D/twice")
      #expect(try scratch.queue() == ["1 create note \"D\""])
    }
  }

  @Test("keeps a target of any bytes")
  func bytes() throws {
    try withScratch { scratch in
      let target: [UInt8] = [0xff, 0x0a, 0x2f]
      let node = try scratch.tree.makeSymlink(
        Node.root, FileName(checking: "l".utf8), target: target, owner: scratch.owner)
      #expect(try scratch.tree.linkTarget(node.number) == target)
    }
  }
}
