import CLinux
import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

@Suite("The socket beside a store")
struct ControlAddressTests {
  @Test("Only this person can connect to it")
  func mode() throws {
    let served = try Served()
    let status = try #require(try Path.status(served.path + ".sock"))
    #expect(status.st_mode & S_IFMT == S_IFSOCK)
    #expect(status.st_mode & 0o777 == 0o600)
  }

  @Test("A store's path may be longer than a socket's address")
  func longPath() throws {
    let directory = try TemporaryDirectory()
    var folder = directory.path
    for _ in 0..<3 {
      folder += "/" + String(repeating: "d", count: 60)
      try Path.makeDirectory(folder, mode: 0o700)
    }
    let path = "\(folder)/\(String(repeating: "n", count: 200)).db"
    let copy = try WorkingCopy(path: path)
    defer { copy.close() }
    let server = try ControlServer(Commands(copy))
    let client = try #require(try ControlClient(ControlAddress(writerOf: path)))
    #expect(client.pid == Int(getpid()))
    #expect(try client.ask(ControlRequest("status"))["store"] == .string(path))
    #expect(server.stop(seconds: 5))
  }

  @Test("What a dead process left is replaced")
  func stale() throws {
    let store = try ControlStore()
    // A socket that nobody listens on any more keeps its name.
    let address = ControlAddress(writerOf: store.path)
    do { _ = try address.listen() }
    #expect(try Path.status(address.path) != nil)
    #expect(try ControlClient(address) == nil)
    let server = try ControlServer(Commands(store.copy))
    #expect(try #require(try ControlClient(address)).ask(ControlRequest("status"))["items"] == 0)
    #expect(server.stop(seconds: 5))
    #expect(try Path.status(address.path) == nil)
  }

  @Test("A file that happens to have its name is left alone")
  func otherFile() throws {
    let store = try ControlStore()
    _ = try store.file("store.db.sock", "mine")
    #expect(throws: Errno.exists) { try ControlServer(Commands(store.copy)) }
    #expect(try Path.status(store.path + ".sock")?.st_size == 4)
    #expect(try ControlClient(ControlAddress(writerOf: store.path)) == nil)
  }

  @Test("A process that ends leaves another's socket where it is")
  func successor() throws {
    let store = try ControlStore()
    let address = ControlAddress(writerOf: store.path)
    let old = try address.listen()
    let new = try address.listen()
    old.remove()
    #expect(try Path.status(address.path) != nil)
    new.remove()
    #expect(try Path.status(address.path) == nil)
  }

  @Test("A reader has a socket of its own beside the writer's, and dead readers' go")
  func readers() throws {
    let served = try Served()
    let dead = ControlAddress(readerOf: served.path, pid: 999_999)
    do { _ = try dead.listen() }
    let reader = try WorkingCopy(path: served.path)
    defer { reader.close() }
    #expect(reader.isReader)
    let server = try ControlServer(Commands(reader))
    #expect(
      ControlAddress.all(of: served.path) == [
        ControlAddress(writerOf: served.path), ControlAddress(readerOf: served.path, pid: getpid()),
      ])
    #expect(try served.ask("status")["mode"] == "writer")
    #expect(server.stop(seconds: 5))
    #expect(ControlAddress.all(of: served.path).count == 1)
  }

  @Test("A link in the socket's place is not followed")
  func link() throws {
    let served = try Served()
    let other = try ControlStore()
    #expect(symlink(served.path + ".sock", other.path + ".sock") == 0)
    #expect(try ControlClient(ControlAddress(writerOf: other.path)) == nil)
  }

  @Test("A folder nothing can be made in has no socket, and says why")
  func noFolder() throws {
    #expect(throws: Errno.notFound) { try ControlAddress(writerOf: "/nowhere/store.db").listen() }
    #expect(try ControlClient(ControlAddress(writerOf: "/nowhere/store.db")) == nil)
  }
}

@Suite("The kernel's table of mounts")
struct MarfaMountsTests {
  private let table = """
    22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
    40 22 0:40 / /home/ada/My\\040Marfa rw,nosuid - fuse.marfa /home/ada/my\\040store.db rw,user_id=1000
    41 22 0:41 / /mnt/x rw shared:5 master:1 - fuse.marfa /srv/a\\134b.db rw
    42 22 0:42 / /mnt/y rw - fuse.sshfs host: rw
    nonsense
    43 22
    """

  @Test("Only stores are found there, by names with blanks and backslashes too")
  func parse() {
    #expect(
      MarfaMounts.ours(among: MountTable.parse(Array(table.utf8))) == [
        MarfaMount(id: 40, device: "0:40", mountPoint: "/home/ada/My Marfa", store: "/home/ada/my store.db"),
        MarfaMount(id: 41, device: "0:41", mountPoint: "/mnt/x", store: "/srv/a\\b.db"),
      ])
  }

  @Test(
    "A path is inside a folder by whole names",
    arguments: [("/a/b", true), ("/a", true), ("/ab", false), ("/", false)])
  func inside(path: String, isInside: Bool) {
    #expect(MarfaMounts.isInside(path, "/a") == isInside)
    #expect(MarfaMounts.isInside(path, "/"))
  }

  @Test("A path that is in no mount of a store is in none")
  func outside() throws {
    #expect(try MarfaMounts.holding("/proc/self") == nil)
    #expect(try MarfaMounts.holding("/nowhere/at/all") == nil)
  }
}
