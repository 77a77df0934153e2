/// Reading the contract's shapes ("Shapes") from JSON: strict on what is used, tolerant of members nobody here knows. Each
/// throws ``RemoteFailure/unreadable(_:)`` with what was wrong, never with the value itself.
enum Decode {
  static func object(_ value: JSON?, _ what: String) throws(RemoteFailure) -> JSON.Object {
    guard let object = value?.object else { throw .unreadable("\(what) is missing or no object") }
    return object
  }

  static func text(_ value: JSON?, _ what: String) throws(RemoteFailure) -> String {
    guard let text = value?.string else { throw .unreadable("\(what) is missing or no text") }
    return text
  }

  /// A text or nothing; null counts as nothing.
  static func optionalText(_ value: JSON?, _ what: String) throws(RemoteFailure) -> String? {
    guard let value, value != .null else { return nil }
    return try text(value, what)
  }

  static func id<ID: Identifier>(_ value: JSON?, _ what: String) throws(RemoteFailure) -> ID {
    guard let id = ID(try text(value, what)) else { throw .unreadable("\(what) is no UUID") }
    return id
  }

  static func version(_ value: JSON?, _ what: String) throws(RemoteFailure) -> Int64 {
    guard let version = value?.integer, version >= 1 else { throw .unreadable("\(what) is no version") }
    return version
  }

  /// The name of a type or a namespace: not empty, no longer than 1024 bytes, without control characters.
  static func name(_ value: JSON?, _ what: String) throws(RemoteFailure) -> String {
    let name = try text(value, what)
    guard isName(name) else { throw .unreadable("\(what) is no name") }
    return name
  }

  static func isName(_ text: String) -> Bool {
    !text.isEmpty && text.utf8.count <= 1024 && text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
  }

  /// A page's cursor, which is the server's own business but for its size.
  static func cursor(_ value: JSON?) throws(RemoteFailure) -> String? {
    guard let text = try optionalText(value, "next_cursor"), !text.isEmpty else { return nil }
    guard text.utf8.count <= 4096 else { throw .unreadable("next_cursor is too long") }
    return text
  }

  /// The members of an object that are not `known`.
  static func rest(_ object: JSON.Object, _ known: Set<String>) -> JSON.Object {
    var rest = object
    for name in known { rest[name] = nil }
    return rest
  }
}

extension ItemRow {
  /// `{"item","metadata"}`.
  init(_ row: JSON.Object, needsMetadata: Bool = false) throws(RemoteFailure) {
    let item = try Decode.object(row["item"], "item")
    id = try Decode.id(item["id"], "an item's id")
    type = try Decode.name(item["type"], "an item's type")
    properties = try Decode.object(item["properties"], "an item's properties")
    guard let state = ItemState(rawValue: try Decode.text(item["state"], "an item's state")) else {
      throw .unreadable("an item's state is none of the contract's")
    }
    self.state = state
    guard let tier = Tier(rawValue: try Decode.text(item["tier"], "an item's tier")) else {
      throw .unreadable("an item's tier is none of the contract's")
    }
    self.tier = tier
    version = try Decode.version(item["version"], "an item's version")
    rest = Decode.rest(item, ["id", "type", "properties", "state", "tier", "version", "edges"])
    if let value = row["metadata"], value != .null {
      let object = try Decode.object(value, "metadata")
      metadata = try ItemMetadata(object)
      if let owner = object["item_id"], owner.string != id.description {
        throw .unreadable("an item's metadata is another item's")
      }
    } else if needsMetadata {
      throw .unreadable("an item comes without its metadata")
    }
    carriesEdges = item["edges"] != nil && item["edges"] != .null
    edges = carriesEdges ? try EdgeBlock.all(try Decode.object(item["edges"], "an item's edges"), source: id) : []
  }
}

extension ItemRow {
  /// A listing's row; without its edges, when only those can't be read.
  init(_ value: JSON, passingOver unreadable: inout [UnreadableRow]) throws(RemoteFailure) {
    var row = try Decode.object(value, "a row")
    do throws(RemoteFailure) { self = try ItemRow(row, needsMetadata: true) } catch {
      guard case .unreadable(let words) = error, var item = row["item"]?.object, item["edges"] != nil else {
        throw error
      }
      item["edges"] = nil
      row["item"] = .object(item)
      self = try ItemRow(row, needsMetadata: true)
      var edges = UnreadableRow(.item, value, words)
      edges.isOfEdgesOnly = true
      unreadable.append(edges)
    }
  }
}

