import MarfaEngine

/// A request's target taken apart.
struct Target {
  /// Path and query as sent.
  let raw: String
  /// The path as sent.
  let path: String
  /// The query as sent, without its `?`.
  let query: String
  /// The path's parts, decoded.
  let parts: [String]
  /// The query's keys and values, decoded, in order.
  let pairs: [(key: String, value: String)]

  /// Takes a target apart; `nil` when it is not under `prefix` or not well encoded.
  init?(_ raw: String, prefix: String) {
    self.raw = raw
    let whole = raw.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
    guard let first = whole.first, first.hasPrefix(prefix + "/") || (first == prefix && !prefix.isEmpty) else {
      return nil
    }
    path = String(first.dropFirst(prefix.count))
    query = whole.count > 1 ? String(whole[1]) : ""
    var parts: [String] = []
    for part in path.split(separator: "/", omittingEmptySubsequences: false).dropFirst() {
      guard let part = Target.decoded(part, plus: false) else { return nil }
      parts.append(part)
    }
    self.parts = parts == [""] ? [] : parts
    var pairs: [(key: String, value: String)] = []
    for pair in query.split(separator: "&") {
      let halves = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      guard let key = Target.decoded(halves[0], plus: true),
        let value = halves.count > 1 ? Target.decoded(halves[1], plus: true) : ""
      else { return nil }
      pairs.append((key, value))
    }
    self.pairs = pairs
  }

  subscript(key: String) -> String? { pairs.first { $0.key == key }?.value }

  /// Percent-decoded text; `nil` when it is not UTF-8 or badly encoded.
  static func decoded(_ text: Substring, plus: Bool) -> String? {
    var bytes: [UInt8] = []
    let source = Array(text.utf8)
    var index = 0
    while index < source.count {
      switch source[index] {
      case UInt8(ascii: "%"):
        guard index + 2 < source.count, let high = digit(source[index + 1]), let low = digit(source[index + 2]) else {
          return nil
        }
        bytes.append(high << 4 | low)
        index += 3
      case UInt8(ascii: "+") where plus:
        bytes.append(0x20)
        index += 1
      default:
        bytes.append(source[index])
        index += 1
      }
    }
    let decoded = String(decoding: bytes, as: UTF8.self)
    return decoded.utf8.elementsEqual(bytes) ? decoded : nil
  }

  private static func digit(_ byte: UInt8) -> UInt8? {
    switch byte {
    case 0x30...0x39: byte - 0x30
    case 0x41...0x46: byte - 0x41 + 10
    case 0x61...0x66: byte - 0x61 + 10
    default: nil
    }
  }

  /// The kind of request for statistics: ids, hashes, tags and namespaces left out.
  var kind: String {
    var words = parts
    for index in words.indices where index % 2 == 1 {
      if !(words[0] == "keys") { words[index] = "*" }
    }
    return "/" + words.joined(separator: "/")
  }
}
