import Glibc
import Testing

@testable import MarfaEngine

@Suite("A file made a moment ago")
struct NewFileTests {
  private var options: WorkingCopy.Options {
    var options = WorkingCopy.Options()
    options.tree.groupsRows = true
    return options
  }

  /// Makes a file and closes it, as an open file does.
  @discardableResult
  private func make(_ scratch: Scratch, _ path: String, _ text: String) throws -> Node {
    let place = try scratch.place(path)
    let (node, staged) = try scratch.tree.createFile(
      place.parent, place.name, mode: 0o640, owner: scratch.owner, writing: true)
    let file = try #require(staged)
    let bytes = Array(text.utf8)
    try bytes.withUnsafeBytes { try file.descriptor.write($0, at: 0) }
    file.wrote(at: 0, count: bytes.count)
    return try #require(try scratch.tree.seal(file, mtime: Timestamp(nanoseconds: node.mtime.nanoseconds + 5)))
  }

  @Test("is there for a look-up, a stat, an opening and a listing at once")
  func isThere() throws {
    try withScratch(options) { scratch in
      let before = try #require(try scratch.tree.node(Node.root)).mtime
      let made = try make(scratch, "a.txt", "bytes")
      let found = try #require(try scratch.node("a.txt"))
      #expect(found == made)
      #expect(found.size == 5 && found.mode == 0o640 && found.links == 1)
      #expect(try #require(try scratch.tree.node(Node.root)).mtime >= before)
      #expect(try scratch.read("a.txt") == "bytes")
      #expect(try scratch.list() == ["a.txt"])
      #expect(try scratch.copy.queue.counts().total == 2)
      #expect(try scratch.item("a.txt")?.title == "a.txt")
      #expect(try scratch.node("a.txt")?.mtime == made.mtime)
    }
  }

  @Test("keeps the mode, owner and times it is given before it has rows")
  func attributes() throws {
    try withScratch(options) { scratch in
      let made = try make(scratch, "a.txt", "bytes")
      var changes = NodeChanges()
      changes.mode = 0o600
      changes.mtime = Timestamp(nanoseconds: 12_345)
      _ = try scratch.tree.setAttributes(made.number, changes)
      _ = try scratch.copy.queue.counts()
      let node = try #require(try scratch.node("a.txt"))
      #expect(node.mode == 0o600 && node.mtime.nanoseconds == 12_345)
      #expect(node.item != nil)
    }
  }

  @Test("is one of many whose rows are made in few transactions")
  func many() throws {
    try withScratch(options) { scratch in
      let before = scratch.copy.commits
      for number in 0..<500 { try make(scratch, "f\(number)", "bytes \(number)") }
      let commits = scratch.copy.commits - before
      #expect(try scratch.copy.queue.counts().total == 1000)
      #expect(commits < 250, "\(commits)")
      #expect(try scratch.read("f77") == "bytes 77")
    }
  }

  @Test("and closed survives the end of its process, with its times, before it has rows")
  func crash() throws {
    try withScratch(options) { scratch in
      // No transaction comes any more: as if the process ended within the moment.
      let (made, path) = try scratch.copy.store.stopped {
        let made = try make(scratch, "a.txt", "bytes")
        var changes = NodeChanges()
        changes.mode = 0o600
        _ = try scratch.tree.setAttributes(made.number, changes)
        return (made, try scratch.asLeft())
      }
      let copy = try WorkingCopy(path: path, options: options)
      defer { copy.close() }
      try copy.store.settle()
      let node = try #require(try copy.tree.node(made.number))
      #expect(node.mtime == made.mtime && node.mode == 0o600 && node.size == 5)
      if case .staged(let id) = node.content { _ = try copy.tree.sealLeftOver(id, of: node.number) }
      #expect(try copy.items.item(ofNode: made.number)?.title == "a.txt")
      #expect(try copy.queue.counts().total == 2)
      #expect(copy.recoveredFiles() == [])
      let next = try copy.tree.makeDirectory(Node.root, FileName(checking: "D".utf8), mode: 0o755, owner: scratch.owner)
      #expect(next.number > made.number)
    }
  }

  @Test("and not closed is kept aside under its name when its process ends")
  func open() throws {
    try withScratch(options) { scratch in
      let (path, file) = try scratch.copy.store.stopped {
        let place = try scratch.place("a.txt")
        let (_, staged) = try scratch.tree.createFile(
          place.parent, place.name, mode: 0o640, owner: scratch.owner, writing: true)
        let file = try #require(staged)
        try Array("half".utf8).withUnsafeBytes { try file.descriptor.write($0, at: 0) }
        file.wrote(at: 0, count: 4)
        return (try scratch.asLeft(), file)
      }
      _ = try scratch.tree.seal(file, mtime: .now)
      let copy = try WorkingCopy(path: path, options: options)
      defer { copy.close() }
      #expect(try copy.names() == [])
      #expect(copy.recoveredFiles().count == 1)
      #expect(copy.recoveredFiles().allSatisfy { $0.hasSuffix(" a.txt") })
    }
  }

