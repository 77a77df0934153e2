import CLinux
import Foundation
import Testing

@Suite("A file written in unusual ways", .enabled(if: Machine.canMount, Machine.needsMount))
struct WritingTests {
  @Test("by two processes that append has every line of both, whole")
  func appendedByTwo() throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir item
        append() { perl -e 'open F, ">>", "item/log" or die; for (1 .. 1000) { syswrite F, "$ARGV[0] line $_ end\\n" }' $1; }
        append a & append b & wait
        test $(wc -l < item/log) = 2000
        for who in a b; do for n in $(seq 1000); do echo "$who line $n end"; done; done | sort > $1/wanted
        sort item/log | cmp - $1/wanted
        """)
      try mount.remount()
      try mount.shell("sort item/log | cmp - $1/wanted")
    }
  }

  @Test("through a shared mapping reads the same through read(2), and after a remount")
  func mapped() throws {
    try withMount { mount in
      mkdir(mount.point + "/item", 0o755)
      let path = mount.point + "/item/mapped"
      let size = 1 << 20
      let file = try File(path, O_RDWR | O_CREAT)
      try file.truncate(to: size)
      let memory = try #require(mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor, 0))
      try #require(memory != MAP_FAILED)
      for page in stride(from: 0, to: size, by: 4096) {
        memory.storeBytes(of: UInt64(page), toByteOffset: page, as: UInt64.self)
      }
      #expect(msync(memory, size, MS_SYNC) == 0)
      let other = try File(path, O_RDONLY)
      #expect(try other.read(8, at: 8192) == [0, 0x20, 0, 0, 0, 0, 0, 0])
      // Written through read(2)'s brother, seen through the mapping.
      try file.write("seen", at: 100)
      #expect(memory.load(fromByteOffset: 100, as: UInt32.self) == 0x6e65_6573)
      // Cut while it is mapped, and grown again: what was cut is zeroes.
      try file.truncate(to: 4096)
      try file.truncate(to: size)
      #expect(memory.load(fromByteOffset: 8192, as: UInt64.self) == 0)
      memory.storeBytes(of: 77, toByteOffset: size - 8, as: UInt64.self)
      #expect(munmap(memory, size) == 0)
      try other.close()
      try file.close()
      let sum = try mount.shell("sha256sum < item/mapped").output
      try mount.remount()
      #expect(try mount.shell("sha256sum < item/mapped").output == sum)
      #expect(try File(path, O_RDONLY).read(8, at: size - 8) == [77, 0, 0, 0, 0, 0, 0, 0])
    }
  }

  @Test("is what the same calls make of a file on the disk", arguments: 0..<6)
  func asOnTheDisk(seed: Int) throws {
    try withMount { mount in
      mkdir(mount.point + "/item", 0o755)
      var random = Numbers(seed: UInt64(seed) &+ 17)
      let paths = [mount.point + "/item/file", mount.outside + "/file"]
      for round in 0..<6 {
        let files = try paths.map { try File($0, O_RDWR | O_CREAT | (round == 3 ? O_TRUNC : 0)) }
        for step in 0..<60 {
          let (offset, count) = (random.next(300_000), 1 + random.next(70_000))
          let byte = UInt8(random.next(256))
          let call = random.next(12)
          for file in files {
            switch call {
            case 0: try file.truncate(to: offset)
            case 1: try file.truncate(to: 0)
            case 2: try file.synchronize()
            case 3: #expect(fallocate(file.descriptor, 0, off_t(offset), off_t(count)) == 0)
            case 4: #expect(fallocate(file.descriptor, 1, off_t(offset), off_t(count)) == 0)
            case 5: #expect(fallocate(file.descriptor, 3, off_t(offset), off_t(count)) == 0)
            default: try file.write([UInt8](repeating: byte, count: count), at: offset)
            }
          }
          #expect(try files[0].size == files[1].size, "round \(round) step \(step) call \(call) \(offset) \(count)")
          if random.next(4) == 0 {
            #expect(try files[0].read(count, at: offset) == files[1].read(count, at: offset))
          }
        }
        for file in files { try file.close() }
        try mount.shell("cmp item/file $1/file")
        if round == 2 { try mount.remount() }
      }
      try mount.remount()
      try mount.shell("cmp item/file $1/file")
    }
  }

  @Test("by one thread keeps its bytes while another closes its own descriptors of it")
  func closedMeanwhile() throws {
    try withMount { mount in
      mkdir(mount.point + "/item", 0o755)
      let isOver = Flag()
      // A program that starts another does this to every file it has open.
      let closer = Thread { while !isOver.isSet { for file in CInt(3)...40 { close(dup(file)) } } }
      closer.start()
      defer { isOver.set() }
      for round in 1...150 {
        let file = try File(mount.point + "/item/\(round)", O_RDWR | O_CREAT)
        try file.write([UInt8](repeating: 1, count: 1000), at: 0)
        try file.synchronize()
        try file.write([UInt8](repeating: 1, count: 1000), at: 1000)
        try file.close()
      }
      isOver.set()
      #expect(eventually { closer.isFinished })
      let show = "find item -type f -size 2000c | wc -l; cat item/* | tr -d '\\001' | wc -c"
      #expect(try mount.shell(show).output == "150\n0\n")
      try mount.remount()
      #expect(try mount.shell(show).output == "150\n0\n")
    }
  }

  @Test("out of order, with holes, has its bytes where they were put and no others")
  func sparse() throws {
    try withMount { mount in
      mkdir(mount.point + "/item", 0o755)
      let path = mount.point + "/item/sparse"
      let file = try File(path, O_RDWR | O_CREAT)
      let size = 64 << 20
      try file.truncate(to: size)
      let places = [40 << 20, 1, (7 << 20) + 4095, size - 4096]
      for place in places { try file.write([UInt8](repeating: 9, count: 4096), at: place) }
      #expect(lseek(file.descriptor, 0, Int32(SEEK_DATA)) == 0)
      #expect(lseek(file.descriptor, off_t(20 << 20), Int32(SEEK_DATA)) == off_t(40 << 20))
      #expect(lseek(file.descriptor, off_t(40 << 20), Int32(SEEK_HOLE)) == off_t((40 << 20) + 4096))
      try file.close()
      func check() throws {
        let file = try File(path, O_RDONLY)
        #expect(try file.size == size)
        for place in places {
          let around = try file.read(4098, at: place - 1)
          var wanted: [UInt8] = [0]
          wanted += [UInt8](repeating: 9, count: 4096)
          if place + 4096 < size { wanted.append(0) }
          #expect(around == wanted)
        }
        #expect(lseek(file.descriptor, off_t(20 << 20), Int32(SEEK_DATA)) == off_t(40 << 20))
        #expect(errorOf { lseek(file.descriptor, off_t(size), Int32(SEEK_DATA)) < 0 ? -1 : 0 } == ENXIO)
      }
      try check()
      try mount.remount()
      try check()
    }
  }

  @Test("with room reserved, punched, zeroed and collapsed answers as the man page says")
  func allocated() throws {
    try withMount { mount in
      let text = try mount.shell(
        """
        mkdir item; cd item
        fallocate -l 8M f; stat -c %s f
        yes abcdefg | head -c 1M > g; fallocate -p -o 4096 -l 8192 g; stat -c %s g
        fallocate -z -o 65536 -l 4096 g; fallocate -n -l 2M g; stat -c %s g
        fallocate -c -o 0 -l 4096 g 2>&1 | grep -o 'not supported'
        yes abcdefg | head -c 1M > $1/g
        dd if=/dev/zero of=$1/g bs=4096 seek=1 count=2 conv=notrunc status=none
        dd if=/dev/zero of=$1/g bs=4096 seek=16 count=1 conv=notrunc status=none
        cmp g $1/g
        cmp f <(head -c 8M /dev/zero)
        fallocate -l 1G h; stat -c %s h; test $(tail -c 1 h | wc -c) = 1; fallocate -d h; rm h
        """.replacingPipefail)
      #expect(text.output == "8388608\n1048576\n1048576\nnot supported\n1073741824\n")
      try mount.remount()
      try mount.shell("cmp item/g $1/g; cmp item/f <(head -c 8M /dev/zero)")
    }
  }

  @Test("by dd and install is there with what they were told")
  func commands() throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir item; head -c 3M /dev/urandom > $1/r
        dd if=$1/r of=item/r conv=fsync bs=100k status=none; cmp $1/r item/r
        dd if=$1/r of=item/direct oflag=direct bs=1M status=none; cmp $1/r item/direct
        dd if=item/direct iflag=direct bs=1M status=none | cmp - $1/r
        dd if=$1/r of=item/sync oflag=sync bs=1M status=none; cmp $1/r item/sync
        install -m 750 -D $1/r item/a/b/r; cmp $1/r item/a/b/r; test $(stat -c %a item/a/b/r) = 750
        touch -d '2011-01-01 01:01:01.5' $1/r; install -p $1/r item/p; test item/p -ot item/r
        test "$(stat -c %y item/p)" = "$(stat -c %y $1/r)"
        truncate -s 1M item/r; cmp item/r <(head -c 1M $1/r)
        truncate -s +1M item/r; cmp item/r <(head -c 1M $1/r; head -c 1M /dev/zero)
        sync item/r; sync -f item; sync item
        """)
    }
  }
}

