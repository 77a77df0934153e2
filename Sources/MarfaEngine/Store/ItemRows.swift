/// The rows of `items`, `tags`, `extensions` and `edges`.
extension Connection {
  func item(_ id: ItemID) throws(MarfaError) -> Item? {
    guard
      var item = try first(
        "SELECT type, properties, state, tier, version, pinned FROM items WHERE id = ?1", { $0.id(1, id) },
        { row in
          Item(
            id: id, type: row.text(0), properties: Connection.object(row.text(1)),
            state: ItemState(rawValue: row.text(2)) ?? .active, tier: Tier(rawValue: row.text(3)) ?? .library,
            version: row.int(4), tags: [], pinned: row.bool(5))
        })
    else { return nil }
    item.tags = try tags(of: id)
    return item
  }

  func tags(of id: ItemID) throws(MarfaError) -> [String] {
    try all(
      "SELECT tag FROM tags WHERE item = (SELECT number FROM items WHERE id = ?1) ORDER BY tag", { $0.id(1, id) },
      { $0.text(0) })
  }

  func insertItem(_ item: Item) throws(MarfaError) {
    try run(
      "INSERT INTO items(id, type, properties, state, tier, version, pinned) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
    ) {
      $0.id(1, item.id)
      $0.text(2, item.type)
      $0.text(3, JSON.object(item.properties).text)
      $0.text(4, item.state.rawValue)
      $0.text(5, item.tier.rawValue)
      $0.int(6, item.version)
      $0.bool(7, item.pinned)
    }
  }

  func setItem(_ id: ItemID, type: String, properties: JSON.Object) throws(MarfaError) {
    try run("UPDATE items SET type = ?2, properties = ?3 WHERE id = ?1") {
      $0.id(1, id)
      $0.text(2, type)
      $0.text(3, JSON.object(properties).text)
    }
  }

  func setItem(_ id: ItemID, state: ItemState) throws(MarfaError) {
    try run("UPDATE items SET state = ?2 WHERE id = ?1") {
      $0.id(1, id)
      $0.text(2, state.rawValue)
    }
  }

  func setItem(_ id: ItemID, pinned: Bool) throws(MarfaError) {
    try run("UPDATE items SET pinned = ?2 WHERE id = ?1") {
      $0.id(1, id)
      $0.bool(2, pinned)
    }
  }

  /// Takes an item and its tags out; its edges are the caller's.
  func deleteItemRow(_ id: ItemID) throws(MarfaError) {
    try run("DELETE FROM items WHERE id = ?1") { $0.id(1, id) }
  }

  func addTagRow(_ id: ItemID, _ tag: String) throws(MarfaError) {
    try run("INSERT OR IGNORE INTO tags(item, tag) SELECT number, ?2 FROM items WHERE id = ?1") {
      $0.id(1, id)
      $0.text(2, tag)
    }
  }

  func removeTagRow(_ id: ItemID, _ tag: String) throws(MarfaError) {
    try run("DELETE FROM tags WHERE item = (SELECT number FROM items WHERE id = ?1) AND tag = ?2") {
      $0.id(1, id)
      $0.text(2, tag)
    }
  }

  func extensionValue(_ id: ItemID, _ namespace: String) throws(MarfaError) -> JSON? {
    try first(
      "SELECT value FROM extensions WHERE item = (SELECT number FROM items WHERE id = ?1) AND namespace = ?2",
      {
        $0.id(1, id)
        $0.text(2, namespace)
      }, { try? JSON(reading: $0.text(0)) }) ?? nil
  }

  func setExtension(_ id: ItemID, _ namespace: String, _ value: JSON?) throws(MarfaError) {
    guard let value else {
      try run("DELETE FROM extensions WHERE item = (SELECT number FROM items WHERE id = ?1) AND namespace = ?2") {
        $0.id(1, id)
        $0.text(2, namespace)
      }
      return
    }
    try run(
      "INSERT OR REPLACE INTO extensions(item, namespace, value) SELECT number, ?2, ?3 FROM items WHERE id = ?1"
    ) {
      $0.id(1, id)
      $0.text(2, namespace)
      $0.text(3, value.text)
    }
  }

