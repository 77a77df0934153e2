import Glibc
import Testing

@testable import MarfaEngine

@Suite("Random reads of bytes elsewhere")
struct RandomFetchTests {
  /// Threads read random ranges of a few blobs through readers they open and close as they like, from a source that fails,
  /// stops, ignores ranges and dawdles; the store is closed and killed in between, and the budget changes. Every read has the
  /// plain bytes or an error.
  @Test("give the plain bytes or an error, whatever fails and however often it is begun anew", arguments: UInt64(1)...6)
  func model(seed: UInt64) throws {
    var settings = Fetcher.Settings.quick
    settings.offlineFirst = 1_000_000
    settings.offlineLast = 5_000_000
    settings.refusalHolds = 1_000_000
    try withRemote(settings) { remote in
      var random = SplitMix(state: seed)
      let sizes = [1, 65_536, 65_537, 300_000, 2_500_000, 6_000_001]
      let plain = sizes.enumerated().map { MemorySource.pattern($1, seed: seed * 100 + UInt64($0)) }
      let hashes = try plain.enumerated().map { number, bytes in
        try remote.remote(number % 2 == 0 ? "D/f\(number)" : "f\(number)", bytes, sized: number % 3 != 0)
      }
      let outcomes = Lock<(right: Int, failed: Int)>(.leaf, (0, 0))
      for round in 0..<4 {
        _ = try remote.blobs.setBudget([.keepAll, .bytes(0), .bytes(1 << 20), .default][Int(random.next() % 4)])
        let salt = random.next()
        let isKind = round == 3
        remote.source.answer { number, _ in
          var dice = SplitMix(state: salt &+ UInt64(number))
          var answer = MemorySource.Answer(piece: 500 + Int(dice.next() % 40_000))
          if isKind { return answer }
          switch dice.next() % 12 {
          case 0: answer.failure = .unreachable("gone")
          case 1: answer.failure = .failed("odd")
          case 2, 3:
            answer.ends = Int64(dice.next() % 200_000)
            answer.failure = .stopped("reset")
          case 4: answer.ends = Int64(dice.next() % 200_000)
          case 5: answer.ignoresRange = true
          case 6: answer.failure = .rateLimited(seconds: 1)
          default: break
          }
          return answer
        }
        let blobs = remote.blobs
        let left = Lock<Int>(.leaf, 4)
        for thread in 0..<4 {
          let start = random.next()
          startThread(named: "test-reader") {
            var random = SplitMix(state: start &+ UInt64(thread))
            var reader: RangeReader?
            var which = 0
            var position: Int64 = 0
            for _ in 0..<60 {
              if reader == nil || random.next() % 10 == 0 {
                reader?.close()
                which = Int(random.next() % UInt64(hashes.count))
                position = 0
                reader = try? blobs.open(hashes[which])
              }
              guard let reader else { continue }
              // In order for a while, or somewhere.
              if random.next() % 3 == 0 { position = Int64(random.next() % UInt64(sizes[which] + 1000)) }
              let count = Int(random.next() % 200_000)
              let read = Read(reader, at: position, count)
              if random.next() % 8 == 0 { read.cancel() }
              let first = min(Int(position), sizes[which])
              let expected = Array(plain[which][first..<min(first + count, sizes[which])])
              do {
                let found = try read.get()
                let isRight = found == expected
                outcomes.withLock { $0.right += isRight ? 1 : 0 }
                if !isRight { Issue.record("seed \(seed): other bytes of \(which) at \(position), \(count)") }
              } catch {
                outcomes.withLock { $0.failed += 1 }
              }
              position += Int64(count)
            }
            reader?.close()
            left.withLock { $0 -= 1 }
          }
        }
        while left.withLock({ $0 }) > 0 { usleep(1000) }
        // With nobody asking, nothing goes on.
        #expect(remote.settle())
        if round % 2 == 0 { try remote.reopen() } else { try remote.crash() }
      }
      #expect(outcomes.withLock { $0.right } > 300)
      _ = try remote.blobs.setBudget(.keepAll)
      for (hash, bytes) in zip(hashes, plain) {
        let reader = try remote.blobs.open(hash)
        #expect(eventually { (try? Read(reader, at: 0, bytes.count).get()) == bytes })
        reader.close()
      }
      #expect(remote.settle())
      for hash in hashes { #expect(try remote.blobs.isHeld(hash)) }
    }
  }
}
