import Glibc
import Testing

@testable import MarfaEngine

private let block = Block.size

@Suite("What was fetched and the budget")
struct FetchBudgetTests {
  private func fetch(_ remote: RemoteScratch, _ hash: BlobHash, _ count: Int) throws {
    let reader = try remote.blobs.open(hash)
    _ = try Read(reader, at: 0, count).get()
    reader.close()
    #expect(remote.settle())
  }

  @Test("takes whole files and parts of files, the least recently read first, and never an attachment kept")
  func order() throws {
    try withRemote { remote in
      let kept = try remote.remote("D/kept", MemorySource.pattern(3 << 20, seed: 9))
      let first = try remote.remote("first", MemorySource.pattern(1 << 20, seed: 1))
      let part = try remote.remote("part", MemorySource.pattern(4 << 20, seed: 2))
      let last = try remote.remote("last", MemorySource.pattern(1 << 20, seed: 3))
      try fetch(remote, kept, 10)
      try fetch(remote, first, 1 << 20)
      try fetch(remote, part, 10)
      try fetch(remote, last, 1 << 20)
      remote.copy.fetcher.flushPending()
      #expect(try remote.blobs.setBudget(.bytes((1 << 20) + block - 1)) == (1 << 20) + block)
      #expect(try !remote.blobs.isHeld(first))
      #expect(try remote.blobs.partialBytes(part) == 0)
      #expect(try remote.blobs.isHeld(last))
      #expect(try remote.blobs.partialBytes(kept) == block)
      remote.copy.tree.settle()
      #expect(!isThere(remote.copy.blobStore.files.partial(part)))
      #expect(isThere(remote.copy.blobStore.files.partial(kept)))
      #expect(try remote.blobs.removeFetchedFiles() == 1 << 20)
      #expect(try remote.blobs.partialBytes(kept) == block)
    }
  }

  @Test("is kept to after a fetch, with nobody asking")
  func byItself() throws {
    try withRemote { remote in
      _ = try remote.blobs.setBudget(.bytes(1 << 20))
      let hashes = try (0..<4).map { number in
        try remote.remote("f\(number)", MemorySource.pattern(600_000, seed: UInt64(number + 1)))
      }
      for hash in hashes { try fetch(remote, hash, 600_000) }
      #expect(eventually { try remote.blobs.cache().held == 600_000 })
      #expect(try remote.blobs.isHeld(hashes[3]))
    }
  }

  @Test("never takes what is open, and a partial file that a fetch holds stays through a removal of all")
  func open() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 0, 10).get()
      #expect(eventually { remote.source.running == 0 })
      #expect(try remote.blobs.removeFetchedFiles() == 0)
      #expect(try remote.blobs.setBudget(.bytes(0)) == 0)
      #expect(try Read(reader, at: 0, 10).get() == Array(bytes.prefix(10)))
      #expect(remote.source.asked.count == 1)
      reader.close()
      #expect(remote.settle())
      #expect(eventually { try remote.blobs.partialBytes(hash) == 0 })
    }
  }

  @Test("that has no room for it is served through, every byte right, and nothing is kept")
  func through() throws {
    try withRemote { remote in
      _ = try remote.blobs.setBudget(.bytes(0))
      let bytes = MemorySource.pattern(12 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      for start in stride(from: 0, to: bytes.count, by: 1 << 17) {
        #expect(try Read(reader, at: Int64(start), 1 << 17).get() == Array(bytes[start..<start + (1 << 17)]))
      }
      #expect(try Read(reader, at: 5, 1 << 20).get() == Array(bytes[5..<(1 << 20) + 5]))
      #expect(!isThere(remote.copy.blobStore.files.partial(hash)))
      #expect(try remote.blobs.partialBytes(hash) == 0)
      reader.close()
    }
  }

  @Test("does not hinder an attachment that is kept")
  func attachment() throws {
    try withRemote { remote in
      _ = try remote.blobs.setBudget(.bytes(0))
      let bytes = MemorySource.pattern(300_000)
      let hash = try remote.remote("D/f", bytes)
      try fetch(remote, hash, 300_000)
      #expect(try remote.blobs.isHeld(hash))
      #expect(try remote.blobs.trim() == 0)
    }
  }

  @Test(
    "of a person's own: one file is let go though it is an attachment, but not while it is open, pinned, or only here")
  func letGo() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(300_000)
      let hash = try remote.remote("D/f", bytes)
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 0, 300_000).get()
      #expect(throws: MarfaError.file(Errno(EBUSY))) { try remote.blobs.letGo(hash) }
      reader.close()
      #expect(remote.settle())
      let node = try remote.scratch.existing("D/f").number
      try remote.copy.tree.setPinned(node, true)
      #expect(throws: MarfaError.file(.notPermitted)) { try remote.blobs.letGo(hash) }
      try remote.copy.tree.setPinned(node, false)
      #expect(try remote.blobs.letGo(hash) == 300_000)
      #expect(try remote.blobs.letGo(hash) == 0)
      let own = try #require(try remote.scratch.write("D/own", "mine").blob)
      #expect(throws: MarfaError.file(.notPermitted)) { try remote.blobs.letGo(own) }
    }
  }
}

@Suite("Bytes fetched on a volume with no room", .enabled(if: SmallVolume.isAllowed, SmallVolume.needsRoot))
struct FetchNoRoomTests {
  @Test("are served through to who reads them, and refused with size and room left to who wants them held")
  func noRoom() async throws {
    let volume = try SmallVolume(bytes: 16 << 20)
    var options = WorkingCopy.Options()
    options.fetching = .quick
    let copy = try WorkingCopy(path: volume.path + "/store.db", options: options)
    defer { copy.close() }
    let source = MemorySource()
    copy.connect(source)
    let bytes = MemorySource.pattern(24 << 20)
    let hash = source.add(bytes)
    try copy.store.write { (connection) throws(MarfaError) in
      try connection.know(hash, mimeType: nil, stored: true)
      _ = try connection.setSize(hash, Int64(bytes.count))
    }
    let reader = try copy.blobs.open(hash)
    for start in stride(from: 0, to: bytes.count, by: 1 << 18) {
      let found = try Read(reader, at: Int64(start), 1 << 18).get()
      #expect(found == Array(bytes[start..<start + (1 << 18)]), "at \(start)")
    }
    reader.close()
    #expect(eventually { source.running == 0 && copy.fetcher.openCount == 0 })
    do {
      try await copy.blobs.withFile(hash) { _ in }
      Issue.record("there was room")
    } catch MarfaError.noRoom(let size, let left) {
      #expect(size == 24 << 20)
      #expect(left < 24 << 20)
    }
    #expect(eventually { try copy.blobs.notHeld(hash)?.reason == .noRoom })
    #expect(try VolumeRoom.of(copy.blobsFolder).available > 0)
  }
}
