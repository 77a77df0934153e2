import CSQLite
import Testing

@testable import MarfaEngine

@Suite("A store of an earlier version")
struct MigrationTests {
  /// Every table of version 1 with what version 1 had of it.
  private static let copies = [
    "DELETE FROM nodes", "DELETE FROM counters",
    "INSERT INTO settings SELECT name, value FROM new.settings",
    "INSERT INTO items SELECT number, id, type, properties, state, tier, version, pinned FROM new.items",
    "INSERT INTO tags SELECT item, tag FROM new.tags",
    "INSERT INTO extensions SELECT item, namespace, value FROM new.extensions",
    "INSERT INTO edges SELECT number, id, source, target, type, properties, version FROM new.edges",
    "INSERT INTO counters SELECT name, 0, 0 FROM new.counters WHERE name <> 'partial'",
    """
    INSERT INTO blobs SELECT hash, size, mime_type, held, stored, held_at, read_at, not_held_reason, not_held_detail,
      not_held_at FROM new.blobs
    """,
    """
    INSERT INTO nodes SELECT number, kind, item, local, mode, uid, gid, atime, mtime, ctime, links, hash, staged, size,
      target FROM new.nodes WHERE number > 0
    """,
    "INSERT INTO entries SELECT parent, number, name, node FROM new.entries",
    "INSERT INTO attributes SELECT node, name, value FROM new.attributes",
    """
    INSERT INTO writes SELECT number, kind, item, edge, blob, body, base_version, idempotency_key, depends_on, follows,
      state, verdict, failures, gone_out, queued_at, not_before FROM new.writes
    """,
  ]

  @Test("opens with all it had: the tree, the bytes, the attributes and the queue in its order")
  func version1() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.mkdir("D/E")
      try scratch.write("D/f", "one")
      try scratch.write("D/g", "two")
      try scratch.answer()
      try scratch.move("D/f", "D/E/f")
      try scratch.write("D/g", "three")
      try scratch.write("h.swp", "local")
      try scratch.symlink("link", to: "D")
      let item = try #require(try scratch.item("D/g"))
      try scratch.copy.items.addTag(item.id, "tag")
      try scratch.copy.items.setExtension(item.id, "acme", ["a": 1])
      let (queue, writes) = (try scratch.queue(), try scratch.writes())
      let paths = try scratch.copy.paths()
      let status = try scratch.copy.status()
      scratch.copy.close()

      let path = scratch.folder.path + "/old.db"
      do {
        let old = try Connection(path: path, flags: SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)
        try old.execute(Schema.migrations[0])
        try old.execute("ATTACH '\(scratch.copy.path)' AS new")
        for statement in Self.copies { try old.execute(statement) }
        try old.execute("DETACH new")
        try old.execute("PRAGMA application_id=\(Schema.applicationID)")
        try old.execute("PRAGMA user_version=1")
      }
      try Path.move(scratch.copy.blobsFolder, to: path + ".blobs")

      let copy = try WorkingCopy(path: path)
      defer { copy.close() }
      #expect(try copy.paths() == paths)
      #expect(try copy.text("D/g") == "three")
      #expect(try copy.queue.writes() == writes)
      let names = scratch.names
      #expect(try names.lines(copy) == queue)
      #expect(try copy.status().queue == status.queue)
      #expect(try copy.items.get(item.id)?.tags == ["tag"])
      #expect(try copy.items.extensionValue(item.id, "acme") == ["a": 1])
      #expect(try copy.hydration() == .never)
      #expect(try copy.origin() == nil)
      try checkInvariants(copy)
      // Those that wait for others do so still.
      let ready = try copy.store.read { (connection) throws(MarfaError) in
        try connection.writesReady(at: .now, limit: 100, blocked: false).map(\.id)
      }
      let waiting = Set(writes.map(\.id))
      for write in writes where write.kind != .uploadBlob {
        let isHeldUp = (write.dependsOn + [write.follows].compactMap { $0 }).contains { waiting.contains($0) }
        #expect(ready.contains(write.id) != isHeldUp || write.notBefore > .now, "\(write)")
      }
      // The scratch's own store is gone with its bytes; the invariants are the old one's.
      try Path.move(path + ".blobs", to: scratch.copy.blobsFolder)
      try scratch.reopen()
    }
  }
}
