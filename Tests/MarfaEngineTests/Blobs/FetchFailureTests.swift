import Glibc
import Testing

@testable import MarfaEngine

private let block = Block.size

@Suite("A fetch that fails")
struct FetchFailureTests {
  @Test("part way keeps what came and asks for the rest", arguments: [BytesFailure.stopped("reset"), nil])
  func short(failure: BytesFailure?) throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      remote.source.answer { number, _ in
        number < 5 ? MemorySource.Answer(ends: 100_000, failure: failure) : MemorySource.Answer()
      }
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 0, 1 << 20).get().elementsEqual(bytes))
      #expect(remote.source.ranges == (0...5).map { $0 * 100_000..<1 << 20 })
      #expect(remote.source.sent == 1 << 20)
      reader.close()
    }
  }

  @Test("again and again with nothing coming gives up, and says why")
  func bounded() throws {
    try withRemote { remote in
      let hash = try remote.remote("f", MemorySource.pattern(1 << 20))
      remote.source.answer { _, _ in MemorySource.Answer(failure: .stopped("reset")) }
      let reader = try remote.blobs.open(hash)
      guard case .notFetched(hash, .unreachable(let words))? = Read(reader, at: 0, 10).failure else {
        Issue.record("another failure")
        return
      }
      #expect(words.contains("reset"))
      #expect(remote.source.asked.count == 3)
      #expect(eventually { try remote.blobs.notHeld(hash)?.reason == .unreachable })
      #expect(try remote.blobs.notHeld(hash)?.detail?.contains("reset") == true)
      reader.close()
    }
  }

  @Test(
    "for good is said at once, with its reason",
    arguments: [
      (BytesFailure.absent, FetchFailure.absent, NotHeldReason.absent),
      (.credentialRefused("no"), .credentialRefused("no"), .failed),
      (.rateLimited(seconds: 3600), .rateLimited(seconds: 3600), .rateLimited),
    ])
  func forGood(failure: BytesFailure, told: FetchFailure, reason: NotHeldReason) throws {
    try withRemote { remote in
      let hash = try remote.remote("f", MemorySource.pattern(1 << 20))
      remote.source.answer { _, _ in MemorySource.Answer(failure: failure) }
      let reader = try remote.blobs.open(hash)
      #expect(Read(reader, at: 0, 10).failure == .notFetched(hash, told))
      #expect(remote.source.asked.count == 1)
      #expect(eventually { try remote.blobs.notHeld(hash)?.reason == reason })
      // For a moment nobody is asked again.
      #expect(Read(reader, at: 0, 10).failure == .notFetched(hash, told))
      reader.close()
    }
  }

  @Test("because the server asks for a short wait is waited out")
  func waitedOut() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      remote.source.answer { number, _ in
        number == 0 ? MemorySource.Answer(failure: .rateLimited(seconds: 5)) : MemorySource.Answer()
      }
      let began = Monotonic.now
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 0, 10).get() == Array(bytes.prefix(10)))
      #expect(Monotonic.now - began >= 5 * Fetcher.Settings.quick.second)
      #expect(remote.source.asked.count == 2)
      reader.close()
    }
  }

  @Test("because nothing comes is waited for so long and no longer, and the next one fails at once")
  func silent() throws {
    var settings = Fetcher.Settings.quick
    settings.patience = 50_000_000
    settings.offlineFirst = 10_000_000_000
    try withRemote(settings) { remote in
      let hash = try remote.remote("f", MemorySource.pattern(1 << 20))
      remote.source.answer { _, _ in MemorySource.Answer(isSilent: true) }
      let reader = try remote.blobs.open(hash)
      let began = Monotonic.now
      guard case .notFetched(hash, .timedOut)? = Read(reader, at: 0, 10).failure else {
        Issue.record("another failure")
        return
      }
      #expect(Monotonic.now - began >= settings.patience)
      let next = Read(reader, at: 0, 10)
      #expect(next.isDone)
      // Who reads through the kernel hears this one: it asks once more for what its reading ahead did not get.
      guard case .notFetched(hash, .timedOut)? = next.failure else {
        Issue.record("another failure")
        return
      }
      reader.close()
    }
  }

  @Test("because the server asks for a wait over and over is waited for as long as one wait may be, and no longer")
  func busyForEver() throws {
    var settings = Fetcher.Settings.quick
    settings.patience = 100_000_000
    try withRemote(settings) { remote in
      let hash = try remote.remote("f", MemorySource.pattern(1 << 20))
      remote.source.answer { _, _ in MemorySource.Answer(failure: .rateLimited(seconds: 4)) }
      let reader = try remote.blobs.open(hash)
      let began = Monotonic.now
      #expect(Read(reader, at: 0, 10).failure == .notFetched(hash, .rateLimited(seconds: 4)))
      #expect(Monotonic.now - began >= settings.patience)
      let whole = Lock<MarfaError?>(.leaf, nil)
      remote.blobs.fetch(hash) { result in
        if case .failure(let error) = result { whole.withLock { $0 = error } }
      }
      #expect(eventually { whole.withLock { $0 } == .notFetched(hash, .rateLimited(seconds: 4)) })
      reader.close()
    }
  }

  @Test("because the server is not there fails others at once, until enough time has passed to try again")
  func offline() throws {
    var settings = Fetcher.Settings.quick
    settings.offlineFirst = 100_000_000
    try withRemote(settings) { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let first = try remote.remote("f", bytes)
      let second = try remote.remote("g", MemorySource.pattern(1 << 20, seed: 2))
      remote.source.answer { _, _ in MemorySource.Answer(failure: .unreachable("no route")) }
      let reader = try remote.blobs.open(first)
      let other = try remote.blobs.open(second)
      #expect(Read(reader, at: 0, 10).failure == .notFetched(first, .unreachable("no route")))
      let asked = remote.source.asked.count
      let refused = Read(other, at: 0, 10)
      #expect(refused.isDone)
      #expect(refused.failure == .notFetched(second, .unreachable("no route")))
      #expect(remote.source.asked.count == asked)
      remote.source.answer { _, _ in MemorySource.Answer() }
      #expect(eventually { (try? Read(reader, at: 0, 10).get()) == Array(bytes.prefix(10)) })
      #expect(try Read(other, at: 0, 10).get().count == 10)
      reader.close()
      other.close()
    }
  }

  @Test("because the server states another size says so, and keeps nothing")
  func otherSize() throws {
    try withRemote { remote in
      let hash = try remote.remote("f", MemorySource.pattern(1 << 20))
      remote.source.answer { _, _ in MemorySource.Answer(total: .some(2 << 20)) }
      let reader = try remote.blobs.open(hash)
      guard case .notFetched(hash, .failed(let words))? = Read(reader, at: 0, 10).failure else {
        Issue.record("another failure")
        return
      }
      #expect(words.contains("2097152"))
      #expect(try remote.blobs.size(hash) == 1 << 20)
      reader.close()
    }
  }

  @Test("for a size no bytes have", arguments: [0, -1, 1 << 50] as [Int64])
  func absurdSize(size: Int64) throws {
    try withRemote { remote in
      let hash = try remote.remote("f", MemorySource.pattern(1 << 20), sized: false)
      remote.source.failSizes(.failed("no"))
      remote.source.answer { _, _ in MemorySource.Answer(total: .some(size)) }
      let reader = try remote.blobs.open(hash)
      guard case .notFetched(hash, .failed)? = Read(reader, at: 0, 10).failure else {
        Issue.record("another failure")
        return
      }
      reader.close()
    }
  }

  @Test("for bytes that begin elsewhere than was asked")
  func otherOffset() throws {
    try withRemote { remote in
      let hash = try remote.remote("f", MemorySource.pattern(1 << 20))
      remote.source.answer { _, _ in MemorySource.Answer(offset: 5) }
      let reader = try remote.blobs.open(hash)
      guard case .notFetched(hash, .failed)? = Read(reader, at: 0, 10).failure else {
        Issue.record("another failure")
        return
      }
      reader.close()
    }
  }

  @Test("with no size stated asks for it")
  func noTotal() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(200_000)
      let hash = try remote.remote("f", bytes, sized: false)
      remote.source.answer { _, _ in MemorySource.Answer(total: .some(nil)) }
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 0, 300_000).get().elementsEqual(bytes))
      reader.close()
    }
  }
}

