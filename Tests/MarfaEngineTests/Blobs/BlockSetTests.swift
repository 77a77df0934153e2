import Testing

@testable import MarfaEngine

@Suite("A set of blocks")
struct BlockSetTests {
  @Test("says and misses what a plain set does, after any insertions, and comes back from the store the same")
  func model() {
    for seed in UInt64(1)...200 {
      var random = SplitMix(state: seed)
      var set = BlockSet()
      var plain: Set<Int64> = []
      for _ in 0..<40 {
        let start = Int64(random.next() % 60)
        let run = start..<start + Int64(random.next() % 6)
        set.insert(run)
        plain.formUnion(run)
        let asked = Int64(random.next() % 60)
        let range = asked..<asked + Int64(random.next() % 10)
        #expect(set.contains(asked) == plain.contains(asked))
        #expect(set.contains(range) == range.allSatisfy { plain.contains($0) })
        #expect(set.missing(from: range).flatMap { Array($0) } == range.filter { !plain.contains($0) })
        #expect(set.firstMissing(from: asked) == (asked...).first { !plain.contains($0) })
      }
      #expect(set.runs.flatMap { Array($0) } == plain.sorted())
      for (run, next) in zip(set.runs, set.runs.dropFirst()) { #expect(run.upperBound < next.lowerBound) }
      #expect(BlockSet(set.encoded, limit: 70) == set)
    }
  }

  @Test("counts the last block as long as it is")
  func bytes() {
    var set = BlockSet()
    set.insert(0..<1)
    set.insert(3..<4)
    #expect(set.bytes(of: 3 * Block.size + 5) == Block.size + 5)
    #expect(Block.covering(0..<1) == 0..<1)
    #expect(Block.covering(Block.size - 1..<Block.size + 1) == 0..<2)
    #expect(Block.covering(7..<7).isEmpty)
  }

  @Test(
    "is not read from a row that makes no sense",
    arguments: [[0x80], [0], [0, 0], [0, 11], [9, 3], [0, 2, 0, 99], Array(repeating: 0xff, count: 20)] as [[UInt8]])
  func damaged(row: [UInt8]) { #expect(BlockSet(row, limit: 10) == nil) }
}

/// A small generator that can be begun anew.
struct SplitMix: RandomNumberGenerator {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var value = state
    value = (value ^ value >> 30) &* 0xbf58_476d_1ce4_e5b9
    value = (value ^ value >> 27) &* 0x94d0_49bb_1331_11eb
    return value ^ value >> 31
  }
}

@Suite("The places a reader reads in order")
struct ReadStreamsTests {
  private static let most = ReadStreams.largestWindow

  private func read(_ streams: inout ReadStreams, _ from: Int64, _ count: Int64, behind: Bool = true) -> Bool {
    streams.note(from..<from + count, most: Self.most) { _ in behind }
  }

  @Test("have no window before a second read follows the first")
  func first() {
    var streams = ReadStreams()
    #expect(!read(&streams, 0, 4096))
    #expect(streams.ahead.isEmpty)
    #expect(!read(&streams, 4096, 4096))
    #expect(streams.ahead.map { $0.window } == [ReadStreams.firstWindow])
  }

  @Test("have a window that doubles, and then grows fourfold while the link is behind, up to the largest")
  func doubling() {
    var streams = ReadStreams()
    var windows: [Int64] = []
    var position: Int64 = 0
    for _ in 0..<2000 {
      _ = read(&streams, position, 128 << 10)
      position += 128 << 10
      if let window = streams.ahead.first?.window, windows.last != window { windows.append(window) }
    }
    let powers = windows.map { $0.trailingZeroBitCount }
    #expect(powers == [18, 19, 20, 22, 24, 25])
  }

  @Test("have a window that stays small while the reader is slower than the link")
  func slow() {
    var streams = ReadStreams()
    for position in stride(from: Int64(0), to: 50 << 20, by: 64 << 10) {
      _ = read(&streams, position, 64 << 10, behind: false)
    }
    #expect(streams.ahead.map { $0.window } == [ReadStreams.usualWindow])
  }

  @Test("keep a window of their own while they are read in turns")
  func turns() {
    var streams = ReadStreams()
    _ = read(&streams, 0, 4096)
    #expect(read(&streams, 1 << 30, 4096))
    for step in Int64(1)..<20 {
      #expect(!read(&streams, step * 4096, 4096))
      #expect(!read(&streams, 1 << 30 | step * 4096, 4096))
    }
    #expect(streams.ahead.count == 2)
  }

  @Test("lose their window when the reader goes where it never was")
  func seek() {
    var streams = ReadStreams()
    for step in Int64(0)..<10 { _ = read(&streams, step * 4096, 4096) }
    #expect(streams.covers(40 << 10..<50 << 10))
    #expect(read(&streams, 1 << 30, 4096))
    #expect(streams.ahead.isEmpty)
    #expect(!streams.covers(40 << 10..<50 << 10))
  }

  @Test("are one though the kernel's reads of it come out of order")
  func outOfOrder() {
    var streams = ReadStreams()
    for step in [0, 1, 3, 2, 5, 4, 7, 6] as [Int64] { #expect(!read(&streams, step << 17, 1 << 17)) }
    #expect(streams.streams.count == 1)
  }
}
