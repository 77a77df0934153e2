import Glibc

/// The sixteen bytes of a UUID, compared and hashed as two words.
struct Bytes128: Hashable, Sendable {
  var high: UInt64
  var low: UInt64

  /// The canonical lowercase text, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
  var text: String {
    String(unsafeUninitializedCapacity: 36) { out in
      var index = 0
      for byte in 0..<16 {
        if byte == 4 || byte == 6 || byte == 8 || byte == 10 {
          out[index] = UInt8(ascii: "-")
          index += 1
        }
        let value = self[byte]
        out[index] = Hex.digit(value >> 4)
        out[index + 1] = Hex.digit(value & 15)
        index += 2
      }
      return 36
    }
  }

  /// Reads the canonical text; `nil` for anything else (upper case included: the wire is lower case).
  init?(text: some StringProtocol) {
    var high: UInt64 = 0
    var low: UInt64 = 0
    var digits = 0
    var position = 0
    for byte in text.utf8 {
      if position == 8 || position == 13 || position == 18 || position == 23 {
        guard byte == UInt8(ascii: "-") else { return nil }
      } else {
        guard let value = Hex.value(byte), digits < 32 else { return nil }
        if digits < 16 { high = high << 4 | UInt64(value) } else { low = low << 4 | UInt64(value) }
        digits += 1
      }
      position += 1
    }
    guard digits == 32, position == 36 else { return nil }
    self.high = high
    self.low = low
  }

  init(high: UInt64, low: UInt64) {
    self.high = high
    self.low = low
  }

  /// Sixteen bytes as they stand in the store; `nil` when there are not sixteen.
  init?(bytes: UnsafeRawBufferPointer) {
    guard bytes.count == 16 else { return nil }
    high = UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self))
    low = UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
  }

  subscript(byte: Int) -> UInt8 {
    byte < 8
      ? UInt8(truncatingIfNeeded: high >> UInt64(56 - byte * 8))
      : UInt8(truncatingIfNeeded: low >> UInt64(120 - byte * 8))
  }

  /// A new UUID of version 7 (RFC 9562): milliseconds, then random bits.
  static func version7(milliseconds: Int64) -> Bytes128 {
    let random = RandomBits.two()
    let high = UInt64(truncatingIfNeeded: milliseconds) << 16 | 0x7000 | (random.0 & 0x0fff)
    let low = random.1 & 0x3fff_ffff_ffff_ffff | 0x8000_0000_0000_0000
    return Bytes128(high: high, low: low)
  }
}

/// The system's random bits, asked for many at a time: a file takes ten, and each asking is a system call.
private enum RandomBits {
  private static let stock = Lock<[UInt64]>(.leaf, [])

  static func two() -> (UInt64, UInt64) {
    stock.withLock { stock in
      if stock.count < 2 {
        // getentropy(3): as many as it gives at a time.
        stock = [UInt64](repeating: 0, count: 32)
        let got = stock.withUnsafeMutableBytes { getentropy($0.baseAddress, $0.count) }
        if got != 0 {
          var system = SystemRandomNumberGenerator()
          stock = (0..<32).map { _ in system.next() }
        }
      }
      return (stock.removeLast(), stock.removeLast())
    }
  }
}

/// Hexadecimal digits, lower case.
enum Hex {
  static func digit(_ value: UInt8) -> UInt8 { value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") - 10 + value }

  static func value(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
    default: nil
    }
  }
}
