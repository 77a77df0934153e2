import MarfaEngine

/// An item as the server holds it. `item` and `metadata` are the texts that go on the wire.
struct ItemRow {
  let n: Int64
  let id: String
  var type: String
  var tier: String
  var state: String
  var version: Int64
  var properties: JSON.Object
  var source: String
  var sourceID: String?
  var occurredAt: String
  let createdAt: String
  var updatedAt: String
  var tags: [String]
  var extensions: JSON.Object
  var before: String?
  var takenBy: String?
  let madeOf: String
  var blob: String?
  var lends: Bool

  static let columns = """
    n, id, type, tier, state, version, properties, source, source_id, occurred_at, created_at, updated_at, tags, \
    extensions, before, taken_by, made_of, blob, lends
    """

  init(_ row: [Value]) {
    n = row[0].int
    id = row[1].text
    type = row[2].text
    tier = row[3].text
    state = row[4].text
    version = row[5].int
    properties = ItemRow.object(row[6].text)
    source = row[7].text
    sourceID = row[8].optionalText
    occurredAt = row[9].text
    createdAt = row[10].text
    updatedAt = row[11].text
    tags = ((try? JSON(reading: row[12].text))?.array ?? []).compactMap(\.string)
    extensions = ItemRow.object(row[13].text)
    before = row[14].optionalText
    takenBy = row[15].optionalText
    madeOf = row[16].text
    blob = row[17].optionalText
    lends = row[18].bool
  }

  /// A new one.
  init(
    id: String, type: String, tier: String, properties: JSON.Object, source: String, sourceID: String?,
    occurredAt: String, now: String, madeOf: String
  ) {
    n = 0
    self.id = id
    self.type = type
    self.tier = tier
    state = "active"
    version = 1
    self.properties = properties
    self.source = source
    self.sourceID = sourceID
    self.occurredAt = occurredAt
    createdAt = now
    updatedAt = now
    tags = []
    extensions = JSON.Object()
    self.madeOf = madeOf
    lends = false
  }

  var isTrashed: Bool { state == "trashed" }

  /// The item as it is sent, without edges.
  var item: String {
    var row: JSON.Object = [
      "id": .string(id), "type": .string(type), "properties": .object(properties), "state": .string(state),
      "tier": .string(tier), "version": .integer(version), "schema_version": 1, "source": .string(source),
    ]
    // An absent column is left out, not null.
    if let sourceID { row["source_id"] = .string(sourceID) }
    row["occurred_at"] = .string(occurredAt)
    row["created_at"] = .string(createdAt)
    row["updated_at"] = .string(updatedAt)
    return JSON.object(row).text
  }

  /// The metadata as it is sent.
  var metadata: String {
    JSON.object([
      "item_id": .string(id), "tags": .array(tags.map { .string($0) }), "extensions": .object(extensions),
    ]).text
  }

  static func object(_ text: String) -> JSON.Object { (try? JSON(reading: text))?.object ?? JSON.Object() }
}

/// An edge as the server holds it.
struct EdgeRow {
  let n: Int64
  let id: String
  var source: String
  var target: String
  let type: String
  var version: Int64
  var properties: JSON.Object
  let createdAt: String
  var updatedAt: String

  static let columns = "n, id, source, target, type, version, properties, created_at, edge"

  init(_ row: [Value]) {
    n = row[0].int
    id = row[1].text
    source = row[2].text
    target = row[3].text
    type = row[4].text
    version = row[5].int
    properties = ItemRow.object(row[6].text)
    createdAt = row[7].text
    updatedAt = ItemRow.object(row[8].text)["updated_at"]?.string ?? createdAt
  }

  /// A new one.
  init(id: String, source: String, target: String, type: String, properties: JSON.Object, now: String) {
    n = 0
    self.id = id
    self.source = source
    self.target = target
    self.type = type
    version = 1
    self.properties = properties
    createdAt = now
    updatedAt = now
  }

  /// The edge as it is sent.
  var json: JSON {
    .object([
      "id": .string(id), "source_id": .string(source), "target_id": .string(target), "edge_type": .string(type),
      "properties": .object(properties), "version": .integer(version), "created_at": .string(createdAt),
      "updated_at": .string(updatedAt),
    ])
  }

