import MarfaEngine

/// What an item write is answered with.
struct ItemResult {
  var row: ItemRow
  var status = 200
  var acknowledged = false
  /// `conflict_resolution`, and the copy it made.
  var resolution: JSON.Object?
  var copy: String?

  var text: String {
    var text = "{\"item\":\(row.item),\"metadata\":\(row.metadata)"
    if acknowledged { text += ",\"acknowledged\":true" }
    if let resolution { text += ",\"conflict_resolution\":\(JSON.object(resolution).text)" }
    if let copy { text += ",\"conflicted_copy_id\":\"\(copy)\"" }
    return text + "}"
  }
}

extension Books {
  /// `POST /items`. A repeat under the same id is acknowledged, another row under it refused.
  func createItem(
    _ actor: Actor, id: String, type: String, tier: String, properties: JSON.Object, occurredAt: String?,
    source: String?, sourceID: String?
  ) throws(ServerRefusal) -> ItemResult {
    try transaction { () throws(ServerRefusal) in
      guard let definition = catalogue.type(type) else {
        throw ServerRefusal(400, "unknown_type", "There is no type \(type).")
      }
      try needWrite(actor, type: type)
      let madeOf = JSON.array([
        .string(type), .string(tier), .object(properties), .optional(occurredAt), .optional(source),
        .optional(sourceID),
      ]).text
      if let row = try item(id) {
        guard mayRead(actor, type: row.type), row.madeOf == madeOf else {
          throw ServerRefusal(409, "id_reused", "The id \(id) is another item's.")
        }
        return ItemResult(row: row, acknowledged: true)
      }
      var kept = JSON.Object()
      for (key, value) in properties.members where value != .null { kept[key] = value }
      try check(kept, definition)
      let now = Books.now
      var row = ItemRow(
        id: id, type: type, tier: tier, properties: kept, source: source ?? "api", sourceID: sourceID,
        occurredAt: occurredAt ?? now, now: now, madeOf: madeOf)
      try lend(actor, &row, was: nil)
      try keep(row)
      try keepVersion(row)
      try emit("item.created", row)
      return ItemResult(row: row, status: 201)
    }
  }

  /// Whether properties are what their type declares.
  func check(_ properties: JSON.Object, _ type: TypeRow) throws(ServerRefusal) {
    for (name, field) in type.fields.members {
      let kind = field.object?["type"]?.string
      let value = properties[name]
      if field.object?["required"]?.bool == true, value == nil {
        throw ServerRefusal(400, "validation_error", "\(type.id) needs \(name).", ["field": .string(name)])
      }
      guard let value else { continue }
      guard kind != "text" || value.string != nil, kind != "blob" || BlobHash.onTheWire(value.string) else {
        throw ServerRefusal(400, "validation_error", "\(name) is no \(kind ?? "").", ["field": .string(name)])
      }
    }
  }

  /// Whether the row's reference lends its read: its writer had uploaded the bytes or could read them (contract
  /// "Blobs"). A reference that stays keeps what it had, unless it lends nothing and is written again.
  private func lend(_ actor: Actor, _ row: inout ItemRow, was: String?) throws(ServerRefusal) {
    let hash = row.properties["blob_ref"]?.string
    guard hash != was else { return }
    row.blob = hash
    row.lends = false
    guard let hash else { return }
    // One after the other: an `||` would lose which errors there are.
    row.lends = actor.isAdmin
    if !row.lends { row.lends = try hasUploaded(actor, hash) }
    if !row.lends { row.lends = try mayReadBlob(actor, hash) }
  }

