import MarfaEngine

extension Books {
  /// Where a blob's bytes lie.
  func path(of hash: BlobHash) -> String { "\(folder)/blobs/\(hash.hex)" }

  /// Takes over a file that hashes to `hash`. The first upload fixes the MIME type: answers that one.
  func keepBlob(_ actor: Actor, _ hash: BlobHash, mime: String, size: Int64, file: String) throws(ServerRefusal)
    -> String
  {
    try transaction { () throws(ServerRefusal) in
      let name = hash.description
      let known = try database.row("SELECT mime FROM blobs WHERE hash = ?1", .text(name))?[0].text
      do {
        if known == nil { try Path.move(file, to: path(of: hash)) } else { try Path.remove(file) }
      } catch { throw .broken("\(file): \(error)") }
      try database.rows(
        "INSERT OR IGNORE INTO blobs VALUES (?1, ?2, ?3)", .text(name), .text(mime), Value(size))
      try database.rows("INSERT OR IGNORE INTO uploads VALUES (?1, ?2)", .text(actor.name), .text(name))
      return known ?? mime
    }
  }

  func hasUploaded(_ actor: Actor, _ hash: String) throws(ServerRefusal) -> Bool {
    try database.row("SELECT 1 FROM uploads WHERE key = ?1 AND hash = ?2", .text(actor.name), .text(hash)) != nil
  }

  /// Whether a row `actor` may read lends the blob. The bin counts, an earlier version does not.
  func mayReadBlob(_ actor: Actor, _ hash: String) throws(ServerRefusal) -> Bool {
    let rows = try database.rows(
      "SELECT DISTINCT type FROM items WHERE blob = ?1 AND lends = 1", .text(hash))
    return rows.contains { mayRead(actor, type: $0[0].text) }
  }

  /// A blob that `actor` may read.
  func blob(_ actor: Actor, _ text: String) throws(ServerRefusal) -> BlobRow {
    guard let hash = BlobHash(text), BlobHash.onTheWire(text), try mayReadBlob(actor, text) else { throw .noBlob(text) }
    return try blob(hash)
  }

  /// A blob, whoever asks.
  func blob(_ hash: BlobHash) throws(ServerRefusal) -> BlobRow {
    let row = try database.row("SELECT mime, size FROM blobs WHERE hash = ?1", .text(hash.description))
    guard let row else { throw .noBlob(hash.description) }
    do {
      return BlobRow(
        hash: hash, mime: row[0].text, size: row[1].int, file: try Descriptor.open(path(of: hash), 0))
    } catch { throw .noBlob(hash.description) }
  }

  /// Loses a blob's bytes and all knowledge of them.
  func loseBlob(_ hash: BlobHash) throws(ServerRefusal) {
    try database.rows("DELETE FROM blobs WHERE hash = ?1", .text(hash.description))
    try database.rows("DELETE FROM uploads WHERE hash = ?1", .text(hash.description))
    do { try Path.remove(path(of: hash)) } catch { throw .broken("\(error)") }
  }

  // MARK: - Links

  /// Writes a link down, as it is given out.
  func keepLink(token: String, target: String, hash: BlobHash, place: LinkPlace, expires: Int64) throws(ServerRefusal) {
    try database.rows(
      "INSERT INTO links VALUES (?1, ?2, ?3, ?4, ?5)", .text(token), .text(target), .text(hash.description),
      .text(place.rawValue), Value(expires))
  }

  /// The link a token belongs to.
  func link(token: String, place: LinkPlace) throws(ServerRefusal) -> (target: String, hash: BlobHash, expires: Int64)?
  {
    let row = try database.row(
      "SELECT target, hash, expires FROM links WHERE token = ?1 AND place = ?2", .text(token), .text(place.rawValue))
    guard let row, let hash = BlobHash(row[1].text) else { return nil }
    return (row[0].text, hash, row[2].int)
  }

  /// Every link given so far is over.
  func expireLinks() throws(ServerRefusal) { try database.rows("UPDATE links SET expires = 0") }
}

/// A blob that can be read.
struct BlobRow {
  let hash: BlobHash
  let mime: String
  let size: Int64
  let file: Descriptor
}
