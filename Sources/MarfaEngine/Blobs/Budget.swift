import Glibc

/// What the cache holds and may hold.
extension BlobStore {
  /// The bytes a budget allows on this volume; `nil` for no budget (seed "Files on the device"). An unreadable volume
  /// counts as 2 GiB. A budget larger than the room there is, is held to that room.
  static func allowance(_ budget: FileBudget, volume: VolumeRoom?, held: Int64) -> Int64? {
    switch budget {
    case .keepAll: return nil
    case .bytes(let bytes):
      guard let volume else { return bytes }
      return min(bytes, held + volume.available)
    case .default:
      guard let volume else { return 2 << 30 }
      let wanted = max(2 << 30, volume.total / 10)
      return max(0, min(wanted, held + volume.available - volume.total / 20))
    }
  }

  /// The cache in numbers.
  func cache(in connection: Connection) throws(MarfaError) -> FileCache {
    let setting = try connection.budget()
    let volume = try? VolumeRoom.of(files.root)
    let held = try connection.first("SELECT bytes FROM counters WHERE name = 'held'") { $0.int(0) } ?? 0
    return FileCache(
      setting: setting, budget: BlobStore.allowance(setting, volume: volume, held: held), held: held,
      heldUnreadable: nil, volumeUnreadable: volume == nil, backupMarkFailure: nil,
      attachments: try connection.keptAttachments())
  }

  /// Takes fetched files, least recently read first, until what is held outside the kept ones fits; answers the bytes
  /// removed. Never one of an attachment kept, one pinned or open, or one whose upload waits.
  func trim(to allowance: Int64?, in connection: Connection) throws(MarfaError) -> Int64 {
    guard let allowance else { return 0 }
    let evictable = try connection.evictable()
    var total = evictable.reduce(0) { $0 + $1.size }
    var removed: Int64 = 0
    for file in evictable where total > allowance {
      guard try evict(file.hash, in: connection) else { continue }
      total -= file.size
      removed += file.size
    }
    return removed
  }

  /// Takes every file that can be fetched again.
  func removeFetched(in connection: Connection) throws(MarfaError) -> Int64 {
    var removed: Int64 = 0
    for file in try connection.evictable() where try evict(file.hash, in: connection) { removed += file.size }
    return removed
  }

  private func evict(_ hash: BlobHash, in connection: Connection) throws(MarfaError) -> Bool {
    guard !isPinned(hash) else { return false }
    try connection.run("UPDATE blobs SET held = 0, not_held_reason = 'not_fetched' WHERE hash = ?1") {
      $0.hash(1, hash)
    }
    removeAfterCommit(hash)
    return true
  }
}

extension Connection {
  func budget() throws(MarfaError) -> FileBudget {
    switch try setting("budget") {
    case nil, "default": .default
    case "keep-all": .keepAll
    case let text?: Int64(text).map { .bytes($0) } ?? .default
    }
  }

  func setBudget(_ budget: FileBudget) throws(MarfaError) {
    switch budget {
    case .default: try setSetting("budget", "default")
    case .keepAll: try setSetting("budget", "keep-all")
    case .bytes(let bytes): try setSetting("budget", String(bytes))
    }
  }

  func keep() throws(MarfaError) -> KeepSetting { KeepSetting(rawValue: try setting("keep") ?? "") ?? .attached }

  /// Held bytes that can be fetched again and nothing keeps: the least recently read first. The server must have
  /// answered that it stores them, no upload of them may wait, and no file of this device only may show them: its item,
  /// when it had one, is in the bin there, and the bin is emptied some day.
  fileprivate func evictable() throws(MarfaError) -> [(hash: BlobHash, size: Int64)] {
    let keep = try keep()
    return try all(
      """
      SELECT b.hash, b.size FROM blobs b WHERE b.held = 1 AND b.stored = 1
        AND NOT EXISTS (SELECT 1 FROM writes w WHERE w.blob = b.hash AND w.kind = 'upload_blob')
        AND NOT EXISTS (
          SELECT 1 FROM nodes n JOIN edges e ON e.source = n.item AND e.type = 'attached-to'
            JOIN items host ON host.id = e.target AND host.state <> 'trashed'
          WHERE n.hash = b.hash AND (?1 = 'attached' OR (?1 = 'pinned' AND host.pinned = 1)))
        AND NOT EXISTS (
          SELECT 1 FROM nodes n JOIN items file ON file.id = n.item WHERE n.hash = b.hash AND file.pinned = 1)
        AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.hash = b.hash AND n.item IS NULL)
      ORDER BY coalesce(b.read_at, b.held_at, 0)
      """, { $0.text(1, keep.rawValue) }, { row in row.hash(0).map { ($0, row.int(1)) } }
    ).compactMap { $0 }
  }

  /// The attachments of the items held, counted once each.
  fileprivate func keptAttachments() throws(MarfaError) -> KeptAttachments {
    var kept = KeptAttachments(held: 0, heldBytes: 0, partialBytes: 0, notHeld: 0, notHeldBytes: 0, notHeldByReason: [])
    var byReason: [NotHeldReason: KeptAttachments.NotHeld] = [:]
    // (`+` keeps SQLite from walking the nodes in the order of their hashes; CROSS JOIN has it begin with the few.)
    // File items with bytes and a name in an item's directory. (One emptied on this device has none to hold.)
    let all =
      try first(
        """
        SELECT count(*), coalesce(sum(size), 0) FROM nodes n WHERE kind = 2 AND item IS NOT NULL AND +hash IS NOT NULL
          AND EXISTS (SELECT 1 FROM entries e WHERE e.node = n.number AND e.parent <> 1)
        """, { _ in }, { (Int($0.int(0)), $0.int(1)) }) ?? (0, 0)
    // The few of them whose bytes are not here; and edges whose file item the copy has not, which only a server makes.
    var rows = try self.all(
      """
      SELECT n.size, b.not_held_reason FROM blobs b CROSS JOIN nodes n ON n.hash = b.hash
      WHERE b.held = 0 AND n.kind = 2 AND n.item IS NOT NULL
        AND EXISTS (SELECT 1 FROM entries e WHERE e.node = n.number AND e.parent <> 1)
      """, { _ in }, { ($0.optionalInt(0), NotHeldReason(rawValue: $0.text(1)) ?? .notFetched) })
    let missingBytes = rows.reduce(0) { $0 + ($1.0 ?? 0) }
    kept.held = all.0 - rows.count
    kept.heldBytes = all.1 - missingBytes
    if try setting("origin") != nil {
      rows += try self.all(
        """
        SELECT DISTINCT e.source FROM edges e WHERE e.type = 'attached-to'
          AND NOT EXISTS (SELECT 1 FROM items i WHERE i.id = e.source)
        """, { _ in }, { _ in (nil, NotHeldReason.notInCopy) })
    }
    for (size, why) in rows {
      kept.notHeld += 1
      kept.notHeldBytes += size ?? 0
      var entry = byReason[why] ?? KeptAttachments.NotHeld(reason: why, attachments: 0, bytes: 0, unstated: 0)
      entry.attachments += 1
      entry.bytes += size ?? 0
      if size == nil { entry.unstated += 1 }
      byReason[why] = entry
    }
    kept.notHeldByReason = NotHeldReason.allCases.compactMap { byReason[$0] }
    return kept
  }
}
