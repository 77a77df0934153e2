import Glibc
import Testing

@testable import MarfaEngine

@Suite("A name a program gives")
struct NameTests {
  struct Name: Sendable, CustomTestStringConvertible {
    var bytes: [UInt8]
    var testDescription: String { bytes.count > 40 ? "\(bytes.count) bytes" : FileName.text(of: bytes) }
  }

  /// Every kind of name Linux takes, as bytes.
  static let legal: [Name] = [
    Array("plain.txt".utf8), Array("with space".utf8), Array("line\nbreak".utf8), Array("tab\there".utf8),
    Array("back\\slash".utf8), Array("\"quoted\" 'twice'".utf8), Array("trailing dot.".utf8),
    Array("trailing space ".utf8), Array(" leading".utf8), Array("...".utf8), Array(".hidden".utf8), Array("-rf".utf8),
    Array("a*?[b]".utf8), Array("\u{1}\u{7f}".utf8), Array("r\u{e9}sum\u{e9}".utf8), Array("re\u{301}sume\u{301}".utf8),
    Array("漢字.テキスト".utf8), Array("👩‍👩‍👧‍👦".utf8), Array("\u{ff0f}\u{2400}".utf8), Array("name (2).txt".utf8),
    [UInt8](repeating: 0x61, count: 255), Array(String(repeating: "漢", count: 85).utf8), [0xff], [0xc3],
    Array("a".utf8) + [0xfe, 0x80] + Array("z".utf8), [0xed, 0xa0, 0x80], [UInt8](repeating: 0xff, count: 255),
    Array(1...46) + Array(48...255),
  ].map(Name.init(bytes:))

  @Test("comes back exactly as it was given", arguments: legal)
  func exact(name: Name) throws {
    let name = name.bytes
    try withScratch { scratch in
      let given = try FileName(checking: name)
      let directory = try scratch.tree.makeDirectory(Node.root, given, mode: 0o755, owner: scratch.owner)
      let (file, new) = try scratch.tree.createFile(
        directory.number, given, mode: 0o644, owner: scratch.owner, writing: true)
      let staged = try #require(new)
      try staged.append([1])
      try scratch.close(staged)
      try scratch.reopen()
      #expect(try scratch.child(directory.number, name)?.number == file.number)
      var listed: [FileName] = []
      try scratch.tree.list(directory.number, after: 0) { entry in
        listed.append(entry.name)
        return true
      }
      #expect(listed == [given])
      try scratch.answer()
    }
  }

  @Test("is kept apart from one that only reads the same")
  func composed() throws {
    try withScratch { scratch in
      try scratch.write("\u{e9}", "composed")
      try scratch.write("e\u{301}", "decomposed")
      #expect(try scratch.list().map { Array($0.utf8) } == [[0xc3, 0xa9], [0x65, 0xcc, 0x81]])
      #expect(try scratch.read("\u{e9}") == "composed")
      #expect(try scratch.read("e\u{301}") == "decomposed")
    }
  }

  @Test("changes even when it only reads the same")
  func recomposed() throws {
    try withScratch { scratch in
      try scratch.write("\u{e9}", "one")
      try scratch.answer()
      try scratch.move("\u{e9}", "e\u{301}")
      #expect(try scratch.item("e\u{301}").map { Array($0.title.utf8) } == [0x65, 0xcc, 0x81])
      #expect(try scratch.queue().count == 1)
      try scratch.answer()
    }
  }

  @Test("of 256 bytes is refused as too long", arguments: ["a", "漢"])
  func tooLong(character: String) {
    let name = Array(String(repeating: character, count: 256).utf8).prefix(256)
    #expect(throws: MarfaError.file(.nameTooLong)) { try FileName(checking: name) }
  }

  @Test(
    "that no directory can hold is refused",
    arguments: [[], [0x2e], [0x2e, 0x2e], Array("a/b".utf8), Array("a\0b".utf8)] as [[UInt8]])
  func impossible(name: [UInt8]) {
    #expect(throws: MarfaError.file(.invalid)) { try FileName(checking: name) }
  }

  @Test("that is no UTF-8 has a title with its bytes in hexadecimal")
  func hexadecimal() throws {
    try withScratch { scratch in
      let name = try FileName(checking: Array("caf".utf8) + [0xe9] + Array(".txt".utf8))
      let node = try scratch.tree.makeDirectory(Node.root, name, mode: 0o755, owner: scratch.owner)
      #expect(try scratch.copy.items.item(ofNode: node.number)?.title == "caf\\xE9.txt")
    }
  }

