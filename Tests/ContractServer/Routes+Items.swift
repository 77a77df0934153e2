import MarfaEngine

extension Instance {
  func routeItems(_ inquiry: Inquiry, _ target: Target, _ actor: Actor) throws(ServerRefusal) -> Answer {
    let parts = target.parts
    switch (inquiry.method, parts.count, parts.count > 2 ? parts[2] : "") {
    case ("GET", 1, _): return try listItems(inquiry, target, actor)
    case ("POST", 1, _): return try createItem(inquiry, actor)
    case ("GET", 2, _): return try readItem(inquiry, target, actor, parts[1])
    case ("PATCH", 2, _): return try patchItem(inquiry, target, actor, parts[1])
    case ("DELETE", 2, _):
      try allow(inquiry)
      return try recorded(inquiry, actor) { (books) throws(ServerRefusal) in
        (200, try books.trash(actor, parts[1]).text)
      }
    case ("POST", 3, "restore"):
      try allow(inquiry)
      _ = try body(inquiry, [])
      return try recorded(inquiry, actor) { (books) throws(ServerRefusal) in
        (200, try books.restore(actor, parts[1]).text)
      }
    case ("POST", 3, "transition"):
      try allow(inquiry)
      let json = try body(inquiry, ["state"], required: ["state"])
      let state = try text(json, "state") ?? ""
      return try recorded(inquiry, actor) { (books) throws(ServerRefusal) in
        (200, try books.transition(actor, parts[1], to: state).text)
      }
    case ("GET", 3, "edges"), ("GET", 3, "backrefs"): return try itemEdges(inquiry, target, actor, parts[1], parts[2])
    case ("POST", 3, "tags"), ("DELETE", 4, "tags"): return try changeTags(inquiry, target, actor)
    case ("PUT", 3, "metadata"), ("PATCH", 3, "metadata"): return try changeMetadata(inquiry, target, actor)
    case ("PUT", 4, "extensions"), ("DELETE", 4, "extensions"): return try changeExtension(inquiry, target, actor)
    default: throw ServerRefusal(404, "not_found", "There is no such request.")
    }
  }

  // MARK: - Reading

  /// `include`: which parts besides the item.
  private func included(_ target: Target) throws(ServerRefusal) -> Set<String> {
    let names = Set(try names(target, "include"))
    guard names.isSubset(of: ["edges", "metadata"]) else { throw .invalid("include is edges, metadata.") }
    return names
  }

  private func listItems(_ inquiry: Inquiry, _ target: Target, _ actor: Actor) throws(ServerRefusal) -> Answer {
    try allow(inquiry, query: ["type", "tier", "state", "include", "limit", "cursor", "tags", "filter"])
    guard target["filter"] == nil else { throw .invalid("There is no such filter.") }
    let tier = target["tier"] ?? "library"
    let state = target["state"] ?? "active"
    guard ["library", "feed", "all"].contains(tier) else { throw .invalid("tier is library, feed or all.") }
    guard ["active", "archived", "trashed", "revoked", "any"].contains(state) else { throw .invalid("no such state") }
    let included = try included(target)
    let (limit, cursor) = (try limit(target), try cursor(target))
    let (wanted, tags) = (try names(target, "type"), try names(target, "tags"))
    let text = try withBooks { (books) throws(ServerRefusal) in
      var types: [String] = []
      for name in wanted {
        guard books.catalogue.type(name) != nil else {
          throw ServerRefusal(400, "unknown_type", "There is no type \(name).")
        }
        guard books.mayRead(actor, type: name) else { throw .forbidden("type_permissions:\(name):read") }
        types += books.catalogue.subtree(name)
      }
      if wanted.isEmpty { types = books.catalogue.types.map(\.id) }
      types = types.filter { books.mayRead(actor, type: $0) }
      let list = types.map { JSON.string($0).text }.joined(separator: ",")
      var conditions = "n > ?1 AND type IN (SELECT value FROM json_each(?2))"
      if tier != "all" { conditions += " AND tier = '\(tier)'" }
      if state != "any" { conditions += " AND state = '\(state)'" }
      var values: [Value] = [Value(cursor), .text("[\(list)]"), Value(Int64(limit + 1))]
      for tag in tags {
        values.append(.text(tag))
        conditions += " AND EXISTS (SELECT 1 FROM json_each(items.tags) WHERE value = ?\(values.count))"
      }
      let rows = try books.database.rows(
        "SELECT n, item, metadata, id FROM items WHERE \(conditions) ORDER BY n LIMIT ?3", values)
      var page: [String] = []
      for row in rows.prefix(limit) { page.append(try books.listed(row, included, actor)) }
      return Instance.page(page, next: rows.count > limit ? rows[limit - 1][0].int : nil)
    }
    return .json(200, text)
  }

  private func readItem(_ inquiry: Inquiry, _ target: Target, _ actor: Actor, _ id: String) throws(ServerRefusal)
    -> Answer
  {
    try allow(inquiry, query: ["include"])
    let included = try included(target)
    return .json(
      200,
      try withBooks { (books) throws(ServerRefusal) in
        let row = try books.active(id, actor)
        return try books.listed([.null, .text(row.item), .text(row.metadata), .text(id)], included, actor)
      })
  }

