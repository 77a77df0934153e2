import Glibc
import Testing

@testable import MarfaEngine

extension Scratch {
  /// The bytes kept under `recovered/`, by the end of their names.
  fileprivate func recovered() throws -> [String: String] {
    var found: [String: String] = [:]
    for path in copy.recoveredFiles() {
      let name = Path.lastComponent(path).split(separator: " ", maxSplits: 1).last.map(String.init) ?? ""
      found[name] = String(decoding: try contents(path), as: UTF8.self)
    }
    return found
  }

  fileprivate func staged() throws -> [String] {
    copy.tree.settle()
    return try Path.names(in: copy.blobsFolder + "/staged")
  }

  /// A file in the middle of being written; nobody closes it.
  fileprivate func begin(_ path: String, _ text: String) throws -> StagedFile {
    let file = try open(path)
    try file.append(Array(text.utf8))
    return file
  }
}

@Suite("After a crash, a file that was never closed")
struct NeverClosedTests {
  @Test("is gone when it was new, and what it had is kept")
  func new() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      let file = try scratch.begin("D/report.txt", "half a rep")
      try scratch.crash()
      #expect(try scratch.list("D") == [])
      #expect(try scratch.recovered() == ["report.txt": "half a rep"])
      #expect(try scratch.copy.status().recovered == scratch.copy.recoveredFiles())
      #expect(try scratch.staged() == [])
      #expect(try scratch.queue() == ["1 create note \"D\""])
      _ = file
      // And once is enough.
      try scratch.crash()
      #expect(try scratch.recovered().count == 1)
      try scratch.answer()
    }
  }

  @Test("is gone without a trace when it was new and empty")
  func empty() throws {
    try withScratch { scratch in
      _ = try scratch.open("f")
      try scratch.crash()
      #expect(try scratch.list() == [])
      #expect(try scratch.recovered() == [:])
      #expect(try scratch.staged() == [])
    }
  }

  @Test("is what it was when it was not new, and what was written is kept")
  func changed() throws {
    try withScratch { scratch in
      try scratch.write("f.txt", "one")
      let number = try scratch.existing("f.txt").number
      _ = try scratch.begin("f.txt", "tw")
      try scratch.crash()
      #expect(try scratch.read("f.txt") == "one")
      #expect(try scratch.existing("f.txt").number == number)
      #expect(try scratch.recovered() == ["f.txt": "tw"])
      try scratch.answer()
    }
  }

  @Test("is gone under all its names")
  func linked() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      _ = try scratch.begin("f", "text")
      try scratch.link("f", "D/g")
      try scratch.crash()
      #expect(try scratch.list() == ["D"])
      #expect(try scratch.list("D") == [])
      #expect(try scratch.recovered().values.elementsEqual(["text"]))
    }
  }

  @Test("and was renamed over another leaves that the item and the bytes it was", arguments: [false, true])
  func renamedOver(answered: Bool) throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/f", "one")
      if answered { try scratch.answer() }
      let id = try #require(try scratch.item("D/f")?.id)
      let hash = try #require(try scratch.item("D/f")?.blob)
      _ = try scratch.begin("D/tmp", "tw")
      try scratch.move("D/tmp", "D/f")
      try scratch.crash()
      #expect(try scratch.list("D") == ["f"])
      #expect(try scratch.item("D/f")?.id == id)
      #expect(try scratch.existing("D/f").content == .blob(hash))
      if !answered { #expect(try scratch.read("D/f") == "one") }
      #expect(try scratch.recovered() == ["f": "tw"])
      #expect(try !scratch.queue().contains { $0.contains("trash") })
      try scratch.answer()
    }
  }

  @Test("is kept beside others of its name")
  func several() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      for name in ["f", "D/f"] { _ = try scratch.begin(name, name) }
      try scratch.crash()
      #expect(Set(try scratch.recovered().values) == ["f", "D/f"])
    }
  }

  @Test("is kept under a name that leaves no folder, whatever it was called")
  func hostile() throws {
    try withScratch { scratch in
      let names = [
        Array("a\nb\u{1}".utf8), [UInt8](repeating: 0xff, count: 255), Array(String(repeating: "漢", count: 85).utf8),
      ]
      for name in names {
        let (_, staged) = try scratch.tree.createFile(
          Node.root, FileName(checking: name), mode: 0o600, owner: scratch.owner, writing: true)
        try #require(staged).append([1])
      }
      try scratch.crash()
      #expect(try scratch.list() == [])
      #expect(scratch.copy.recoveredFiles().count == 3)
      for path in scratch.copy.recoveredFiles() {
        #expect(path.hasPrefix(scratch.copy.blobsFolder + "/recovered/"))
        #expect(!Path.lastComponent(path).utf8.contains { $0 < 0x20 })
        #expect(try Path.status(path)?.st_mode ?? 0 & 0o777 == S_IFREG | 0o600)
      }
    }
  }

  @Test("and was unlinked meanwhile does not come back")
  func unlinked() throws {
    try withScratch { scratch in
      _ = try scratch.begin("f", "text")
      try scratch.unlink("f")
      try scratch.crash()
      #expect(try scratch.list() == [])
      #expect(try scratch.staged() == [])
    }
  }

  @Test("is left alone by a reader")
  func reader() throws {
    try withScratch { scratch in
      _ = try scratch.begin("f", "text")
      let staged = try scratch.staged()
      var options = WorkingCopy.Options()
      options.reader = true
      let reader = try WorkingCopy(path: scratch.copy.path, options: options)
      #expect(try scratch.staged() == staged)
      #expect(reader.recoveredFiles() == [])
      reader.close()
      try scratch.crash()
    }
  }
}