@Suite("A file deleted while it is open", .enabled(if: Machine.canMount, Machine.needsMount))
struct DeletedWhileOpenTests {
  @Test("can still be read and written, and is gone for everybody else")
  func goesOn() throws {
    try withMount { mount in
      mkdir(mount.point + "/item", 0o755)
      let path = mount.point + "/item/file"
      let file = try File(path, O_RDWR | O_CREAT)
      try file.write("before")
      #expect(unlink(path) == 0)
      #expect(!isThere(path))
      #expect(try listing(mount.point + "/item").isEmpty)
      try file.write(" after", at: 6)
      try file.truncate(to: 9)
      #expect(try file.text() == "before af")
      #expect(try file.status().st_nlink == 0)
      #expect(fchmod(file.descriptor, 0o600) == 0)
      try file.synchronize()
      // The name is free, and what takes it is another file.
      let second = try File(path, O_RDWR | O_CREAT | O_EXCL)
      try second.write("second")
      try second.close()
      #expect(try file.text() == "before af")
      #expect(unlink(path) == 0)
      try file.close()
      #expect(rmdir(mount.point + "/item") == 0)
      let queue = try mount.queue()
      #expect(queue.total == 0, "\(queue.writes)")
      #expect(try mount.shell("find . | wc -l").output == "1\n")
    }
  }

