import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

/// Every test that mounts; one after the other, since each is full of threads.
@Suite(
  "A mount", .serialized, .timeLimit(.minutes(2)),
  .enabled(if: mountingIsPossible, "needs /dev/fuse, and root or fusermount3"))
struct MountTests {
  @Suite("that is in use", .serialized) struct InUse {}
  @Suite("that ends", .serialized) struct Ending {}
  @Suite("that is to be made", .serialized) struct Making {}
  @Suite("whose bytes change elsewhere", .serialized) struct Invalidation {}
}

extension MountTests.InUse {
  @Test("gives back what was written, under the name it was written")
  func roundTrip() throws {
    let mount = try Mounted()
    let script = """
      set -e; cd \(mount.path)
      head -c 3000000 /dev/urandom > /tmp/marfa-session-$$
      cp /tmp/marfa-session-$$ 'a file'; mkdir d; mv 'a file' d/b; cmp /tmp/marfa-session-$$ d/b
      rm /tmp/marfa-session-$$
      printf 'x' | dd of=d/b bs=1 seek=10 conv=notrunc status=none; truncate -s 20 d/b; stat -c %s d/b
      ln -s d/b l; readlink l; ln d/b d/c; stat -c %s d/c; rm d/b d/c l; rmdir d; ls | wc -l
      """
    let outcome = try run(["sh", "-c", script])
    #expect(outcome == Outcome(status: 0, output: "20\nd/b\n20\n0\n"))
  }

  @Test("lists five thousand entries, each once, with their attributes")
  func largeDirectory() throws {
    let filesystem = MemoryFileSystem()
    for number in 0..<5000 { filesystem.addFile("file \(number)", [UInt8](repeating: 7, count: number % 10)) }
    let mount = try Mounted(filesystem)
    let outcome = try run(["sh", "-c", "ls -U \(mount.path) | sort -u | wc -l; ls -l \(mount.path) | wc -l"])
    #expect(outcome == Outcome(status: 0, output: "5000\n5001\n"))
    #expect(try run(["stat", "-c", "%s", mount.path + "/file 4999"]).output == "9\n")
    let lookups = filesystem.state.read { $0.lookups }
    #expect(lookups < 5000, "the listing brings the attributes with it")
  }

