/// A JSON value that gives back what it was given: numbers keep their text, objects their order, and keys nobody here
/// knows stay (contract: "never drop what a row carries"). Texts are compared by their bytes: two that only read the same
/// are two.
public indirect enum JSON: Hashable, Sendable {
  case null
  case bool(Bool)
  /// The number as it was written, so that none is rounded on its way through.
  case number(String)
  case string(String)
  case array([JSON])
  case object(Object)

  /// An object: members in the order they came, each key once.
  public struct Object: Hashable, Sendable, ExpressibleByDictionaryLiteral {
    /// The members in order.
    public private(set) var members: [(key: String, value: JSON)]

    /// An object of these members; of a repeated key the last value stays.
    public init(dictionaryLiteral elements: (String, JSON)...) {
      members = []
      for (key, value) in elements { self[key] = value }
    }

    /// Members whose keys are known to differ.
    fileprivate init(members: [(key: String, value: JSON)]) { self.members = members }

    /// The member's value; setting `nil` removes it.
    public subscript(key: String) -> JSON? {
      get { members.first { JSON.same($0.key, key) }?.value }
      set {
        if let index = members.firstIndex(where: { JSON.same($0.key, key) }) {
          if let newValue { members[index].value = newValue } else { members.remove(at: index) }
        } else if let newValue {
          members.append((key, newValue))
        }
      }
    }

    /// True without members.
    public var isEmpty: Bool { members.isEmpty }

    /// Takes over every member of `other` (a `PATCH`'s merge: a null changes nothing, contract "Shapes").
    public mutating func merge(_ other: Object) {
      for (key, value) in other.members where value != .null { self[key] = value }
    }

    public static func == (a: Object, b: Object) -> Bool {
      a.members.count == b.members.count && a.members.allSatisfy { b[$0.key] == $0.value }
    }

    public func hash(into hasher: inout Hasher) { hasher.combine(members.count) }
  }

  public static func == (a: JSON, b: JSON) -> Bool {
    switch (a, b) {
    case (.null, .null): true
    case (.bool(let a), .bool(let b)): a == b
    case (.number(let a), .number(let b)), (.string(let a), .string(let b)): same(a, b)
    case (.array(let a), .array(let b)): a == b
    case (.object(let a), .object(let b)): a == b
    default: false
    }
  }

  fileprivate static func same(_ a: String, _ b: String) -> Bool {
    a.utf8.count == b.utf8.count && a.utf8.elementsEqual(b.utf8)
  }

  /// The string, when it is one.
  public var string: String? { if case .string(let value) = self { value } else { nil } }
  /// The object, when it is one.
  public var object: Object? { if case .object(let value) = self { value } else { nil } }
  /// The elements, when it is an array.
  public var array: [JSON]? { if case .array(let value) = self { value } else { nil } }
  /// The integer, when it is a number that is one.
  public var integer: Int64? { if case .number(let text) = self { Int64(text) } else { nil } }
  /// The truth value, when it is one.
  public var bool: Bool? { if case .bool(let value) = self { value } else { nil } }

  /// A number.
  public static func integer(_ value: some BinaryInteger) -> JSON { .number(String(value)) }
  /// A string, or null.
  public static func optional(_ value: String?) -> JSON { value.map { .string($0) } ?? .null }
}

extension JSON: ExpressibleByStringLiteral, ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral,
  ExpressibleByDictionaryLiteral, ExpressibleByArrayLiteral
{
  public init(stringLiteral value: String) { self = .string(value) }
  public init(booleanLiteral value: Bool) { self = .bool(value) }
  public init(integerLiteral value: Int) { self = .number(String(value)) }
  public init(arrayLiteral elements: JSON...) { self = .array(elements) }
  public init(dictionaryLiteral elements: (String, JSON)...) {
    var object = Object()
    for (key, value) in elements { object[key] = value }
    self = .object(object)
  }
}

// MARK: - Writing

extension JSON {
  /// Compact text, no spaces: what goes on the wire and into the store.
  public var text: String {
    var out = ""
    write(to: &out)
    return out
  }

  private func write(to out: inout String) {
    switch self {
    case .null: out += "null"
    case .bool(let value): out += value ? "true" : "false"
    case .number(let text): out += text
    case .string(let value): JSON.quote(value, to: &out)
    case .array(let elements):
      out += "["
      for (index, element) in elements.enumerated() {
        if index > 0 { out += "," }
        element.write(to: &out)
      }
      out += "]"
    case .object(let object):
      out += "{"
      for (index, member) in object.members.enumerated() {
        if index > 0 { out += "," }
        JSON.quote(member.key, to: &out)
        out += ":"
        member.value.write(to: &out)
      }
      out += "}"
    }
  }