@Suite("A host that ignores ranges")
struct RangelessTests {
  @Test("is read through once, for every reader")
  func once() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(8 << 20)
      let hash = try remote.remote("f", bytes)
      remote.source.answer { _, _ in MemorySource.Answer(ignoresRange: true) }
      let first = try remote.blobs.open(hash)
      let second = try remote.blobs.open(hash)
      let far = Read(second, at: 7 << 20, 4096)
      let near = Read(first, at: 1 << 20, 4096)
      #expect(try far.get() == Array(bytes[7 << 20..<(7 << 20) + 4096]))
      #expect(try near.get() == Array(bytes[1 << 20..<(1 << 20) + 4096]))
      #expect(eventually { try remote.blobs.isHeld(hash) })
      #expect(remote.source.asked.count <= 2)
      #expect(remote.source.sent < 9 << 20)
      first.close()
      second.close()
    }
  }

  @Test("and stops is read through again, and what came is kept")
  func again() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(2 << 20)
      let hash = try remote.remote("f", bytes)
      remote.source.answer { number, _ in
        MemorySource.Answer(ends: Int64(number + 1) * 900_000, failure: .stopped("reset"), ignoresRange: true)
      }
      let reader = try remote.blobs.open(hash)
      #expect(try Read(reader, at: 0, 2 << 20).get().elementsEqual(bytes))
      #expect(remote.source.asked.count <= 4)
      reader.close()
      #expect(remote.settle())
      #expect(try remote.blobs.isHeld(hash))
    }
  }

  @Test("and gets no further gives up")
  func stuck() throws {
    try withRemote { remote in
      let hash = try remote.remote("f", MemorySource.pattern(2 << 20))
      remote.source.answer { _, _ in MemorySource.Answer(ends: 300_000, failure: .stopped("reset"), ignoresRange: true)
      }
      let reader = try remote.blobs.open(hash)
      guard case .notFetched(hash, .unreachable)? = Read(reader, at: 1 << 20, 10).failure else {
        Issue.record("another failure")
        return
      }
      #expect(remote.source.asked.count <= 5)
      reader.close()
    }
  }
}

