/// An item with everything a server's row carries.
struct FullItem: Sendable, Equatable {
  var item: Item
  var extensions: JSON.Object = [:]
  /// The members no column has.
  var rest: JSON.Object = [:]

  init(_ item: Item, extensions: JSON.Object = [:], rest: JSON.Object = [:]) {
    self.item = item
    self.extensions = extensions
    self.rest = rest
  }

  /// A row as it came; tags and extensions that it did not carry stay those of `before`.
  init(_ row: ItemRow, before: FullItem?) {
    item = Item(
      id: row.id, type: row.type, properties: row.properties, state: row.state, tier: row.tier, version: row.version,
      tags: row.metadata?.tags ?? before?.item.tags ?? [], pinned: before?.item.pinned ?? false)
    extensions = row.metadata?.extensions ?? before?.extensions ?? [:]
    rest = row.rest
  }

  /// When the server last changed it, as far as the row tells.
  var updatedAt: Timestamp? {
    for key in ["updated_at", "created_at"] {
      if let time = rest[key]?.string.flatMap({ Timestamp(iso8601: $0) }) { return time }
    }
    return nil
  }
}

/// An edge with everything a server's row carries.
struct FullEdge: Sendable, Equatable {
  var edge: Edge
  var rest: JSON.Object = [:]
}

/// The rows of `served` and `owed`, and the full rows of items and edges.
extension Connection {
  func fullItem(_ id: ItemID) throws(MarfaError) -> FullItem? {
    guard let item = try item(id) else { return nil }
    var full = FullItem(item)
    full.rest =
      try first("SELECT rest FROM items WHERE id = ?1", { $0.id(1, id) }, { Connection.object($0.text(0)) }) ?? [:]
    for (namespace, value) in try all(
      "SELECT namespace, value FROM extensions WHERE item = (SELECT number FROM items WHERE id = ?1) ORDER BY namespace",
      { $0.id(1, id) }, { ($0.text(0), try? JSON(reading: $0.text(1))) })
    { full.extensions[namespace] = value }
    return full
  }

  /// Writes an item's row, tags and extensions, whatever was there.
  func setFullItem(_ full: FullItem, seen: Int64?) throws(MarfaError) {
    let item = full.item
    try run(
      """
      INSERT INTO items(id, type, properties, state, tier, version, pinned, rest, seen)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, coalesce(?9, 0))
      ON CONFLICT(id) DO UPDATE SET type = ?2, properties = ?3, state = ?4, tier = ?5, version = ?6, rest = ?8,
        seen = coalesce(?9, seen)
      """
    ) {
      $0.id(1, item.id)
      $0.text(2, item.type)
      $0.text(3, JSON.object(item.properties).text)
      $0.text(4, item.state.rawValue)
      $0.text(5, item.tier.rawValue)
      $0.int(6, item.version)
      $0.bool(7, item.pinned)
      $0.text(8, JSON.object(full.rest).text)
      $0.int(9, seen)
    }
    let tags = try tags(of: item.id)
    for tag in tags where !item.tags.contains(tag) { try removeTagRow(item.id, tag) }
    for tag in item.tags where !tags.contains(tag) { try addTagRow(item.id, tag) }
    let namespaces = try all(
      "SELECT namespace FROM extensions WHERE item = (SELECT number FROM items WHERE id = ?1)", { $0.id(1, item.id) },
      { $0.text(0) })
    for namespace in namespaces where full.extensions[namespace] == nil {
      try setExtension(item.id, namespace, nil)
    }
    for (namespace, value) in full.extensions.members where !namespace.isEmpty {
      try setExtension(item.id, namespace, value)
    }
  }

  func fullEdge(_ id: EdgeID) throws(MarfaError) -> FullEdge? {
    guard let edge = try edge(id) else { return nil }
    let rest = try first("SELECT rest FROM edges WHERE id = ?1", { $0.id(1, id) }, { Connection.object($0.text(0)) })
    return FullEdge(edge: edge, rest: rest ?? [:])
  }

  func setFullEdge(_ full: FullEdge, seen: Int64?) throws(MarfaError) {
    try run(
      """
      INSERT INTO edges(id, source, target, type, properties, version, rest, seen)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, coalesce(?8, 0))
      ON CONFLICT(id) DO UPDATE SET source = ?2, target = ?3, type = ?4, properties = ?5, version = ?6, rest = ?7,
        seen = coalesce(?8, seen)
      """
    ) {
      $0.id(1, full.edge.id)
      $0.id(2, full.edge.source)
      $0.id(3, full.edge.target)
      $0.text(4, full.edge.type)
      $0.text(5, JSON.object(full.edge.properties).text)
      $0.int(6, full.edge.version)
      $0.text(7, JSON.object(full.rest).text)
      $0.int(8, seen)
    }
  }

  // MARK: - The server's row under waiting writes

  func hasWrites(about id: ItemID) throws(MarfaError) -> Bool {
    try first("SELECT 1 FROM writes WHERE item = ?1 AND state <> 'refused' LIMIT 1", { $0.id(1, id) }, { _ in true })
      ?? false
  }

