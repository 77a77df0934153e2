/// Reading the queue.
extension Connection {
  /// The writes that wait, in order; `limit` at most, behind `after`.
  func queue(after: WriteID? = nil, limit: Int = 1000) throws(MarfaError) -> [QueuedWrite] {
    try all(
      """
      SELECT number, kind, item, edge, blob, body, base_version, idempotency_key, follows, state, verdict, gone_out,
        queued_at, not_before, depends_on, overtaken FROM writes WHERE number > ?1 ORDER BY number LIMIT ?2
      """,
      {
        $0.int(1, after?.number ?? 0)
        $0.int(2, Int64(limit))
      }, { $0.queuedWrite() })
  }

  /// The writes about an item, in order.
  func queue(about item: ItemID) throws(MarfaError) -> [QueuedWrite] {
    try all(
      """
      SELECT number, kind, item, edge, blob, body, base_version, idempotency_key, follows, state, verdict, gone_out,
        queued_at, not_before, depends_on, overtaken FROM writes WHERE item = ?1 ORDER BY number
      """, { $0.id(1, item) }, { $0.queuedWrite() })
  }

  /// The writes about an edge, in order.
  func queue(about edge: EdgeID) throws(MarfaError) -> [QueuedWrite] {
    try all(
      """
      SELECT number, kind, item, edge, blob, body, base_version, idempotency_key, follows, state, verdict, gone_out,
        queued_at, not_before, depends_on, overtaken FROM writes WHERE edge = ?1 ORDER BY number
      """, { $0.id(1, edge) }, { $0.queuedWrite() })
  }

  /// One write.
  func queuedWrite(_ id: WriteID) throws(MarfaError) -> QueuedWrite? {
    try first(
      """
      SELECT number, kind, item, edge, blob, body, base_version, idempotency_key, follows, state, verdict, gone_out,
        queued_at, not_before, depends_on, overtaken FROM writes WHERE number = ?1
      """, { $0.int(1, id.number) }, { $0.queuedWrite() })
  }

  /// The writes of these numbers that are in the queue, in this order.
  func queuedWrites(_ ids: [WriteID]) throws(MarfaError) -> [QueuedWrite] {
    var writes: [QueuedWrite] = []
    for id in ids {
      if let write = try queuedWrite(id) { writes.append(write) }
    }
    return writes
  }

  /// The write that sends these bytes, when one waits.
  func upload(of hash: BlobHash) throws(MarfaError) -> QueuedWrite? {
    try first(
      """
      SELECT number, kind, item, edge, blob, body, base_version, idempotency_key, follows, state, verdict, gone_out,
        queued_at, not_before, depends_on, overtaken FROM writes WHERE blob = ?1 AND kind = 'upload_blob'
      ORDER BY number LIMIT 1
      """, { $0.hash(1, hash) }, { $0.queuedWrite() })
  }

  /// How many writes stand where.
  func queueCounts() throws(MarfaError) -> QueueCounts {
    var counts = QueueCounts()
    for (name, count) in try all(
      "SELECT name, count FROM counters WHERE name LIKE 'write.%' AND count > 0", { _ in },
      { ($0.text(0), Int($0.int(1))) })
    {
      counts.byState[WriteState(rawValue: String(name.dropFirst(6))) ?? .queued] = count
    }
    counts.bytes = try first("SELECT bytes FROM counters WHERE name = 'upload'") { $0.int(0) } ?? 0
    return counts
  }

  /// The first of the writes that one waits for.
  func awaited(by write: QueuedWrite) throws(MarfaError) -> WriteID? {
    guard write.state == .queued else { return nil }
    for id in write.dependsOn {
      if try first("SELECT 1 FROM writes WHERE number = ?1", { $0.int(1, id.number) }, { _ in true }) != nil {
        return id
      }
    }
    guard let ahead = write.follows,
      try first(
        "SELECT 1 FROM writes WHERE number = ?1 AND state <> 'refused'", { $0.int(1, ahead.number) }, { _ in true })
        != nil
    else { return nil }
    return ahead
  }

  /// What lies behind a write that was refused because of another: that other, refused or dead itself.
  func cause(of write: QueuedWrite) throws(MarfaError) -> QueuedWrite {
    var cause = write
    while case .refused(let refusal) = cause.verdict, let id = refusal.becauseOf, id < cause.id,
      let other = try queuedWrite(id)
    {
      cause = other
    }
    return cause
  }

