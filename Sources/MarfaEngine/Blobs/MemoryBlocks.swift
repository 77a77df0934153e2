/// Blocks of a blob that are served without being kept, because nothing more may be kept: a few, the oldest going first.
struct MemoryBlocks: Sendable {
  /// Bytes they may have together, beside those somebody waits for.
  static let capacity: Int64 = 4 << 20

  private var whole: [Int64: [UInt8]] = [:]
  private var order: [Int64] = []
  private var filling: [Int64: [UInt8]] = [:]

  var isEmpty: Bool { whole.isEmpty }
  func contains(_ block: Int64) -> Bool { whole[block] != nil }
  subscript(block: Int64) -> [UInt8]? { whole[block] }
  /// The whole ones.
  var blocks: [Int64] { order }
  /// True when one more would push another out.
  var isFull: Bool { Int64(order.count) * Block.size >= MemoryBlocks.capacity }

  /// Takes bytes that go on where the last for this block ended. `size` is the block's own. True when it is whole.
  mutating func append(_ bytes: UnsafeRawBufferPointer, to block: Int64, at offset: Int64, size: Int64) -> Bool {
    if whole[block] != nil { return false }
    if offset == 0 { filling[block] = [] }
    guard filling[block]?.count == Int(offset) else { return false }
    filling[block, default: []].append(contentsOf: bytes)
    guard let filled = filling[block], Int64(filled.count) >= size else { return false }
    filling[block] = nil
    whole[block] = filled
    order.append(block)
    return true
  }

  /// Lets the oldest go that nobody waits for.
  mutating func shrink(isWanted: (Int64) -> Bool) {
    var index = 0
    while Int64(order.count) * Block.size > MemoryBlocks.capacity, index < order.count {
      if isWanted(order[index]) {
        index += 1
      } else {
        whole[order.remove(at: index)] = nil
      }
    }
  }

  mutating func removeAll() { self = MemoryBlocks() }
}