@Suite("After a crash, a file that was synced or closed")
struct ClosedTests {
  @Test("is whole at once, and sealed soon")
  func adopted() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      let file = try scratch.begin("D/f.txt", "one")
      let time = Timestamp(nanoseconds: 1_000_000_000_000_000_001)
      _ = try scratch.tree.adopt(file, mtime: time, durably: true)
      try scratch.crash()
      let node = try scratch.existing("D/f.txt")
      #expect(try scratch.read("D/f.txt") == "one")
      // Whoever comes first: the start's own thread, or the first to open it.
      if case .staged(let id) = node.content { _ = try scratch.tree.sealLeftOver(id, of: node.number) }
      #expect(try scratch.item("D/f.txt")?.title == "f.txt")
      #expect(try scratch.existing("D/f.txt").mtime == time)
      #expect(try scratch.existing("D/f.txt").number == node.number)
      #expect(try scratch.queue().count == 4)
      #expect(scratch.copy.recoveredFiles() == [])
      #expect(try scratch.staged() == [])
      try scratch.answer()
    }
  }

  @Test("is sealed by the start itself, with nobody asking")
  func sealedByStart() throws {
    try withScratch { scratch in
      for name in ["a", "b", "c"] {
        _ = try scratch.tree.adopt(try scratch.begin(name, name), mtime: .now, durably: false)
      }
      try scratch.crash()
      #expect(eventually { try scratch.copy.status().items == 3 })
      #expect(eventually { try scratch.staged() == [] })
      for name in ["a", "b", "c"] { #expect(try scratch.read(name) == name) }
      try scratch.answer()
    }
  }

  @Test("over another's bytes is that item's next version")
  func adoptedOver() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      try scratch.answer()
      let id = try scratch.item("f")?.id
      _ = try scratch.tree.adopt(try scratch.begin("f", "two"), mtime: .now, durably: true)
      try scratch.crash()
      #expect(eventually { try scratch.item("f")?.blob == scratch.existing("f").blob })
      #expect(try scratch.item("f")?.id == id)
      #expect(try scratch.read("f") == "two")
      #expect(eventually { try scratch.staged() == [] })
      #expect(try scratch.queue() == ["1 upload \"two\"", "2 update \"f\": bytes \"two\" @1 <- 1"])
      try scratch.answer()
    }
  }

  @Test("has only its staged name removed, when that was left to do")
  func leftOver() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let node = try scratch.existing("f")
      let hash = try #require(node.blob)
      let path = scratch.copy.blobStore.files.staged(node.number, BlobFiles.mintStaged(isNew: true))
      #expect(link(scratch.copy.blobStore.files.held(hash), path) == 0)
      try scratch.crash()
      #expect(try scratch.staged() == [])
      #expect(scratch.copy.recoveredFiles() == [])
      #expect(try scratch.read("f") == "one")
    }
  }

  @Test("but whose seal was not committed is kept, and its name under held/ is swept")
  func uncommitted() throws {
    try withScratch { scratch in
      let file = try scratch.begin("f", "one")
      let (hash, _) = try file.finish()
      try scratch.copy.blobStore.files.hold(file.path, as: hash)
      try scratch.crash()
      #expect(try scratch.list() == [])
      #expect(try scratch.recovered() == ["f": "one"])
      #expect(eventually { !isThere(scratch.copy.blobStore.files.held(hash)) })
    }
  }

  @Test("and whose seal over other bytes was not committed has those, and the new ones are kept")
  func uncommittedOver() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let file = try scratch.begin("f", "two")
      let (hash, _) = try file.finish()
      try scratch.copy.blobStore.files.hold(file.path, as: hash)
      try scratch.crash()
      #expect(try scratch.read("f") == "one")
      #expect(try scratch.recovered() == ["f": "two"])
      #expect(eventually { !isThere(scratch.copy.blobStore.files.held(hash)) })
    }
  }

  @Test("is an error to read, and stops nothing else, when its bytes are gone from the disk")
  func lost() throws {
    let scratch = try Scratch()
    defer { scratch.copy.close() }
    let file = try scratch.begin("f", "one")
    _ = try scratch.tree.adopt(file, mtime: .now, durably: false)
    try scratch.write("g", "two")
    try Path.remove(file.path)
    try scratch.crash()
    let node = try scratch.existing("f")
    guard case .staged(let id) = node.content else { throw MarfaError.invalid("it was sealed of nothing") }
    #expect(throws: MarfaError.self) { try scratch.tree.sealLeftOver(id, of: node.number) }
    #expect(try scratch.read("g") == "two")
    try scratch.unlink("f")
    #expect(try scratch.list() == ["g"])
    try checkInvariants(scratch.copy)
  }
}

@Suite("After a crash, what nobody needs")
struct SweptTests {
  @Test("is removed: copies of files about to be attached, and bytes no row knows")
  func swept() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let staged = try scratch.tree.stage(for: 0)
      try staged.append(Array("a copy of what is elsewhere".utf8))
      let orphan = scratch.copy.blobStore.files.held(try #require(BlobHash(BlobHashTests.empty)))
      try Path.makeDirectory(Path.parent(orphan), mode: 0o700)
      _ = try Descriptor.open(orphan, O_WRONLY | O_CREAT, mode: 0o600)
      let stranger = scratch.copy.blobsFolder + "/held/README"
      _ = try Descriptor.open(stranger, O_WRONLY | O_CREAT, mode: 0o600)
      try scratch.crash()
      #expect(try scratch.staged() == [])
      #expect(scratch.copy.recoveredFiles() == [])
      #expect(eventually { !isThere(orphan) })
      #expect(isThere(stranger))
      #expect(try scratch.read("f") == "one")
      try Path.remove(stranger)
    }
  }
}
