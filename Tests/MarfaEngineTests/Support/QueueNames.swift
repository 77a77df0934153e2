@testable import MarfaEngine

/// Says a queue in words, a line a write, with titles for ids and texts for bytes:
///
///     1 upload "one"
///     2 create file "a.txt" of "one" <- 1
///     3 attach "a.txt" to "D" <- 2
///
/// `<-` names what a write waits on (`depends_on`), `after` the write ahead of it to the same row when that is none of
/// those (`follows`), `@1` the version it is based on. A write that has gone out bears a `!`.
struct QueueNames {
  private var titles: [ItemID: String] = [:]
  private var edges: [EdgeID: Edge] = [:]

  /// Remembers what rows are called now, for when they are gone.
  mutating func note(_ copy: WorkingCopy) throws {
    let (items, edges) = try copy.store.read { (connection) throws(MarfaError) in
      (
        try connection.all(
          "SELECT id, json_extract(properties, '$.title') FROM items", { _ in }, { ($0.itemID(0), $0.text(1)) }),
        try connection.allEdges()
      )
    }
    for case (let id?, let title) in items { titles[id] = title }
    for edge in edges { self.edges[edge.id] = edge }
  }

  func lines(_ copy: WorkingCopy) throws -> [String] {
    let writes = try copy.queue.writes()
    let numbers = Dictionary(uniqueKeysWithValues: writes.enumerated().map { ($0.element.id, $0.offset + 1) })
    return try writes.enumerated().map { offset, write in
      var line = "\(offset + 1) \(try words(write, copy))"
      if let base = write.baseVersion { line += " @\(base)" }
      let waits = write.dependsOn.sorted().map { numbers[$0].map(String.init) ?? "gone" }
      if !waits.isEmpty { line += " <- " + waits.joined(separator: ",") }
      if let ahead = write.follows.flatMap({ numbers[$0] }), !write.dependsOn.contains(where: { $0 == write.follows }) {
        line += " after \(ahead)"
      }
      return write.hasGoneOut ? line + " !" : line
    }
  }

  private func words(_ write: QueuedWrite, _ copy: WorkingCopy) throws -> String {
    switch write.kind {
    case .uploadBlob: return "upload \(bytes(write.blob, copy))"
    case .createItem:
      let properties = write.body["properties"]?.object ?? [:]
      let title = properties["title"]?.string ?? ""
      var line = "create \((write.body["type"]?.string ?? "").dropFirst("core.".count)) \"\(title)\""
      if let reference = properties["blob_ref"]?.string { line += " of \(bytes(BlobHash(reference), copy))" }
      return line
    case .updateItem:
      var changes: [String] = []
      for (key, value) in write.body["properties"]?.object?.members ?? [] {
        switch key {
        case "title": changes.append("title \"\(value.string ?? "")\"")
        case "blob_ref": changes.append("bytes \(bytes(value.string.flatMap { BlobHash($0) }, copy))")
        case "mime_type": break
        default: changes.append("\(key) \(value.text)")
        }
      }
      return "update \(name(write.item)): \(changes.joined(separator: ", "))"
    case .deleteItem: return "trash \(name(write.item))"
    case .restoreItem: return "restore \(name(write.item))"
    case .transitionItem: return "move \(name(write.item)) to \(write.body["state"]?.string ?? "")"
    case .createEdge: return draw(edge(write))
    case .updateEdge:
      guard let source = write.body["source_id"]?.string.flatMap({ ItemID($0) }) else {
        return "change the edge of \(name(edge(write)?.source))"
      }
      return "put \(name(edge(write)?.target)) into \(name(source)) instead"
    case .deleteEdge:
      guard let edge = edge(write) else { return "take an edge away" }
      return edge.type == Edge.parentOf
        ? "take \(name(edge.target)) out of \(name(edge.source))"
        : "detach \(name(edge.source)) from \(name(edge.target))"
    case .addTag: return "tag \(name(write.item)) \(write.body["tags"]?.array?.first?.string ?? "")"
    case .removeTag: return "untag \(name(write.item)) \(write.body["tag"]?.string ?? "")"
    case .replaceMetadata: return "replace the tags of \(name(write.item))"
    case .mergeMetadata: return "add to the tags of \(name(write.item))"
    case .writeExtension: return "extend \(name(write.item)) by \(write.body["namespace"]?.string ?? "")"
    case .deleteExtension: return "strip \(name(write.item)) of \(write.body["namespace"]?.string ?? "")"
    }
  }

  private func draw(_ edge: Edge?) -> String {
    guard let edge else { return "draw an edge" }
    switch edge.type {
    case Edge.parentOf: return "put \(name(edge.target)) into \(name(edge.source))"
    case Edge.attachedTo: return "attach \(name(edge.source)) to \(name(edge.target))"
    default: return "draw \(edge.type) from \(name(edge.source)) to \(name(edge.target))"
    }
  }

  private func edge(_ write: QueuedWrite) -> Edge? { write.edge.flatMap { edges[$0] } }

  private func name(_ id: ItemID?) -> String { "\"\(id.flatMap { titles[$0] } ?? "?")\"" }

  private func bytes(_ hash: BlobHash?, _ copy: WorkingCopy) -> String {
    guard let hash else { return "nothing" }
    guard let bytes = try? contents(copy.blobStore.files.held(hash)) else { return "what is not here" }
    return bytes.count <= 40 ? "\"\(String(decoding: bytes, as: UTF8.self))\"" : "\(bytes.count) bytes"
  }
}

extension Connection {
  func allEdges() throws(MarfaError) -> [Edge] {
    try all(
      "SELECT id, source, target, type, properties, version FROM edges ORDER BY number", { _ in },
      { row -> Edge? in
        guard let id = row.edgeID(0), let source = row.itemID(1), let target = row.itemID(2) else { return nil }
        return Edge(
          id: id, source: source, target: target, type: row.text(3), properties: Connection.object(row.text(4)),
          version: row.int(5))
      }
    ).compactMap { $0 }
  }

  func allItems() throws(MarfaError) -> [Item] {
    var items: [Item] = []
    for id in try all("SELECT id FROM items ORDER BY number", { _ in }, { $0.itemID(0) }) {
      if let id, let item = try item(id) { items.append(item) }
    }
    return items
  }
}