  func hasWrites(about id: EdgeID) throws(MarfaError) -> Bool {
    try first("SELECT 1 FROM writes WHERE edge = ?1 AND state <> 'refused' LIMIT 1", { $0.id(1, id) }, { _ in true })
      ?? false
  }

  func servedItem(_ id: ItemID) throws(MarfaError) -> FullItem? {
    guard let object = try servedRow(id.bytes) else { return nil }
    return FullItem(
      Item(
        id: id, type: object["type"]?.string ?? "", properties: object["properties"]?.object ?? [:],
        state: object["state"]?.string.flatMap { ItemState(rawValue: $0) } ?? .active,
        tier: object["tier"]?.string.flatMap { Tier(rawValue: $0) } ?? .library,
        version: object["version"]?.integer ?? 0,
        tags: object["tags"]?.array?.compactMap { $0.string } ?? [],
        pinned: try item(id)?.pinned ?? false),
      extensions: object["extensions"]?.object ?? [:], rest: object["rest"]?.object ?? [:])
  }

  func setServed(_ id: ItemID, _ full: FullItem?) throws(MarfaError) {
    guard let full else { return try setServedRow(id.bytes, nil) }
    try setServedRow(
      id.bytes,
      [
        "type": .string(full.item.type), "properties": .object(full.item.properties),
        "state": .string(full.item.state.rawValue), "tier": .string(full.item.tier.rawValue),
        "version": .integer(full.item.version), "tags": .array(full.item.tags.map { .string($0) }),
        "extensions": .object(full.extensions), "rest": .object(full.rest),
      ])
  }

  func servedEdge(_ id: EdgeID) throws(MarfaError) -> FullEdge? {
    guard let object = try servedRow(id.bytes), let source = object["source"]?.string.flatMap({ ItemID($0) }),
      let target = object["target"]?.string.flatMap({ ItemID($0) })
    else { return nil }
    return FullEdge(
      edge: Edge(
        id: id, source: source, target: target, type: object["type"]?.string ?? "",
        properties: object["properties"]?.object ?? [:], version: object["version"]?.integer ?? 0),
      rest: object["rest"]?.object ?? [:])
  }

  func setServed(_ id: EdgeID, _ full: FullEdge?) throws(MarfaError) {
    guard let full else { return try setServedRow(id.bytes, nil) }
    try setServedRow(
      id.bytes,
      [
        "source": .string("\(full.edge.source)"), "target": .string("\(full.edge.target)"),
        "type": .string(full.edge.type), "properties": .object(full.edge.properties),
        "version": .integer(full.edge.version), "rest": .object(full.rest),
      ])
  }

  private func servedRow(_ id: Bytes128) throws(MarfaError) -> JSON.Object? {
    try first("SELECT row FROM served WHERE id = ?1", { $0.bytes(1, id) }, { Connection.object($0.text(0)) })
  }

  private func setServedRow(_ id: Bytes128, _ row: JSON.Object?) throws(MarfaError) {
    guard let row else {
      try run("DELETE FROM served WHERE id = ?1") { $0.bytes(1, id) }
      return
    }
    try run("INSERT OR REPLACE INTO served(id, row) VALUES (?1, ?2)") {
      $0.bytes(1, id)
      $0.text(2, JSON.object(row).text)
    }
  }

  // MARK: - Read-backs owed

  /// An item's row is to be read. `isTold`: the server has told since that it has no such item.
  func owe(_ id: ItemID, isTold: Bool = false) throws(MarfaError) {
    try run(
      "INSERT INTO owed(item, is_told) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET is_told = max(is_told, excluded.is_told)"
    ) {
      $0.id(1, id)
      $0.bool(2, isTold)
    }
  }

  func settleOwed(_ id: ItemID) throws(MarfaError) { try run("DELETE FROM owed WHERE item = ?1") { $0.id(1, id) } }

  /// True when an item that the server does not find is one it has told of: purged, or in the bin, where it shows none.
  func isToldGone(_ id: ItemID) throws(MarfaError) -> Bool {
    let isTold = try first("SELECT is_told FROM owed WHERE item = ?1", { $0.id(1, id) }, { $0.bool(0) }) ?? true
    if isTold { return true }
    let known = try hasWrites(about: id) ? servedItem(id) : fullItem(id)
    return known.map { $0.item.state == .trashed || $0.item.version == 0 } ?? true
  }

  /// A hydration that is through has told of all there is: of what it met, its row.
  func noteAllTold(_ number: Int64) throws(MarfaError) {
    try run("DELETE FROM owed WHERE item IN (SELECT id FROM items WHERE seen = ?1 AND version > 0)") {
      $0.int(1, number)
    }
    try run("UPDATE owed SET is_told = 1")
  }

  func owed(limit: Int) throws(MarfaError) -> [ItemID] {
    try all("SELECT item FROM owed LIMIT ?1", { $0.int(1, Int64(limit)) }, { $0.itemID(0) }).compactMap { $0 }
  }
}
