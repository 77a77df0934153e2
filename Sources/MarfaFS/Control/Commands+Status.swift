import MarfaEngine

/// How things stand, read with no request to anybody.
extension Commands {
  /// `status`: everything at a glance.
  func status(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    _ = try Arguments(arguments, allowed: [])
    let status = try engine { () throws(MarfaError) in try copy.status() }
    var result: JSON.Object = [
      "store": .string(status.path), "store_id": .string(status.storeID),
      // Who only looks because it was opened to look says nothing of a mount.
      "mode": mount == nil ? .null : .string(status.isReader ? "reader" : "writer"),
      "mount": mount?.facts().json ?? .null, "items": .integer(status.items),
      "files": .integer(status.files), "local_files": .integer(status.localFiles),
      "queue": .object(status.queue.json),
    ]
    result.add(try serverState())
    if status.conflictedCopies > 0 { result["conflicted_copies"] = .integer(status.conflictedCopies) }
    if status.leftBehind > 0 { result["left_behind"] = .integer(status.leftBehind) }
    if status.passedOver > 0 { result["not_understood"] = .integer(status.passedOver) }
    result.add(["keep": .string(status.keep.rawValue)])
    result.add(status.fileCache.json)
    result["recovered"] = .array(status.recovered.map { .string($0) })
    return result
  }

  /// `cache`: what is held of the files' bytes, and how much may be.
  func cache(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    _ = try Arguments(arguments, allowed: [])
    let status = try engine { () throws(MarfaError) in try copy.status() }
    var result: JSON.Object = ["store": .string(status.path)]
    result.add(["keep": .string(status.keep.rawValue)])
    result.add(status.fileCache.json)
    return result
  }

  /// `budget`: shows the budget; with `set`, chooses it (`default`, `keep-all`, or bytes) and trims to it at once.
  func budget(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    let arguments = try Arguments(arguments, allowed: ["set"])
    var removed: Int64?
    if let word = try arguments.string("set") {
      guard let budget = FileBudget(word: word) else {
        throw CommandFailure(.usage, "bad_argument", "\"\(word)\" is no budget: default, keep-all, or bytes")
      }
      removed = try engine { () throws(MarfaError) in try copy.blobs.setBudget(budget) }
    }
    let cache = try engine { () throws(MarfaError) in try copy.blobs.cache() }
    var result = cache.budgetJSON
    if let removed { result["removed"] = .integer(removed) }
    return result
  }

  /// `queue`: the writes that wait, in order; `limit` at most, behind the write `after`.
  func queue(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    let arguments = try Arguments(arguments, allowed: ["limit", "after"])
    let limit = try arguments.integer("limit") ?? 100
    guard (0...10_000).contains(limit) else {
      throw CommandFailure(.usage, "bad_argument", "the limit is to be from 0 to 10000")
    }
    let after = try arguments.integer("after").map { WriteID($0) }
    let server = try serverState()
    return try engine { () throws(MarfaError) in
      let counts = try copy.queue.counts()
      // One more than asked for, to know whether there is one.
      let writes = try copy.queue.writes(after: after, limit: Int(limit) + 1)
      var rows: [JSON] = []
      for write in writes.prefix(Int(limit)) { rows.append(.object(try describe(write))) }
      var result = counts.json
      result["writes"] = .array(rows)
      result["more"] = .bool(writes.count > rows.count)
      result.add(server)
      return result
    }
  }