  // MARK: - Edges

  func edge(_ id: EdgeID) throws(MarfaError) -> Edge? {
    try first(
      "SELECT id, source, target, type, properties, version FROM edges WHERE id = ?1", { $0.id(1, id) }, { $0.edge() })
      ?? nil
  }

  func edge(from source: ItemID, to target: ItemID, type: String) throws(MarfaError) -> Edge? {
    try first(
      """
      SELECT id, source, target, type, properties, version FROM edges WHERE source = ?1 AND target = ?2 AND type = ?3
      """,
      {
        $0.id(1, source)
        $0.id(2, target)
        $0.text(3, type)
      }, { $0.edge() }) ?? nil
  }

  func edges(from source: ItemID, type: String) throws(MarfaError) -> [Edge] {
    try all(
      "SELECT id, source, target, type, properties, version FROM edges WHERE source = ?1 AND type = ?2 ORDER BY number",
      {
        $0.id(1, source)
        $0.text(2, type)
      }, { $0.edge() }
    ).compactMap { $0 }
  }

  func edges(to target: ItemID, type: String) throws(MarfaError) -> [Edge] {
    try all(
      "SELECT id, source, target, type, properties, version FROM edges WHERE target = ?1 AND type = ?2 ORDER BY number",
      {
        $0.id(1, target)
        $0.text(2, type)
      }, { $0.edge() }
    ).compactMap { $0 }
  }

  /// Every edge at either end of an item.
  func edges(touching id: ItemID) throws(MarfaError) -> [Edge] {
    try all(
      """
      SELECT id, source, target, type, properties, version FROM edges WHERE source = ?1
      UNION SELECT id, source, target, type, properties, version FROM edges WHERE target = ?1
      """, { $0.id(1, id) }, { $0.edge() }
    ).compactMap { $0 }
  }

  func insertEdge(_ edge: Edge) throws(MarfaError) {
    try run("INSERT INTO edges(id, source, target, type, properties, version) VALUES (?1, ?2, ?3, ?4, ?5, ?6)") {
      $0.id(1, edge.id)
      $0.id(2, edge.source)
      $0.id(3, edge.target)
      $0.text(4, edge.type)
      $0.text(5, JSON.object(edge.properties).text)
      $0.int(6, edge.version)
    }
  }

  func setEdge(_ edge: Edge) throws(MarfaError) {
    try run("UPDATE edges SET source = ?2, target = ?3, properties = ?4 WHERE id = ?1") {
      $0.id(1, edge.id)
      $0.id(2, edge.source)
      $0.id(3, edge.target)
      $0.text(4, JSON.object(edge.properties).text)
    }
  }

  func deleteEdgeRow(_ id: EdgeID) throws(MarfaError) {
    try run("DELETE FROM edges WHERE id = ?1") { $0.id(1, id) }
  }

  // MARK: - Settings

  func setting(_ name: String) throws(MarfaError) -> String? {
    try first("SELECT value FROM settings WHERE name = ?1", { $0.text(1, name) }, { $0.text(0) })
  }

  func setSetting(_ name: String, _ value: String?) throws(MarfaError) {
    guard let value else {
      try run("DELETE FROM settings WHERE name = ?1") { $0.text(1, name) }
      return
    }
    try run("INSERT OR REPLACE INTO settings(name, value) VALUES (?1, ?2)") {
      $0.text(1, name)
      $0.text(2, value)
    }
  }

  /// The object of a column this program wrote; an unreadable one counts as empty rather than stop a listing.
  static func object(_ text: String) -> JSON.Object { (try? JSON(reading: text))?.object ?? [:] }
}

extension Row {
  /// An edge from six columns: id source target type properties version.
  fileprivate func edge() -> Edge? {
    guard let id = edgeID(0), let source = itemID(1), let target = itemID(2) else { return nil }
    return Edge(
      id: id, source: source, target: target, type: text(3), properties: Connection.object(text(4)), version: int(5))
  }
}