  private func itemEdges(_ inquiry: Inquiry, _ target: Target, _ actor: Actor, _ id: String, _ side: String)
    throws(ServerRefusal) -> Answer
  {
    try allow(inquiry, query: ["edge_type", "limit", "cursor"])
    let (limit, cursor) = (try limit(target), try cursor(target))
    let type = target["edge_type"]
    let text = try withBooks { (books) throws(ServerRefusal) in
      _ = try books.active(id, actor)
      return try books.edgePage(
        side == "edges" ? "source" : "target", id, type: type, after: cursor, limit: limit, actor)
    }
    return .json(200, text)
  }

  /// Words of titles and texts, those with most of them first.
  func search(_ inquiry: Inquiry, _ target: Target, _ actor: Actor) throws(ServerRefusal) -> Answer {
    try allow(inquiry, query: ["q", "type", "limit"])
    guard let q = target["q"], !q.isEmpty else { throw .invalid("q is empty.") }
    let (limit, types) = (try limit(target), try names(target, "type"))
    let text = try withBooks { (books) throws(ServerRefusal) in
      let words = q.lowercased().split(separator: " ").map(String.init)
      let rows = try books.database.rows(
        "SELECT n, item, metadata, id, type, lower(properties) FROM items WHERE state = 'active'")
      var found: [(score: Int, text: String)] = []
      for row in rows where books.mayRead(actor, type: row[4].text) {
        guard types.isEmpty || types.contains(where: { books.catalogue.isUnder(row[4].text, $0) }) else { continue }
        let score = words.filter { row[5].text.holds($0) }.count
        if score > 0 { found.append((score, try books.listed(row, ["metadata"], actor))) }
      }
      found.sort { $0.score > $1.score }
      return Instance.page(found.prefix(limit).map(\.text), next: nil)
    }
    return .json(200, text)
  }

  // MARK: - Writing

  private func createItem(_ inquiry: Inquiry, _ actor: Actor) throws(ServerRefusal) -> Answer {
    try allow(inquiry)
    let json = try body(
      inquiry, ["id", "type", "tier", "properties", "occurred_at", "source", "source_id"], required: ["type"])
    let id = try text(json, "id") ?? ItemID.mint().description
    guard ItemID(id) != nil, id.utf8.dropFirst(14).first == UInt8(ascii: "7") else {
      throw .invalid("id is no lowercase UUIDv7.")
    }
    let tier = try text(json, "tier") ?? "library"
    guard tier == "library" || tier == "feed" else { throw .invalid("tier is library or feed.") }
    let (type, properties) = (try text(json, "type") ?? "", try object(json, "properties") ?? JSON.Object())
    let (occurredAt, source) = (try text(json, "occurred_at"), try text(json, "source"))
    let sourceID = try text(json, "source_id")
    return try recorded(inquiry, actor) { (books) throws(ServerRefusal) in
      do throws(ServerRefusal) {
        let result = try books.createItem(
          actor, id: id, type: type, tier: tier, properties: properties, occurredAt: occurredAt, source: source,
          sourceID: sourceID)
        return (result.status, result.text)
      } catch {
        if error.code == "id_reused" { ledger.violate(.idReused, inquiry.exchange.number, error.message) }
        throw error
      }
    }
  }

  private func patchItem(_ inquiry: Inquiry, _ target: Target, _ actor: Actor, _ id: String) throws(ServerRefusal)
    -> Answer
  {
    try allow(inquiry, query: ["conflict"])
    guard target["conflict"] ?? "auto" == "auto" else { throw .invalid("conflict is auto.") }
    let json = try body(inquiry, ["version", "properties", "properties_mode", "occurred_at"])
    guard let version = json["version"]?.integer, version >= 1 else {
      ledger.violate(.updateWithoutVersion, inquiry.exchange.number, "PATCH \(inquiry.exchange.target)")
      throw .invalid("The body needs version.", ["key": "version"])
    }
    let mode = try text(json, "properties_mode") ?? "merge"
    guard mode == "merge" || mode == "replace" else { throw .invalid("properties_mode is merge or replace.") }
    let (properties, occurredAt) = (try object(json, "properties") ?? JSON.Object(), try text(json, "occurred_at"))
    return try recorded(inquiry, actor) { (books) throws(ServerRefusal) in
      let result = try books.updateItem(
        actor, id, version: version, properties: properties, replaces: mode == "replace",
        resolves: target["conflict"] != nil, occurredAt: occurredAt)
      return (200, result.text)
    }
  }

  // MARK: - Metadata: simply run again, no record

  private func changed(_ actor: Actor, _ id: String, _ change: (inout ItemRow) throws(ServerRefusal) -> Void)
    throws(ServerRefusal) -> Answer
  {
    let row = try withBooks { (books) throws(ServerRefusal) in try books.changeMetadata(actor, id, change) }
    return .json(200, "{\"metadata\":\(row.metadata)}")
  }

