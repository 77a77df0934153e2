import CLinux
import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

extension MountTests.Making {
  private func mount(on path: String) throws -> MountSession {
    try MountSession.mount(
      MountConfiguration(mountPoint: path, source: "test"), MemoryFileSystem(), invalidator: Invalidator())
  }

  @Test("is refused where there is nothing, or no directory")
  func missing() throws {
    let directory = try TemporaryDirectory()
    let (nothing, file) = (directory.path + "/nothing", directory.path + "/file")
    #expect(throws: MountError.missing(path: nothing)) { try mount(on: nothing) }
    #expect(try run(["touch", file]).status == 0)
    #expect(throws: MountError.notDirectory(path: file)) { try mount(on: file) }
  }

  @Test("is refused where it would hide something")
  func notEmpty() throws {
    let directory = try TemporaryDirectory()
    #expect(try run(["touch", directory.path + "/file"]).status == 0)
    #expect(throws: MountError.notEmpty(path: directory.path)) { try mount(on: directory.path) }
  }

  @Test("is refused where a store is mounted already, by whatever path one comes")
  func alreadyMounted() throws {
    let mounted = try Mounted()
    #expect(throws: MountError.alreadyMounted(path: mounted.path)) { try mount(on: mounted.path) }
    #expect(throws: MountError.alreadyMounted(path: mounted.path)) {
      try mount(on: mounted.path + "/../" + Path.lastComponent(mounted.path) + "/")
    }
    #expect(try run(["ls", mounted.path]).status == 0, "the mount that was there goes on")
  }

  @Test("replaces what a crashed process left", .enabled(if: isRoot, "needs root"), arguments: [1, 2])
  func crashed(count: Int) throws {
    let directory = try TemporaryDirectory()
    for _ in 0..<count { try leaveDeadMount(on: directory.path, type: "fuse.marfa") }
    #expect(throws: Errno(ENOTCONN)) { try Path.status(directory.path) }
    let session = try mount(on: directory.path + "/")
    #expect(try run(["ls", directory.path]).status == 0)
    session.requestStop()
    #expect(session.wait(seconds: 10) == .stopped)
    #expect(try MountTable.top(at: directory.path) == nil)
  }

  @Test("leaves another program's dead mount alone, and says what to do", .enabled(if: isRoot, "needs root"))
  func foreignDeadMount() throws {
    let directory = try TemporaryDirectory()
    try leaveDeadMount(on: directory.path, type: "fuse.other")
    #expect(throws: MountError.deadMount(path: directory.path, type: "fuse.other")) { try mount(on: directory.path) }
  }

  @Test("is refused with an option nobody knows, which is named")
  func unknownOption() throws {
    let directory = try TemporaryDirectory()
    var configuration = MountConfiguration(mountPoint: directory.path, source: "test")
    configuration.options = ["nonsense"]
    do throws(MountError) {
      _ = try MountSession.mount(configuration, MemoryFileSystem(), invalidator: Invalidator())
      Issue.record("it was mounted")
    } catch {
      #expect(error.description.contains("nonsense"))
    }
  }

  /// A mount whose process is gone: its device is closed, as a kill closes it.
  private func leaveDeadMount(on path: String, type: String) throws {
    let device = try Descriptor.open("/dev/fuse", O_RDWR)
    let options = "fd=\(device.raw),rootmode=40000,user_id=0,group_id=0"
    try #require(Glibc.mount("dead", path, type, 0, options) == 0, "\(Errno.last)")
  }
}

@Suite("The kernel's table of mounts") struct MountTableTests {
  @Test("is read with its escapes, its optional fields and its oddities")
  func parse() {
    let text = """
      22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
      90 22 0:55 / /mnt/a\\040b\\134c rw,nosuid - fuse.marfa /home/x/store.db rw,user_id=0
      91 22 0:56 / /mnt/- rw shared:7 master:2 - fuse.marfa - rw
      nonsense
      """
    let entries = MountTable.parse(Array(text.utf8))
    #expect(
      entries == [
        MountEntry(id: 22, device: "8:1", path: Array("/".utf8), type: "ext4", source: Array("/dev/sda1".utf8)),
        MountEntry(
          id: 90, device: "0:55", path: Array("/mnt/a b\\c".utf8), type: "fuse.marfa",
          source: Array("/home/x/store.db".utf8)),
        MountEntry(id: 91, device: "0:56", path: Array("/mnt/-".utf8), type: "fuse.marfa", source: Array("-".utf8)),
      ])
  }
}
