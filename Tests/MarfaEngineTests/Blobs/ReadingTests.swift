import Glibc
import Testing

@testable import MarfaEngine

@Suite("Bytes put beside the store")
struct PutTests {
  @Test("are queued for upload, with no file item, and stay queued whatever else goes")
  func put() throws {
    try withScratch { scratch in
      let path = try scratch.folder.file("a.txt", "one")
      let (blob, upload) = try scratch.copy.blobs.put(file: path)
      #expect(try scratch.queue() == ["1 upload \"one\""])
      #expect(try scratch.writes().first?.id == upload)
      #expect(try scratch.writes().first?.body["mime_type"] == "text/plain")
      #expect(try scratch.copy.blobs.isHeld(blob))
      #expect(try scratch.copy.blobs.size(blob) == 3)
      #expect(try scratch.list() == [])
      try scratch.write("f", "one")
      try scratch.unlink("f")
      #expect(try scratch.queue() == ["1 upload \"one\""])
      try scratch.answer()
      #expect(try scratch.copy.blobs.put(file: path).upload == nil)
    }
  }

  @Test("have the MIME type they are given")
  func type() throws {
    try withScratch { scratch in
      _ = try scratch.copy.blobs.put(file: scratch.folder.file("a.txt", "one"), mimeType: "application/x-one")
      #expect(try scratch.writes().first?.body["mime_type"] == "application/x-one")
    }
  }

  @Test("after a file showed them are put all the same, and stay when the file goes")
  func afterFile() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let blob = try scratch.copy.blobs.put(file: scratch.folder.file("a.txt", "one")).blob
      try scratch.unlink("f")
      #expect(try scratch.queue() == ["1 upload \"one\""])
      #expect(try scratch.copy.blobs.isHeld(blob))
      try scratch.answer()
    }
  }
}

@Suite("Reading a blob's bytes")
struct WithFileTests {
  @Test("hands the closure where they are, and its answer back")
  func path() async throws {
    try await withAsyncScratch { scratch in
      try scratch.write("f", "one")
      let hash = try #require(try scratch.item("f")?.blob)
      let answer = try await scratch.copy.blobs.withFile(hash) { path in
        String(decoding: try contents(path), as: UTF8.self)
      }
      #expect(answer == "one")
      #expect(try scratch.copy.blobs.isHeld(hash))
    }
  }

  @Test("throws that they are absent, in a copy without a server and for a reader")
  func absent() async throws {
    try await withAsyncScratch { scratch in
      let hash = try #require(BlobHash(BlobHashTests.empty))
      #expect(try !scratch.copy.blobs.isHeld(hash))
      let blobs = scratch.copy.blobs
      await #expect(throws: MarfaError.bytesAbsent(hash)) { try await blobs.withFile(hash) { _ in } }
      let reader = try WorkingCopy(path: scratch.copy.path)
      defer { reader.close() }
      await #expect(throws: MarfaError.bytesAbsent(hash)) { try await reader.blobs.withFile(hash) { _ in } }
    }
  }

  @Test("serves a reader what the writer holds")
  func reader() async throws {
    try await withAsyncScratch { scratch in
      try scratch.write("f", "one")
      let hash = try #require(try scratch.item("f")?.blob)
      let reader = try WorkingCopy(path: scratch.copy.path)
      defer { reader.close() }
      let text = try await reader.blobs.withFile(hash) { String(decoding: try contents($0), as: UTF8.self) }
      #expect(text == "one")
    }
  }
}

@Suite("A copy that fetches nothing")
struct NoFetchTests {
  @Test("refuses to fetch the attachments: it has no server")
  func noServer() async throws {
    try await withAsyncScratch { (scratch) throws in
      let blobs = scratch.copy.blobs
      await #expect(throws: MarfaError.noServer) { try await blobs.fetchKept() }
    }
  }

