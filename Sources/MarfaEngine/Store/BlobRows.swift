/// What the store knows of a blob (schema, table `blobs`).
struct BlobRow: Sendable, Equatable {
  var size: Int64?
  var mimeType: String?
  var held: Bool
  var stored: Bool
  /// This copy's own upload of them was answered.
  var uploaded: Bool
  /// Whether the server still has them is not known.
  var doubted: Bool
  var reason: NotHeldReason
  var detail: String?
}

extension Connection {
  func blob(_ hash: BlobHash) throws(MarfaError) -> BlobRow? {
    try first(
      "SELECT size, mime_type, held, stored, not_held_reason, not_held_detail, uploaded, doubted > 0 FROM blobs WHERE hash = ?1",
      { $0.hash(1, hash) },
      { row in
        BlobRow(
          size: row.optionalInt(0), mimeType: row.optionalText(1), held: row.bool(2), stored: row.bool(3),
          uploaded: row.bool(6), doubted: row.bool(7), reason: NotHeldReason(rawValue: row.text(4)) ?? .notFetched,
          detail: row.optionalText(5))
      })
  }

  /// The bytes are under `held/`, whole and verified.
  func setHeld(_ hash: BlobHash, size: Int64, mimeType: String?, at now: Timestamp) throws(MarfaError) {
    try run(
      """
      INSERT INTO blobs(hash, size, mime_type, held, held_at) VALUES (?1, ?2, ?3, 1, ?4)
      ON CONFLICT(hash) DO UPDATE SET size = ?2, held = 1, held_at = ?4, mime_type = coalesce(mime_type, ?3)
      """
    ) {
      $0.hash(1, hash)
      $0.int(2, size)
      $0.text(3, mimeType)
      $0.time(4, now)
    }
    // What was fetched of them before is the same.
    try deletePartial(hash)
  }

  /// The same for bytes that a server sent, so that it has them.
  func setFetched(_ hash: BlobHash, size: Int64, at now: Timestamp) throws(MarfaError) {
    try setHeld(hash, size: size, mimeType: nil, at: now)
    try run("UPDATE blobs SET stored = 1, doubted = 0, read_at = ?2, not_held_detail = NULL WHERE hash = ?1") {
      $0.hash(1, hash)
      $0.time(2, now)
    }
  }

  /// A node is going to show these bytes, here or not: they have a row from then on. A row of the server names only bytes
  /// it holds.
  func know(_ hash: BlobHash, mimeType: String?, stored: Bool) throws(MarfaError) {
    try run("INSERT OR IGNORE INTO blobs(hash, mime_type, stored) VALUES (?1, ?2, ?3)") {
      $0.hash(1, hash)
      $0.text(2, mimeType)
      $0.bool(3, stored)
    }
  }

  func deleteBlobRow(_ hash: BlobHash) throws(MarfaError) {
    try run("DELETE FROM blobs WHERE hash = ?1") { $0.hash(1, hash) }
  }

  /// True while a node shows these bytes or a write of the queue sends them.
  func isReferenced(_ hash: BlobHash) throws(MarfaError) -> Bool {
    try first(
      """
      SELECT EXISTS(SELECT 1 FROM nodes WHERE hash = ?1 AND hash IS NOT NULL)
        OR EXISTS(SELECT 1 FROM writes WHERE blob = ?1 AND blob IS NOT NULL)
      """, { $0.hash(1, hash) }, { $0.bool(0) }) ?? false
  }
}
