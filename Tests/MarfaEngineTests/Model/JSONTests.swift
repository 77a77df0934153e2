import Testing

@testable import MarfaEngine

@Suite("JSON read and written")
struct JSONTests {
  @Test(
    "comes back as it was",
    arguments: [
      "null", "true", "false", "0", "-0", "1e400", "123456789012345678901234567890", "-1.50", "1E+2", "0.1000", "\"\"",
      "\"\\\"\\\\\\n\\r\\t\\u0000\\u001f/\"", "\"漢字 👩‍👩‍👧‍👦 \u{2028}\"", "[]", "{}", "[1,[2,[3,{}]]]",
      "{\"b\":1,\"a\":{\"z\":null,\"y\":[true]},\"c\":\"\"}",
    ])
  func same(text: String) throws { #expect(try JSON(reading: text).text == text) }

  @Test("takes space where the grammar has it")
  func space() throws {
    #expect(try JSON(reading: " \t\r\n{ \"a\" : [ 1 , 2 ] }\n").text == "{\"a\":[1,2]}")
  }

  @Test("gives every number its own text, and an integer where it is one")
  func numbers() throws {
    let object = try JSON(reading: "{\"a\":1.0,\"b\":9007199254740993,\"c\":1e2,\"d\":9223372036854775808}").object
    #expect(object?["a"] == .number("1.0"))
    #expect(object?["b"]?.integer == 9_007_199_254_740_993)
    #expect(object?["c"]?.integer == nil)
    #expect(object?["d"]?.integer == nil)
  }

  @Test("keeps members in their order, and of a repeated key the last value")
  func order() throws {
    #expect(try JSON(reading: "{\"b\":1,\"a\":2,\"b\":3}").text == "{\"b\":3,\"a\":2}")
    let many = (0..<40).map { "\"k\($0 % 20)\":\($0)" }.joined(separator: ",")
    let object = try #require(try JSON(reading: "{\(many)}").object)
    #expect(object.members.map(\.key) == (0..<20).map { "k\($0)" })
    #expect(object.members.map { $0.value.integer } == (20..<40).map { Int64($0) })
  }

  @Test("keeps keys apart that only read the same")
  func canonicallyEquivalentKeys() throws {
    let text = "{\"\u{e9}\":1,\"e\u{301}\":2}"
    let value = try JSON(reading: text)
    #expect(value.text == text)
    #expect(value.object?["\u{e9}"] == 1)
    #expect(value.object?["e\u{301}"] == 2)
  }

  @Test("keeps texts apart that only read the same")
  func canonicallyEquivalentTexts() {
    #expect(JSON.string("\u{e9}") != JSON.string("e\u{301}"))
    let one: JSON = ["a": "\u{e9}"]
    let other: JSON = ["a": "e\u{301}"]
    #expect(one != other)
  }

  @Test(
    "reads escapes",
    arguments: [
      ("\"\\u0041\\u00e9\\u6F22\"", "Aé漢"), ("\"\\ud83d\\ude00\"", "😀"), ("\"\\/\\b\\f\"", "/\u{8}\u{c}"),
      ("\"\\ud800\"", "\u{fffd}"), ("\"\\udc00\"", "\u{fffd}"), ("\"\\ud800x\"", "\u{fffd}x"),
      ("\"\\ud800\\n\"", "\u{fffd}\n"), ("\"\\ud800\\\"\"", "\u{fffd}\""), ("\"\\ud800\\u0041\"", "\u{fffd}A"),
      ("\"\\ud800\\ud83d\\ude00\"", "\u{fffd}😀"),
    ])
  func escapes(text: String, value: String) throws { #expect(try JSON(reading: text) == .string(value)) }

  @Test(
    "refuses what is none",
    arguments: [
      "", " ", "nul", "nulll", "tru", "+1", "01", "1.", ".5", "1e", "--1", "-", "NaN", "Infinity", "'a'", "\"a",
      "\"\\x\"",
      "\"\\u12\"", "\"\\u12g4\"", "\"a\nb\"", "\"\t\"", "[1,]", "[,1]", "[1 2]", "[", "]", "{", "{\"a\"}", "{\"a\":}",
      "{\"a\":1,}", "{a:1}", "{1:2}", "1 2", "{}{}", "\u{feff}1", "\"\\",
    ])
  func refused(text: String) { #expect(throws: JSON.ReadError.self) { try JSON(reading: text) } }

  @Test("refuses bytes that are no text")
  func notText() {
    #expect(throws: JSON.ReadError.self) { try JSON(reading: [0x22, 0xff, 0x22]) }
    #expect(throws: JSON.ReadError.self) { try JSON(reading: [0x22, 0xed, 0xa0, 0x80, 0x22]) }
  }

  @Test("refuses what nests too deeply, however deep", arguments: [65, 1000, 1_000_000])
  func deep(depth: Int) {
    let arrays = [UInt8](repeating: UInt8(ascii: "["), count: depth)
    #expect(throws: JSON.ReadError.tooDeep) { try JSON(reading: arrays) }
    let objects = Array(String(repeating: "{\"a\":", count: depth).utf8)
    #expect(throws: JSON.ReadError.tooDeep) { try JSON(reading: objects) }
  }

  @Test("takes what nests as deeply as is allowed")
  func deepest() throws {
    let text = String(repeating: "[", count: 64) + String(repeating: "]", count: 64)
    #expect(try JSON(reading: text).text == text)
  }

  @Test("reads an object of very many members in a moment", .timeLimit(.minutes(1)))
  func wide() throws {
    let text = "{" + (0..<200_000).map { "\"k\($0)\":\($0)" }.joined(separator: ",") + "}"
    let began = Timestamp.now
    let object = try #require(try JSON(reading: text).object)
    #expect(object.members.count == 200_000)
    #expect(Timestamp.now.nanoseconds - began.nanoseconds < 10_000_000_000)
  }
}

@Suite("A JSON object")
struct JSONObjectTests {
  @Test("merges as a PATCH does: a null changes nothing")
  func merge() {
    var object: JSON.Object = ["a": 1, "b": 2]
    object.merge(["b": .null, "c": 3, "a": "x"])
    #expect(object == ["a": "x", "b": 2, "c": 3])
  }

  @Test("equals one of the same members in another order")
  func equal() {
    let one: JSON.Object = ["a": 1, "b": ["x": .null]]
    let other: JSON.Object = ["b": ["x": .null], "a": 1]
    #expect(one == other)
    #expect(one.hashValue == other.hashValue)
    #expect(one != ["a": 1])
    #expect(one != ["a": 1, "c": 2])
  }

  @Test("loses a member that is set to nothing")
  func remove() {
    var object: JSON.Object = ["a": 1, "b": 2]
    object["a"] = nil
    object["z"] = nil
    #expect(object.members.map(\.key) == ["b"])
  }
}
