import Glibc
import Testing

@testable import MarfaEngine

private let block = Block.size
private let mebibyte: Int64 = 1 << 20

@Suite("A read of bytes that are elsewhere")
struct FetchReadTests {
  @Test("asks for the blocks it needs, rounded out, and gives exactly its bytes")
  func one() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("D/f", bytes)
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 100_000, 50_000).get() == Array(bytes[100_000..<150_000]))
      #expect(remote.source.ranges == [block..<3 * block])
      reader.close()
    }
  }

  @Test("of head and tail costs about that")
  func headAndTail() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(64 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 0, 4096).get() == Array(bytes.prefix(4096)))
      #expect(try Read(reader, at: Int64(bytes.count) - 4096, 4096).get() == Array(bytes.suffix(4096)))
      #expect(eventually { remote.source.running == 0 })
      #expect(remote.source.sent <= 256 << 10)
      #expect(remote.source.asked.count == 2)
      reader.close()
    }
  }

  @Test("is answered at once, before it returns, when its bytes are in")
  func here() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 0, 10).get()
      #expect(eventually { remote.source.running == 0 })
      let again = Read(reader, at: 1000, 5000)
      #expect(again.isDone)
      #expect(try again.get() == Array(bytes[1000..<6000]))
      #expect(remote.source.asked.count == 1)
      reader.close()
    }
  }

  @Test("is answered when its own bytes are in, not when the request ends")
  func early() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      remote.source.allow(16 << 10)
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 0, 4096).get() == Array(bytes.prefix(4096)))
      #expect(remote.source.running == 1)
      let later = Read(reader, at: 20 << 10, 4096)
      #expect(!later.isDone)
      remote.source.allow(nil)
      #expect(try later.get() == Array(bytes[20 << 10..<24 << 10]))
      #expect(remote.source.ranges == [0..<block])
      reader.close()
    }
  }

  @Test("waits on the request that is under way for the same block, whoever made it")
  func shared() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      remote.source.allow(0)
      let readers = try (0..<4).map { _ in try remote.blobs.open(hash) }
      let reads = readers.flatMap { reader in (0..<4).map { Read(reader, at: 300_000 + $0 * 3000, 1000) } }
      #expect(remote.source.asked.count == 1)
      remote.source.allow(nil)
      for (index, read) in reads.enumerated() {
        let start = 300_000 + index % 4 * 3000
        #expect(try read.get() == Array(bytes[start..<start + 1000]))
        #expect(read.answers == 1)
      }
      #expect(remote.source.asked.count == 1)
      for reader in readers { reader.close() }
    }
  }

  @Test("asks for neighbouring blocks together, a mebibyte at most")
  func together() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(4 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 10, Int(5 * mebibyte / 2)).get() == Array(bytes[10..<10 + Int(5 * mebibyte / 2)]))
      #expect(
        remote.source.ranges == [
          0..<mebibyte, mebibyte..<2 * mebibyte, 2 * mebibyte..<2 * mebibyte + 9 * block,
        ])
      reader.close()
    }
  }

  @Test("asks only for what is missing between what is in")
  func gaps() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 3 * block, 10).get()
      #expect(eventually { remote.source.running == 0 })
      #expect(try Read(reader, at: block, Int(5 * block)).get() == Array(bytes[Int(block)..<Int(6 * block)]))
      #expect(remote.source.ranges == [3 * block..<4 * block, block..<3 * block, 4 * block..<6 * block])
      reader.close()
    }
  }

  @Test("behind the end is empty, and over the end is as long as there is")
  func ends() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(100_000)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 100_000, 10).get() == [])
      #expect(try Read(reader, at: .max, 10).get() == [])
      #expect(try Read(reader, at: 99_990, .max).get() == Array(bytes.suffix(10)))
      #expect(Read(reader, at: -1, 10).failure != nil)
      reader.close()
    }
  }

  @Test("stops waiting when it is cancelled, and hears so once")
  func cancel() throws {
    try withRemote { remote in
      let hash = try remote.remote("f", MemorySource.pattern(1 << 20))
      remote.source.allow(0)
      let reader = try remote.blobs.open(hash)
      let read = Read(reader, at: 0, 10)
      #expect(!read.isDone)
      read.cancel()
      #expect(read.failure == .canceled)
      read.cancel()
      remote.source.allow(nil)
      #expect(eventually { remote.source.running == 0 })
      #expect(read.answers == 1)
      reader.close()
    }
  }

  @Test("learns the size from the first answer")
  func unsized() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(100_000)
      let hash = try remote.remote("D/f", bytes, sized: false)
      remote.source.holdSizes()
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 0, 200_000).get().elementsEqual(bytes))
      reader.close()
      #expect(eventually { try remote.blobs.size(hash) == 100_000 })
      #expect(try remote.scratch.existing("D/f").size == 100_000)
      remote.source.releaseSizes()
    }
  }

  @Test("asks for the size first when it begins where an answer might not reach")
  func unsizedMiddle() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes, sized: false)
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 500_000, 10).get() == Array(bytes[500_000..<500_010]))
      #expect(try Read(reader, at: 1 << 30, 10).get() == [])
      reader.close()
    }
  }
}