  private func describe(_ write: QueuedWrite) throws(MarfaError) -> JSON.Object {
    var result: JSON.Object = [
      "write": .integer(write.id.number), "kind": .string(write.kind.rawValue), "state": .string(write.state.rawValue),
    ]
    if let item = write.item {
      result["item"] = .string("\(item)")
      // One that was refused is no item any more; what it was to be called stands in the write.
      let said = write.body["properties"]?.object?["title"] ?? write.body["title"]
      result["title"] = .string(try copy.items.get(item)?.title ?? said?.string ?? "")
    }
    if let path = try copy.queue.paths(of: write).first { result["path"] = .string(path) }
    if let edge = write.edge {
      result["edge"] = .string("\(edge)")
      if let row = try copy.edges.get(edge) {
        result["edge_type"] = .string(row.type)
        result["source"] = .string("\(row.source)")
        result["target"] = .string("\(row.target)")
        result["source_title"] = .optional(try copy.items.get(row.source)?.title)
        result["target_title"] = .optional(try copy.items.get(row.target)?.title)
      } else {
        // It was refused, and is here no more: the write says what it was to join.
        result["edge_type"] = write.body["edge_type"]
        for end in ["source", "target"] {
          guard let text = write.body["\(end)_id"]?.string else { continue }
          result[end] = .string(text)
          guard let item = ItemID(text) else { continue }
          var title = try copy.items.get(item)?.title
          if title == nil { title = try copy.queue.paths(of: item).first }
          result["\(end)_title"] = .optional(title)
        }
      }
    }
    if let blob = write.blob {
      result["hash"] = .string("\(blob)")
      result["size"] = try copy.blobs.size(blob).map { .integer($0) } ?? .null
    }
    for (key, value) in write.body.members where key == "tags" || key == "tag" || key == "namespace" {
      result[key] = value
    }
    if write.state == .sending, let blob = write.blob, write.kind == .uploadBlob {
      result["sent"] = .integer(copy.uploadProgress(of: blob) ?? 0)
    }
    result["gone_out"] = .bool(write.hasGoneOut)
    result["queued_at"] = .string(write.queuedAt.iso8601)
    if !write.dependsOn.isEmpty { result["depends_on"] = .array(write.dependsOn.map { .integer($0.number) }) }
    result.describe(write, store: copy.path)
    if let awaited = try copy.queue.awaited(by: write) {
      let blocked = Blocked.awaitingDependency(awaited)
      result["reason"] = .string(blocked.word)
      result["awaits"] = .integer(awaited.number)
      result["detail"] = .string(blocked.explained)
    }
    return result
  }
}

extension JSON.Object {
  /// Takes over every member, nulls too: here they say that something is not known.
  fileprivate mutating func add(_ other: JSON.Object) {
    for (key, value) in other.members { self[key] = value }
  }

  /// Why a write does not move, in the contract's words and in a person's.
  fileprivate mutating func describe(_ write: QueuedWrite, store: String) {
    self["advice"] = .optional(write.explained(store: store))
    if self["advice"] == .null { self["advice"] = nil }
    if let verdict = write.verdict { self["verdict"] = .string(verdict.word) }
    switch write.verdict {
    case nil, .accepted, .merged, .conflicted: break
    case .refused(let refusal):
      self["reason"] = .string(refusal.code)
      self["detail"] = .string(refusal.message)
      if let cause = refusal.becauseOf { self["because_of"] = .integer(cause.number) }
    case .blocked(let blocked):
      self["reason"] = .string(blocked.word)
      if case .credentialRefused(let grant?) = blocked { self["grant"] = .string(grant) }
    case .dead(let words):
      self["reason"] = "dead"
      self["detail"] = .string(words)
    }
  }
}

extension QueueCounts {
  /// `total`, a count for each state, and the bytes to send.
  var json: JSON.Object {
    var result: JSON.Object = ["total": .integer(total)]
    for state in WriteState.allCases { result[state.rawValue] = .integer(byState[state] ?? 0) }
    result["bytes"] = .integer(bytes)
    return result
  }
}

extension FileBudget {
  /// Reads `default`, `keep-all` or a number of bytes.
  init?(word: String) {
    switch word {
    case "default": self = .default
    case "keep-all": self = .keepAll
    default:
      guard let bytes = Int64(word), bytes >= 0 else { return nil }
      self = .bytes(bytes)
    }
  }

  /// The word for it, which ``init(word:)`` reads.
  public var word: String {
    switch self {
    case .default: "default"
    case .keepAll: "keep-all"
    case .bytes(let bytes): String(bytes)
    }
  }
}

extension FileCache {
  /// The budget, with the names the root's attributes have.
  fileprivate var budgetJSON: JSON.Object {
    [
      "budget_setting": .string(setting.word), "budget": budget.map { .integer($0) } ?? .null,
      "cache_held": held.map { .integer($0) } ?? .null, "volume_unreadable": .bool(volumeUnreadable),
    ]
  }

  /// All of it, with the names the root's attributes have.
  fileprivate var json: JSON.Object {
    var result = budgetJSON
    if let heldUnreadable { result["held_unreadable"] = .string(heldUnreadable) }
    guard let attachments else { return result }
    result["kept_held"] = .integer(attachments.held)
    result["kept_held_bytes"] = .integer(attachments.heldBytes)
    result["kept_partial_bytes"] = .integer(attachments.partialBytes)
    result["kept_not_held"] = .integer(attachments.notHeld)
    result["kept_not_held_bytes"] = .integer(attachments.notHeldBytes)
    var reasons: JSON.Object = [:]
    for entry in attachments.notHeldByReason {
      reasons[entry.reason.rawValue] = [
        "attachments": .integer(entry.attachments), "bytes": .integer(entry.bytes),
        "unstated": .integer(entry.unstated),
      ]
    }
    result["not_held"] = .object(reasons)
    return result
  }
}