@Suite("A fetch of the whole")
struct WholeFetchTests {
  @Test("holds it, resuming what is here, and tells how far it is")
  func whole() async throws {
    try await withAsyncRemote { remote in
      let bytes = MemorySource.pattern(20 << 20)
      let hash = try remote.remote("f", bytes)
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 1 << 20, 10).get()
      reader.close()
      #expect(remote.settle())
      let told = Lock<[Int64]>(.leaf, [])
      try await remote.blobs.fetch(hash, progress: { bytes in told.withLock { $0.append(bytes) } })
      #expect(try remote.blobs.isHeld(hash))
      #expect(remote.source.sent == 20 << 20)
      #expect(remote.source.mostRunning > 2)
      #expect(told.withLock { $0 == $0.sorted() })
      try await remote.blobs.fetch(hash)
      #expect(remote.source.sent == 20 << 20)
    }
  }

  @Test("is what withFile does first")
  func withFile() async throws {
    try await withAsyncRemote { remote in
      let bytes = MemorySource.pattern(300_000)
      let hash = try remote.remote("f", bytes)
      let found = try await remote.blobs.withFile(hash) { path in
        // Neither the budget nor anything else takes it while the closure runs.
        #expect(try remote.blobs.setBudget(.bytes(0)) == 0)
        #expect(try remote.blobs.removeFetchedFiles() == 0)
        return try contents(path)
      }
      #expect(found.elementsEqual(bytes))
      #expect(try remote.blobs.trim() == 300_000)
    }
  }

  @Test("takes no bytes from under a closure, though both don't fit the budget")
  func beside() async throws {
    try await withAsyncRemote { remote in
      let bytes = MemorySource.pattern(600_000)
      let first = try remote.remote("f", bytes)
      let second = try remote.remote("g", MemorySource.pattern(600_000, seed: 2))
      try remote.blobs.setBudget(.bytes(1_000_000))
      try await remote.blobs.withFile(first) { path in
        try await remote.blobs.fetch(second)
        // The one read longest ago would go first.
        #expect(eventually { try !remote.blobs.isHeld(second) })
        #expect(try contents(path).elementsEqual(bytes))
      }
      #expect(try remote.blobs.isHeld(first))
    }
  }

  @Test("ends with its task, and what came stays")
  func cancel() async throws {
    try await withAsyncRemote { remote in
      let hash = try remote.remote("f", MemorySource.pattern(8 << 20))
      remote.source.allow(100_000)
      let blobs = remote.blobs
      let task = Task { try await blobs.fetch(hash) }
      while remote.source.sent == 0 { await Task.yield() }
      task.cancel()
      await #expect(throws: MarfaError.canceled) { try await task.value }
      #expect(remote.settle())
      #expect(try remote.blobs.partialBytes(hash) > 0)
    }
  }

  @Test("of bytes nobody here has heard of fetches them too, and says when the server has none")
  func unknown() async throws {
    try await withAsyncRemote { remote in
      let blobs = remote.blobs
      let hash = remote.source.add(MemorySource.pattern(1000))
      try await blobs.fetch(hash)
      #expect(try blobs.isHeld(hash))
      let absent = MemorySource.hash([1, 2, 3])
      await #expect(throws: MarfaError.notFetched(absent, .absent)) { try await blobs.fetch(absent) }
    }
  }

  @Test("of bytes a file has been sealed with meanwhile is over")
  func sealed() throws {
    try withRemote { remote in
      let bytes = MemorySource.pattern(1 << 20)
      let hash = try remote.remote("f", bytes)
      remote.source.allow(0)
      let reader = try remote.blobs.open(hash)
      let read = Read(reader, at: 0, 1 << 20)
      try remote.scratch.write("g", bytes)
      #expect(try remote.blobs.isHeld(hash))
      remote.source.allow(nil)
      #expect(try read.get().elementsEqual(bytes))
      reader.close()
      #expect(remote.settle())
      #expect(!isThere(remote.copy.blobStore.files.partial(hash)))
    }
  }
}