@Suite("Reading in order")
struct SequentialTests {
  /// Reads all in order as the kernel does.
  private func readAll(_ remote: RemoteScratch, _ reader: RangeReader, _ bytes: [UInt8], step: Int = 128 << 10) throws {
    for start in stride(from: 0, to: bytes.count, by: step) {
      let end = min(bytes.count, start + step)
      #expect(try Read(reader, at: Int64(start), step).get() == Array(bytes[start..<end]), "at \(start)")
    }
  }

  @Test("fetches ahead in a growing window with several requests at once, each byte once, and holds the whole")
  func ahead() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(40 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      try readAll(remote, reader, bytes)
      #expect(remote.source.sent == Int64(bytes.count))
      let ranges = remote.source.ranges.compactMap { $0 }
      #expect(ranges.allSatisfy { $0.count <= 4 << 20 })
      #expect(ranges.contains { $0.count >= 256 << 10 })
      #expect(remote.source.mostRunning > 2)
      #expect(remote.source.mostRunning <= 9)
      #expect(eventually { try remote.blobs.isHeld(hash) })
      reader.close()
      #expect(try contents(remote.copy.blobStore.files.held(hash)).elementsEqual(bytes))
      #expect(!isThere(remote.copy.blobStore.files.partial(hash)))
    }
  }

  @Test("ends what was fetched ahead when the reader goes elsewhere, and when it is closed")
  func seek() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(64 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      for step in 0..<40 { _ = try Read(reader, at: Int64(step) << 17, 1 << 17).get() }
      remote.source.allow(0)
      for step in 40..<60 { _ = Read(reader, at: Int64(step) << 17, 1 << 17) }
      #expect(remote.source.running > 0)
      let far = Read(reader, at: 60 << 20, 4096)
      remote.source.allow(nil)
      #expect(try far.get() == Array(bytes[60 << 20..<(60 << 20) + 4096]))
      #expect(eventually { remote.source.running == 0 })
      let sent = remote.source.sent
      #expect(sent < 40 << 20)
      reader.close()
      #expect(remote.settle())
      #expect(remote.source.sent - sent <= 512 << 10)
    }
  }

  @Test("by two readers at different places gives each its own window")
  func two() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(32 << 20)
      let hash = try remote.remote("f", bytes)
      let first = try remote.blobs.open(hash)
      let second = try remote.blobs.open(hash)
      for step in 0..<64 {
        for (reader, base) in [(first, 0), (second, 16 << 20)] {
          let start = base + (step << 17)
          #expect(try Read(reader, at: Int64(start), 1 << 17).get() == Array(bytes[start..<start + (1 << 17)]))
        }
      }
      #expect(eventually { remote.source.running == 0 })
      let asked = remote.source.ranges.compactMap { $0 }
      // Both were fetched ahead: far fewer requests than reads.
      #expect(asked.count < 100)
      #expect(remote.source.canceled == 0)
      first.close()
      second.close()
    }
  }
}