extension ItemMetadata {
  init(_ object: JSON.Object) throws(RemoteFailure) {
    var tags: Set<String> = []
    if let value = object["tags"], value != .null {
      guard let array = value.array else { throw .unreadable("an item's tags are no array") }
      for tag in array {
        // A person's own words: one odd character must not keep a whole copy from being read.
        let text = try Decode.text(tag, "a tag")
        guard !text.isEmpty, text.utf8.count <= 4096, !text.utf8.contains(0) else {
          throw .unreadable("a tag is no name")
        }
        tags.insert(text)
      }
    }
    self.tags = tags.sorted()
    extensions = [:]
    if let value = object["extensions"], value != .null {
      extensions = try Decode.object(value, "an item's extensions")
    }
  }
}

extension EdgeBlock {
  /// `{TYPE: {"data":[edge],"next_cursor"}}` of the edges that `source` draws.
  static func all(_ object: JSON.Object, source: ItemID) throws(RemoteFailure) -> [EdgeBlock] {
    var blocks: [EdgeBlock] = []
    for (type, value) in object.members {
      guard Decode.isName(type) else { throw .unreadable("an edge's type is no name") }
      let page = try Page<EdgeRow>(value) { (row) throws(RemoteFailure) in try EdgeRow(row) }
      guard page.rows.allSatisfy({ $0.type == type && $0.source == source }) else {
        throw .unreadable("an item carries edges that are not its own")
      }
      blocks.append(EdgeBlock(type: type, edges: page.rows, nextCursor: page.nextCursor))
    }
    return blocks
  }
}

extension EdgeRow {
  /// An edge, or `{"edge": edge}`.
  init(_ value: JSON) throws(RemoteFailure) {
    let outer = try Decode.object(value, "an edge")
    let edge = outer["edge"]?.object ?? outer
    id = try Decode.id(edge["id"], "an edge's id")
    source = try Decode.id(edge["source_id"], "an edge's source")
    target = try Decode.id(edge["target_id"], "an edge's target")
    type = try Decode.name(edge["edge_type"], "an edge's type")
    properties = [:]
    if let value = edge["properties"], value != .null { properties = try Decode.object(value, "an edge's properties") }
    version = try Decode.version(edge["version"], "an edge's version")
    rest = Decode.rest(edge, ["id", "source_id", "target_id", "edge_type", "properties", "version"])
  }
}

extension ItemTypeRow {
  init(_ value: JSON) throws(RemoteFailure) {
    raw = try Decode.object(value, "a type")
    id = try Decode.name(raw["id"], "a type's id")
    parent = try Decode.optionalText(raw["parent"], "a type's parent")
    label = try Decode.optionalText(raw["label"], "a type's label") ?? id
    let hints = raw["display_hints"]?.object ?? [:]
    titleField = try Decode.optionalText(hints["title_field"], "a type's title_field")
    bodyField = try Decode.optionalText(hints["body_field"], "a type's body_field")
  }
}

extension EdgeTypeRow {
  init(_ value: JSON) throws(RemoteFailure) {
    raw = try Decode.object(value, "an edge type")
    id = try Decode.name(raw["id"], "an edge type's id")
  }
}

extension Page {
  /// `{"data":[…],"next_cursor":string|null}`.
  init(_ value: JSON, row: (JSON) throws(RemoteFailure) -> Row) throws(RemoteFailure) {
    let page = try Decode.object(value, "a page")
    guard let data = page["data"]?.array else { throw .unreadable("a page has no data") }
    rows = []
    for value in data { rows.append(try row(value)) }
    nextCursor = try Decode.cursor(page["next_cursor"])
  }

  /// The same, passing over rows that can't be read: one of them must not keep all others from being here.
  init(
    _ value: JSON, passingOver kind: UnreadableRow.Kind,
    row: (JSON, inout [UnreadableRow]) throws(RemoteFailure) -> Row
  ) throws(RemoteFailure) {
    let page = try Decode.object(value, "a page")
    guard let data = page["data"]?.array else { throw .unreadable("a page has no data") }
    rows = []
    for value in data {
      do throws(RemoteFailure) { rows.append(try row(value, &unreadable)) } catch {
        guard case .unreadable(let words) = error else { throw error }
        unreadable.append(UnreadableRow(kind, value, words))
      }
    }
    nextCursor = try Decode.cursor(page["next_cursor"])
  }
}
