import Glibc
import Testing

@testable import MarfaEngine

@Suite("A second opener of a store")
struct SecondOpenerTests {
  @Test("reads only, and says so")
  func reads() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let reader = try WorkingCopy(path: scratch.copy.path)
      defer { reader.close() }
      #expect(reader.isReader)
      #expect(try reader.status().isReader)
      #expect(try reader.items.item(ofNode: scratch.existing("f").number)?.title == "f")
      #expect(throws: MarfaError.readingHandle) {
        try reader.tree.makeDirectory(
          Node.root, FileName(checking: "D".utf8), mode: 0o755, owner: .current)
      }
      #expect(throws: MarfaError.readingHandle) { try reader.items.create(type: "core.note", properties: [:]) }
      #expect(StoreLock.holder(beside: scratch.copy.path) == Int(getpid()))
    }
  }

  @Test("sees what the writer saves, and that it has saved")
  func sees() throws {
    try withScratch { scratch in
      let reader = try WorkingCopy(path: scratch.copy.path)
      defer { reader.close() }
      var version = try reader.dataVersion()
      #expect(try reader.dataVersion() == version)
      for name in ["a", "b", "c"] {
        try scratch.write(name, name)
        let next = try reader.dataVersion()
        #expect(next != version)
        #expect(try reader.dataVersion() == next)
        version = next
        #expect(try reader.status().files == reader.status().items)
        #expect(
          try name.utf8.withContiguousStorageIfAvailable { bytes in
            try reader.tree.lookup(Node.root, UnsafeRawBufferPointer(bytes))?.size
          } == 1)
      }
    }
  }

  @Test("learns of a save however many of its threads are reading")
  func dataVersion() throws {
    try withScratch { scratch in
      let reader = try WorkingCopy(path: scratch.copy.path)
      defer { reader.close() }
      let before = try reader.dataVersion()
      try scratch.write("f", "one")
      let after = try reader.store.read { (_) throws(MarfaError) in try reader.dataVersion() }
      #expect(after != before)
      #expect(try reader.dataVersion() == after)
    }
  }

  @Test("has one moment's rows in a snapshot")
  func snapshot() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let reader = try WorkingCopy(path: scratch.copy.path)
      defer { reader.close() }
      let counts = try reader.store.snapshot { (connection) throws(MarfaError) -> [Int64?] in
        let first = try connection.first("SELECT count(*) FROM items", { _ in }, { $0.int(0) })
        try scratch.copy.store.write { (connection) throws(MarfaError) in try connection.execute("DELETE FROM tags") }
        do { try scratch.write("g", "two") } catch { return [] }
        return [first, try connection.first("SELECT count(*) FROM items", { _ in }, { $0.int(0) })]
      }
      #expect(counts == [1, 1])
      #expect(try reader.status().items == 2)
    }
  }

  @Test("becomes the writer once the first has ended")
  func next() throws {
    try withScratch { scratch in
      let path = scratch.copy.path
      try scratch.reopen()
      let reader = try WorkingCopy(path: path)
      #expect(reader.isReader)
      reader.close()
      scratch.copy.close()
      let writer = try WorkingCopy(path: path)
      #expect(!writer.isReader)
      writer.close()
      try scratch.reopen()
    }
  }

  @Test("can ask to read only though nobody writes")
  func asked() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      scratch.copy.close()
      var options = WorkingCopy.Options()
      options.reader = true
      let reader = try WorkingCopy(path: scratch.copy.path, options: options)
      #expect(reader.isReader)
      #expect(try reader.status().files == 1)
      let writer = try WorkingCopy(path: scratch.copy.path)
      #expect(!writer.isReader)
      writer.close()
      reader.close()
      try scratch.reopen()
    }
  }

  @Test("in another process is kept out by the lock, which goes with its process however that dies")
  func otherProcess() throws {
    let folder = try TemporaryFolder()
    let path = folder.path + "/store.db"
    let child = try Child.start("hold", path)
    #expect(try child.waitFor(line: "holding"))
    let reader = try WorkingCopy(path: path)
    #expect(reader.isReader)
    #expect(StoreLock.holder(beside: path) == Int(child.pid))
    #expect(try reader.status().items == 1)
    child.kill()
    _ = try child.wait()
    let writer = try WorkingCopy(path: path)
    #expect(!writer.isReader)
    #expect(try writer.status().items == 1)
    reader.close()
    try checkInvariants(writer)
    writer.close()
  }
}
