import CLinux
import Glibc
import Testing

@Suite("What a program is told of a file that others use", .enabled(if: Machine.canMount, Machine.needsMount))
struct WatchingTests {
  /// What is told of a watch by now: each event's mask, and the name it is about.
  private func events(_ watch: CInt) throws -> [(mask: UInt32, name: String)] {
    var bytes = [UInt8](repeating: 0, count: 1 << 16)
    let count = read(watch, &bytes, bytes.count)
    guard count >= 0 || errno == EAGAIN else { throw SystemError("reading events") }
    var found: [(UInt32, String)] = []
    var at = 0
    while at < count {
      let event = bytes[at...].withUnsafeBytes { $0.loadUnaligned(as: inotify_event.self) }
      let start = at + MemoryLayout<inotify_event>.size
      let name = bytes[start..<start + Int(event.len)].prefix { $0 != 0 }
      found.append((event.mask, String(decoding: name, as: UTF8.self)))
      at = start + Int(event.len)
    }
    return found
  }

  @Test("comes by inotify, for each thing that is done to it")
  func inotify() throws {
    try withMount { mount in
      try mount.shell("mkdir item; echo one > item/a")
      let watch = inotify_init1(Int32(IN_NONBLOCK | IN_CLOEXEC))
      #expect(watch >= 0)
      defer { close(watch) }
      let all = UInt32(
        IN_CREATE | IN_CLOSE_WRITE | IN_MODIFY | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE | IN_ATTRIB | IN_OPEN)
      #expect(inotify_add_watch(watch, mount.point + "/item", all) >= 0)
      func told(_ script: String, _ wanted: (Int32, String)...) throws {
        try mount.shell(script)
        let found = try events(watch)
        for (mask, name) in wanted {
          #expect(found.contains { $0.mask & UInt32(mask) != 0 && $0.name == name }, "\(script): \(found)")
        }
      }
      try told("echo two > item/b", (IN_CREATE, "b"), (IN_OPEN, "b"), (IN_MODIFY, "b"), (IN_CLOSE_WRITE, "b"))
      try told("echo more >> item/a", (IN_MODIFY, "a"), (IN_CLOSE_WRITE, "a"))
      try told("chmod 600 item/a", (IN_ATTRIB, "a"))
      try told("setfattr -n user.colour -v blue item/a", (IN_ATTRIB, "a"))
      try told("mv item/a item/c", (IN_MOVED_FROM, "a"), (IN_MOVED_TO, "c"))
      try told("mv item/b item/c", (IN_MOVED_FROM, "b"), (IN_MOVED_TO, "c"))
      try told("mkdir item/d; ln item/c item/e", (IN_CREATE, "d"), (IN_CREATE, "e"))
      try told("rm -r item/c item/d", (IN_DELETE, "c"), (IN_DELETE, "d"))
    }
  }

  @Test("is its new length, when it is cut and grown while open and mapped elsewhere")
  func truncatedElsewhere() throws {
    try withMount { mount in
      try mount.shell("mkdir item; yes 0123456 | head -c 1000000 > item/f".replacingPipefail)
      let path = mount.point + "/item/f"
      let reader = try File(path, O_RDONLY)
      let writer = try File(path, O_RDWR)
      #expect(try reader.read(8) == Array("0123456\n".utf8))
      let memory = try #require(mmap(nil, 1_000_000, PROT_READ, MAP_SHARED, reader.descriptor, 0))
      #expect(memory.load(fromByteOffset: 999_992, as: UInt8.self) == UInt8(ascii: "0"))
      // By name, as another program would.
      #expect(truncate(path, 5000) == 0)
      #expect(try reader.size == 5000 && writer.size == 5000)
      #expect(try reader.read(100, at: 4992) == Array("0123456\n".utf8))
      #expect(try reader.read(100, at: 5000) == [])
      // What was cut off is zeros when the file grows again, for a mapping too.
      try writer.truncate(to: 1_000_000)
      #expect(try reader.read(10, at: 4992) == Array("0123456\n".utf8) + [0, 0])
      #expect(memory.load(fromByteOffset: 999_992, as: UInt8.self) == 0)
      try writer.write("end", at: 999_997)
      #expect(try reader.read(3, at: 999_997) == Array("end".utf8))
      #expect(memory.load(fromByteOffset: 999_997, as: UInt8.self) == UInt8(ascii: "e"))
      munmap(memory, 1_000_000)
      try writer.close()
      try reader.close()
      try mount.remount()
      #expect(try mount.shell("tr -d '\\000' < item/f | tail -c 6; stat -c ' %s' item/f").output == "56\nend 1000000\n")
    }
  }
}