  @Test("or replaced shows its reader the bytes it opened")
  func replaced() throws {
    try withMount { mount in
      try mount.shell(
        "mkdir item; yes old | head -c 3000000 > item/f; yes new | head -c 3000000 > item/g".replacingPipefail)
      let file = try File(mount.point + "/item/f", O_RDONLY)
      #expect(try String(decoding: file.read(4), as: UTF8.self) == "old\n")
      try mount.shell("mv item/g item/f; test $(head -n 1 item/f) = new")
      #expect(try String(decoding: file.read(4, at: 2_000_000), as: UTF8.self) == "old\n")
      try mount.shell("echo newer > item/f; rm item/f")
      #expect(try String(decoding: file.read(4, at: 2_999_996), as: UTF8.self) == "old\n")
    }
  }
}

/// Numbers that are the same in every run.
struct Numbers {
  private var state: UInt64
  init(seed: UInt64) { state = seed &* 0x9e37_79b9_7f4a_7c15 | 1 }

  /// From 0 to below `limit`.
  mutating func next(_ limit: Int) -> Int {
    state ^= state << 13
    state ^= state >> 7
    state ^= state << 17
    return Int(state % UInt64(limit))
  }
}

extension String {
  /// For scripts in which `head` ends a pipe before its writer.
  var replacingPipefail: String { "set +o pipefail\n" + self }
}
