import CLinux
import Foundation
import Testing

@Suite("Any name that Linux takes", .enabled(if: Machine.canMount, Machine.needsMount))
struct NameTests {
  /// Names in bytes: none of them is to come back as another.
  static let all: [[UInt8]] = {
    var names = texts.map { Array($0.utf8) }
    names += [[0xff], [0xc3], [0x61, 0xff, 0x62], [0xed, 0xa0, 0x80], [0xf4, 0x90, 0x80, 0x80], [0xc0, 0xaf]]
    names += [[0xe2, 0x82], [0xe2, 0x82, 0x2e, 0x74, 0x78, 0x74]]
    for byte: UInt8 in [0x61, 0xff, 0x2e, 0x20, 0x0a] { names.append([UInt8](repeating: byte, count: 255)) }
    names.append(Array(String(repeating: "語", count: 85).utf8))
    names.append(Array("a.".utf8) + [UInt8](repeating: 0x62, count: 253))
    for byte: UInt8 in 1...255 where byte != 0x2f {
      if byte != 0x2e { names.append([byte]) }
      names.append([0x6e, byte, 0x6d])
    }
    return names
  }()

  private static let texts = [
    "plain", "trailing space ", " leading", "trailing dot.", "...", "..a", ".hidden", "co:lon", "back\\slash",
    "'quotes'", "\"double\"", "new\nline", "tab\t", "-rf", "--", "~", "$HOME", "`id`", "[a]", "%41", "a|b", "<>",
    "CON", "aux.txt", "\u{1}\u{2}", "\u{a0}", "\u{202e}abc", "\u{feff}bom", "e\u{301}", "\u{e9}", "日本語.txt",
    "🧑‍🤝‍🧑", "a (2)", "a (2).txt", "x…", "\u{ff0f}", "\u{2400}", "note 00000000-0000-0000-0000-000000000000",
    "\\x41", "\\xFF", "sqlite'; DROP TABLE nodes;--", "{\"json\": 1}", "&amp;", "![[embed]]", "a,b;c",
  ]

  /// A path below the mount, in bytes, for a call.
  private func path(_ mount: Mount, _ parts: [UInt8]...) -> [CChar] {
    (Array(mount.point.utf8) + parts.flatMap { [0x2f] + $0 } + [0]).map { CChar(bitPattern: $0) }
  }

  private func write(_ path: [CChar], _ bytes: [UInt8]) -> CInt {
    let file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
    guard file >= 0 else { return errno }
    let count = Glibc.write(file, bytes, bytes.count)
    return close(file) == 0 && count == bytes.count ? 0 : errno
  }

  private func read(_ path: [CChar]) -> [UInt8] {
    let file = open(path, O_RDONLY | O_CLOEXEC)
    guard file >= 0 else { return Array("error \(errno)".utf8) }
    defer { close(file) }
    var bytes = [UInt8](repeating: 0, count: 1024)
    let count = Glibc.read(file, &bytes, bytes.count)
    return Array(bytes.prefix(max(0, count)))
  }