  /// `PATCH /items/{id}`. `type` and `tier` only change at the server (the tests').
  func updateItem(
    _ actor: Actor, _ id: String, version: Int64, properties: JSON.Object, replaces: Bool, resolves: Bool,
    type: String? = nil, tier: String? = nil, occurredAt: String? = nil
  ) throws(ServerRefusal) -> ItemResult {
    try transaction { () throws(ServerRefusal) in
      var row = try active(id, actor, writing: true)
      try needWrite(actor, type: row.type)
      let current = row
      let base: JSON.Object
      if version == row.version {
        base = row.properties
      } else {
        let kept = try database.row(
          "SELECT properties FROM versions WHERE id = ?1 AND version = ?2", .text(id), Value(version))
        guard resolves, version < row.version, let kept else {
          throw ServerRefusal(
            409, "version_conflict", "The item is at version \(row.version).",
            ["current": .object(ItemRow.object(row.item))])
        }
        base = ItemRow.object(kept[0].text)
      }
      var result = ItemResult(row: row)
      let merged = merge(base: base, current: row, written: properties, replaces: replaces)
      row.properties = merged.properties
      if let type { row.type = type }
      if let tier { row.tier = tier }
      if let occurredAt { row.occurredAt = occurredAt }
      guard let definition = catalogue.type(row.type) else { throw .broken("no type \(row.type)") }
      try check(row.properties, definition)
      if version != current.version {
        result.resolution = ["fields": .array(merged.fields.map { .string($0) }), "strategy": .string(merged.strategy)]
        if merged.keepsBoth { result.copy = try conflictedCopy(of: current) }
      }
      let isNamedAnew = properties["blob_ref"] != nil && !current.lends
      try lend(actor, &row, was: isNamedAnew ? nil : current.blob)
      row.version += 1
      row.updatedAt = Books.now
      try keep(row)
      try keepVersion(row)
      try emit("item.updated", row)
      result.row = row
      return result
    }
  }

  /// What two changes of one base make. The later writer's fields win; `keepsBoth` when a field whose policy says so was
  /// changed by both, differently.
  private func merge(base: JSON.Object, current: ItemRow, written: JSON.Object, replaces: Bool)
    -> (properties: JSON.Object, fields: [String], strategy: String, keepsBoth: Bool)
  {
    var wanted = replaces ? JSON.Object() : base
    wanted.merge(written)
    var properties = current.properties
    var clashing: [String] = []
    var touched: [String] = []
    var seen: Set<String> = []
    for (name, _) in base.members + wanted.members where seen.insert(name).inserted {
      guard wanted[name] != base[name] else { continue }
      touched.append(name)
      if current.properties[name] != base[name], current.properties[name] != wanted[name] { clashing.append(name) }
      properties[name] = wanted[name]
    }
    let type = catalogue.type(current.type)
    let keepsBoth = clashing.contains { type?.policy($0) == "keep_both_copies" }
    let strategy = keepsBoth ? "keep_both_copies" : clashing.isEmpty ? "merge_fields" : "last_writer_wins"
    return (properties, clashing.isEmpty ? touched : clashing, strategy, keepsBoth)
  }

  /// The sibling that keeps what lost: the row as it was, with its tags and the edges it draws, and an edge back to it.
  private func conflictedCopy(of row: ItemRow) throws(ServerRefusal) -> String {
    let now = Books.now
    let id = ItemID.mint().description
    var copy = ItemRow(
      id: id, type: row.type, tier: row.tier, properties: row.properties, source: row.source, sourceID: nil,
      occurredAt: row.occurredAt, now: now, madeOf: "copy of \(row.id)")
    copy.tags = row.tags.contains("conflicted-copy") ? row.tags : row.tags + ["conflicted-copy"]
    copy.blob = row.blob
    copy.lends = row.lends
    try keep(copy)
    try keepVersion(copy)
    try emit("item.created", copy)
    let derived = EdgeRow(
      id: EdgeID.mint().description, source: id, target: row.id, type: "derived-from", properties: JSON.Object(),
      now: now)
    try keep(derived)
    try emit("edge.created", derived)
    for edge in try edges(from: row.id) {
      // A child has one parent: the copy cannot be a second one.
      guard catalogue.edgeType(edge.type)?.cardinality == .manyToMany else { continue }
      let drawn = EdgeRow(
        id: EdgeID.mint().description, source: id, target: edge.target, type: edge.type, properties: edge.properties,
        now: now)
      // The original's own derived-from may name the same target.
      if try triple(drawn) != nil { continue }
      try keep(drawn)
      try emit("edge.created", drawn)
    }
    return id
  }

  /// `DELETE /items/{id}`: into the bin, with its children.
  func trash(_ actor: Actor, _ id: String) throws(ServerRefusal) -> ItemResult {
    try transaction { () throws(ServerRefusal) in
      let row = try active(id, actor, writing: true)
      try needWrite(actor, type: row.type)
      return ItemResult(row: try trash(row, takenBy: nil))
    }
  }

