/// Whether the key is the one that was used before. What this copy uploaded was uploaded by its key, and a row lends bytes
/// only when its writer had uploaded them (contract, "Blobs"): another key may never have.
///
/// The store keeps sixteen bits of a digest of a random salt and the key. That is enough to notice another key (all but one
/// in 65,536, which costs nothing but what it cost before), and too little to confirm a guess at it or to tell by two stores
/// that they have one key.
struct KeyMark: Equatable {
  let salt: UInt64
  let tag: UInt16

  init(_ credential: Credential, salt: UInt64 = .random(in: .min ... .max)) throws(MarfaError) {
    self.salt = salt
    let digest = try SHA256()
    withUnsafeBytes(of: salt.bigEndian) { digest.update($0) }
    var key = credential.key
    key.withUTF8 { digest.update(UnsafeRawBufferPointer($0)) }
    tag = UInt16(digest.finish().hex.prefix(4), radix: 16) ?? 0
  }

  /// As the store has it: `SALT TAG`, in hexadecimal.
  init?(_ text: String) {
    let parts = text.split(separator: " ")
    guard parts.count == 2, let salt = UInt64(parts[0], radix: 16), let tag = UInt16(parts[1], radix: 16) else {
      return nil
    }
    self.salt = salt
    self.tag = tag
  }

  var text: String { "\(String(salt, radix: 16)) \(String(tag, radix: 16))" }
}

extension WorkingCopy {
  /// This key is used from now on. When it is another than before, nothing counts as uploaded by this copy any more, and
  /// what waits to name bytes waits for their upload again.
  func note(key credential: Credential) throws(MarfaError) {
    let before = try store.read { (connection) throws(MarfaError) in
      try connection.setting("key_mark").flatMap { KeyMark($0) }
    }
    if let before, try KeyMark(credential, salt: before.salt) == before { return }
    let mark = try KeyMark(credential)
    try change { (change) throws(MarfaError) in
      try change.connection.setSetting("key_mark", mark.text)
      try change.forgetUploads()
    }
  }
}

extension Tree.Change {
  /// Nothing counts as uploaded by this copy any more: what waits to name bytes waits for their upload again.
  func forgetUploads() throws(MarfaError) {
    try connection.run("UPDATE blobs SET uploaded = 0 WHERE uploaded = 1")
    for (write, hash, mimeType) in try connection.namingUploaded() {
      guard let upload = try outbox.upload(hash, mimeType: mimeType ?? MIMEType.unknown) else { continue }
      try connection.run("UPDATE writes SET depends_on = coalesce(depends_on || ',', '') || ?2 WHERE number = ?1") {
        $0.int(1, write)
        $0.int(2, upload.number)
      }
    }
  }
}

extension Connection {
  /// Writes that name bytes held here and wait for no upload of them: it was answered.
  fileprivate func namingUploaded() throws(MarfaError) -> [(write: Int64, hash: BlobHash, mimeType: String?)] {
    try all(
      """
      SELECT w.number, w.blob, b.mime_type FROM writes w JOIN blobs b ON b.hash = w.blob AND b.held = 1
      WHERE w.kind IN ('create_item', 'update_item') AND w.state IN ('queued', 'blocked')
        AND NOT EXISTS (SELECT 1 FROM writes u WHERE u.blob = w.blob AND u.kind = 'upload_blob')
      ORDER BY w.number
      """, { _ in }, { row in row.hash(1).map { (row.int(0), $0, row.optionalText(2)) } }
    ).compactMap { $0 }
  }
}