  private static func quote(_ value: String, to out: inout String) {
    out += "\""
    defer { out += "\"" }
    // Nearly all are as they are written.
    guard !value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x22 && $0 != 0x5c }) else {
      out += value
      return
    }
    for scalar in value.unicodeScalars {
      switch scalar {
      case "\"": out += "\\\""
      case "\\": out += "\\\\"
      case "\n": out += "\\n"
      case "\r": out += "\\r"
      case "\t": out += "\\t"
      case _ where scalar.value < 0x20:
        let digits = String(scalar.value, radix: 16)
        out += "\\u" + String(repeating: "0", count: 4 - digits.utf8.count) + digits
      default: out.unicodeScalars.append(scalar)
      }
    }
  }
}

// MARK: - Reading

extension JSON {
  /// Why a text is no JSON we take.
  public enum ReadError: Error, Equatable, Sendable {
    /// The text breaks the grammar at this byte.
    case malformed(at: Int)
    /// Arrays and objects nest deeper than `maximumDepth`.
    case tooDeep
  }

  /// Deeper nesting than this is refused, so that no answer from outside can exhaust the stack.
  public static let maximumDepth = 64

  /// Reads one JSON text (RFC 8259) that fills all of `bytes`.
  public init(reading bytes: [UInt8]) throws(ReadError) {
    var reader = Reader(bytes: bytes)
    let value = try reader.value(depth: 0)
    reader.skipSpace()
    guard reader.position == bytes.count else { throw .malformed(at: reader.position) }
    self = value
  }

  /// Reads one JSON text.
  public init(reading text: String) throws(ReadError) { try self.init(reading: Array(text.utf8)) }

  private struct Reader {
    let bytes: [UInt8]
    var position = 0

    var next: UInt8? { position < bytes.count ? bytes[position] : nil }

    mutating func skipSpace() {
      while let byte = next, byte == 0x20 || byte == 0x0a || byte == 0x0d || byte == 0x09 { position += 1 }
    }

    mutating func take(_ byte: UInt8) -> Bool {
      guard next == byte else { return false }
      position += 1
      return true
    }

    mutating func word(_ word: StaticString, _ value: JSON) throws(ReadError) -> JSON {
      for index in 0..<word.utf8CodeUnitCount where !take(word.utf8Start[index]) { throw .malformed(at: position) }
      return value
    }

    mutating func value(depth: Int) throws(ReadError) -> JSON {
      guard depth < JSON.maximumDepth else { throw .tooDeep }
      skipSpace()
      switch next {
      case UInt8(ascii: "{"): return try object(depth: depth)
      case UInt8(ascii: "["): return try array(depth: depth)
      case UInt8(ascii: "\""): return .string(try string())
      case UInt8(ascii: "t"): return try word("true", .bool(true))
      case UInt8(ascii: "f"): return try word("false", .bool(false))
      case UInt8(ascii: "n"): return try word("null", .null)
      default: return .number(try number())
      }
    }

    mutating func object(depth: Int) throws(ReadError) -> JSON {
      position += 1
      var members: [(key: String, value: JSON)] = []
      // Of an object of many members, found by hash: looking through them would take the square of their number.
      var places: [Key: Int] = [:]
      skipSpace()
      if take(UInt8(ascii: "}")) { return .object(Object()) }
      while true {
        skipSpace()
        let key = try string()
        skipSpace()
        guard take(UInt8(ascii: ":")) else { throw .malformed(at: position) }
        let value = try value(depth: depth + 1)
        if members.count == 16 {
          for (index, member) in members.enumerated() { places[Key(text: member.key)] = index }
        }
        let place = members.count < 16 ? members.firstIndex { JSON.same($0.key, key) } : places[Key(text: key)]
        if let place {
          members[place].value = value
        } else {
          if members.count >= 16 { places[Key(text: key)] = members.count }
          members.append((key, value))
        }
        skipSpace()
        if take(UInt8(ascii: "}")) { return .object(Object(members: members)) }
        guard take(UInt8(ascii: ",")) else { throw .malformed(at: position) }
      }
    }