  @Test("has a line in the journal of its own, though a full disk left half of another's there")
  func halfLine() throws {
    let folder = try TemporaryFolder()
    let store = folder.path + "/store.db"
    let journal = LateRowsJournal(beside: store)
    let now = Timestamp.now
    let lines = (Int64(7)...9).map { number in
      LateRowsJournal.Made(
        node: Node(
          number: number, kind: .file, item: nil, local: false, mode: 0o644, uid: 1, gid: 1, atime: now, mtime: now,
          ctime: now, links: 1, content: .empty, size: 0),
        parent: 1, name: FileName(stored: Array("f\(number)".utf8)), staged: StagedID(bytes: ItemID.mint().bytes),
        size: 3)
    }
    try journal.append(.made(lines[0]))
    try journal.append(.made(lines[1]))
    let path = LateRowsJournal.path(beside: store)
    #expect(truncate(path, off_t(try contents(path).count - 20)) == 0)
    try journal.append(.made(lines[2]))
    #expect(try LateRowsJournal.read(beside: store).made.map(\.node.number) == [7, 9])
  }

  @Test("shows in its directory's times before and after it has rows, as does what is changed of the directory")
  func directoryTimes() throws {
    try withScratch(options) { scratch in
      try scratch.mkdir("D")
      let directory = try #require(try scratch.node("D"))
      for number in 0..<3 {
        let before = try #require(try scratch.tree.node(directory.number)).mtime
        try make(scratch, "D/f\(number)", "bytes")
        let then = try #require(try scratch.tree.node(directory.number))
        #expect(then.mtime > before)
        try scratch.copy.store.settle()
        #expect(try scratch.tree.node(directory.number) == then)
        #expect(try scratch.node("D") == then)
        var changes = NodeChanges()
        changes.mode = mode_t(0o700 + number)
        changes.mtime = Timestamp(nanoseconds: Int64(number))
        _ = try scratch.tree.setAttributes(directory.number, changes)
        let changed = try #require(try scratch.tree.node(directory.number))
        #expect(changed.mode == 0o700 + UInt32(number) && changed.mtime.nanoseconds == Int64(number))
      }
    }
  }

  @Test("does not hold up a directory that is made beside it, unless that has its name")
  func directory() throws {
    try withScratch(options) { scratch in
      for number in 0..<50 { try make(scratch, "f\(number)", "bytes \(number)") }
      try scratch.mkdir("D")
      #expect(scratch.tree.lateRows?.isEmpty == false, "their rows wait still")
      let made = try #require(try scratch.node("D"))
      #expect(try #require(try scratch.tree.node(Node.root)).mtime >= made.mtime)
      try make(scratch, "D/inside", "bytes")
      #expect(throws: MarfaError.file(.exists)) { try scratch.mkdir("f7") }
      try scratch.unlink("f8")
      try scratch.mkdir("f8")
      #expect(try scratch.list().count == 51)
      #expect(try #require(try scratch.tree.node(Node.root)).mtime >= made.mtime)
      #expect(try scratch.node("f8")?.kind == .directory)
      #expect(try scratch.read("D/inside") == "bytes")
      #expect(try scratch.item("D/inside") != nil)
    }
  }

  @Test("is there, and all others, whoever wants to write while their rows are made")
  func interrupted() throws {
    try withScratch(options) { scratch in
      for number in 0..<300 {
        try make(scratch, "f\(number)", "bytes \(number)")
        if number % 3 == 0 { try scratch.mkdir("d\(number)") }
      }
      #expect(eventually { scratch.tree.lateRows?.isEmpty == true })
      #expect(try scratch.list().count == 400)
      #expect(try scratch.copy.queue.counts().total == 700)
      #expect(try scratch.read("f77") == "bytes 77")
    }
  }

  @Test("is not made twice")
  func twice() throws {
    try withScratch(options) { scratch in
      try make(scratch, "a.txt", "bytes")
      #expect(throws: MarfaError.file(.exists)) { try make(scratch, "a.txt", "other") }
      _ = try scratch.copy.queue.counts()
      #expect(throws: MarfaError.file(.exists)) { try make(scratch, "a.txt", "other") }
      #expect(try scratch.read("a.txt") == "bytes")
    }
  }
}

extension Scratch {
  /// The store as the end of the process would leave it now, in another folder.
  func asLeft() throws -> String {
    let left = folder.path + "/left"
    let names = try Path.names(in: folder.path).filter { $0.hasPrefix("store.db") && !$0.hasSuffix(".lock") }
    try Path.makeDirectory(left, mode: 0o700)
    let copier = try Program(["cp", "-a"] + names.map { "\(folder.path)/\($0)" } + [left])
    #expect(try copier.wait().status == 0)
    return left + "/store.db"
  }
}

extension Store {
  /// Runs `body` while no transaction is committed.
  func stopped<T>(_ body: () throws -> T) throws -> T {
    let blocker = try Connection(path: path, flags: 2)
    try blocker.execute("BEGIN IMMEDIATE")
    defer { try? blocker.execute("ROLLBACK") }
    return try body()
  }
}
