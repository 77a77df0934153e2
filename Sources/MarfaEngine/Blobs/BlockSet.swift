/// The blocks of a blob: 64 KiB each, the last as long as what is left.
enum Block {
  /// Bytes of a block.
  static let size: Int64 = 64 << 10

  /// The blocks that hold a range of bytes.
  static func covering(_ range: Range<Int64>) -> Range<Int64> {
    range.isEmpty ? 0..<0 : range.lowerBound / size..<(range.upperBound + size - 1) / size
  }

  /// The bytes of a range of blocks in a blob of this size.
  static func bytes(_ blocks: Range<Int64>, of total: Int64) -> Range<Int64> {
    min(blocks.lowerBound * size, total)..<min(blocks.upperBound * size, total)
  }
}

/// A set of block numbers, as runs in order: a file of any size that is here in a few pieces costs a few words.
struct BlockSet: Equatable, Sendable {
  /// Runs that neither touch nor overlap, in order.
  private(set) var runs: [Range<Int64>] = []

  var isEmpty: Bool { runs.isEmpty }

  /// The first run that ends behind `block`.
  private func index(behind block: Int64) -> Int {
    var low = 0
    var high = runs.count
    while low < high {
      let middle = (low + high) / 2
      if runs[middle].upperBound > block { high = middle } else { low = middle + 1 }
    }
    return low
  }

  func contains(_ block: Int64) -> Bool {
    let index = index(behind: block)
    return index < runs.count && runs[index].lowerBound <= block
  }

  func contains(_ blocks: Range<Int64>) -> Bool {
    if blocks.isEmpty { return true }
    let index = index(behind: blocks.lowerBound)
    return index < runs.count && runs[index].lowerBound <= blocks.lowerBound
      && runs[index].upperBound >= blocks.upperBound
  }

  /// The runs of `blocks` that are not in the set.
  func missing(from blocks: Range<Int64>) -> [Range<Int64>] {
    var missing: [Range<Int64>] = []
    var position = blocks.lowerBound
    var index = index(behind: position)
    while position < blocks.upperBound {
      guard index < runs.count, runs[index].lowerBound < blocks.upperBound else {
        missing.append(position..<blocks.upperBound)
        break
      }
      if runs[index].lowerBound > position { missing.append(position..<runs[index].lowerBound) }
      position = runs[index].upperBound
      index += 1
    }
    return missing
  }

  /// The first block from `block` on that is not in the set.
  func firstMissing(from block: Int64) -> Int64 {
    let index = index(behind: block)
    return index < runs.count && runs[index].lowerBound <= block ? runs[index].upperBound : block
  }

  mutating func insert(_ blocks: Range<Int64>) {
    if blocks.isEmpty { return }
    // A run that ends where these begin is joined.
    var first = index(behind: blocks.lowerBound)
    if first > 0, runs[first - 1].upperBound == blocks.lowerBound { first -= 1 }
    var last = first
    var joined = blocks
    while last < runs.count, runs[last].lowerBound <= blocks.upperBound {
      joined = min(joined.lowerBound, runs[last].lowerBound)..<max(joined.upperBound, runs[last].upperBound)
      last += 1
    }
    runs.replaceSubrange(first..<last, with: [joined])
  }

  /// The bytes the blocks have in a blob of this size.
  func bytes(of total: Int64) -> Int64 {
    runs.reduce(0) { $0 + Int64(Block.bytes($1, of: total).count) }
  }

  // MARK: - In the store

  /// The distance from the last run and the length of each, seven bits to a byte, the lowest first.
  var encoded: [UInt8] {
    var bytes: [UInt8] = []
    func append(_ value: Int64) {
      var rest = UInt64(bitPattern: value)
      while rest >= 0x80 {
        bytes.append(UInt8(rest & 0x7f) | 0x80)
        rest >>= 7
      }
      bytes.append(UInt8(rest))
    }
    var position: Int64 = 0
    for run in runs {
      append(run.lowerBound - position)
      append(Int64(run.count))
      position = run.upperBound
    }
    return bytes
  }

  /// Reads it back; `nil` for what no blocks below `limit` are.
  init?(_ encoded: [UInt8], limit: Int64) {
    var values: [Int64] = []
    var value: UInt64 = 0
    var shift: UInt64 = 0
    for byte in encoded {
      guard shift < 56 else { return nil }
      value |= UInt64(byte & 0x7f) << shift
      shift += 7
      if byte & 0x80 == 0 {
        values.append(Int64(value))
        value = 0
        shift = 0
      }
    }
    guard shift == 0, values.count % 2 == 0 else { return nil }
    var position: Int64 = 0
    for index in stride(from: 0, to: values.count, by: 2) {
      let start = position + values[index]
      guard start <= limit, values[index + 1] > 0, values[index + 1] <= limit - start else { return nil }
      insert(start..<start + values[index + 1])
      position = start + values[index + 1]
    }
  }

  init() {}
}