  /// An array of texts that are tags.
  private func tags(_ json: JSON.Object) throws(ServerRefusal) -> [String]? {
    guard let value = json["tags"] else { return nil }
    guard let array = value.array, array.allSatisfy({ $0.string?.isEmpty == false }) else {
      throw .invalid("tags are texts.")
    }
    return array.compactMap(\.string)
  }

  private func changeTags(_ inquiry: Inquiry, _ target: Target, _ actor: Actor) throws(ServerRefusal) -> Answer {
    try allow(inquiry)
    if inquiry.method == "DELETE" {
      return try changed(actor, target.parts[1]) { row in row.tags.removeAll { $0 == target.parts[3] } }
    }
    let json = try body(inquiry, ["tags"], required: ["tags"])
    guard let tags = try tags(json), !tags.isEmpty else { throw .invalid("tags are empty.") }
    return try changed(actor, target.parts[1]) { $0.add(tags) }
  }

  private func changeMetadata(_ inquiry: Inquiry, _ target: Target, _ actor: Actor) throws(ServerRefusal) -> Answer {
    try allow(inquiry)
    let json = try body(inquiry, ["tags", "extensions"])
    let (tags, extensions) = (try tags(json), try object(json, "extensions"))
    guard extensions?.members.allSatisfy({ $0.value.object != nil }) ?? true else {
      throw .invalid("An extension is an object.")
    }
    return try changed(actor, target.parts[1]) { row in
      if inquiry.method == "PUT" {
        row.tags = []
        row.extensions = extensions ?? JSON.Object()
      } else {
        for (name, value) in extensions?.members ?? [] {
          var merged = row.extensions[name]?.object ?? JSON.Object()
          merged.merge(value.object ?? JSON.Object())
          row.extensions[name] = .object(merged)
        }
      }
      row.add(tags ?? [])
    }
  }

  private func changeExtension(_ inquiry: Inquiry, _ target: Target, _ actor: Actor) throws(ServerRefusal) -> Answer {
    try allow(inquiry)
    let value = inquiry.method == "PUT" ? try body(inquiry, nil) : nil
    let row = try withBooks { (books) throws(ServerRefusal) in
      try books.changeMetadata(actor, target.parts[1]) { $0.extensions[target.parts[3]] = value.map { .object($0) } }
    }
    return .json(200, JSON.object(["extensions": .object(row.extensions)]).text)
  }
}

extension Books {
  /// A listing row: `[n, item, metadata, id]` with what was asked for.
  func listed(_ row: [Value], _ included: Set<String>, _ actor: Actor) throws(ServerRefusal) -> String {
    var text = "{\"item\":"
    if included.contains("edges") {
      text += row[1].text.dropLast()
      text += ",\"edges\":\(try edgeBlocks(row[3].text, actor))}"
    } else {
      text += row[1].text
    }
    if included.contains("metadata") { text += ",\"metadata\":\(row[2].text)" }
    return text + "}"
  }

  /// An item's outgoing edges by type, up to 50 of each.
  private func edgeBlocks(_ id: String, _ actor: Actor) throws(ServerRefusal) -> String {
    let first = try database.rows("SELECT type, edge FROM edges WHERE source = ?1 ORDER BY type, n LIMIT 51", .text(id))
    if first.isEmpty { return "{}" }
    var blocks: [String] = []
    var types: [String] = []
    if first.count <= 50 {
      for row in first where types.last != row[0].text { types.append(row[0].text) }
    } else {
      types = catalogue.edgeTypes.map(\.id)
    }
    for type in types where mayRead(actor, edgeType: type) {
      let page =
        first.count <= 50
        ? Instance.page(first.filter { $0[0].text == type }.map { $0[1].text }, next: nil)
        : try edgePage("source", id, type: type, after: 0, limit: 50, actor)
      if page.hasPrefix("{\"data\":[]") { continue }
      blocks.append("\(JSON.string(type).text):\(page)")
    }
    return "{\(blocks.joined(separator: ","))}"
  }

  /// A page of edges at one end (`source`, `target`) or, with neither, of a type.
  func edgePage(_ side: String, _ id: String?, type: String?, after: Int64, limit: Int, _ actor: Actor)
    throws(ServerRefusal) -> String
  {
    if let type {
      guard catalogue.edgeType(type) != nil else {
        throw ServerRefusal(400, "unknown_edge_type", "There is no edge type \(type).")
      }
      guard mayRead(actor, edgeType: type) else { throw .forbidden("edge_permissions:\(type):read") }
    }
    var conditions = "n > ?1"
    var values: [Value] = [Value(after), Value(Int64(limit + 1))]
    if let id {
      values.append(.text(id))
      conditions += " AND \(side) = ?\(values.count)"
    }
    if let type {
      values.append(.text(type))
      conditions += " AND type = ?\(values.count)"
    }
    let rows = try database.rows(
      "SELECT n, edge, type FROM edges WHERE \(conditions) ORDER BY n LIMIT ?2", values)
    let seen = rows.prefix(limit).filter { mayRead(actor, edgeType: $0[2].text) }
    return Instance.page(seen.map { $0[1].text }, next: rows.count > limit ? rows[limit - 1][0].int : nil)
  }
}
