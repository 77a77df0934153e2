/// An identity of the contract: a lowercase UUID, version 7 when this device mints it.
public protocol Identifier: Hashable, Sendable, CustomStringConvertible {
  /// Wraps the canonical text; `nil` for anything that is not one.
  init?(_ text: some StringProtocol)
}

/// Which item.
public struct ItemID: Identifier {
  let bytes: Bytes128
  init(bytes: Bytes128) { self.bytes = bytes }
  public init?(_ text: some StringProtocol) {
    guard let bytes = Bytes128(text: text) else { return nil }
    self.bytes = bytes
  }
  /// A new identity, minted now.
  public static func mint() -> ItemID { ItemID(bytes: .version7(milliseconds: Timestamp.now.milliseconds)) }
  /// The canonical text.
  public var description: String { bytes.text }
}

/// Which edge.
public struct EdgeID: Identifier {
  let bytes: Bytes128
  init(bytes: Bytes128) { self.bytes = bytes }
  public init?(_ text: some StringProtocol) {
    guard let bytes = Bytes128(text: text) else { return nil }
    self.bytes = bytes
  }
  /// A new identity, minted now.
  public static func mint() -> EdgeID { EdgeID(bytes: .version7(milliseconds: Timestamp.now.milliseconds)) }
  /// The canonical text.
  public var description: String { bytes.text }
}

/// Which queued write. It is also the order they were queued in: ids only grow.
public struct WriteID: Hashable, Comparable, Sendable, CustomStringConvertible {
  /// The row of the queue's table.
  public let number: Int64
  /// Wraps a row number.
  public init(_ number: Int64) { self.number = number }
  public static func < (a: WriteID, b: WriteID) -> Bool { a.number < b.number }
  /// Digits.
  public var description: String { String(number) }
}

/// The name of bytes: their SHA-256.
public struct BlobHash: Hashable, Sendable, CustomStringConvertible {
  let high: Bytes128
  let low: Bytes128

  /// Thirty-two bytes; the caller has counted them.
  init(fixed bytes: UnsafeRawBufferPointer) {
    high = Bytes128(
      high: UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
      low: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)))
    low = Bytes128(
      high: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 16, as: UInt64.self)),
      low: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 24, as: UInt64.self)))
  }

  /// Thirty-two bytes as they stand in the store; `nil` when there are not thirty-two.
  init?(bytes: UnsafeRawBufferPointer) {
    guard bytes.count == 32 else { return nil }
    self.init(fixed: bytes)
  }

  /// Reads `sha256:` and 64 lowercase hexadecimal digits, as `blob_ref` holds it (contract "Shapes"); or the digits
  /// alone. `nil` for anything else.
  public init?(_ text: some StringProtocol) {
    let digits = text.hasPrefix("sha256:") ? text.utf8.dropFirst(7) : text.utf8.dropFirst(0)
    guard digits.count == 64 else { return nil }
    var words: [UInt64] = []
    var word: UInt64 = 0
    var count = 0
    for byte in digits {
      guard let value = Hex.value(byte) else { return nil }
      word = word << 4 | UInt64(value)
      count += 1
      if count % 16 == 0 {
        words.append(word)
        word = 0
      }
    }
    high = Bytes128(high: words[0], low: words[1])
    low = Bytes128(high: words[2], low: words[3])
  }

  /// Sixty-four hexadecimal digits: the file's name under `held/`.
  public var hex: String {
    String(unsafeUninitializedCapacity: 64) { out in
      for index in 0..<32 {
        let byte = index < 16 ? high[index] : low[index - 16]
        out[index * 2] = Hex.digit(byte >> 4)
        out[index * 2 + 1] = Hex.digit(byte & 15)
      }
      return 64
    }
  }

  /// `sha256:` and the digits, as the wire has it.
  public var description: String { "sha256:" + hex }
}