@Suite("Bytes copied from file to file", .enabled(if: Machine.canMount, Machine.needsMount))
struct CopyingTests {
  @Test("by copy_file_range are where they were to go, within a file too, and holes stay readable")
  func copyFileRange() throws {
    try withMount { mount in
      try mount.shell("mkdir item; head -c 300000 /dev/urandom > item/from; truncate -s 1M item/from")
      let from = try File(mount.point + "/item/from", O_RDWR)
      let to = try File(mount.point + "/item/to", O_RDWR | O_CREAT)
      func copy(_ source: File, _ start: Int, _ target: File, _ end: Int, _ count: Int) -> Int {
        var (offIn, offOut) = (off_t(start), off_t(end))
        var done = 0
        while done < count {
          let got = copy_file_range(source.descriptor, &offIn, target.descriptor, &offOut, count - done, 0)
          if got <= 0 { return done > 0 ? done : Int(got) }
          done += got
        }
        return done
      }
      #expect(copy(from, 1000, to, 77, 1 << 20) == (1 << 20) - 1000)
      #expect(try to.size == (1 << 20) - 1000 + 77)
      #expect(try to.read(299_000, at: 77).elementsEqual(from.read(299_000, at: 1000)))
      #expect(try to.read(77) == [UInt8](repeating: 0, count: 77))
      #expect(copy(from, 1 << 20, to, 0, 10) == 0, "behind the end there is nothing")
      // Within one file: apart it copies, over itself it refuses.
      let head = try from.read(5000)
      #expect(copy(from, 0, from, 500_000, 5000) == 5000)
      #expect(try from.read(5000, at: 500_000).elementsEqual(head))
      #expect(copy(from, 0, from, 100, 5000) == -1 && errno == EINVAL)
      let appending = try File(mount.point + "/item/to", O_WRONLY | O_APPEND)
      #expect(copy(from, 0, appending, 0, 10) == -1 && errno == EBADF)
      for file in [from, to, appending] { try file.close() }
      try mount.shell("cp item/from $1/from; cp item/to $1/to")
      try mount.remount()
      try mount.shell("cmp item/from $1/from; cmp item/to $1/to")
    }
  }

  @Test("by cp in each of its ways are the same, and as sparse or as linked as they were asked for")
  func cp() throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir item; head -c 2M /dev/urandom > item/f; truncate -s 20M item/f; chmod 640 item/f
        setfattr -n user.colour -v blue item/f; touch -d '2011-01-01 01:01:01.123456789' item/f
        cp -a --reflink=auto item/f item/g; cmp item/f item/g; test "$(stat -c '%a %y' item/f)" = "$(stat -c '%a %y' item/g)"
        getfattr -n user.colour --only-values item/g | grep -qx blue
        ! cp --reflink=always item/f item/h 2> $1/said; grep -q 'failed to clone' $1/said
        cp --sparse=always item/f item/s; cmp item/f item/s; cp --sparse=never item/s item/n; cmp item/f item/n
        cp -a --reflink=auto item/f $1/f; cmp item/f $1/f; cp -a --reflink=auto $1/f item/back; cmp item/f item/back
        cp -al item item.links 2> $1/said || true; cp -as $PWD/item item.symbolic; cmp item.symbolic/f item/f
        cp -b --suffix=.old item/g item/f; cmp item/f.old item/f; cp -u item/g item/f; cp -n item/s item/f
        """)
      try mount.remount()
      try mount.shell("for f in g s n back; do cmp item/$f $1/f; done")
    }
  }
}
