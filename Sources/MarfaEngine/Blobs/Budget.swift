import CSQLite
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

  /// The bytes the budget allows now; `nil` for no budget.
  func allowance(in connection: Connection) throws(MarfaError) -> Int64? {
    BlobStore.allowance(
      try connection.budget(), volume: try? VolumeRoom.of(files.root), held: try connection.cachedBytes())
  }

  /// The cache in numbers. What can't be read of it is left out, and why is said.
  func cache(in connection: Connection) throws(MarfaError) -> FileCache {
    let setting = try connection.budget()
    let volume = try? VolumeRoom.of(files.root)
    var cache = FileCache(
      setting: setting, budget: nil, held: nil, heldUnreadable: nil, volumeUnreadable: volume == nil,
      backupMarkFailure: nil, attachments: nil)
    var here: Int64 = 0
    do throws(MarfaError) {
      here = try connection.cachedBytes()
      let held = try heldBytes(in: connection)
      // From the start of a hydration until one completes nobody can say which they are.
      if try connection.hydrationState() != .inProgress { cache.attachments = try connection.keptAttachments() }
      cache.held = held
    } catch {
      cache.heldUnreadable = "\(error)"
    }
    cache.budget = BlobStore.allowance(setting, volume: volume, held: here)
    return cache
  }

  /// The bytes of the files held. Throws when the folder they are in can't be read: what rows say of them is not so then.
  private func heldBytes(in connection: Connection) throws(MarfaError) -> Int64 {
    let held = try connection.first("SELECT bytes FROM counters WHERE name = 'held'") { $0.int(0) } ?? 0
    guard held > 0 else { return 0 }
    do throws(Errno) { _ = try Descriptor.open(files.root + "/held", O_RDONLY | O_DIRECTORY) } catch {
      throw .store(
        StoreFailure(code: SQLITE_CANTOPEN, message: "\(error)", doing: "reading the files under \(files.root)/held"))
    }
    return held
  }

  /// Takes fetched files and parts of files, least recently read first, until what is here outside the kept ones fits;
  /// answers the bytes removed. Never one of an attachment kept, one pinned or open, or one whose upload waits.
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

  /// Which of these are not here, or are what ``trim(to:in:)`` takes next, though they may be open now.
  func going(_ hashes: Set<BlobHash>, in connection: Connection) throws(MarfaError) -> Set<BlobHash> {
    var going: Set<BlobHash> = []
    for hash in hashes where try connection.blob(hash)?.held != true { going.insert(hash) }
    guard let allowance = try allowance(in: connection) else { return going }
    let evictable = try connection.evictable()
    var total = evictable.reduce(0) { $0 + $1.size }
    for file in evictable where total > allowance {
      if hashes.contains(file.hash) { going.insert(file.hash) } else if isPinned(file.hash) { continue }
      total -= file.size
    }
    return going
  }

  /// Takes every file that can be fetched again, and every part of one. None, where what is here can't be read.
  func removeFetched(in connection: Connection) throws(MarfaError) -> Int64 {
    _ = try heldBytes(in: connection)
    return try letGo(of: .max, in: connection)
  }

  /// Takes fetched files, least recently read first, until so many bytes are free, or nothing more may go. Answers the
  /// bytes removed.
  func letGo(of bytes: Int64, in connection: Connection) throws(MarfaError) -> Int64 {
    var removed: Int64 = 0
    for file in try connection.evictable() where removed < bytes {
      if try evict(file.hash, in: connection) { removed += file.size }
    }
    return removed
  }

  /// Throws `EPERM` for one that is pinned, or that nobody else has.
  func checkLetGo(_ hash: BlobHash, in connection: Connection) throws(MarfaError) {
    guard let row = try connection.blob(hash) else { return }
    if row.held {
      if !row.stored || row.doubted { throw .file(.notPermitted) }
      if try connection.isOnlyHere(hash) { throw .file(.notPermitted) }
    }
    if try connection.isPinned(hash) { throw .file(.notPermitted) }
  }

  /// Takes one because a person says so, though it be an attachment kept. `EBUSY` while it is open, `EPERM` when it is
  /// pinned, or when nobody else has it. Answers the bytes removed.
  func letGo(_ hash: BlobHash, in connection: Connection) throws(MarfaError) -> Int64 {
    guard let row = try connection.blob(hash) else { return 0 }
    let partial = try connection.partialBytes(hash)
    guard row.held || partial != nil else { return 0 }
    try checkLetGo(hash, in: connection)
    guard try evict(hash, in: connection) else { throw .file(Errno(EBUSY)) }
    return row.held ? row.size ?? 0 : partial ?? 0
  }

  private func evict(_ hash: BlobHash, in connection: Connection) throws(MarfaError) -> Bool {
    guard !isPinned(hash) else { return false }
    try connection.run(
      """
      UPDATE blobs SET held = 0, not_held_reason = 'not_fetched', not_held_detail = NULL, not_held_at = NULL
      WHERE hash = ?1 AND held = 1
      """
    ) { $0.hash(1, hash) }
    try connection.deletePartial(hash)
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

  /// All bytes of files held and of partial files.
  func cachedBytes() throws(MarfaError) -> Int64 {
    try first("SELECT sum(bytes) FROM counters WHERE name IN ('held', 'partial')") { $0.int(0) } ?? 0
  }

  /// Bytes here that can be fetched again and nothing keeps, whole or in part: the least recently read first. The server
  /// must have answered that it stores them, no write may wait that uploads or names them (should it be refused, they are what
  /// the person has of it), and no file of this device only may show them: its item, when it had one, is in the bin there,
  /// and the bin is emptied some day.
  func evictable() throws(MarfaError) -> [(hash: BlobHash, size: Int64)] {
    let keep = try keep()
    return try all(
      """
      WITH here(hash, bytes, moment) AS (
        SELECT hash, size, coalesce(read_at, held_at, 0) FROM blobs WHERE held = 1 AND stored = 1 AND doubted = 0
        UNION ALL
        SELECT p.hash, p.bytes, coalesce(b.read_at, 0) FROM partials p JOIN blobs b ON b.hash = p.hash WHERE b.held = 0)
      SELECT h.hash, h.bytes FROM here h
      WHERE NOT EXISTS (SELECT 1 FROM writes w WHERE w.blob = h.hash)
        AND NOT EXISTS (
          SELECT 1 FROM nodes n JOIN edges e ON e.source = n.item AND e.type = 'attached-to'
            JOIN items host ON host.id = e.target AND host.state <> 'trashed'
          WHERE n.hash = h.hash AND (?1 = 'attached' OR (?1 = 'pinned' AND host.pinned = 1)))
        AND NOT EXISTS (
          SELECT 1 FROM nodes n JOIN items file ON file.id = n.item WHERE n.hash = h.hash AND file.pinned = 1)
        AND NOT EXISTS (SELECT 1 FROM nodes n WHERE n.hash = h.hash AND n.item IS NULL)
      ORDER BY h.moment
      """, { $0.text(1, keep.rawValue) }, { row in row.hash(0).map { ($0, row.int(1)) } }
    ).compactMap { $0 }
  }

  /// True when the budget does not count these bytes: an attachment kept, a pinned file, a file of this device only.
  func isOutsideBudget(_ hash: BlobHash) throws(MarfaError) -> Bool {
    let keep = try keep()
    return try first(
      """
      SELECT EXISTS (
          SELECT 1 FROM nodes n JOIN edges e ON e.source = n.item AND e.type = 'attached-to'
            JOIN items host ON host.id = e.target AND host.state <> 'trashed'
          WHERE n.hash = ?1 AND (?2 = 'attached' OR (?2 = 'pinned' AND host.pinned = 1)))
        OR EXISTS (SELECT 1 FROM nodes n JOIN items file ON file.id = n.item WHERE n.hash = ?1 AND file.pinned = 1)
        OR EXISTS (SELECT 1 FROM nodes n WHERE n.hash = ?1 AND n.item IS NULL)
      """,
      {
        $0.hash(1, hash)
        $0.text(2, keep.rawValue)
      }, { $0.bool(0) }) ?? false
  }

  /// True when the only bytes are here: a write waits that uploads or names them, or a file of this device only shows them.
  fileprivate func isOnlyHere(_ hash: BlobHash) throws(MarfaError) -> Bool {
    try first(
      """
      SELECT EXISTS (SELECT 1 FROM writes w WHERE w.blob = ?1)
        OR EXISTS (SELECT 1 FROM nodes n WHERE n.hash = ?1 AND n.item IS NULL)
      """, { $0.hash(1, hash) }, { $0.bool(0) }) ?? true
  }

  /// True when a file that shows these bytes, or what it hangs on, is pinned.
  fileprivate func isPinned(_ hash: BlobHash) throws(MarfaError) -> Bool {
    try first(
      """
      SELECT EXISTS (SELECT 1 FROM nodes n JOIN items file ON file.id = n.item WHERE n.hash = ?1 AND file.pinned = 1)
        OR EXISTS (
          SELECT 1 FROM nodes n JOIN edges e ON e.source = n.item AND e.type = 'attached-to'
            JOIN items host ON host.id = e.target AND host.state <> 'trashed' WHERE n.hash = ?1 AND host.pinned = 1)
      """, { $0.hash(1, hash) }, { $0.bool(0) }) ?? false
  }

  /// The attachments that are kept and the pinned files, those of them that are not here whole: the smallest first, those of no known size last.
  func keptMissing() throws(MarfaError) -> [(hash: BlobHash, size: Int64?)] {
    let keep = try keep()
    return try all(
      """
      SELECT b.hash, b.size FROM blobs b WHERE b.held = 0 AND (EXISTS (
          SELECT 1 FROM nodes n JOIN edges e ON e.source = n.item AND e.type = 'attached-to'
            JOIN items host ON host.id = e.target AND host.state <> 'trashed'
          WHERE n.hash = b.hash AND n.links > 0 AND (?1 = 'attached' OR (?1 = 'pinned' AND host.pinned = 1)))
        OR EXISTS (
          SELECT 1 FROM nodes n JOIN items file ON file.id = n.item
          WHERE n.hash = b.hash AND n.links > 0 AND file.pinned = 1))
      ORDER BY b.size IS NULL, b.size, b.hash
      """, { $0.text(1, keep.rawValue) }, { row in row.hash(0).map { ($0, row.optionalInt(1)) } }
    ).compactMap { $0 }
  }

  /// The attachments of the items held, counted once each.
  fileprivate func keptAttachments() throws(MarfaError) -> KeptAttachments {
    var kept = KeptAttachments(held: 0, heldBytes: 0, partialBytes: 0, notHeld: 0, notHeldBytes: 0, notHeldByReason: [])
    // (`+` keeps SQLite from walking the nodes in the order of their hashes; CROSS JOIN has it begin with the few.)
    // File items with bytes and a name in an item's directory. (One emptied on this device has none to hold.)
    let all =
      try first(
        """
        SELECT count(*), coalesce(sum(size), 0) FROM nodes n WHERE kind = 2 AND item IS NOT NULL AND +hash IS NOT NULL
          AND EXISTS (SELECT 1 FROM entries e WHERE e.node = n.number AND e.parent <> 1)
        """, { _ in }, { (Int($0.int(0)), $0.int(1)) }) ?? (0, 0)
    // Those of them whose bytes are not here.
    var missing = try self.all(
      """
      SELECT coalesce(b.not_held_reason, 'not_fetched'), count(*), coalesce(sum(n.size), 0), count(*) - count(n.size)
      FROM blobs b CROSS JOIN nodes n ON n.hash = b.hash
      WHERE b.held = 0 AND n.kind = 2 AND n.item IS NOT NULL
        AND EXISTS (SELECT 1 FROM entries e WHERE e.node = n.number AND e.parent <> 1)
      GROUP BY 1
      """, { _ in },
      {
        KeptAttachments.NotHeld(
          reason: NotHeldReason(rawValue: $0.text(0)) ?? .notFetched, attachments: Int($0.int(1)), bytes: $0.int(2),
          unstated: Int($0.int(3)))
      })
    kept.held = all.0 - missing.reduce(0) { $0 + $1.attachments }
    kept.heldBytes = all.1 - missing.reduce(0) { $0 + $1.bytes }
    kept.partialBytes =
      try first(
        """
        SELECT sum(p.bytes) FROM partials p CROSS JOIN blobs b ON b.hash = p.hash AND b.held = 0
        WHERE EXISTS (
          SELECT 1 FROM nodes n JOIN entries e ON e.node = n.number AND e.parent <> 1
          WHERE n.hash = p.hash AND n.kind = 2 AND n.item IS NOT NULL)
        """, { _ in }, { $0.int(0) }) ?? 0
    // And edges whose file item the copy has not, which only a server makes.
    if try setting("origin") != nil {
      let outside =
        try first(
          """
          SELECT count(DISTINCT e.source) FROM edges e WHERE e.type = 'attached-to'
            AND NOT EXISTS (SELECT 1 FROM items i WHERE i.id = e.source)
          """, { _ in }, { Int($0.int(0)) }) ?? 0
      if outside > 0 {
        missing.append(KeptAttachments.NotHeld(reason: .notInCopy, attachments: outside, bytes: 0, unstated: outside))
      }
    }
    kept.notHeld = missing.reduce(0) { $0 + $1.attachments }
    kept.notHeldBytes = missing.reduce(0) { $0 + $1.bytes }
    kept.notHeldByReason = NotHeldReason.allCases.compactMap { reason in missing.first { $0.reason == reason } }
    return kept
  }
}
