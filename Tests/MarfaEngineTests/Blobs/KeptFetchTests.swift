import Testing

@testable import MarfaEngine

@Suite("fetchKept")
struct KeptFetchTests {
  /// Attachments of so many bytes each, in an item; and one that hangs on nothing.
  private func attachments(_ remote: RemoteScratch, _ sizes: [Int]) throws -> [BlobHash] {
    _ = try remote.remote("loose", MemorySource.pattern(500, seed: 99))
    return try sizes.enumerated().map { number, size in
      try remote.remote("D/f\(number)", MemorySource.pattern(size, seed: UInt64(number + 1)))
    }
  }

  @Test("fetches the attachments not held, the smallest first, and counts them")
  func smallestFirst() async throws {
    try await withAsyncRemote { remote in
      let hashes = try attachments(remote, [3_000_000, 1000, 200_000, 2000, 70_000, 3000])
      let wanted = try remote.copy.store.read { (connection) throws(MarfaError) in try connection.keptMissing() }
      #expect(wanted.map(\.size) == [1000, 2000, 3000, 70_000, 200_000, 3_000_000])
      let told = Lock<[KeptProgress]>(.leaf, [])
      let result = try await remote.blobs.fetchKept(progress: { progress in told.withLock { $0.append(progress) } })
      #expect(result.fetched == 6)
      #expect(result.bytes == 3_276_000)
      #expect(result.attachments == (try remote.blobs.cache().attachments))
      #expect(result.attachments?.notHeld == 0)
      for hash in hashes { #expect(try remote.blobs.isHeld(hash)) }
      // Four at once: the sixth is begun when two of those before it are here.
      let order = remote.source.asked.map { $0.hash }
      let largest = try #require(order.firstIndex(of: hashes[0]))
      #expect(Set(order[..<largest]).count >= 2)
      #expect(told.withLock { $0.first } == KeptProgress(files: 6, bytes: 3_276_000, fetched: 0, fetchedBytes: 0))
      #expect(told.withLock { $0.last?.fetched } == 6)
      #expect(try await remote.blobs.fetchKept().fetched == 0)
    }
  }

  @Test("waits out a server that asks for a minute, and not one that asks for more", arguments: [60, 61])
  func patience(seconds: Int) async throws {
    #expect(Fetcher.Settings().keptPatience == 60 * Fetcher.Settings().second)
    var settings = Fetcher.Settings.quick
    settings.second = 30_000_000
    settings.keptPatience = 60 * settings.second
    try await withAsyncRemote(settings) { remote in
      let hash = try attachments(remote, [1000])[0]
      remote.source.answer { number, _ in
        number == 0 ? MemorySource.Answer(failure: .rateLimited(seconds: seconds)) : MemorySource.Answer()
      }
      let result = try await remote.blobs.fetchKept()
      #expect(result.fetched == (seconds == 60 ? 1 : 0))
      #expect(result.bytes == (seconds == 60 ? 1000 : 0))
      #expect(try remote.blobs.isHeld(hash) == (seconds == 60))
      #expect(result.attachments?.notHeldByReason.map(\.reason) == (seconds == 60 ? [] : [.rateLimited]))
    }
  }

  @Test("resumes the part an earlier fetch left, and waits out a server that asks for a wait")
  func resumes() async throws {
    try await withAsyncRemote { remote in
      let hash = try attachments(remote, [1 << 20])[0]
      let reader = try remote.blobs.open(hash)
      _ = try Read(reader, at: 0, 10).get()
      reader.close()
      #expect(remote.settle())
      remote.source.answer { number, _ in
        number == 1 ? MemorySource.Answer(failure: .rateLimited(seconds: 60)) : MemorySource.Answer()
      }
      #expect(try await remote.blobs.fetchKept().fetched == 1)
      #expect(remote.source.sent == 1 << 20)
    }
  }

  @Test(
    "stops at a server that asks for a longer wait, or can't be reached, and says so of all that are left",
    arguments: [
      (BytesFailure.rateLimited(seconds: 3600), NotHeldReason.rateLimited), (.unreachable("no route"), .unreachable),
      (.stopped("reset"), .unreachable),
    ])
  func stops(failure: BytesFailure, reason: NotHeldReason) async throws {
    var settings = Fetcher.Settings.quick
    settings.second = 1_000_000_000
    try await withAsyncRemote(settings) { remote in
      _ = try attachments(remote, [1000, 2000, 3000, 4000, 5000, 6000, 7000, 8000, 9000, 10_000])
      remote.source.answer { _, asked in
        (asked.range?.upperBound ?? 0) >= 3000 ? MemorySource.Answer(failure: failure) : MemorySource.Answer()
      }
      let result = try await remote.blobs.fetchKept()
      // A few are under way at once: the failure may come before a smaller file.
      #expect(result.fetched <= 2)
      #expect(result.attachments?.notHeldByReason.map { $0.reason } == [reason])
      let attachments = try #require(result.attachments)
      #expect(attachments.notHeldByReason.first?.attachments == attachments.notHeld)
      #expect(attachments.notHeld >= 8)
      #expect(remote.source.asked.count < 20)
    }
  }

  @Test("passes over a file that fails otherwise")
  func passesOver() async throws {
    try await withAsyncRemote { remote in
      _ = try attachments(remote, [1000, 2000, 3000, 4000, 5000])
      remote.source.answer { _, asked in
        switch asked.range?.upperBound {
        case 2000: MemorySource.Answer(failure: .absent)
        case 3000: MemorySource.Answer(failure: .failed("bad gateway"))
        case 4000: MemorySource.Answer(isWrong: true)
        default: MemorySource.Answer()
        }
      }
      let result = try await remote.blobs.fetchKept()
      #expect(result.fetched == 2)
      let reasons = (result.attachments?.notHeldByReason ?? []).map { ($0.reason, $0.attachments, $0.bytes) }
      #expect(reasons.map { $0.0 } == [.absent, .failed])
      #expect(reasons.map { $0.1 } == [1, 2])
      #expect(reasons.map { $0.2 } == [2000, 7000])
    }
  }

  @Test("ends with its task: it throws canceled, and the files fetched stay")
  func canceled() async throws {
    try await withAsyncRemote { remote in
      let hashes = try attachments(remote, [1000, 5 << 20])
      remote.source.allow(100_000)
      let blobs = remote.blobs
      let task = Task { try await blobs.fetchKept() }
      while try !blobs.isHeld(hashes[0]) || remote.source.sent < 50_000 { await Task.yield() }
      task.cancel()
      await #expect(throws: MarfaError.canceled) { try await task.value }
      #expect(try blobs.isHeld(hashes[0]))
      #expect(try !blobs.isHeld(hashes[1]))
      remote.source.allow(nil)
    }
  }
}

@Suite("Sizes that nobody knows")
struct LearntSizeTests {
  @Test("are learnt in the background, a few at a time, kept by hash, and told to who shows them")
  func learn() throws {
    try withRemote { remote in
      let told = Lock<Set<TreeChange>>(.leaf, [])
      remote.copy.tree.observe { changes in told.withLock { $0.formUnion(changes) } }
      remote.source.holdSizes()
      for number in 0..<30 {
        try remote.remote("f\(number)", MemorySource.pattern(1000 + number, seed: UInt64(number + 1)), sized: false)
      }
      remote.blobs.learnSizes()
      #expect(eventually { remote.source.sizesWaiting == 6 })
      #expect(try remote.scratch.existing("f7").size == nil)
      remote.source.releaseSizes()
      #expect(eventually { try (0..<30).allSatisfy { try remote.scratch.existing("f\($0)").size == Int64(1000 + $0) } })
      #expect(Set(remote.source.sizesAsked).count == 30)
      #expect(remote.source.sizesAsked.count == 30)
      let node = try remote.scratch.existing("f7").number
      #expect(eventually { told.withLock { $0.contains(.attributes(node)) } })
      // What is known is asked no more.
      remote.blobs.learnSizes()
      let answer = Lock<Int64?>(.leaf, nil)
      remote.blobs.size(try #require(try remote.scratch.existing("f3").blob), waiting: 1) { result in
        answer.withLock { $0 = try? result.get() }
      }
      #expect(answer.withLock { $0 } == 1003)
      #expect(remote.source.sizesAsked.count == 30)
    }
  }