  var edge: String { json.text }
}

extension Books {
  static var now: String { Timestamp.now.iso8601 }

  /// An item in any state.
  func item(_ id: String) throws(ServerRefusal) -> ItemRow? {
    try database.row("SELECT \(ItemRow.columns) FROM items WHERE id = ?1", .text(id)).map(ItemRow.init)
  }

  /// An item that is not in the bin and that `actor` may read.
  func active(_ id: String, _ actor: Actor, writing: Bool = false) throws(ServerRefusal) -> ItemRow {
    guard let row = try item(id), mayRead(actor, type: row.type) else { throw .noItem(id) }
    guard !row.isTrashed else { throw .noItem(id, trashed: writing) }
    return row
  }

  /// An edge `actor` may read.
  func edge(_ id: String, _ actor: Actor) throws(ServerRefusal) -> EdgeRow {
    let row = try database.row("SELECT \(EdgeRow.columns) FROM edges WHERE id = ?1", .text(id)).map(EdgeRow.init)
    guard let row, mayRead(actor, edgeType: row.type) else {
      throw ServerRefusal(404, "edge_not_found", "There is no edge \(id).")
    }
    return row
  }

  /// Edges of an item, all or of one type, as they stand.
  func edges(from source: String, type: String? = nil) throws(ServerRefusal) -> [EdgeRow] {
    let rows =
      if let type {
        try database.rows(
          "SELECT \(EdgeRow.columns) FROM edges WHERE source = ?1 AND type = ?2 ORDER BY n", .text(source), .text(type))
      } else {
        try database.rows("SELECT \(EdgeRow.columns) FROM edges WHERE source = ?1 ORDER BY n", .text(source))
      }
    return rows.map(EdgeRow.init)
  }

  /// Writes an item's columns back, or a new one.
  func keep(_ row: ItemRow) throws(ServerRefusal) {
    try database.rows(
      """
      INSERT INTO items (id, type, tier, state, version, properties, source, source_id, occurred_at, created_at,
        updated_at, tags, extensions, before, taken_by, made_of, blob, lends, item, metadata)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
      ON CONFLICT (id) DO UPDATE SET type = ?2, tier = ?3, state = ?4, version = ?5, properties = ?6, source = ?7,
        source_id = ?8, occurred_at = ?9, updated_at = ?11, tags = ?12, extensions = ?13, before = ?14, taken_by = ?15,
        blob = ?17, lends = ?18, item = ?19, metadata = ?20
      """,
      .text(row.id), .text(row.type), .text(row.tier), .text(row.state), Value(row.version),
      .text(JSON.object(row.properties).text), .text(row.source), Value(row.sourceID), .text(row.occurredAt),
      .text(row.createdAt), .text(row.updatedAt), .text(JSON.array(row.tags.map { .string($0) }).text),
      .text(JSON.object(row.extensions).text), Value(row.before), Value(row.takenBy), .text(row.madeOf),
      Value(row.blob), Value(row.lends), .text(row.item), .text(row.metadata))
  }

  /// Keeps an item's present fields as its version's, for merges to come.
  func keepVersion(_ row: ItemRow) throws(ServerRefusal) {
    try database.rows(
      "INSERT OR REPLACE INTO versions VALUES (?1, ?2, ?3)", .text(row.id), Value(row.version),
      .text(JSON.object(row.properties).text))
  }

  /// Writes an edge's columns back, or a new one.
  func keep(_ edge: EdgeRow) throws(ServerRefusal) {
    try database.rows(
      """
      INSERT INTO edges (id, source, target, type, version, properties, created_at, edge)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
      ON CONFLICT (id) DO UPDATE SET source = ?2, target = ?3, version = ?5, properties = ?6, edge = ?8
      """,
      .text(edge.id), .text(edge.source), .text(edge.target), .text(edge.type), Value(edge.version),
      .text(JSON.object(edge.properties).text), .text(edge.createdAt), .text(edge.edge))
  }
}
