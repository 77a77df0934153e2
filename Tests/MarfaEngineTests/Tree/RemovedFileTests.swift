import Testing

@testable import MarfaEngine

@Suite("A file removed a moment ago")
struct RemovedFileTests {
  private var options: WorkingCopy.Options {
    var options = WorkingCopy.Options()
    options.tree.groupsRows = true
    return options
  }

  /// Writes a file that has its rows.
  private func write(_ scratch: Scratch, _ path: String, _ text: String) throws -> Node {
    let node = try scratch.write(path, text)
    try scratch.copy.store.settle()
    return node
  }

  @Test("is gone for a look-up, a stat, a listing and the queue at once")
  func isGone() throws {
    try withScratch(options) { scratch in
      let node = try write(scratch, "a.txt", "bytes")
      let before = try #require(try scratch.tree.node(Node.root)).mtime
      // While no transaction is committed: nothing but the line says so.
      try scratch.copy.store.stopped {
        let removed = try scratch.tree.unlink(Node.root, FileName(checking: "a.txt".utf8))
        #expect(removed.number == node.number && removed.links == 0)
        #expect(try scratch.node("a.txt") == nil)
        #expect(try scratch.tree.node(node.number) == nil)
        #expect(try #require(try scratch.tree.node(Node.root)).mtime > before)
      }
      #expect(try scratch.list() == [])
      #expect(try scratch.copy.queue.counts().total == 0)
      #expect(try #require(try scratch.tree.node(Node.root)).mtime > before)
      #expect(throws: MarfaError.file(.notFound)) { try scratch.unlink("a.txt") }
    }
  }

  @Test("can't be removed twice")
  func twice() throws {
    try withScratch(options) { scratch in
      _ = try write(scratch, "a.txt", "bytes")
      try scratch.unlink("a.txt")
      #expect(throws: MarfaError.file(.notFound)) { try scratch.unlink("a.txt") }
    }
  }

  @Test("leaves its name to another at once, and that one stays")
  func nameAgain() throws {
    try withScratch(options) { scratch in
      let first = try write(scratch, "a.txt", "one")
      for text in ["two", "three"] {
        try scratch.unlink("a.txt")
        try scratch.write("a.txt", text)
        #expect(try scratch.read("a.txt") == text)
      }
      #expect(try scratch.list() == ["a.txt"])
      #expect(try scratch.read("a.txt") == "three")
      #expect(try scratch.node("a.txt")?.number != first.number)
      #expect(try scratch.copy.queue.counts().total == 2)
    }
  }

  @Test("is one of many whose rows go in few transactions, and their bytes with them")
  func many() throws {
    try withScratch(options) { scratch in
      let hashes = try (0..<200).map { number in
        _ = try write(scratch, "f\(number)", "bytes \(number)")
        return try #require(try scratch.item("f\(number)")?.blob)
      }
      let before = scratch.copy.commits
      for number in 0..<200 { try scratch.unlink("f\(number)") }
      #expect(try scratch.list() == [])
      #expect(scratch.copy.commits - before < 100, "\(scratch.copy.commits - before)")
      scratch.copy.tree.settle()
      #expect(hashes.allSatisfy { !isThere(scratch.copy.blobStore.files.held($0)) })
    }
  }

  @Test("stays removed when its process ends before its rows are gone, and one of its name made after it stays")
  func crash() throws {
    try withScratch(options) { scratch in
      let kept = try write(scratch, "kept", "one")
      _ = try write(scratch, "a.txt", "two")
      let gone = try write(scratch, "b.txt", "three")
      let path = try scratch.copy.store.stopped {
        try scratch.unlink("a.txt")
        try scratch.unlink("b.txt")
        try scratch.write("a.txt", "again")
        return try scratch.asLeft()
      }
      let copy = try WorkingCopy(path: path, options: options)
      defer { copy.close() }
      #expect(try copy.names() == ["a.txt", "kept"])
      #expect(try copy.tree.node(gone.number) == nil)
      #expect(try copy.tree.node(kept.number) != nil)
      #expect(copy.recoveredFiles() == [])
    }
  }

  @Test("is not another that got its number: a line that power brought back takes nothing away")
  func oldLine() throws {
    try withScratch(options) { scratch in
      let node = try write(scratch, "a.txt", "bytes")
      let journal = LateRowsJournal(beside: scratch.copy.path)
      try journal.append(.removed(node.number, changed: Timestamp(nanoseconds: node.ctime.nanoseconds - 1)))
      let copy = try WorkingCopy(path: try scratch.asLeft(), options: options)
      defer { copy.close() }
      #expect(try copy.names() == ["a.txt"])
    }
  }

  @Test("makes room at once for a write that finds none")
  func room() throws {
    try withScratch(options) { scratch in
      _ = try write(scratch, "a.txt", "bytes")
      let hash = try #require(try scratch.item("a.txt")?.blob)
      try scratch.unlink("a.txt")
      scratch.tree.settle()
      #expect(!isThere(scratch.copy.blobStore.files.held(hash)))
    }
  }
}
