import CLinux
import Foundation
import Testing

@Suite("A store on a full disk", .enabled(if: Machine.canMount && Machine.isRoot, Machine.needsRoot))
struct NoRoomTests {
  private func withVolume(_ megabytes: Int, _ body: (Mount) throws -> Void) throws {
    let volume = try SmallVolume(bytes: megabytes << 20)
    defer { volume.end() }
    let mount = try Mount(volume: volume.path)
    defer { mount.end() }
    try mount.start()
    try body(mount)
    if mount.pid != nil { try mount.unmount() }
  }

  @Test("tells the program that copies, keeps nothing of the file, and everything else")
  func copying() throws {
    try withVolume(48) { mount in
      let tree = try mount.realTree(files: 150)
      try mount.shell(
        "mkdir item; cp -r \(tree) item/tree; head -c 80M /dev/urandom > $1/big; head -c 4M $1/big > $1/small")
      let queued = try mount.queue().total
      for command in ["cp $1/big item/big", "cat $1/big > item/big", "dd if=$1/big of=item/big bs=1M conv=fsync"] {
        let outcome = try run(["bash", "-c", command, "test", mount.outside], in: mount.point)
        #expect(outcome.status != 0 && outcome.errors.contains("No space left on device"), "\(command): \(outcome)")
        // A shell makes the file empty first, and that stays. What was written goes once the program has let go of it.
        let isGone = eventually {
          (try? mount.shell("find item -maxdepth 1 -type f -size +0").output) == ""
        }
        #expect(isGone, "\(command)")
      }
      #expect(try mount.queue().total == queued)
      // There is room for others again at once.
      try mount.shell("cp $1/small item/small; cmp $1/small item/small; diff -r \(tree) item/tree")
      // A file that was there has the bytes it had.
      let over = try run(["cp", mount.outside + "/big", mount.point + "/item/small"])
      #expect(over.status != 0 && over.errors.contains("No space left on device"), "\(over)")
      #expect(eventually { (try? mount.shell("cmp $1/small item/small").status) == 0 })
      try mount.remount()
      try mount.shell("cmp $1/small item/small; diff -r \(tree) item/tree")
      #expect(try mount.status().recovered == [])
    }
  }

  @Test("is still to be tidied up: what is removed makes room")
  func removing() throws {
    try withVolume(24) { mount in
      try mount.shell(
        "mkdir item; for n in $(seq 1000); do head -c 100k /dev/urandom > item/$n 2> /dev/null || break; done")
      let count = try listing(mount.point + "/item").count
      #expect(count > 100)
      let free = try mount.shell("stat -f -c '%a %S' .").output
      // Nothing half there: each file has all its bytes. (A shell makes the file empty first, and that stays.)
      #expect(try mount.shell("find item -type f -size +0 ! -size 102400c | wc -l").output == "0\n")
      try mount.shell(
        "touch item/empty; mkdir item/folder; mv item/1 item/one; setfattr -n user.a -v b item/2; chmod 600 item/2")
      try mount.shell(
        "ls item | tail -n 100 | sed s/^/item.x/ > /dev/null; rm item/??; head -c 500k /dev/urandom > item/new; rm -r item"
      )
      #expect(try mount.shell("stat -f -c '%a %S' .").output != free)
      try mount.shell("mkdir item; head -c 10M /dev/urandom > item/big; test $(stat -c %s item/big) = 10485760")
    }
  }

  @Test("lets a program that makes room itself go on and keeps its file")
  func goingOn() throws {
    try withVolume(24) { mount in
      try mount.shell("mkdir item; head -c 14M /dev/urandom > item/old")
      let file = try File(mount.point + "/item/new", O_RDWR | O_CREAT)
      let block = [UInt8](repeating: 7, count: 1 << 20)
      var offset = 0
      let code = try errorThrown {
        while true {
          try file.write(block, at: offset)
          offset += block.count
        }
      }
      #expect(code == ENOSPC)
      #expect(unlink(mount.point + "/item/old") == 0)
      for _ in 0..<4 {
        try file.write(block, at: offset)
        offset += block.count
      }
      try file.close()
      #expect(try mount.shell("stat -c %s item/new; tr -d '\\007' < item/new | wc -c").output == "\(offset)\n0\n")
    }
  }

  @Test("says at close what write could not say, and df tells what can be written")
  func closing() throws {
    try withVolume(24) { mount in
      mkdir(mount.point + "/item", 0o755)
      let available = try mount.shell("df --output=avail -B1 . | tail -n 1").output.number
      #expect(available > 10 << 20 && available < 24 << 20)
      // By a program of its own: what other tests start would inherit and close a descriptor of ours.
      let code = """
        import errno, os, sys
        file = os.open("item/f", os.O_RDWR | os.O_CREAT)
        try:
            while True: os.write(file, bytes(1 << 20))
        except OSError as error: assert error.errno == errno.ENOSPC
        try: os.close(file)
        except OSError as error: sys.exit(0 if error.errno == errno.ENOSPC else 2)
        sys.exit(3)
        """
      #expect(try run(["python3", "-c", code], in: mount.point).status == 0)
      #expect(eventually { !isThere(mount.point + "/item/f") })
      #expect(
        errorOf {
          let f = open(mount.point + "/item/g", O_RDWR | O_CREAT, 0o644)
          defer { close(f) }
          return posixFallocate(f, 100 << 20)
        } == ENOSPC)
      try mount.shell(
        "rm -f item/g; head -c \(available - (2 << 20)) /dev/zero > item/most; test $(stat -c %s item/most) = \(available - (2 << 20))"
      )
    }
  }

  private func posixFallocate(_ file: CInt, _ bytes: Int) -> CInt { fallocate(file, 0, 0, off_t(bytes)) }
}
