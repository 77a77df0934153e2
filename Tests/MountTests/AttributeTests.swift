import CLinux
import Foundation
import Testing

@Suite("The extended attributes of what is mounted", .enabled(if: Machine.canMount, Machine.needsMount))
struct AttributeTests {
  /// True for an identity that this program mints.
  private func isIdentity(_ text: String?) -> Bool {
    let parts = (text ?? "").split(separator: "-", omittingEmptySubsequences: false)
    return parts.map { $0.count } == [8, 4, 4, 4, 12] && parts[2].hasPrefix("7")
      && parts.joined().allSatisfy { $0.isHexDigit && !$0.isUppercase }
  }

  @Test("of a file tell its item, its bytes and its upload")
  func file() throws {
    try withMount { mount in
      try mount.shell("mkdir item; printf 'hello\\n' > item/note.txt")
      let found = try mount.attributes(of: "item/note.txt")
      let wanted = [
        "user.marfa.type": "core.file.text", "user.marfa.tier": "library", "user.marfa.version": "0",
        "user.marfa.hash": "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
        "user.marfa.size": "6", "user.marfa.embed": "![[note.txt]]", "user.marfa.held": "yes",
        "user.marfa.held_bytes": "6",
        "user.marfa.kept": "attached", "user.marfa.upload": "queued", "user.marfa.upload_progress": "0/6",
        "user.mime_type": "text/plain", "user.marfa.pin": "no",
      ]
      for (name, value) in wanted where name != "user.marfa.type" { #expect(found[name] == value, "\(name)") }
      #expect(found["user.marfa.type"]?.hasPrefix("core.file") == true)
      for name in ["user.marfa.id", "user.marfa.edge"] {
        #expect(isIdentity(found[name]), "\(name)")
      }
      #expect(Int(found["user.marfa.queue_position"] ?? "") ?? 0 > 0)
      #expect(found["user.marfa.upload_detail"] != nil)
      for name in ["user.xdg.tags", "user.xdg.comment", "user.xdg.origin.url", "user.marfa.not_held_reason"] {
        #expect(found[name] == nil, "what has no value is not listed")
      }
    }
  }

  @Test("of a folder and of the root tell what is in them")
  func folders() throws {
    try withMount { mount in
      try mount.shell("mkdir item; printf 'hello\\n' > item/a; printf 'hi\\n' > item/b; mkdir item/sub; : > item/empty")
      let folder = try mount.attributes(of: "item")
      let wanted = [
        "user.marfa.type": "core.note", "user.marfa.tier": "library", "user.marfa.version": "0",
        "user.marfa.attachments": "3 9", "user.marfa.held": "3 9", "user.marfa.not_held": "0 0", "user.marfa.pin": "no",
      ]
      for (name, value) in wanted { #expect(folder[name] == value, "\(name)") }
      #expect(isIdentity(folder["user.marfa.id"]))
      let queued = try #require(folder["user.marfa.queued"])
      #expect(queued.hasSuffix(" 9"), "\(queued)")
      let root = try mount.attributes(of: ".")
      #expect(root["user.marfa.store"] == mount.store)
      let waiting = try mount.queue().total
      #expect(root["user.marfa.queue"] == "\(waiting) 9")
      #expect(root["user.marfa.budget_setting"] == "default")
      #expect(Int(root["user.marfa.budget"] ?? "") ?? 0 > 0)
      #expect(root["user.marfa.kept_held"] == "2 9")
      #expect(root["user.marfa.kept_not_held"] == "0 0")
      #expect(root["user.marfa.server"] == nil)
    }
  }

  @Test("say of what stays on this device that it does, and why")
  func local() throws {
    try withMount { mount in
      try mount.shell("mkdir item; : > item/empty; echo x > item/.f.swp; ln -s f item/link; mkdir .Trash-1000")
      for path in ["item/empty", "item/.f.swp"] {
        let found = try mount.attributes(of: path)
        #expect(found["user.marfa.upload"] == "local")
        #expect(found["user.marfa.upload_detail"]?.contains("on this device") == true)
        #expect(found["user.marfa.id"] == nil)
      }
      #expect(try mount.attribute("user.marfa.upload", of: ".Trash-1000") == "local")
      #expect(try mount.queue().titles == ["item"])
    }
  }

  @Test("that can be set are the item's from then on, and queued")
  func settable() throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir item; echo x > item/f
        setfattr -n user.xdg.tags -v 'red, green,, blue ,red' item/f; setfattr -n user.xdg.tags -v folder item
        setfattr -n user.xdg.comment -v 'a comment, with ünïcode' item/f
        setfattr -n user.xdg.origin.url -v https://example.org/x?y=1 item/f
        setfattr -n user.marfa.pin -v yes item/f; setfattr -n user.marfa.pin -v yes item; setfattr -n user.marfa.held -v yes item/f
        """)
      func check() throws {
        let found = try mount.attributes(of: "item/f")
        #expect(found["user.xdg.tags"] == "blue,green,red")
        #expect(found["user.xdg.comment"] == "a comment, with ünïcode")
        #expect(found["user.xdg.origin.url"] == "https://example.org/x?y=1")
        #expect(found["user.marfa.pin"] == "yes" && found["user.marfa.kept"] == "pinned")
        #expect(try mount.attribute("user.xdg.tags", of: "item") == "folder")
      }
      try check()
      let queue = try mount.queue()
      #expect(queue.count("add_tag") == 4 && queue.count("remove_tag") == 0, "\(queue.writes)")
      try mount.remount()
      try check()
      // A tag taken away before it went out leaves no write.
      try mount.shell("setfattr -n user.xdg.tags -v 'green,new' item/f; setfattr -x user.xdg.comment item/f")
      #expect(try mount.attribute("user.xdg.tags", of: "item/f") == "green,new")
      #expect(try mount.attribute("user.xdg.comment", of: "item/f") == nil)
      #expect(try mount.queue().count("add_tag") == 3)
      try mount.shell("setfattr -x user.xdg.tags item/f; setfattr -n user.marfa.pin -v no item/f")
      #expect(try mount.attribute("user.xdg.tags", of: "item/f") == nil)
      #expect(try mount.attribute("user.marfa.pin", of: "item/f") == "no")
    }
  }

  @Test("that say how things are can't be set")
  func refused() throws {
    try withMount { mount in
      try mount.shell("mkdir item; echo x > item/f")
      func set(_ name: String, _ value: String, _ path: String = "item/f", _ flags: CInt = 0) -> CInt {
        errorOf { setxattr(mount.point + "/" + path, name, value, value.utf8.count, flags) }
      }
      for name in ["id", "edge", "type", "tier", "version", "hash", "size", "upload", "kept", "no_such_thing"] {
        #expect(set("user.marfa." + name, "x") == EPERM, "\(name)")
        #expect(errorOf { removexattr(mount.point + "/item/f", "user.marfa." + name) } == EPERM, "\(name)")
      }
      #expect(set("user.mime_type", "text/html") == EPERM)
      #expect(set("user.marfa.pin", "perhaps") == EINVAL)
      #expect(set("user.marfa.held", "perhaps") == EINVAL)
      #expect(set("user.marfa.held", "no") == EPERM, "only this device has it")
      #expect(set("user.marfa.budget", "1", ".") == EPERM)
      for name in ["security.selinux", "security.ima"] {
        #expect(set(name, "x") == EOPNOTSUPP, "\(name)")
      }
      for name in ["security.selinux", "security.ima", "system.posix_acl_access"] {
        #expect(errorOf { getxattr(mount.point + "/item/f", name, nil, 0) < 0 ? -1 : 0 } == EOPNOTSUPP, "\(name)")
      }
      let other = set("trusted.x", "x")
      #expect([EOPNOTSUPP, EPERM].contains(other))
      #expect(set("user.", "x") == EOPNOTSUPP || set("user.", "x") == EINVAL)
      #expect(set("user.new", "x", "item/f", CInt(XATTR_REPLACE)) == ENODATA)
      #expect(set("user.new", "x", "item/f", CInt(XATTR_CREATE)) == 0)
      #expect(set("user.new", "y", "item/f", CInt(XATTR_CREATE)) == EEXIST)
      #expect(set("user.new", "y", "item/f", CInt(XATTR_REPLACE)) == 0)
      #expect(errorOf { removexattr(mount.point + "/item/f", "user.none") } == ENODATA)
    }
  }

  @Test("of programs are kept in their bytes, on files, folders and the root")
  func programs() throws {
    try withMount { mount in
      try mount.shell("mkdir item; echo x > item/f")
      let values: [String: [UInt8]] = [
        "user.empty": [], "user.nul": [0, 1, 0, 255], "user.large": [UInt8](repeating: 200, count: 65_536),
        "user.name with spaces": [1], "user." + String(repeating: "n", count: 250): [2], "user.ünï": [3],
      ]
      let paths = ["item/f", "item", "."]
      for path in paths {
        for (name, value) in values {
          #expect(
            errorOf { setxattr(mount.point + "/" + path, name, value, value.count, 0) } == 0,
            "\(path) \(name.prefix(20))")
        }
      }
      func check() {
        for path in paths {
          for (name, value) in values {
            var found = [UInt8](repeating: 9, count: 70_000)
            let count = getxattr(mount.point + "/" + path, name, &found, found.count)
            #expect(Array(found.prefix(max(0, count))) == value, "\(path) \(name.prefix(20))")
          }
        }
      }
      check()
      try mount.remount()
      check()
      #expect(
        errorOf { setxattr(mount.point + "/item/f", "user.large", [UInt8](repeating: 1, count: 65_537), 65_537, 0) }
          == E2BIG)
      #expect(
        errorOf { setxattr(mount.point + "/item/f", "user." + String(repeating: "n", count: 251), "x", 1, 0) } == ERANGE
      )
    }
  }

  @Test("come in buffers of any size as the man pages say")
  func sizes() throws {
    try withMount { mount in
      try mount.shell("mkdir item; echo x > item/f; setfattr -n user.a -v 12345 item/f")
      let path = mount.point + "/item/f"
      #expect(getxattr(path, "user.a", nil, 0) == 5)
      var value = [UInt8](repeating: 0, count: 5)
      #expect(errorOf { getxattr(path, "user.a", &value, 4) < 0 ? -1 : 0 } == ERANGE)
      #expect(getxattr(path, "user.a", &value, 5) == 5 && value == Array("12345".utf8))
      let needed = listxattr(path, nil, 0)
      #expect(needed > 50)
      var list = [CChar](repeating: 0, count: needed)
      #expect(errorOf { listxattr(path, &list, needed - 1) < 0 ? -1 : 0 } == ERANGE)
      #expect(listxattr(path, &list, needed) == needed)
      let names = list.split(separator: 0).map { String(decoding: $0.map { UInt8(bitPattern: $0) }, as: UTF8.self) }
      #expect(names.contains("user.a") && Set(names).count == names.count)
      for name in names { #expect(getxattr(path, name, nil, 0) >= 0, "\(name)") }
      #expect(errorOf { getxattr(path, "user.none", nil, 0) < 0 ? -1 : 0 } == ENODATA)
    }
  }

  @Test("set on a file while it is empty or written are its item's when it is one")
  func early() throws {
    try withMount { mount in
      try mount.shell("mkdir item")
      let file = try File(mount.point + "/item/f", O_RDWR | O_CREAT)
      #expect(fsetxattr(file.descriptor, "user.xdg.tags", "early", 5, 0) == 0)
      #expect(fsetxattr(file.descriptor, "user.xdg.comment", "words", 5, 0) == 0)
      #expect(fsetxattr(file.descriptor, "user.own", "1", 1, 0) == 0)
      try file.write("bytes")
      #expect(try mount.attribute("user.marfa.upload", of: "item/f") == "writing")
      try file.close()
      let found = try mount.attributes(of: "item/f")
      #expect(found["user.xdg.tags"] == "early" && found["user.xdg.comment"] == "words" && found["user.own"] == "1")
      #expect(try mount.queue().writes.contains { $0.kind == "add_tag" })
    }
  }
}