  /// Why the item of a file or directory of this device was refused: the write at the bottom of it.
  func refusal(ofNode number: Int64) throws(MarfaError) -> QueuedWrite? {
    guard
      let item = try first("SELECT refused FROM nodes WHERE number = ?1", { $0.int(1, number) }, { $0.itemID(0) })
        ?? nil,
      let write = try queue(about: item).first(where: { $0.state == .refused || $0.state == .dead })
    else { return nil }
    return try cause(of: write)
  }

  /// The place of a write in the queue, from 1: how many at most are ahead of it, and itself. Writes that were taken back
  /// leave gaps, which count.
  func queuePosition(_ id: WriteID) throws(MarfaError) -> Int {
    let head = try first("SELECT min(number) FROM writes") { $0.int(0) } ?? 0
    return Int(id.number - head + 1)
  }
}

/// The queue in numbers.
public struct QueueCounts: Sendable, Equatable {
  /// How many writes stand where; a state without any is missing.
  public var byState: [WriteState: Int] = [:]
  /// The bytes their uploads will send.
  public var bytes: Int64 = 0
  /// All writes.
  public var total: Int { byState.values.reduce(0, +) }
  /// Those that may still go out.
  public var waiting: Int { (byState[.queued] ?? 0) + (byState[.sending] ?? 0) + (byState[.blocked] ?? 0) }
}

extension Row {
  /// A write from sixteen columns.
  fileprivate func queuedWrite() -> QueuedWrite {
    let state = WriteState(rawValue: text(9)) ?? .queued
    return QueuedWrite(
      id: WriteID(int(0)), kind: WriteKind(rawValue: text(1)) ?? .updateItem, item: itemID(2), edge: edgeID(3),
      blob: hash(4), body: Connection.object(text(5)), baseVersion: optionalInt(6),
      idempotencyKey: Bytes128(bytes: lentBlob(7))?.text,
      dependsOn: text(14).split(separator: ",").compactMap { Int64($0).map { WriteID($0) } },
      follows: optionalInt(8).map { WriteID($0) },
      state: state, verdict: optionalText(10).flatMap { Verdict(stored: Connection.object($0), state: state) },
      hasGoneOut: bool(11), isOvertaken: bool(15), queuedAt: time(12), notBefore: time(13))
  }
}

extension Verdict {
  /// Reads what ``stored`` wrote, for a write in this state.
  init?(stored object: JSON.Object, state: WriteState) {
    let message = object["message"]?.string ?? ""
    switch state {
    case .queued, .sending: return nil
    case .dead: self = .dead(message)
    case .refused:
      self = .refused(
        Refusal(
          code: object["code"]?.string ?? "", message: message,
          becauseOf: object["because_of"]?.integer.map { WriteID($0) }))
    case .blocked:
      switch object["reason"]?.string {
      case "credential_refused": self = .blocked(.credentialRefused(grant: object["grant"]?.string))
      case "key_spent": self = .blocked(.keySpent)
      case "ancestor_unavailable": self = .blocked(.ancestorUnavailable)
      case "conflict_unresolved": self = .blocked(.conflictUnresolved)
      case "awaiting_dependency": self = .blocked(.awaitingDependency(object["write"]?.integer.map { WriteID($0) }))
      default: return nil
      }
    }
  }

  /// How the store keeps a verdict of a write that stays in the queue.
  var stored: JSON.Object {
    switch self {
    case .accepted, .merged, .conflicted: [:]
    case .dead(let message): ["message": .string(message)]
    case .refused(let refusal):
      refusal.becauseOf.map {
        ["code": .string(refusal.code), "message": .string(refusal.message), "because_of": .integer($0.number)]
      } ?? ["code": .string(refusal.code), "message": .string(refusal.message)]
    case .blocked(let blocked):
      switch blocked {
      case .credentialRefused(let grant?): ["reason": .string(blocked.word), "grant": .string(grant)]
      case .awaitingDependency(let write?): ["reason": .string(blocked.word), "write": .integer(write.number)]
      default: ["reason": .string(blocked.word)]
      }
    }
  }
}
