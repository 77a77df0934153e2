/// What the store knows of a file under `partial/` (schema, table `partials`).
struct PartialRow: Sendable, Equatable {
  var size: Int64
  var blocks: BlockSet
  var bytes: Int64
}

extension Connection {
  /// The parts of a blob that are here; `nil` when there are none, or the row makes no sense.
  func partial(_ hash: BlobHash) throws(MarfaError) -> PartialRow? {
    try first(
      "SELECT size, blocks, bytes FROM partials WHERE hash = ?1", { $0.hash(1, hash) },
      { row -> PartialRow? in
        let size = row.int(0)
        return BlockSet(row.blob(1), limit: Block.covering(0..<size).upperBound).map {
          PartialRow(size: size, blocks: $0, bytes: row.int(2))
        }
      }
    ) ?? nil
  }

  /// The bytes of a blob's parts that are here.
  func partialBytes(_ hash: BlobHash) throws(MarfaError) -> Int64? {
    try first("SELECT bytes FROM partials WHERE hash = ?1", { $0.hash(1, hash) }, { $0.int(0) })
  }

  func setPartial(_ hash: BlobHash, _ row: PartialRow) throws(MarfaError) {
    try run(
      """
      INSERT INTO partials(hash, size, blocks, bytes) VALUES (?1, ?2, ?3, ?4)
      ON CONFLICT(hash) DO UPDATE SET size = ?2, blocks = ?3, bytes = ?4
      """
    ) {
      $0.hash(1, hash)
      $0.int(2, row.size)
      $0.blob(3, row.blocks.encoded)
      $0.int(4, row.bytes)
    }
  }

  func deletePartial(_ hash: BlobHash) throws(MarfaError) {
    try run("DELETE FROM partials WHERE hash = ?1") { $0.hash(1, hash) }
  }

  func partialHashes() throws(MarfaError) -> [BlobHash] {
    try all("SELECT hash FROM partials", { _ in }, { $0.hash(0) }).compactMap { $0 }
  }

  /// Why bytes are not here.
  func setNotHeld(_ hash: BlobHash, _ reason: NotHeldReason, _ detail: String?, at now: Timestamp) throws(MarfaError) {
    try run(
      """
      UPDATE blobs SET not_held_reason = ?2, not_held_detail = ?3, not_held_at = ?4 WHERE hash = ?1 AND held = 0
      """
    ) {
      $0.hash(1, hash)
      $0.text(2, reason.rawValue)
      $0.text(3, detail)
      $0.time(4, now)
    }
  }

  /// A file becomes an attachment by an edge: nobody has asked for its bytes as one's yet, whatever befell those who asked
  /// before. Bytes that are another attachment's too keep their reason.
  func beganAttachment(_ edge: Edge) throws(MarfaError) {
    guard edge.type == Edge.attachedTo else { return }
    try run(
      """
      UPDATE blobs SET not_held_reason = 'not_fetched', not_held_detail = NULL, not_held_at = NULL
      WHERE hash = (SELECT hash FROM nodes WHERE item = ?1) AND held = 0 AND not_held_reason <> 'not_fetched'
        AND NOT EXISTS (
          SELECT 1 FROM nodes n JOIN edges e ON e.source = n.item AND e.type = 'attached-to' AND e.id <> ?2
          WHERE n.hash = blobs.hash)
      """
    ) {
      $0.id(1, edge.source)
      $0.id(2, edge.id)
    }
  }

  /// A size was learnt: the bytes' and every file's that shows them. Answers those files' nodes.
  func setSize(_ hash: BlobHash, _ size: Int64) throws(MarfaError) -> [Int64] {
    try run("UPDATE blobs SET size = ?2 WHERE hash = ?1 AND size IS NULL") {
      $0.hash(1, hash)
      $0.int(2, size)
    }
    let nodes = try all(
      "SELECT number FROM nodes WHERE hash = ?1 AND size IS NULL", { $0.hash(1, hash) }, { $0.int(0) })
    if !nodes.isEmpty {
      try run("UPDATE nodes SET size = ?2 WHERE hash = ?1 AND size IS NULL") {
        $0.hash(1, hash)
        $0.int(2, size)
      }
    }
    return nodes
  }

  /// The files that show these bytes.
  func nodes(showing hash: BlobHash) throws(MarfaError) -> [Int64] {
    try all("SELECT number FROM nodes WHERE hash = ?1", { $0.hash(1, hash) }, { $0.int(0) })
  }

  /// Remembers when bytes were last read.
  func setRead(_ hash: BlobHash, at moment: Timestamp) throws(MarfaError) {
    try run("UPDATE blobs SET read_at = ?2 WHERE hash = ?1") {
      $0.hash(1, hash)
      $0.time(2, moment)
    }
  }
}