    /// A key by its bytes.
    private struct Key: Hashable {
      let text: String
      static func == (a: Key, b: Key) -> Bool { JSON.same(a.text, b.text) }
      func hash(into hasher: inout Hasher) {
        for byte in text.utf8 { hasher.combine(byte) }
      }
    }

    mutating func array(depth: Int) throws(ReadError) -> JSON {
      position += 1
      var elements: [JSON] = []
      skipSpace()
      if take(UInt8(ascii: "]")) { return .array(elements) }
      while true {
        elements.append(try value(depth: depth + 1))
        skipSpace()
        if take(UInt8(ascii: "]")) { return .array(elements) }
        guard take(UInt8(ascii: ",")) else { throw .malformed(at: position) }
      }
    }

    mutating func string() throws(ReadError) -> String {
      guard take(UInt8(ascii: "\"")) else { throw .malformed(at: position) }
      // Nearly all are read as they stand.
      let start = position
      while let byte = next, byte >= 0x20, byte != UInt8(ascii: "\""), byte != UInt8(ascii: "\\") { position += 1 }
      if next == UInt8(ascii: "\"") {
        guard let text = String(validUTF8: bytes[start..<position]) else { throw .malformed(at: position) }
        position += 1
        return text
      }
      var out = Array(bytes[start..<position])
      while let byte = next {
        position += 1
        switch byte {
        case UInt8(ascii: "\""):
          guard let text = String(validUTF8: out) else { throw .malformed(at: position) }
          return text
        case UInt8(ascii: "\\"): try escape(into: &out)
        case 0..<0x20: throw .malformed(at: position - 1)
        default: out.append(byte)
        }
      }
      throw .malformed(at: position)
    }

    mutating func escape(into out: inout [UInt8]) throws(ReadError) {
      guard let byte = next else { throw .malformed(at: position) }
      position += 1
      switch byte {
      case UInt8(ascii: "\""), UInt8(ascii: "\\"), UInt8(ascii: "/"): out.append(byte)
      case UInt8(ascii: "b"): out.append(8)
      case UInt8(ascii: "f"): out.append(12)
      case UInt8(ascii: "n"): out.append(10)
      case UInt8(ascii: "r"): out.append(13)
      case UInt8(ascii: "t"): out.append(9)
      case UInt8(ascii: "u"):
        var unit = try hexUnit()
        if (0xd800..<0xdc00).contains(unit) {
          let behind = position
          if take(UInt8(ascii: "\\")), take(UInt8(ascii: "u")), case let low = try hexUnit(),
            (0xdc00..<0xe000).contains(low)
          {
            unit = 0x10000 + (unit - 0xd800) << 10 + (low - 0xdc00)
          } else {
            position = behind
          }
        }
        // A lone surrogate is no character: what a lenient reader makes of it.
        let scalar = Unicode.Scalar(unit) ?? "\u{fffd}"
        out.append(contentsOf: String(Character(scalar)).utf8)
      default: throw .malformed(at: position - 1)
      }
    }

    mutating func hexUnit() throws(ReadError) -> UInt32 {
      var unit: UInt32 = 0
      for _ in 0..<4 {
        guard let byte = next, let value = Hex.value(byte | (byte >= 0x41 ? 0x20 : 0)) else {
          throw .malformed(at: position)
        }
        unit = unit << 4 | UInt32(value)
        position += 1
      }
      return unit
    }

    mutating func number() throws(ReadError) -> String {
      let start = position
      _ = take(UInt8(ascii: "-"))
      if !take(UInt8(ascii: "0")) { try digits() }
      if take(UInt8(ascii: ".")) { try digits() }
      if take(UInt8(ascii: "e")) || take(UInt8(ascii: "E")) {
        _ = take(UInt8(ascii: "+")) || take(UInt8(ascii: "-"))
        try digits()
      }
      return String(decoding: bytes[start..<position], as: UTF8.self)
    }

    mutating func digits() throws(ReadError) {
      let start = position
      while let byte = next, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) { position += 1 }
      guard position > start else { throw .malformed(at: position) }
    }
  }
}

extension String {
  /// The text of bytes that are valid UTF-8, `nil` of any others. (`String(validating:as:)` needs a newer standard
  /// library than Debian 13's.)
  init?(validUTF8 bytes: some Collection<UInt8>) {
    let text = String(decoding: bytes, as: UTF8.self)
    // Decoding repairs; what was repaired differs from what was given.
    guard text.utf8.elementsEqual(bytes) else { return nil }
    self = text
  }
}
