import CSQLite
import Glibc
import Testing

@testable import MarfaEngine

/// Opens a database as another program would.
private func database(_ path: String, _ statements: String...) throws {
  let connection = try Connection(path: path, flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
  for statement in statements { try connection.execute(statement) }
}

@Suite("A new store")
struct NewStoreTests {
  @Test("is this person's alone, file and folder")
  func modes() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      func mode(_ path: String) throws -> mode_t { try #require(try Path.status(path)).st_mode & 0o777 }
      #expect(try mode(scratch.copy.path) == 0o600)
      #expect(try mode(scratch.copy.path + "-wal") == 0o600)
      let blobs = scratch.copy.blobsFolder
      for folder in ["", "/held", "/staged"] { #expect(try mode(blobs + folder) == 0o700) }
      let held = scratch.copy.blobStore.files.held(try #require(try scratch.item("f")?.blob))
      #expect(try mode(held) == 0o600)
    }
  }

  @Test("is empty, and says what it is")
  func empty() throws {
    try withScratch { scratch in
      #expect(!scratch.copy.isReader)
      #expect(try scratch.list() == [])
      #expect(try scratch.queue() == [])
      let status = try scratch.copy.status()
      #expect(status.items == 0 && status.files == 0 && status.queue.total == 0)
      #expect(ItemID(status.storeID) != nil)
      let (application, version, journal) = try scratch.copy.store.read { (connection) throws(MarfaError) in
        (
          try connection.first("PRAGMA application_id") { $0.int(0) },
          try connection.first("PRAGMA user_version") { $0.int(0) },
          try connection.first("PRAGMA journal_mode") { $0.text(0) }
        )
      }
      #expect(application == 0x4d52_4641)
      #expect(version == Int64(Schema.version))
      #expect(journal == "wal")
    }
  }

  @Test("keeps its identity and everything in it when it is opened again")
  func again() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/f", "one")
      let status = try scratch.copy.status()
      let queue = try scratch.writes()
      try scratch.reopen()
      #expect(try scratch.copy.status() == status)
      #expect(try scratch.writes() == queue)
      #expect(try scratch.read("D/f") == "one")
    }
  }

  @Test("may be called anything", arguments: ["a?b#c%20d.db", "with space", "漢字.db", "-x", "a'b\"c", ":memory:"])
  func names(name: String) throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/" + name
    let copy = try WorkingCopy(path: path)
    defer { copy.close() }
    #expect(isThere(path))
    var options = WorkingCopy.Options()
    options.reader = true
    let reader = try WorkingCopy(path: path, options: options)
    #expect(try reader.status().storeID == copy.status().storeID)
    reader.close()
  }

  @Test("is made of an empty file with a lock beside it, as a crash while it is made leaves them")
  func emptyFile() throws {
    let folder = try TemporaryFolder()
    let path = try folder.file("store.db", "")
    _ = try folder.file("store.db.lock", "1")
    let copy = try WorkingCopy(path: path)
    #expect(try copy.status().items == 0)
    copy.close()
  }

  @Test("is not made of a person's empty file, which stays empty")
  func letter() throws {
    let folder = try TemporaryFolder()
    let path = try folder.file("letter.txt", "")
    #expect(throws: MarfaError.unusable(.notAStore(path: Path.resolved(path)))) { try WorkingCopy(path: path) }
    #expect(try Path.status(path)?.st_size == 0)
    #expect(try Path.names(in: Path.parent(path)) == ["letter.txt"])
  }

  @Test("is refused without the folder of its bytes, and nothing is changed")
  func bytesMissing() throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/store.db"
    let copy = try WorkingCopy(path: path)
    _ = try copy.items.addFile(try folder.file("a.txt", "bytes"))
    copy.close()
    try Path.move(path + ".blobs", to: folder.path + "/elsewhere")
    #expect(throws: MarfaError.unusable(.bytesMissing(path: Path.resolved(path), files: 1))) {
      try WorkingCopy(path: path)
    }
    #expect(try Path.status(path + ".blobs") == nil)
    try Path.move(folder.path + "/elsewhere", to: path + ".blobs")
    let again = try WorkingCopy(path: path)
    #expect(try again.status().items == 1)
    again.close()
  }

  @Test("has every statement its schema promises, and refuses nonsense")
  func schema() throws {
    try withScratch { scratch in
      #expect(throws: MarfaError.self) {
        try scratch.copy.store.write { (connection) throws(MarfaError) in
          try connection.execute("INSERT INTO items(id, type, properties) VALUES (x'00', 'core.note', '{}')")
        }
      }
      #expect(throws: MarfaError.self) {
        try scratch.copy.store.write { (connection) throws(MarfaError) in
          try connection.execute("INSERT INTO entries(parent, number, name, node) VALUES (1, 1, x'61', 99)")
        }
      }
    }
  }
}