  @Test(
    "reads as text, with what is none in hexadecimal",
    arguments: [
      ([0x41, 0xff, 0x42], "A\\xFFB"), ([0xe6, 0xbc, 0xa2, 0xe6, 0xbc], "漢\\xE6\\xBC"), ([0x00], "\0"),
      ([0xc0, 0x80], "\\xC0\\x80"), ([0xf4, 0x90, 0x80, 0x80], "\\xF4\\x90\\x80\\x80"),
      ([0xed, 0xa0, 0x80], "\\xED\\xA0\\x80"), ([0x0a], "\n"),
    ] as [([UInt8], String)])
  func text(bytes: [UInt8], text: String) { #expect(FileName.text(of: bytes) == text) }
}

@Suite("A title shown as a name")
struct TitleTests {
  private let id = ItemID.mint()

  private func shown(_ title: String, type: String = "core.note") -> String {
    FileName.showing(title: title, type: type, id: id).title
  }

  @Test("is the title itself", arguments: ["notes", "a b", "漢字.txt", "...", "line\nbreak", "." + "x"])
  func same(title: String) { #expect(shown(title) == title) }

  @Test("has a look-alike for a slash and for NUL")
  func replaced() {
    #expect(shown("24/7 \0 support") == "24\u{ff0f}7 \u{2400} support")
    #expect(shown("/") == "\u{ff0f}")
    #expect(shown("../../etc/passwd") == "..\u{ff0f}..\u{ff0f}etc\u{ff0f}passwd")
  }

  @Test("is made of type and id when no name could be made of it", arguments: ["", ".", ".."])
  func named(title: String) {
    #expect(shown(title) == "note \(id)")
    #expect(shown(title, type: "core.file.image") == "image \(id)")
    #expect(shown(title, type: "a/b.c/d") == "cd \(id)")
  }

  @Test("of 300 bytes is cut before its extension")
  func cut() {
    let name = shown(String(repeating: "a", count: 300) + ".tar.gz")
    #expect(name.utf8.count == 255)
    #expect(name == String(repeating: "a", count: 245) + ".tar".prefix(0) + "…" + ".gz" || name.hasSuffix("….gz"))
  }

  @Test("is cut on a character", arguments: ["漢", "é", "👍", "a", "a漢"])
  func characters(character: String) {
    for length in [200, 255, 256, 257, 258, 300] {
      let title = String(repeating: character, count: length) + ".pdf"
      let name = FileName.showing(title: title, type: "core.file", id: id)
      guard title.utf8.count > 255 else {
        #expect(name.title == title)
        continue
      }
      #expect(name.bytes.count <= 255 && name.bytes.count > 255 - 4)
      #expect(String(validUTF8: name.bytes) != nil)
      #expect(name.title.hasSuffix("….pdf"))
      #expect(title.hasPrefix(name.title.dropLast(5)))
    }
  }

  @Test("with a sentence behind its last full stop is cut at the end")
  func sentence() {
    let name = shown("One. " + String(repeating: "word ", count: 80))
    #expect(name.utf8.count <= 255)
    #expect(name.hasSuffix("…"))
  }

  @Test("is numbered before its extension, and stays within the limit")
  func numbered() {
    #expect(FileName.showing(title: "a.txt", type: "core.file", id: id).numbered(2).title == "a (2).txt")
    #expect(FileName.showing(title: "a", type: "core.note", id: id).numbered(10).title == "a (10)")
    #expect(FileName.showing(title: ".bashrc", type: "core.note", id: id).numbered(2).title == ".bashrc (2)")
    let long = FileName.showing(title: String(repeating: "漢", count: 100) + ".txt", type: "core.file", id: id)
    let second = long.numbered(12)
    #expect(second.bytes.count <= 255)
    #expect(String(validUTF8: second.bytes)?.hasSuffix("… (12).txt") == true)
  }
}

@Suite("Items of one title in one directory")
struct EqualTitleTests {
  @Test("are numbered by age")
  func numbered() throws {
    try withScratch { scratch in
      for _ in 1...3 { _ = try scratch.copy.items.create(type: "core.note", properties: ["title": "Untitled"]) }
      #expect(try scratch.list() == ["Untitled", "Untitled (2)", "Untitled (3)"])
    }
  }

  @Test("keep their numbers when one of them goes, and the next fills the gap")
  func stable() throws {
    try withScratch { scratch in
      var ids: [ItemID] = []
      for _ in 1...4 {
        ids.append(try scratch.copy.items.create(type: "core.note", properties: ["title": "n"]).item.id)
      }
      try scratch.copy.items.delete(ids[1])
      #expect(try scratch.list() == ["n", "n (3)", "n (4)"])
      try scratch.reopen()
      #expect(try scratch.item("n (3)")?.id == ids[2])
      let next = try scratch.copy.items.create(type: "core.note", properties: ["title": "n"]).item.id
      #expect(try scratch.item("n (2)")?.id == next)
    }
  }

