import MarfaEngine

/// The kernel's node ids: a node's number, and in the upper bits which of its versions it is. When a file gets other bytes
/// from elsewhere, its next id is another, and so the kernel's next page cache: whoever has the old bytes open reads them
/// to the end, and whoever opens it from then on has the new ones, however fast the kernel is told. `st_ino` stays the
/// number.
final class NodeIDs: Sendable {
  private static let bits: UInt64 = 40
  private static let mask: UInt64 = (1 << bits) - 1
  /// Only of nodes whose bytes were replaced since the mount began.
  private let versions = Lock<[Int64: UInt64]>(.leaf, [:])

  /// The number in an id.
  static func number(_ id: UInt64) -> Int64 { Int64(truncatingIfNeeded: id & mask) }

  /// The id of a node's latest version. `content`: what tells one from another where nobody calls ``replace(_:)``.
  func id(of number: Int64, content: UInt64 = 0) -> UInt64 {
    let version = versions.withLock { $0.isEmpty ? 0 : $0[number] ?? 0 }
    return UInt64(bitPattern: number) & Self.mask | (version &+ content) << Self.bits
  }

  /// The node has other bytes: its id is another from now on.
  func replace(_ number: Int64) { versions.withLock { $0[number, default: 0] += 1 } }
}