@Suite("What was fetched")
struct KeepingTests {
  @Test("in part survives a restart, and is not asked for again")
  func restart() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("D/f", bytes)
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 0, 10).get()
      _ = try Read(reader, at: 5 * block, 10).get()
      reader.close()
      #expect(remote.settle())
      #expect(try remote.blobs.partialBytes(hash) == 2 * block)
      #expect(try remote.blobs.cache().attachments?.partialBytes == 2 * block)
      try remote.reopen()
      let again = try remote.blobs.open(hash)
      #expect(try Read(again, at: 5 * block, 1000).get() == Array(bytes[Int(5 * block)..<Int(5 * block) + 1000]))
      #expect(remote.source.asked.count == 2)
      #expect(try Read(again, at: 0, bytes.count).get().elementsEqual(bytes))
      again.close()
      #expect(remote.settle())
      #expect(try remote.blobs.isHeld(hash))
      #expect(remote.source.sent == 1 << 20)
    }
  }

  @Test("and was not on the disk yet is forgotten by a crash")
  func crash() throws {
    var settings = Fetcher.Settings.quick
    settings.flushDelay = 3_600_000_000_000
    try withRemote(settings) { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 0, 10).get()
      #expect(eventually { remote.source.running == 0 })
      #expect(isThere(remote.copy.blobStore.files.partial(hash)))
      try remote.crash()
      #expect(!isThere(remote.copy.blobStore.files.partial(hash)))
      #expect(try remote.blobs.partialBytes(hash) == 0)
      let again = try remote.blobs.open(hash)
      #expect(try Read(again, at: 0, 10).get() == Array(bytes.prefix(10)))
      #expect(remote.source.asked.count == 2)
      withExtendedLifetime(reader) {}
      again.close()
      #expect(remote.settle())
    }
  }

  @Test("under partial/ is swept at a start when no row knows it, and a row without its file is forgotten")
  func sweep() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 0, 10).get()
      reader.close()
      #expect(remote.settle())
      let files = remote.copy.blobStore.files
      let stray = files.root + "/partial/" + String(repeating: "ab", count: 32)
      _ = try Descriptor.open(stray, O_RDWR | O_CREAT, mode: 0o600)
      try remote.reopen()
      #expect(!isThere(stray))
      #expect(try remote.blobs.partialBytes(hash) == block)
      remote.copy.close()
      try Path.remove(files.partial(hash))
      try remote.reopen()
      #expect(try remote.blobs.partialBytes(hash) == 0)
    }
  }

  @Test("of another length than the store says is not gone on with")
  func cut() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 0, 10).get()
      reader.close()
      #expect(remote.settle())
      try Descriptor.open(remote.copy.blobStore.files.partial(hash), O_RDWR).truncate(to: 5)
      let again = try remote.blobs.open(hash)
      #expect(try Read(again, at: 0, 10).get() == Array(bytes.prefix(10)))
      again.close()
      #expect(remote.source.asked.count == 2)
    }
  }

  @Test("and does not hash to its name is thrown away: the read that needed the last of it fails, and all later ones")
  func wrong() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(300_000)
      let hash = try remote.remote("D/f", bytes)
      let node = try remote.scratch.existing("D/f").number
      let told = Lock<[TreeChange]>(.leaf, [])
      remote.copy.tree.observe { changes in told.withLock { $0 += changes } }
      remote.source.answer { number, _ in MemorySource.Answer(isWrong: number == 0) }
      let reader = try remote.blobs.open(hash)
      let wrong = MarfaError.notFetched(hash, .wrongBytes)
      _ = try Read(reader, at: 0, 10).get()
      #expect(Read(reader, at: 0, 300_000).failure == wrong)
      // Before the reader was: who opens the file at once must not be given what the kernel still has of it.
      let places = try remote.copy.tree.places(of: node).map { TreeChange.Place(parent: $0.parent, name: $0.name) }
      #expect(told.withLock { $0.contains(.bytes(node, places)) })
      #expect(Read(reader, at: 0, 10).failure == wrong)
      #expect(!isThere(remote.copy.blobStore.files.partial(hash)))
      #expect(try remote.blobs.partialBytes(hash) == 0)
      #expect(eventually { try remote.blobs.notHeld(hash)?.reason == .failed })
      #expect(try remote.blobs.notHeld(hash)?.detail?.contains("hash") == true)
      let fresh = try remote.blobs.open(hash)
      #expect(try Read(fresh, at: 0, 300_000).get().elementsEqual(bytes))
      #expect(Read(reader, at: 0, 10).failure == wrong)
      reader.close()
      fresh.close()
    }
  }

  @Test("of a file of one block is looked at whole before any of it is given")
  func wrongSmall() throws {
    try withRemote { remote in
      let hash = try remote.remote("f", MemorySource.pattern(40_000))
      remote.source.answer { _, _ in MemorySource.Answer(isWrong: true) }
      let reader = try remote.blobs.open(hash)
      #expect(Read(reader, at: 0, 10).failure == .notFetched(hash, .wrongBytes))
      reader.close()
    }
  }

  @Test("goes with the last file that shows it, once nobody reads it")
  func removed() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("D/f", bytes)
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 0, 10).get()
      try remote.scratch.unlink("D/f")
      try remote.scratch.answer()
      #expect(try Read(reader, at: 0, bytes.count).get().elementsEqual(bytes))
      reader.close()
      #expect(remote.settle())
      remote.copy.tree.settle()
      #expect(!isThere(remote.copy.blobStore.files.partial(hash)))
      #expect(try !remote.blobs.isHeld(hash))
    }
  }
}
