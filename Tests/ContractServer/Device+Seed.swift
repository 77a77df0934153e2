import MarfaEngine

extension ServerDevice {
  /// Makes very many rows at once: so many notes, `note 1` …, and under each so many files, `file 1.1` …, attached to
  /// it, all naming the same bytes. A hundred thousand take about a second. The log does not tell of them, as one that
  /// was retired long since.
  public func seed(notes: Int, filesEach: Int = 0) throws(ServerRefusal) {
    let hash = try putBlob([UInt8]("seeded\n".utf8), mime: "text/plain")
    let now = Timestamp.now.iso8601
    // Ids that no other seed or device has: 32 random bits in front of the number.
    var random = SystemRandomNumberGenerator()
    let first = try books.database.row("SELECT coalesce(max(n), 0) FROM items")?[0].int ?? 0
    let head = String((random.next() as UInt64) & 0xffff_ffff | 1 << 32, radix: 16).dropFirst()
    try items(
      count: notes, type: "core.note", id: id("a", head), first: first, now: now,
      properties: "'{\"title\":\"note ' || i || '\",\"body\":\"\"}'", blob: nil)
    guard filesEach > 0 else { return }
    let ordinal = "((i - 1) / \(filesEach) + 1) || '.' || ((i - 1) % \(filesEach) + 1)"
    try items(
      count: notes * filesEach, type: "core.file", id: id("b", head), first: first + Int64(notes), now: now,
      properties: """
        '{"blob_ref":"\(hash)","mime_type":"text/plain","title":"file ' || \(ordinal) || '"}'
        """, blob: hash)
    let host = id("a", head, number: "((i - 1) / \(filesEach) + 1)")
    try books.database.execute(
      """
      WITH RECURSIVE series(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM series WHERE i < \(notes * filesEach)),
        ends(i, id, source, target) AS (SELECT i, \(id("c", head)), \(id("b", head)), \(host) FROM series)
      INSERT INTO edges (id, source, target, type, version, properties, created_at, edge)
      SELECT id, source, target, 'attached-to', 1, '{}', '\(now)',
        '{"id":"' || id || '","source_id":"' || source || '","target_id":"' || target ||
        '","edge_type":"attached-to","properties":{},"version":1,"created_at":"\(now)","updated_at":"\(now)"}'
      FROM ends ORDER BY i
      """)
  }

  /// SQL for the id of row `i`.
  private func id(_ kind: String, _ head: Substring, number: String = "i") -> String {
    "printf('\(head)-\(kind)000-7000-8000-%012x', \(number))"
  }

  private func items(
    count: Int, type: String, id: String, first: Int64, now: String, properties: String, blob: String?
  ) throws(ServerRefusal) {
    guard count > 0 else { return }
    let name = blob.map { "'\($0)'" } ?? "NULL"
    try books.database.execute(
      """
      WITH RECURSIVE series(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM series WHERE i < \(count)),
        rows(i, id, p) AS (SELECT i, \(id), \(properties) FROM series)
      INSERT INTO items (id, type, tier, state, version, properties, source, occurred_at, created_at, updated_at,
        made_of, blob, lends, item, metadata)
      SELECT id, '\(type)', 'library', 'active', 1, p, 'device', '\(now)', '\(now)', '\(now)', 'seed', \(name), 1,
        '{"id":"' || id || '","type":"\(type)","properties":' || p || ',"state":"active","tier":"library",' ||
        '"version":1,"schema_version":1,"source":"device","occurred_at":"\(now)","created_at":"\(now)",' ||
        '"updated_at":"\(now)"}',
        '{"item_id":"' || id || '","tags":[],"extensions":{}}'
      FROM rows ORDER BY i
      """)
    try books.database.execute(
      "INSERT OR IGNORE INTO versions SELECT id, version, properties FROM items WHERE n > \(first) AND made_of = 'seed'"
    )
  }
}
