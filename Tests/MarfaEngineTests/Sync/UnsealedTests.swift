import ContractServer
import Testing

@testable import MarfaEngine

@Suite("What is being written here")
struct UnsealedTests {
  /// Who knows of bytes that are not sealed.
  enum Unsealed: CaseIterable, Sendable {
    /// The filesystem, which has the file open.
    case open
    /// The store: the bytes were closed or synced, and not hashed yet.
    case adopted
  }

  @Test(
    "stays when its item goes elsewhere, and is an item of its own once it is sealed", arguments: Unsealed.allCases,
    [false, true])
  func stays(unsealed: Unsealed, purged: Bool) throws {
    let shared = try Shared()
    let copy = try shared.connected()
    let host = try copy.items.create(type: "core.note", properties: ["title": "Sicily"]).item.id
    let attached = try copy.items.attach(to: host, file: try shared.folder.file("a.txt", "before"))
    try copy.drained()
    let node = try #require(try copy.tree.node(of: attached.file))
    let staged = try copy.tree.stage(for: node.number)
    let bytes = Array("what the person writes".utf8)
    try staged.descriptor.write(bytes, at: 0)
    staged.wrote(at: 0, count: bytes.count)
    switch unsealed {
    case .open: copy.tree.setBeingWritten(node.number, true)
    case .adopted: _ = try copy.tree.adopt(staged, mtime: .now, durably: false)
    }
    let other = try copy.items.attach(to: host, file: try shared.folder.file("b.txt", "nobody writes"))
    try copy.drained()
    try shared.server.change { device in
      for id in [attached.file, other.file] { try purged ? device.purge("\(id)") : device.trash("\(id)") }
    }
    try eventually("what nobody writes is gone") { try copy.names("Sicily") == ["a.txt"] }
    #expect(try copy.tree.node(node.number)?.item == nil)
    let sealed = try copy.tree.seal(staged, mtime: .now)
    copy.tree.setBeingWritten(node.number, false)
    let next = try #require(sealed?.item)
    #expect(next != attached.file)
    try copy.drained()
    let item = try #require(try shared.item(next))
    #expect(item.title == "a.txt")
    #expect(try shared.server.change { try $0.blobBytes(item.blob ?? "") } == bytes)
    #expect(
      try shared.server.change { try $0.edges() }.contains { $0.source == "\(next)" && $0.target == "\(host)" })
    shared.expectNoViolations()
  }
}
