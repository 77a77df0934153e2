import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

extension MountTests.Invalidation {
  @Test("shows the new bytes once the kernel was told, and not before")
  func newBytes() throws {
    let filesystem = MemoryFileSystem()
    let node = filesystem.addFile("f", Array("old".utf8))
    let mount = try Mounted(filesystem)
    #expect(try run(["cat", mount.path + "/f"]).output == "old")
    filesystem.replace(node, Array("new".utf8))
    #expect(try run(["cat", mount.path + "/f"]).output == "old", "what the kernel keeps, it keeps")
    mount.invalidator.inode(node: node)
    #expect(eventually { (try? run(["cat", mount.path + "/f"]).output) == "new" })
  }

  @Test("forgets a name that went, and finds one that came")
  func names() throws {
    let filesystem = MemoryFileSystem()
    filesystem.addFile("goes", [1])
    let mount = try Mounted(filesystem)
    #expect(try run(["stat", mount.path + "/goes"]).status == 0)
    #expect(try run(["stat", mount.path + "/comes"]).status == 1)
    filesystem.remove("goes")
    filesystem.addFile("comes", [1])
    #expect(try run(["stat", mount.path + "/comes"]).status == 1, "the kernel remembers that it is not there")
    mount.invalidator.entry(parent: 1, name: Array("goes".utf8))
    mount.invalidator.entry(parent: 1, name: Array("comes".utf8))
    #expect(eventually { (try? run(["stat", mount.path + "/comes"]).status) == 0 })
    #expect(eventually { (try? run(["stat", mount.path + "/goes"]).status) == 1 })
  }

  @Test("shows new attributes and asks for no bytes anew")
  func attributes() throws {
    let filesystem = MemoryFileSystem()
    let node = filesystem.addFile("f", [1])
    let mount = try Mounted(filesystem)
    #expect(try run(["cat", mount.path + "/f"]).status == 0)
    let reads = filesystem.state.read { $0.reads }
    filesystem.state.update { $0.nodes[node]?.mode = 0o600 }
    mount.invalidator.attributes(node: node)
    #expect(eventually { (try? run(["stat", "-c", "%a", mount.path + "/f"]).output) == "600\n" })
    #expect(try run(["cat", mount.path + "/f"]).status == 0)
    #expect(filesystem.state.read { $0.reads } == reads)
  }

  @Test("hears nothing of what the kernel never knew, and goes on")
  func unknown() throws {
    let mount = try Mounted()
    for node in 1000..<3000 as Range<UInt64> {
      mount.invalidator.inode(node: node)
      mount.invalidator.entry(parent: node, name: Array("x".utf8))
    }
    #expect(try run(["ls", mount.path]).status == 0)
    mount.session.requestStop()
    #expect(mount.session.wait(seconds: 5) == .stopped)
    mount.invalidator.inode(node: 1)
  }
}