  @Test("are waited for no longer than is said, and shared by all who ask")
  func wait() throws {
    try withRemote { remote in
      remote.source.holdSizes()
      let hash = try remote.remote("f", MemorySource.pattern(1000), sized: false)
      let failures = Lock<Int>(.leaf, 0)
      let found = Lock<Int64?>(.leaf, nil)
      for _ in 0..<3 {
        remote.blobs.size(hash, waiting: 0.02) { result in
          if case .failure(.notFetched(hash, .timedOut)) = result { failures.withLock { $0 += 1 } }
        }
      }
      remote.blobs.size(hash, waiting: 60) { result in found.withLock { $0 = try? result.get() } }
      #expect(eventually { failures.withLock { $0 } == 3 })
      #expect(remote.source.sizesAsked.count == 1)
      remote.source.releaseSizes()
      #expect(eventually { found.withLock { $0 } == 1000 })
    }
  }

  @Test(
    "are asked for again while somebody waits, when the first answer was lost or was to come back later",
    arguments: [
      BytesFailure.unreachable("reset"), .stopped("reset"), .rateLimited(seconds: 2), .rateLimited(seconds: nil),
    ])
  func again(failure: BytesFailure) throws {
    try withRemote { remote in
      remote.source.failSizes(failure)
      let hash = try remote.remote("f", MemorySource.pattern(1000), sized: false)
      let found = Lock<Int64?>(.leaf, nil)
      let isRefused = Lock<Bool>(.leaf, false)
      remote.blobs.size(hash, waiting: 60) { result in found.withLock { $0 = try? result.get() } }
      #expect(eventually { remote.source.sizesAsked.count >= 2 })
      #expect(found.withLock { $0 } == nil)
      // Who has no time is told at once.
      remote.blobs.size(hash, waiting: 0) { _ in isRefused.withLock { $0 = true } }
      #expect(eventually { isRefused.withLock { $0 } })
      remote.source.failSizes(nil)
      #expect(eventually { found.withLock { $0 } == 1000 })
    }
  }

  @Test("of bytes the server has not are said to be absent, and the walk goes on")
  func absent() throws {
    try withRemote { remote in
      remote.source.failSizes(.absent)
      for number in 0..<3 {
        try remote.remote("f\(number)", MemorySource.pattern(1000, seed: UInt64(number + 1)), sized: false)
      }
      remote.blobs.learnSizes()
      #expect(
        eventually {
          try (0..<3).allSatisfy { number in
            let hash = try remote.scratch.existing("f\(number)").blob
            return try hash.flatMap { try remote.blobs.notHeld($0)?.reason } == .absent
          }
        })
    }
  }
}
