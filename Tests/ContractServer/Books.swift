import CLinux
import Glibc
import MarfaEngine

/// Who writes or reads: a key, or the tests themselves, who may do everything.
struct Actor {
  let name: String
  let types: [String: APIKey.Grant]
  let edges: [String: APIKey.Grant]

  init(_ key: APIKey) {
    name = key.name
    types = key.types
    edges = key.edges
  }

  private init() {
    name = "\u{1}admin"
    types = ["*": .write]
    edges = ["*": .write]
  }

  /// The tests, as the person at the server.
  static let admin = Actor()

  var isAdmin: Bool { name == Actor.admin.name }
}

/// Everything the server knows: rows, log, record. One thread at a time has it (``ContractServer`` guards it).
final class Books {
  let database: Database
  let folder: String
  var catalogue: Catalogue
  var retainedEvents: Int?
  /// The log's head.
  private(set) var head: Int64
  /// How deep in transactions we are.
  private var depth = 0

  init(folder: String, catalogue: Catalogue, retainedEvents: Int?) throws(ServerRefusal) {
    self.folder = folder
    self.catalogue = catalogue
    self.retainedEvents = retainedEvents
    do {
      try Path.makeDirectory(folder, mode: 0o755)
      try Path.makeDirectory(folder + "/blobs", mode: 0o755)
    } catch { throw .broken("\(folder): \(error)") }
    database = try Database(path: folder + "/server.db")
    try database.execute(Schema.sql)
    // The numbers go on where they were, though the log may be empty.
    head = try database.row("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?[0].int ?? 0
  }

  /// A name of this instance, the same as long as its folder lives.
  func instance() throws(ServerRefusal) -> String {
    if let row = try database.row("SELECT value FROM facts WHERE name = 'instance'") { return row[0].text }
    let id = ItemID.mint().description
    try database.rows("INSERT INTO facts VALUES ('instance', ?1)", .text(id))
    return id
  }

  /// Runs `body` as one transaction; what it throws takes everything back.
  func transaction<R>(_ body: () throws(ServerRefusal) -> R) throws(ServerRefusal) -> R {
    guard depth == 0 else { return try body() }
    let headBefore = head
    try database.execute("BEGIN IMMEDIATE")
    depth += 1
    defer { depth -= 1 }
    do {
      let result = try body()
      try database.execute("COMMIT")
      return result
    } catch {
      head = headBefore
      try database.execute("ROLLBACK")
      throw error
    }
  }

  // MARK: - Backups

  private func snapshot(_ name: String) -> String { "\(folder)/snapshot-\(name).db" }

  func takeSnapshot(_ name: String) throws(ServerRefusal) {
    let path = snapshot(name)
    do { try Path.remove(path) } catch { throw .broken("\(error)") }
    try database.rows("VACUUM INTO ?1", .text(path))
  }

  /// Every table as it was; blobs' files stay, as an object store's do.
  func restoreSnapshot(_ name: String) throws(ServerRefusal) {
    try database.rows("ATTACH ?1 AS snapshot", .text(snapshot(name)))
    try transaction { () throws(ServerRefusal) in
      let tables = ["items", "versions", "edges", "blobs", "uploads", "events", "replies", "links"]
      // A client may name what it was told of before.
      try database.execute("INSERT OR IGNORE INTO gone SELECT id FROM items")
      for table in tables {
        try database.execute("DELETE FROM main.\(table); INSERT INTO main.\(table) SELECT * FROM snapshot.\(table)")
      }
      try database.execute(
        "DELETE FROM main.sqlite_sequence; INSERT INTO main.sqlite_sequence SELECT * FROM snapshot.sqlite_sequence")
    }
    try database.execute("DETACH snapshot")
    head = try database.row("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?[0].int ?? 0
  }

  // MARK: - Grants

  private func grant(_ grants: [String: APIKey.Grant], _ name: String, isUnder: (String) -> Bool) -> APIKey.Grant? {
    if let exact = grants[name] { return exact }
    return grants.filter { $0.key == "*" || isUnder($0.key) }.max { $0.key.count < $1.key.count }?.value
  }

  func mayRead(_ actor: Actor, type: String) -> Bool {
    actor.isAdmin || grant(actor.types, type) { catalogue.isUnder(type, $0) } != nil
  }

  func mayRead(_ actor: Actor, edgeType: String) -> Bool {
    actor.isAdmin || grant(actor.edges, edgeType) { _ in false } != nil
  }

  func needWrite(_ actor: Actor, type: String) throws(ServerRefusal) {
    guard !actor.isAdmin, grant(actor.types, type, isUnder: { catalogue.isUnder(type, $0) }) != .write else { return }
    throw .forbidden("type_permissions:\(type):write")
  }

  func needWrite(_ actor: Actor, edgeType: String) throws(ServerRefusal) {
    guard !actor.isAdmin, grant(actor.edges, edgeType, isUnder: { _ in false }) != .write else { return }
    throw .forbidden("edge_permissions:\(edgeType):write")
  }

  // MARK: - The log

  /// Adds an event of an item.
  func emit(_ event: String, _ row: ItemRow) throws(ServerRefusal) {
    try emit(event, type: row.type, edgeType: nil, "\"item\":\(row.item),\"metadata\":\(row.metadata)}")
  }

  /// Adds an event of an edge.
  func emit(_ event: String, _ edge: EdgeRow) throws(ServerRefusal) {
    let type = try item(edge.source)?.type ?? ""
    try emit(
      event, type: type, edgeType: edge.type, "\"edge\":\(edge.edge),\"source_type\":\(JSON.string(type).text)}")
  }

  private func emit(_ event: String, type: String, edgeType: String?, _ data: String) throws(ServerRefusal) {
    try database.rows(
      "INSERT INTO events (event, type, edge_type, data) VALUES (?1, ?2, ?3, ?4)", .text(event), .text(type),
      Value(edgeType), .text(data))
    head = database.lastRow
    if let retainedEvents { try retire(keeping: retainedEvents) }
  }

  /// Drops all but the last events.
  func retire(keeping count: Int) throws(ServerRefusal) {
    try database.rows("DELETE FROM events WHERE id <= ?1", Value(head - Int64(count)))
  }

  /// The oldest event still there; one past the head when there is none.
  func oldestEvent() throws(ServerRefusal) -> Int64 {
    let row = try database.row("SELECT min(id) FROM events")
    if case .int(let oldest)? = row?[0] { return oldest }
    return head + 1
  }

  /// Events after a cursor, at most `limit`: number, name, data.
  func events(after cursor: Int64, limit: Int, for actor: Actor, types: [String] = []) throws(ServerRefusal)
    -> (events: [(id: Int64, name: String, data: String)], last: Int64)
  {
    let rows = try database.rows(
      "SELECT id, event, type, edge_type, data FROM events WHERE id > ?1 ORDER BY id LIMIT ?2", Value(cursor),
      Value(Int64(limit)))
    var events: [(id: Int64, name: String, data: String)] = []
    for row in rows {
      guard mayRead(actor, type: row[2].text) else { continue }
      guard types.isEmpty || types.contains(where: { catalogue.isUnder(row[2].text, $0) }) else { continue }
      if let edgeType = row[3].optionalText, !mayRead(actor, edgeType: edgeType) { continue }
      events.append((row[0].int, row[1].text, row[4].text))
    }
    return (events, rows.last?[0].int ?? cursor)
  }
}

@available(*, unavailable) extension Books: Sendable {}