  @Test("comes back exactly, for a file, a folder and a link, and after a remount")
  func comesBack() throws {
    try withMount { mount in
      let wanted = Set(NameTests.all)
      let kinds = ["files", "folders", "links"]
      for kind in kinds { mkdir(mount.point + "/" + kind, 0o755) }
      for name in wanted {
        #expect(write(path(mount, Array("files".utf8), name), name) == 0, "\(name)")
        #expect(errorOf { mkdir(path(mount, Array("folders".utf8), name), 0o755) } == 0, "\(name)")
        #expect(
          errorOf { symlink((name + [0]).map { CChar(bitPattern: $0) }, path(mount, Array("links".utf8), name)) } == 0)
      }
      func check() throws {
        for kind in kinds {
          let found = try listing(mount.point + "/" + kind)
          #expect(found.count == wanted.count)
          #expect(Set(found) == wanted, "\(kind): \(Set(found).symmetricDifference(wanted))")
        }
        for name in wanted { #expect(read(path(mount, Array("files".utf8), name)) == name) }
      }
      try check()
      try mount.remount()
      try check()
      // And each is known by that name to what removes it.
      for name in wanted {
        #expect(errorOf { unlink(path(mount, Array("files".utf8), name)) } == 0, "\(name)")
        #expect(errorOf { rmdir(path(mount, Array("folders".utf8), name)) } == 0, "\(name)")
      }
      for kind in kinds.dropLast() { #expect(try listing(mount.point + "/" + kind) == []) }
    }
  }

  @Test("is taken by rename too, from any to any")
  func renamed() throws {
    try withMount { mount in
      let names = Array(Set(NameTests.all.filter { $0.count > 1 })).sorted { $0.lexicographicallyPrecedes($1) }
      #expect(write(path(mount, names[0]), [1]) == 0)
      for (from, to) in zip(names, names.dropFirst()) {
        #expect(errorOf { rename(path(mount, from), path(mount, to)) } == 0, "\(from) \(to)")
      }
      let last = try #require(names.last)
      #expect(try listing(mount.point) == [last])
      #expect(read(path(mount, last)) == [1])
    }
  }

  @Test("and of 256 bytes is too long, whatever the call")
  func tooLong() throws {
    try withMount { mount in
      let long = path(mount, [UInt8](repeating: 0x61, count: 256))
      let file = path(mount, [0x66])
      #expect(write(file, [1]) == 0)
      #expect(write(long, [1]) == ENAMETOOLONG)
      #expect(errorOf { mkdir(long, 0o755) } == ENAMETOOLONG)
      #expect(errorOf { symlink("x", long) } == ENAMETOOLONG)
      #expect(errorOf { link(file, long) } == ENAMETOOLONG)
      #expect(errorOf { rename(file, long) } == ENAMETOOLONG)
      #expect(errorOf { unlink(long) } == ENAMETOOLONG)
      #expect(errorOf { access(long, F_OK) } == ENAMETOOLONG)
      let left = try listing(mount.point)
      #expect(left == [[0x66]])
    }
  }

  @Test("of the most bytes there may be is kept by whoever saves under it")
  func saved() throws {
    try withMount { mount in
      try mount.shell("mkdir item")
      // 255 bytes, of one and of three each.
      for name in [String(repeating: "n", count: 251) + ".txt", String(repeating: "漢", count: 85)] {
        let path = "item/" + name
        try mount.shell("printf 'old text' > '\(path)'")
        let id = try mount.attribute("user.marfa.id", of: path)
        for save in [
          "sed -i s/old/new/ f", "printf 'new text' > .t; mv .t f", "cp f .t; sed s/old/new/ .t > f; rm .t",
          "mv f .t~; sed s/old/new/ .t~ > f; rm .t~",
        ] {
          try mount.shell("printf 'old text' > '\(path)'; cd item; \(save.replacing(" f", with: " '\(name)'"))")
          #expect(try mount.text(path) == "new text", "\(save)")
          // Such a name has no room for what tells a backup's: what is renamed away to another is a rename.
          if !save.hasPrefix("mv") { #expect(try mount.attribute("user.marfa.id", of: path) == id, "\(save)") }
        }
        try mount.shell("rm '\(path)'")
      }
    }
  }

  @Test("beside which . and .. lead where they always do")
  func dots() throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir -p a/b; echo text > a/b/f; test "$(cat a/b/../../a/./b/f)" = text; cd a/b; test -e ../../a; cd ../..
        test "$(cd a/b/..; pwd -P)" = "$(pwd -P)/a"; test $(stat -c %i a/b/..) = $(stat -c %i a)
        test $(stat -c %i a/..) = $(stat -c %i .); test $(ls -ai a/b | awk '$2 == ".." { print $1 }') = $(stat -c %i a)
        ! mkdir a/.. 2>/dev/null; ! rmdir a/b/.. 2>/dev/null; ! rmdir a/. 2>/dev/null; ! mv a/b/.. c 2>/dev/null
        test "$(realpath a/b/../../..)" = "$(realpath ..)"
        """)
    }
  }

  @Test("two of which differ only in case or in how Unicode writes them are two")
  func alike() throws {
    try withMount { mount in
      try mount.shell(
        """
        echo 1 > 'e\u{301}'; echo 2 > '\u{e9}'; echo 3 > A; echo 4 > a; echo 5 > 'ﬁ'; echo 6 > 'fi'
        test "$(cat 'e\u{301}' '\u{e9}' A a 'ﬁ' 'fi' | tr -d '\\n')" = 123456
        """)
      try mount.remount()
      #expect(try mount.shell("ls | wc -l; cat A a").output == "6\n3\n4\n")
    }
  }
}