  @Test("that is a reader refuses everything but to say what the cache holds")
  func reader() async throws {
    try await withAsyncScratch { scratch in
      try scratch.mkdir("D")
      try scratch.write("D/f", "one")
      let reader = try WorkingCopy(path: scratch.copy.path)
      defer { reader.close() }
      #expect(try reader.blobs.cache() == scratch.copy.blobs.cache())
      #expect(try reader.status().fileCache.attachments?.held == 1)
      await #expect(throws: MarfaError.readingHandle) { try await reader.blobs.fetchKept() }
      #expect(throws: MarfaError.readingHandle) { try reader.blobs.setBudget(.bytes(0)) }
      #expect(throws: MarfaError.readingHandle) { try reader.blobs.setKeep(.none) }
      #expect(throws: MarfaError.readingHandle) { try reader.blobs.trim() }
      #expect(throws: MarfaError.readingHandle) { try reader.blobs.removeFetchedFiles() }
    }
  }
}

@Suite("A volume with no room", .enabled(if: SmallVolume.isAllowed, SmallVolume.needsRoot))
struct NoRoomTests {
  /// A copy on a volume of eight mebibytes, and a file of the size beside it.
  private func withSmallVolume(fileOf size: Int64, _ body: (WorkingCopy, ItemID, String, Int64) throws -> Void) throws {
    let volume = try SmallVolume(bytes: 8 << 20)
    let copy = try WorkingCopy(path: volume.path + "/store.db")
    defer { copy.close() }
    let host = try copy.items.create(type: "core.note", properties: ["title": "N"]).item.id
    let folder = try TemporaryFolder()
    let path = folder.path + "/large"
    try Descriptor.open(path, O_RDWR | O_CREAT, mode: 0o644).truncate(to: size)
    // The log folded in now is not folded in while the room is counted.
    let log = try Connection(path: copy.path, flags: 2)
    try log.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    let left = try VolumeRoom.of(copy.blobsFolder).available
    try body(copy, host, path, left)
    #expect(try Path.names(in: copy.blobsFolder + "/staged") == [])
    #expect(try copy.queue.counts().total == 1)
    #expect(try copy.blobs.cache().held == 0)
    copy.tree.settle()
    // A program just being started by another test holds copies of our open files until it runs.
    for _ in 0..<1_000_000 {
      if try VolumeRoom.of(copy.blobsFolder).available >= left - (1 << 20) { break }
      sched_yield()
    }
    #expect(try VolumeRoom.of(copy.blobsFolder).available >= left - (1 << 20))
    try checkInvariants(copy)
  }

  @Test("refuses with the size and the room left, and nothing is written")
  func noRoom() throws {
    try withSmallVolume(fileOf: 64 << 20) { copy, host, path, left in
      // The store's own log shares the volume, and may have grown since.
      func isExpected(_ error: any Error) -> Bool {
        guard case .noRoom(64 << 20, let said) = error as? MarfaError else { return false }
        return said <= left && said > left - (1 << 20)
      }
      #expect { try copy.items.attach(to: host, file: path) } throws: { isExpected($0) }
      #expect { try copy.items.embed(file: path, in: host) } throws: { isExpected($0) }
      #expect { try copy.items.addFile(path) } throws: { isExpected($0) }
      #expect { try copy.blobs.put(file: path) } throws: { isExpected($0) }
      let words = MarfaError.noRoom(size: 64 << 20, left: left).description
      #expect(words.contains("64 MiB") && words.contains(Bytes.text(left)))
    }
  }

  @Test("to the very last page refuses as well, whatever it was that found no more")
  func lastPage() throws {
    try withSmallVolume(fileOf: 1) { copy, host, path, _ in
      // What is left takes the bytes, and hardly what the store has to write about them.
      let size = try VolumeRoom.of(copy.blobsFolder).available
      // No holes: those would be copied as holes.
      try Descriptor.open(path, O_RDWR).write([UInt8](repeating: 7, count: Int(size)), at: 0)
      do {
        _ = try copy.items.attach(to: host, file: path)
        Issue.record("there was room")
      } catch {
        guard case MarfaError.noRoom(size: size, left: let left) = error else { throw error }
        #expect(left <= size)
      }
    }
  }
}