  @Test("keeps times to the nanosecond, and rights and extended attributes")
  func attributes() throws {
    let mount = try Mounted()
    let script = """
      set -e; cd \(mount.path); : > f; touch -d '2001-02-03 04:05:06.123456789Z' f; chmod 640 f
      TZ=UTC stat -c '%a %y' f; setfattr -n user.a -v b f; getfattr --only-values -n user.a f; echo
      getfattr f | tail -n +2; setfattr -x user.a f; getfattr f; stat -f -c '%b %a' .
      """
    let outcome = try run(["sh", "-c", script])
    #expect(
      outcome == Outcome(status: 0, output: "640 2001-02-03 04:05:06.123456789 +0000\nb\nuser.a\n\n1000 500\n"))
  }

  @Test("answers others while one call is stuck")
  func stuckHandler() throws {
    let filesystem = MemoryFileSystem()
    for number in 0..<20 { filesystem.addFile("file \(number)", [1, 2, 3]) }
    let mount = try Mounted(filesystem)
    // The names first: where the kernel looks up one name of a directory at a time, a stuck one holds the directory.
    #expect(try run(["ls", "-l", mount.path]).status == 0)
    let stuck = try Program(["stat", mount.path + "/stuck"])
    #expect(eventually { filesystem.stuck.read { $0 } == 1 })
    let path = mount.path
    for number in 0..<20 {
      let bytes = try within(seconds: 5) { contents(of: "\(path)/file \(number)") }
      #expect(bytes == [1, 2, 3])
    }
    filesystem.isFreed.update { $0 = true }
    #expect(try stuck.wait().status == 1)
  }

  @Test("is not asked for a capability before every write")
  func writesWithoutQuestions() throws {
    let mount = try Mounted()
    #expect(try run(["dd", "if=/dev/zero", "of=\(mount.path)/f", "bs=512", "count=100"]).status == 0)
    #expect(mount.filesystem.state.read { $0.questions } <= 2)
  }

  @Test("looks up other names of a directory while one is stuck")
  func stuckLookup() throws {
    let filesystem = MemoryFileSystem()
    filesystem.addFile("other", [1])
    let mount = try Mounted(filesystem)
    let stuck = try Program(["stat", mount.path + "/stuck"])
    #expect(eventually { filesystem.stuck.read { $0 } == 1 })
    #expect(try run(["stat", mount.path + "/other"], seconds: 3).status == 0)
    filesystem.isFreed.update { $0 = true }
    #expect(try stuck.wait().status == 1)
  }

  @Test("carries many stuck calls at once, and lets the threads go again")
  func manyStuckReads() throws {
    let filesystem = MemoryFileSystem()
    for number in 0..<30 { filesystem.addFile("f\(number)", Array("park".utf8)) }
    let mount = try Mounted(filesystem)
    let script = "cd \(mount.path); for i in $(seq 0 29); do cat f$i & done; wait"
    let readers = try Program(["sh", "-c", script])
    #expect(eventually { filesystem.state.read { $0.parked.count } == 30 })
    #expect(mount.session.threadCount <= 10, "a parked reply holds no thread")
    // Answered from a thread that is none of the session's.
    let late = Array("late".utf8)
    for parked in filesystem.state.read({ $0.parked }) {
      late.withUnsafeBytes { bytes in _ = parked.take()?.bytes(bytes) }
    }
    #expect(filesystem.answerParked(.io) == 0, "taken once, taken for good")
    #expect(try readers.wait().output == String(repeating: "late", count: 30))
  }

  @Test("gives up a read whose program is interrupted")
  func interruptedRead() throws {
    let filesystem = MemoryFileSystem()
    filesystem.addFile("f", Array("park".utf8))
    let mount = try Mounted(filesystem)
    let reader = try Program(["dd", "if=\(mount.path)/f", "of=/dev/null", "iflag=direct"])
    #expect(eventually { filesystem.state.read { $0.parked.count } == 1 })
    kill(reader.pid, SIGINT)
    #expect(try reader.wait(seconds: 5).status == 128 + SIGINT)
    #expect(filesystem.answerParked(.io) == 0)
  }

  // The kernel reads ahead on its own behalf, and tells us nothing of the program that waits for it.
  @Test("lets a program go that is interrupted while it waits for the page cache, and keeps the bytes when they come")
  func interruptedReadAhead() throws {
    let filesystem = MemoryFileSystem()
    let node = filesystem.addFile("f", Array("park".utf8))
    let mount = try Mounted(filesystem)
    let reader = try Program(["cat", mount.path + "/f"])
    #expect(eventually { filesystem.state.read { $0.parked.count } == 1 })
    kill(reader.pid, SIGINT)
    #expect(try reader.wait(seconds: 5).status == 128 + SIGINT)
    let parked = try #require(filesystem.state.read { $0.parked.first })
    Array("late".utf8).withUnsafeBytes { bytes in _ = parked.take()?.bytes(bytes) }
    filesystem.replace(node, Array("gone".utf8))
    #expect(try run(["cat", mount.path + "/f"]).output == "late")
  }

  @Test("says where it comes from, commas and all, and what it is")
  func source() throws {
    let mount = try Mounted { $0.source = "/a b/c,d\\e.db" }
    let outcome = try run(["findmnt", "-n", "-o", "SOURCE,FSTYPE", mount.path])
    #expect(outcome.output.contains("c,d\\") && outcome.output.contains("fuse.marfa"))
  }

  @Test("is read in large pieces when it is to be", .enabled(if: isRoot, "needs root"))
  func readAhead() throws {
    let filesystem = MemoryFileSystem()
    filesystem.addFile("f", [UInt8](repeating: 1, count: 16 << 20))
    let mount = try Mounted(filesystem) { $0.readAhead = 1 << 20 }
    #expect(try run(["dd", "if=\(mount.path)/f", "of=/dev/null", "bs=64k"]).status == 0)
    #expect(filesystem.state.read { $0.reads } < 40)
  }

  @Test("refuses writes when it only reads")
  func readOnly() throws {
    let mount = try Mounted { $0.isReadOnly = true }
    #expect(try run(["touch", mount.path + "/x"]).output.contains("Read-only file system"))
  }

  @Test("says once that it is ready, and answers then")
  func ready() throws {
    let directory = try TemporaryDirectory()
    let ready = Monitor(0)
    let session = try MountSession.mount(
      MountConfiguration(mountPoint: directory.path, source: "test"), MemoryFileSystem(),
      invalidator: Invalidator(), whenReady: { ready.update { $0 += 1 } })
    #expect(ready.wait(until: .after(seconds: 5)) { $0 > 0 ? true : nil } == true)
    #expect(try run(["ls", directory.path]).status == 0)
    session.requestStop()
    #expect(session.wait(seconds: 10) == .stopped)
    #expect(ready.read { $0 } == 1)
  }
}

/// All of a file; `nil` when it cannot be read.
private func contents(of path: String) -> [UInt8]? {
  guard let file = try? Descriptor.open(path, O_RDONLY) else { return nil }
  var bytes = [UInt8](repeating: 0, count: 64)
  let count = Glibc.read(file.raw, &bytes, bytes.count)
  return count < 0 ? nil : Array(bytes.prefix(count))
}