  private func trash(_ row: ItemRow, takenBy: String?) throws(ServerRefusal) -> ItemRow {
    var row = row
    row.before = row.state
    row.state = "trashed"
    row.takenBy = takenBy
    row.updatedAt = Books.now
    try keep(row)
    try emit("item.deleted", row)
    for edge in try edges(from: row.id, type: "parent-of") {
      if let child = try item(edge.target), !child.isTrashed { _ = try trash(child, takenBy: takenBy ?? row.id) }
    }
    return row
  }

  /// `POST /items/{id}/restore`: out of the bin, with what its trashing took.
  func restore(_ actor: Actor, _ id: String) throws(ServerRefusal) -> ItemResult {
    try transaction { () throws(ServerRefusal) in
      guard let row = try item(id), mayRead(actor, type: row.type) else { throw .noItem(id) }
      try needWrite(actor, type: row.type)
      guard row.isTrashed else { throw ServerRefusal(400, "invalid_transition", "The item is not in the bin.") }
      for edge in try database.rows("SELECT source FROM edges WHERE target = ?1 AND type = 'parent-of'", .text(id)) {
        if let parent = try item(edge[0].text), parent.isTrashed {
          throw ServerRefusal(
            409, "ancestor_unavailable", "Its parent is in the bin.", ["ancestor_id": .string(parent.id)])
        }
      }
      let restored = try restore(row)
      let taken = try database.rows("SELECT \(ItemRow.columns) FROM items WHERE taken_by = ?1 ORDER BY n", .text(id))
      for child in taken { _ = try restore(ItemRow(child)) }
      return ItemResult(row: restored)
    }
  }

  private func restore(_ row: ItemRow) throws(ServerRefusal) -> ItemRow {
    var row = row
    row.state = row.before ?? "active"
    row.before = nil
    row.takenBy = nil
    row.updatedAt = Books.now
    try keep(row)
    try emit("item.restored", row)
    return row
  }

  /// `POST /items/{id}/transition`.
  func transition(_ actor: Actor, _ id: String, to state: String) throws(ServerRefusal) -> ItemResult {
    if state == "trashed" { return try trash(actor, id) }
    return try transaction { () throws(ServerRefusal) in
      var row = try active(id, actor, writing: true)
      try needWrite(actor, type: row.type)
      guard state == "active" || state == "archived" || (state == "revoked" && row.type.hasPrefix("system.")) else {
        throw ServerRefusal(400, "invalid_transition", "An item cannot become \(state).")
      }
      guard row.state != state else { return ItemResult(row: row) }
      row.state = state
      row.updatedAt = Books.now
      try keep(row)
      try emit("item.state_changed", row)
      return ItemResult(row: row)
    }
  }

  /// Gone for good, with the edges at both ends. No request of the contract does this.
  func purge(_ id: String) throws(ServerRefusal) {
    try transaction { () throws(ServerRefusal) in
      guard let row = try item(id) else { throw .noItem(id) }
      try database.rows("DELETE FROM edges WHERE source = ?1 OR target = ?1", .text(id))
      try database.rows("DELETE FROM items WHERE id = ?1", .text(id))
      try database.rows("DELETE FROM versions WHERE id = ?1", .text(id))
      try database.rows("INSERT OR IGNORE INTO gone VALUES (?1)", .text(id))
      // A purge names no edge: whoever holds the item drops them with it.
      try emit("item.purged", row)
    }
  }

  // MARK: - Tags and extensions

  /// Changes an item's metadata; its version stays.
  func changeMetadata(_ actor: Actor, _ id: String, _ change: (inout ItemRow) throws(ServerRefusal) -> Void)
    throws(ServerRefusal) -> ItemRow
  {
    try transaction { () throws(ServerRefusal) in
      var row = try active(id, actor, writing: true)
      try needWrite(actor, type: row.type)
      let before = row.metadata
      try change(&row)
      guard row.metadata != before else { return row }
      try keep(row)
      try emit("metadata.changed", row)
      return row
    }
  }
}

extension ItemRow {
  /// Adds tags that are not there.
  mutating func add(_ more: [String]) {
    for tag in more where !tags.contains(tag) { tags.append(tag) }
  }
}

extension BlobHash {
  /// Whether a text is a hash as the wire has it.
  static func onTheWire(_ text: String?) -> Bool {
    text.map { $0.hasPrefix("sha256:") && BlobHash($0) != nil } ?? false
  }
}
