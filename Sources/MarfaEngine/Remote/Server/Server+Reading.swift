extension Server {
  /// `GET /`, without the key: who answers there.
  public func instance(_ cancellation: Cancellation) throws(RemoteFailure) -> Instance {
    let raw = try Decode.object(try get("/", [], authorized: false, cancellation), "the instance")
    return Instance(
      name: try Decode.optionalText(raw["name"], "the instance's name") ?? "",
      version: try Decode.optionalText(raw["version"], "the instance's version") ?? "",
      id: try Decode.text(raw["instance_id"], "the instance's id"),
      features: raw["features"]?.array?.compactMap(\.string) ?? [], raw: raw)
  }

  /// `GET /keys/current`: the key's grants, as they came.
  public func currentKey(_ cancellation: Cancellation) throws(RemoteFailure) -> JSON.Object {
    try Decode.object(try get("/keys/current", [], cancellation), "the key's grants")
  }

  /// `GET /types`: the whole catalogue.
  public func types(_ cancellation: Cancellation) throws(RemoteFailure) -> [ItemTypeRow] {
    try catalogue("/types", cancellation) { (row) throws(RemoteFailure) in try ItemTypeRow(row) }
  }

  /// `GET /edge-types`: all of them.
  public func edgeTypes(_ cancellation: Cancellation) throws(RemoteFailure) -> [EdgeTypeRow] {
    try catalogue("/edge-types", cancellation) { (row) throws(RemoteFailure) in try EdgeTypeRow(row) }
  }

  /// `GET /items`: a page of a type's items in any state, each with its metadata and its first edges. What can't be read is
  /// passed over.
  public func items(
    type: String, tier: TierFilter, cursor: String? = nil, limit: Int = 200, _ cancellation: Cancellation
  ) throws(RemoteFailure) -> Page<ItemRow> {
    let page = try get(
      "/items",
      [
        ("type", type), ("tier", tier.rawValue), ("state", "any"), ("include", "edges,metadata"), ("limit", "\(limit)"),
        ("cursor", cursor),
      ], cancellation)
    return try Page(page, passingOver: .item) { (row, unreadable) throws(RemoteFailure) in
      try ItemRow(row, passingOver: &unreadable)
    }
  }

  /// `GET /items/{id}` with edges and metadata. `nil` when the server has no such item, or has it in the bin.
  public func item(_ id: ItemID, _ cancellation: Cancellation) throws(RemoteFailure) -> ItemRow? {
    let row: JSON
    do throws(RemoteFailure) {
      row = try get("/items/\(id)", [("include", "edges,metadata")], cancellation)
    } catch {
      if case .refused(let refusal) = error, refusal.status == 404, refusal.code == "item_not_found" { return nil }
      throw error
    }
    let item = try ItemRow(try Decode.object(row, "a row"), needsMetadata: true)
    guard item.id == id else { throw .unreadable("another item than was asked for") }
    return item
  }

  /// `GET /items/{id}/edges`: a page of the edges an item draws, of one type or of all.
  public func edges(
    of item: ItemID, type: String? = nil, cursor: String? = nil, limit: Int = 200, _ cancellation: Cancellation
  ) throws(RemoteFailure) -> Page<EdgeRow> {
    try edges("/items/\(item)/edges", type, cursor, limit, cancellation)
  }

  /// `GET /items/{id}/backrefs`: a page of the edges that end at an item.
  public func backrefs(
    of item: ItemID, type: String? = nil, cursor: String? = nil, limit: Int = 200, _ cancellation: Cancellation
  ) throws(RemoteFailure) -> Page<EdgeRow> {
    try edges("/items/\(item)/backrefs", type, cursor, limit, cancellation)
  }

  /// `GET /edges`: a page of every edge of a type that the key reads. What can't be read is passed over.
  public func edges(
    type: String, cursor: String? = nil, limit: Int = 200, _ cancellation: Cancellation
  ) throws(RemoteFailure) -> Page<EdgeRow> {
    let page = try get("/edges", [("edge_type", type), ("limit", "\(limit)"), ("cursor", cursor)], cancellation)
    return try Page(page, passingOver: .edge) { (row, _) throws(RemoteFailure) in try EdgeRow(row) }
  }

  private func edges(
    _ path: String, _ type: String?, _ cursor: String?, _ limit: Int, _ cancellation: Cancellation
  ) throws(RemoteFailure) -> Page<EdgeRow> {
    let page = try get(path, [("edge_type", type), ("limit", "\(limit)"), ("cursor", cursor)], cancellation)
    return try Page(page) { (row) throws(RemoteFailure) in try EdgeRow(row) }
  }

  private func catalogue<Row: Sendable>(
    _ path: String, _ cancellation: Cancellation, _ decode: (JSON) throws(RemoteFailure) -> Row
  ) throws(RemoteFailure) -> [Row] {
    var rows: [Row] = []
    try Server.eachPage { (cursor) throws(RemoteFailure) in
      let value = try get(path, [("cursor", cursor)], cancellation)
      // The contract shows a catalogue's rows and not what is around them: a page, or the rows alone.
      return try Page(value.array == nil ? value : ["data": value], row: decode)
    } _: { (page) throws(RemoteFailure) in
      rows += page
      guard rows.count <= 100_000 else { throw .unreadable("a catalogue of more than 100000 rows") }
    }
    return rows
  }

  /// Walks a listing to its end: fetches each page by the cursor of the one before, and hands on its rows. A cursor that
  /// was there before is an error, not a loop (contract "Requests and answers").
  public static func eachPage<Row: Sendable>(
    from start: String? = nil, _ fetch: (String?) throws(RemoteFailure) -> Page<Row>,
    _ body: ([Row]) throws(RemoteFailure) -> Void
  ) throws(RemoteFailure) {
    var cursor = start
    var seen: Set<Int> = []
    while true {
      if let cursor {
        // Hashes rather than the texts: a listing has as many cursors as pages.
        guard seen.insert(cursor.hashValue).inserted else { throw .unreadable("a page's cursor repeats") }
      }
      let page = try fetch(cursor)
      try body(page.rows)
      guard let next = page.nextCursor else { return }
      cursor = next
    }
  }
}