  @Test("keep their numbers when a title is written again as it was", arguments: ["n", "24/7", ""])
  func rewritten(title: String) throws {
    try withScratch { scratch in
      var ids: [ItemID] = []
      for _ in 1...3 {
        ids.append(try scratch.copy.items.create(type: "core.note", properties: ["title": .string(title)]).item.id)
      }
      let before = try scratch.list()
      for id in ids.reversed() { try scratch.copy.items.update(id, ["title": .string(title), "mood": "calm"]) }
      #expect(try scratch.list() == before)
    }
  }

  @Test("are renamed with their title")
  func retitled() throws {
    try withScratch { scratch in
      let first = try scratch.copy.items.create(type: "core.note", properties: ["title": "n"]).item.id
      let second = try scratch.copy.items.create(type: "core.note", properties: ["title": "n"]).item.id
      try scratch.copy.items.update(second, ["title": "a/b"])
      #expect(try scratch.list() == ["n", "a\u{ff0f}b"])
      try scratch.copy.items.update(first, ["title": "a/b"])
      #expect(try scratch.list() == ["a\u{ff0f}b (2)", "a\u{ff0f}b"])
    }
  }

  @Test("can be thousands, and the last is as quick as the first")
  func thousands() throws {
    try withScratch { scratch in
      try scratch.copy.change { (change) throws(MarfaError) in
        for _ in 0..<5000 {
          let item = Item(
            id: .mint(), type: "core.note", properties: ["title": "Untitled", "body": ""], state: .active,
            tier: .library,
            version: 0, tags: [], pinned: false)
          _ = try change.outbox.createItem(item)
          try change.show(item)
        }
      }
      let began = Timestamp.now
      for _ in 0..<20 { _ = try scratch.copy.items.create(type: "core.note", properties: ["title": "Untitled"]) }
      #expect(Timestamp.now.nanoseconds - began.nanoseconds < 1_000_000_000)
      #expect(try scratch.node("Untitled (5020)") != nil)
      // What is asked of the store is enough: checking five thousand rows against each other is not this test's matter.
      for item in try scratch.copy.store.read({ (connection) throws(MarfaError) in try connection.allItems() }) {
        try scratch.copy.items.delete(item.id)
      }
    }
  }
}

@Suite("Names that stay on this device")
struct LocalNameTests {
  @Test(
    "are those editors, office programs and desktops give their own files",
    arguments: [
      ".notes.txt.swp", ".notes.txt.swo", ".notes.txt.swpx", ".#notes.txt", "#notes.txt#", "notes.txt~", "~",
      ".goutputstream-ABC123", ".~lock.letter.odt#", "~$letter.docx", ".nfs000000001", ".fuse_hidden0001", "._photo",
      ".DS_Store", ".Trash-1000", ".Trash", "Thumbs.db", "desktop.ini", ".~123.tmp",
    ])
  func local(name: String) throws { #expect(LocalNames.standard.matches(try FileName(checking: name.utf8))) }

  @Test(
    "are not those a person gives",
    arguments: [
      "notes.txt", "notes.swp", ".bashrc", "#1 idea", "trash", ".Trashed", "lock", "a~b", "$letter", "DS_Store", ".swp",
      "thumbs.db.txt", "Desktop.ini.bak",
    ])
  func queued(name: String) throws { #expect(!LocalNames.standard.matches(try FileName(checking: name.utf8))) }

  @Test(
    "follow patterns of stars and question marks",
    arguments: [
      ("*", "anything", true), ("?", "a", true), ("?", "ab", false), ("a*b*c", "aXbYc", true), ("a*b*c", "aXbY", false),
      ("", "a", false), ("**", "a", true), ("*.tmp", ".tmp", true), ("[a]", "a", false), ("a?c", "abc", true),
    ])
  func patterns(pattern: String, name: String, matches: Bool) throws {
    #expect(LocalNames([pattern]).matches(try FileName(checking: name.utf8)) == matches)
  }

  @Test("are found out quickly even when the pattern is unkind", .timeLimit(.minutes(1)))
  func unkind() throws {
    let name = try FileName(checking: [UInt8](repeating: 0x61, count: 255))
    #expect(!LocalNames(["*a*a*a*a*a*a*a*b"]).matches(name))
  }

  @Test("can be others than the usual")
  func configured() throws {
    var options = WorkingCopy.Options()
    options.tree.localNames = LocalNames(["*.part"])
    try withScratch(options) { scratch in
      try scratch.write("film.part", "half")
      #expect(try scratch.queue() == [])
      try scratch.write("notes~", "kept")
      #expect(try scratch.queue() == ["1 upload \"kept\"", "2 create file \"notes~\" of \"kept\" <- 1"])
    }
  }
}
