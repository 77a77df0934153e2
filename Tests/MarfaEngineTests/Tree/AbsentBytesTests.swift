import ContractServer
import Testing

@testable import MarfaEngine

/// Bytes that are not here can be brought only as long as an item names them.
@Suite("A file whose bytes are not here")
struct AbsentBytesTests {
  private func attached(_ shared: Shared) throws -> (trip: String, file: String) {
    try shared.server.change { device in
      let trip = try device.createNote("Sicily")
      return (trip, try device.createFile("a.txt", [1, 2, 3], attachedTo: trip))
    }
  }

  /// Its bytes can be read, and nothing was taken from the server.
  private func isWhole(_ shared: Shared, _ copy: WorkingCopy, _ file: String, at path: String) async throws {
    try copy.drained()
    let item = try #require(ItemID(file))
    #expect(try copy.id(at: path) == item)
    #expect(try shared.item(item)?.state == "active")
    try checkInvariants(copy)
    let hash = try #require(try shared.item(item)?.blob.flatMap { BlobHash($0) })
    #expect(try await copy.blobs.withFile(hash) { try contents($0) } == [1, 2, 3])
    shared.expectNoViolations()
  }

  @Test("is not moved to a directory of this device only, alone or in its folder: it is copied there")
  func movedIn() async throws {
    let shared = try Shared()
    let (_, file) = try attached(shared)
    let copy = try shared.connected()
    try copy.makeLocalDirectory(".Trash-1000")
    #expect(throws: MarfaError.file(.crossDevice)) { try copy.move("Sicily/a.txt", ".Trash-1000/a.txt") }
    #expect(throws: MarfaError.file(.crossDevice)) { try copy.move("Sicily", ".Trash-1000/Sicily") }
    #expect(try copy.paths() == [".Trash-1000/", "Sicily/", "Sicily/a.txt"])
    try await isWhole(shared, copy, file, at: "Sicily/a.txt")
    // Here by now.
    try copy.move("Sicily/a.txt", ".Trash-1000/a.txt")
    #expect(try copy.text(".Trash-1000/a.txt") == "\u{1}\u{2}\u{3}")
  }

  @Test("stays an item when its last name among items goes, and a directory of this device only has another")
  func unlinked() async throws {
    let shared = try Shared()
    let (_, file) = try attached(shared)
    let copy = try shared.connected()
    try copy.makeLocalDirectory(".Trash-1000")
    try copy.addName("Sicily/a.txt", ".Trash-1000/a.txt")
    try copy.unlink("Sicily/a.txt")
    try await isWhole(shared, copy, file, at: ".Trash-1000/a.txt")
  }

  @Test("stays an item under the name of a backup, and what takes its name is another file", arguments: [true, false])
  func backup(isLinked: Bool) async throws {
    let shared = try Shared()
    let (_, file) = try attached(shared)
    let copy = try shared.connected()
    if isLinked {
      try copy.addName("Sicily/a.txt", "Sicily/a.txt~")
      try copy.write("Sicily/.new", "new")
      try copy.move("Sicily/.new", "Sicily/a.txt")
    } else {
      try copy.move("Sicily/a.txt", "Sicily/a.txt~")
      try copy.write("Sicily/a.txt", "new")
    }
    #expect(try copy.text("Sicily/a.txt") == "new")
    try await isWhole(shared, copy, file, at: "Sicily/a.txt~")
  }

  @Test("and that a program has open to write goes with its item when nothing was written after all")
  func notWritten() throws {
    let shared = try Shared()
    let (_, file) = try attached(shared)
    let copy = try shared.connected()
    let number = try #require(try copy.node(at: "Sicily/a.txt")?.number)
    copy.tree.setBeingWritten(number, true)
    try shared.server.change { try $0.purge(file) }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    #expect(try copy.names("Sicily") == ["a.txt"])
    try copy.tree.endWriting(number)
    #expect(try copy.names("Sicily") == [])
    try checkInvariants(copy)
  }
}

extension WorkingCopy {
  /// `mkdir` under a name that stays on this device.
  fileprivate func makeLocalDirectory(_ name: String) throws {
    let (parent, name) = try place(name)
    _ = try tree.makeDirectory(parent, name, mode: 0o755, owner: Owner(uid: 1000, gid: 1000))
  }

  /// `ln path newPath`.
  fileprivate func addName(_ path: String, _ newPath: String) throws {
    let (parent, name) = try place(newPath)
    _ = try tree.link(try #require(try node(at: path)).number, to: parent, name)
  }
}

@Suite("Bytes that a refused write names")
struct RefusedBytesTests {
  @Test("are not let go of: they are what the person has of it")
  func kept() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    shared.server.faults.add(Fault(.refuse(status: 422), method: "POST", path: "/items", count: nil))
    let node = try copy.write("a.txt", "ours")
    try eventually("it is refused") { try copy.queue.writes().contains { $0.state == .refused } }
    guard case .blob(let hash) = node.content else { throw MarfaError.file(.notFound) }
    #expect(try copy.store.read { (connection) throws(MarfaError) in try connection.evictable() }.isEmpty)
    #expect(throws: MarfaError.file(.notPermitted)) { try copy.blobs.letGo(hash) }
  }

  @Test("stay beside the file when their upload is given up, with the edit that waits on it", arguments: [false, true])
  func uploadGivenUp(isRefused: Bool) throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.write("k.txt", "v1")
    try copy.write("same.txt", "typed by hand, elsewhere")
    try copy.drained()
    if isRefused {
      shared.server.faults.add(Fault(.refuse(status: 413), method: "POST", path: "/blobs"))
    } else {
      try copy.queue.pause()
    }
    try copy.write("k.txt", "typed by hand")
    if isRefused {
      try eventually("it is refused") { try copy.queue.writes().allSatisfy { $0.state == .refused } }
    }
    let write = try #require(try copy.queue.writes().first { $0.kind == .uploadBlob })
    #expect(try copy.queue.paths(of: write) == ["k.txt"])
    let along = isRefused ? try copy.queue.discard(write.id) : try copy.queue.withdraw(write.id)
    #expect(along.count == 1)
    #expect(try copy.text("k (not sent).txt") == "typed by hand")
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    try checkInvariants(copy)
  }

  @Test("name the file that waits for them, though another has the same bytes")
  func named() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.write("first.txt", "the same")
    try copy.drained()
    try copy.store.write { (connection) throws(MarfaError) in
      _ = try connection.run("UPDATE blobs SET uploaded = 0, stored = 0")
    }
    try copy.queue.pause()
    try copy.write("second.txt", "the same")
    let write = try #require(try copy.queue.writes().first { $0.kind == .uploadBlob })
    #expect(try copy.queue.paths(of: write) == ["second.txt"])
  }

  @Test("stay beside the file when it is given up")
  func givenUp() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.write("k.txt", "v1")
    try copy.drained()
    shared.server.faults.add(Fault(.refuse(status: 422), method: "PATCH", path: "/items", count: nil))
    try copy.write("k.txt", "typed by hand")
    try eventually("it is refused") { try copy.queue.writes().contains { $0.state == .refused } }
    let write = try #require(try copy.queue.writes().first { $0.state == .refused })
    try copy.queue.discard(write.id)
    #expect(try copy.text("k (not sent).txt") == "typed by hand")
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    try checkInvariants(copy)
  }
}
