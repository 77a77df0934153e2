import Testing

@testable import MarfaEngine

@Suite("A queue of thirty thousand writes")
struct LongQueueTests {
  @Test("is looked through for what may go without walking it")
  func ready() throws {
    let folder = try TemporaryFolder()
    let copy = try WorkingCopy(path: folder.path + "/store.db")
    defer { copy.close() }
    let (host, _) = try copy.items.create(type: "core.note", properties: ["title": "host"])
    let now = Timestamp.now
    var uploads: [WriteID] = []
    for batch in 0..<20 {
      try copy.change { (change) throws(MarfaError) in
        for number in 0..<500 {
          var bytes = [UInt8](repeating: 0, count: 32)
          (bytes[0], bytes[1], bytes[2]) = (UInt8(batch), UInt8(number & 255), UInt8(number >> 8))
          guard let hash = bytes.withUnsafeBytes({ BlobHash(bytes: $0) }) else { continue }
          try change.connection.know(hash, mimeType: "text/plain", stored: false)
          let item = Item(
            id: .mint(), type: "core.file",
            properties: ["blob_ref": .string("\(hash)"), "mime_type": "text/plain", "title": "f"], state: .active,
            tier: .library, version: 0, tags: [], pinned: false)
          _ = try change.outbox.createItem(item)
          _ = try change.outbox.createEdge(
            Edge(id: .mint(), source: item.id, target: host.id, type: Edge.attachedTo, properties: [:], version: 0))
        }
      }
    }
    try copy.store.write { (connection) throws(MarfaError) in
      // The head of it is on its way: nothing else may go.
      try connection.run("UPDATE writes SET state = 'sending' WHERE kind = 'upload_blob'")
      try connection.run("UPDATE writes SET state = 'sending' WHERE kind = 'create_item' AND item = ?1") {
        $0.id(1, host.id)
      }
      uploads = try connection.all(
        "SELECT number FROM writes WHERE kind = 'upload_blob' ORDER BY number", { _ in }, { WriteID($0.int(0)) })
    }
    #expect(uploads.count == 10_000)
    func seconds(_ body: () throws -> Void) rethrows -> Double {
      let began = Timestamp.now.nanoseconds
      try body()
      return Double(Timestamp.now.nanoseconds - began) / 1e9
    }
    let looking = try seconds {
      for _ in 0..<1000 {
        let ready = try copy.store.read { (connection) throws(MarfaError) in
          try connection.writesReady(at: now, limit: 8, blocked: true)
            + connection.uploadsReady(at: now, limit: 4, blocked: true)
        }
        #expect(ready.isEmpty)
      }
    }
    // A walk over it takes tens of milliseconds each time.
    #expect(looking < 5, "\(looking) s")
    // An answer frees what waited for it, whatever else is in the queue.
    let answering = try seconds {
      for upload in uploads.prefix(500) {
        try copy.store.write { (connection) throws(MarfaError) in
          _ = try connection.run("DELETE FROM writes WHERE number = ?1") { $0.int(1, upload.number) }
        }
      }
    }
    #expect(answering < 10, "\(answering) s")
    let ready = try copy.store.read { (connection) throws(MarfaError) in
      try connection.writesReady(at: .now, limit: 10_000, blocked: false)
    }
    #expect(ready.count == 500)
    #expect(ready.allSatisfy { $0.kind == .createItem })
    // What waited on a refused one is found without a walk, too.
    let refusing = try seconds {
      for upload in uploads.dropFirst(500).prefix(100) {
        let waiting = try copy.store.read { (connection) throws(MarfaError) in try connection.writesWaiting(on: upload)
        }
        #expect(waiting.count == 1)
      }
    }
    #expect(refusing < 2, "\(refusing) s")
  }
}