@Suite("A file that is no store")
struct NoStoreTests {
  /// Opening is refused for this reason, whether to write or to read, and the file and its folder are as they were.
  private func expectRefusal(
    _ path: String, _ problem: StoreProblem, location: SourceLocation = #_sourceLocation
  ) throws {
    let folder = Path.parent(path)
    let before = (try contents(path), try Path.names(in: folder).sorted())
    for reader in [false, true] {
      var options = WorkingCopy.Options()
      options.reader = reader
      #expect(throws: MarfaError.unusable(problem), sourceLocation: location) {
        try WorkingCopy(path: path, options: options)
      }
      #expect(try contents(path) == before.0, "the file was changed", sourceLocation: location)
    }
    // The lock's file, and what SQLite makes beside a store to read it.
    var allowed = Set(before.1 + [Path.lastComponent(path) + ".lock"])
    if case .newer = problem { allowed.formUnion(["-wal", "-shm"].map { Path.lastComponent(path) + $0 }) }
    #expect(Set(try Path.names(in: folder)).isSubset(of: allowed), sourceLocation: location)
  }

  @Test("is refused when it is a text", arguments: [1, 15, 100, 5000])
  func text(count: Int) throws {
    let folder = try TemporaryFolder()
    let path = try folder.file("notes.txt", String(String(repeating: "a line of text\n", count: 400).prefix(count)))
    try expectRefusal(path, .notAStore(path: path))
  }

  @Test("is refused when it is a directory")
  func directory() throws {
    let folder = try TemporaryFolder()
    #expect(throws: MarfaError.unusable(.notAStore(path: folder.path))) { try WorkingCopy(path: folder.path) }
  }

  @Test(
    "is refused when it is another program's database, whatever numbers that uses", arguments: [0, 1, 7], [0, 252_006])
  func otherProgram(version: Int, application: Int) throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/photos.db"
    try database(
      path, "CREATE TABLE photos(name TEXT)", "INSERT INTO photos VALUES ('beach')", "PRAGMA user_version=\(version)",
      "PRAGMA application_id=\(application)")
    try expectRefusal(path, .notAStore(path: path))
  }

  @Test("is refused when a newer program wrote it, with both numbers")
  func newer() throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/store.db"
    try WorkingCopy(path: path).close()
    try database(path, "PRAGMA user_version=99")
    let problem = StoreProblem.newer(path: path, found: 99, known: Schema.version)
    try expectRefusal(path, problem)
    #expect(problem.description.contains("99"))
    #expect(problem.description.contains("up to \(Schema.version)"))
  }

  @Test("is refused when it was cut short", arguments: [0.9, 0.5, 0.1])
  func truncated(part: Double) throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/store.db"
    try WorkingCopy(path: path).close()
    let size = try #require(try Path.status(path)).st_size
    let left = Int(Double(size) * part)
    try Descriptor.open(path, O_RDWR).truncate(to: Int64(left))
    try expectRefusal(path, .damaged(path: path, words: "\(left) of \(size) bytes are there"))
  }

  @Test("is refused when it was cut to nothing and its bytes are still there")
  func cutToNothing() throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/store.db"
    let copy = try WorkingCopy(path: path)
    _ = try copy.items.addFile(try folder.file("f", "one"))
    copy.close()
    try Descriptor.open(path, O_RDWR).truncate(to: 0)
    #expect(throws: MarfaError.self) { try WorkingCopy(path: path) }
    #expect(try Path.status(path)?.st_size == 0)
  }

  @Test("is refused, or says so at the first use, when its pages are garbage")
  func garbage() throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/store.db"
    try WorkingCopy(path: path).close()
    let file = try Descriptor.open(path, O_RDWR)
    let size = Int(try file.status().st_size)
    try file.write([UInt8](repeating: 0xa5, count: size - 4096), at: 4096)
    #expect(throws: MarfaError.self) {
      let copy = try WorkingCopy(path: path)
      defer { copy.close() }
      _ = try copy.status()
    }
  }
}

@Suite("A place for a store")
struct StorePlaceTests {
  @Test("must be a folder that is there")
  func missing() throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/not/there/store.db"
    #expect(throws: MarfaError.unusable(.noFolder(path: folder.path + "/not/there"))) { try WorkingCopy(path: path) }
    try folder.file("file", "x")
    #expect(throws: MarfaError.self) { try WorkingCopy(path: folder.path + "/file/store.db") }
  }

  @Test("must have a store to be read")
  func nothing() throws {
    let folder = try TemporaryFolder()
    var options = WorkingCopy.Options()
    options.reader = true
    let path = folder.path + "/store.db"
    #expect(throws: MarfaError.unusable(.nothingToRead(path: path))) { try WorkingCopy(path: path, options: options) }
    #expect(try Path.names(in: folder.path) == [])
  }

  @Test(
    "where nothing may be written is refused to a writer", .enabled(if: SmallVolume.isAllowed, SmallVolume.needsRoot))
  func readOnly() throws {
    let volume = try SmallVolume(bytes: 8 << 20)
    try WorkingCopy(path: volume.path + "/store.db").close()
    try volume.becomeReadOnly()
    #expect(throws: MarfaError.unusable(.readOnlyFolder(path: volume.path))) {
      try WorkingCopy(path: volume.path + "/store.db")
    }
    #expect(throws: MarfaError.unusable(.readOnlyFolder(path: volume.path))) {
      try WorkingCopy(path: volume.path + "/new.db")
    }
  }

  @Test(
    "where nothing may be written can be read, after a clean end and after none",
    .enabled(if: SmallVolume.isAllowed, SmallVolume.needsRoot), arguments: [false, true])
  func readOnlyReader(killed: Bool) throws {
    let volume = try SmallVolume(bytes: 8 << 20)
    let path = volume.path + "/store.db"
    if killed {
      let child = try Child.start("hold", path)
      #expect(try child.waitFor(line: "holding"))
      child.kill()
      _ = try child.wait()
    } else {
      let copy = try WorkingCopy(path: path)
      _ = try copy.items.create(type: "core.note", properties: ["title": "held"])
      copy.close()
    }
    try volume.becomeReadOnly()
    var options = WorkingCopy.Options()
    options.reader = true
    let reader = try WorkingCopy(path: path, options: options)
    defer { reader.close() }
    #expect(reader.isReader)
    #expect(try reader.status().items == 1)
  }
}
