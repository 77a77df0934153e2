import Testing

@testable import MarfaEngine

/// What a server would make of a queue: it applies each write as the contract says and refuses what the contract
/// refuses, so that a queue that a real server would not take fails a test.
final class ModelServer {
  private struct Row: Equatable {
    var type: String
    var tier: String
    var properties: JSON.Object
    var state = ItemState.active
    var version: Int64 = 1
    var tags: Set<String> = []
    var extensions: [String: JSON.Object] = [:]
  }

  struct Refusal: Error, CustomStringConvertible {
    var description: String
    init(_ words: String) { description = words }
  }

  private var items: [ItemID: Row] = [:]
  private var edges: [EdgeID: Edge] = [:]
  private var blobs: Set<BlobHash> = []
  /// The version a write was answered with, for the edits behind it.
  private var answered: [WriteID: Int64] = [:]

  /// Answers every write that waits, in the order of the queue, each once what it waits on is answered; then the copy
  /// adopts what the server has, and both must show the same.
  func drain(_ copy: WorkingCopy, picking pick: ([QueuedWrite]) -> Int = { _ in 0 }) throws {
    var waiting = try copy.queue.writes(limit: 100_000)
    while !waiting.isEmpty {
      let open = Set(waiting.map(\.id))
      let ready = waiting.filter { write in
        !write.dependsOn.contains(where: open.contains) && !(write.follows.map(open.contains) ?? false)
      }
      guard !ready.isEmpty else { throw Refusal("no write can go out: \(waiting.map { "\($0.kind) \($0.id)" })") }
      let write = ready[pick(ready)]
      do { try apply(write, copy) } catch let refusal as Refusal {
        throw Refusal("\(write.kind.rawValue) \(write.id) is refused: \(refusal); \(write.body)")
      }
      waiting.removeAll { $0.id == write.id }
    }
    try adopt(copy)
    try compare(copy)
  }

  // MARK: - One write

  private func apply(_ write: QueuedWrite, _ copy: WorkingCopy) throws {
    switch write.kind {
    case .uploadBlob:
      let hash = try given(write.blob)
      guard isThere(copy.blobStore.files.held(hash)) else { throw Refusal("the bytes are gone") }
      blobs.insert(hash)
    case .createItem:
      let id = try given(write.item)
      guard items[id] == nil else { throw Refusal("id_reused") }
      let row = Row(
        type: try given(write.body["type"]?.string), tier: try given(write.body["tier"]?.string),
        properties: try given(write.body["properties"]?.object))
      try check(row)
      items[id] = row
      answered[write.id] = 1
    case .updateItem:
      let id = try given(write.item)
      var row = try active(id)
      let base = try given(write.follows.flatMap { answered[$0] } ?? write.baseVersion)
      guard base == row.version else { throw Refusal("version_conflict: \(base) is not \(row.version)") }
      row.properties.merge(try given(write.body["properties"]?.object))
      row.version += 1
      try check(row)
      items[id] = row
      answered[write.id] = row.version
    case .deleteItem: try trash(try given(write.item))
    case .restoreItem:
      let id = try given(write.item)
      var row = try given(items[id])
      guard row.state == .trashed else { throw Refusal("it is not in the bin") }
      row.state = .active
      items[id] = row
      answered[write.id] = row.version
    case .transitionItem:
      let id = try given(write.item)
      var row = try active(id)
      row.state = try given(write.body["state"]?.string.flatMap { ItemState(rawValue: $0) })
      items[id] = row
      answered[write.id] = row.version
    case .addTag, .mergeMetadata, .replaceMetadata:
      let id = try given(write.item)
      var row = try active(id)
      if write.kind == .replaceMetadata { row.tags = [] }
      row.tags.formUnion(try given(write.body["tags"]?.array).compactMap(\.string))
      items[id] = row
      answered[write.id] = row.version
    case .removeTag:
      let id = try given(write.item)
      var row = try active(id)
      row.tags.remove(try given(write.body["tag"]?.string))
      items[id] = row
      answered[write.id] = row.version
    case .writeExtension, .deleteExtension:
      let id = try given(write.item)
      var row = try active(id)
      row.extensions[try given(write.body["namespace"]?.string)] = write.body["value"]?.object
      items[id] = row
      answered[write.id] = row.version
    case .createEdge:
      let edge = Edge(
        id: try given(write.edge), source: try given(write.body["source_id"]?.string.flatMap { ItemID($0) }),
        target: try given(write.body["target_id"]?.string.flatMap { ItemID($0) }),
        type: try given(write.body["edge_type"]?.string), properties: write.body["properties"]?.object ?? [:],
        version: 1)
      guard edges[edge.id] == nil else { throw Refusal("id_reused") }
      try check(edge)
      edges[edge.id] = edge
      answered[write.id] = 1
    case .updateEdge:
      var edge = try given(edges[try given(write.edge)])
      let base = try given(write.follows.flatMap { answered[$0] } ?? write.baseVersion)
      guard base == edge.version else { throw Refusal("version_conflict: \(base) is not \(edge.version)") }
      if let source = write.body["source_id"]?.string { edge.source = try given(ItemID(source)) }
      if let target = write.body["target_id"]?.string { edge.target = try given(ItemID(target)) }
      if let properties = write.body["properties"]?.object { edge.properties.merge(properties) }
      edge.version += 1
      try check(edge)
      edges[edge.id] = edge
      answered[write.id] = edge.version
    case .deleteEdge:
      guard edges.removeValue(forKey: try given(write.edge)) != nil else { throw Refusal("edge_not_found") }
    }
  }

  private func check(_ row: Row) throws {
    if FileTypes.isFileType(row.type) {
      let hash = try given(row.properties["blob_ref"]?.string.flatMap { BlobHash($0) })
      guard blobs.contains(hash) else { throw Refusal("blob_not_found") }
      guard row.properties["mime_type"]?.string != nil else { throw Refusal("mime_type is required") }
    }
    if row.type == "core.note", row.properties["body"]?.string == nil { throw Refusal("body is required") }
  }

  private func check(_ edge: Edge) throws {
    _ = try active(edge.source)
    _ = try active(edge.target)
    for other in edges.values where other.id != edge.id && other.type == edge.type {
      if other.source == edge.source && other.target == edge.target {
        throw Refusal("edge_constraint_violation: duplicate")
      }
      if edge.type == Edge.parentOf && other.target == edge.target {
        throw Refusal("edge_constraint_violation: a second parent")
      }
    }
    guard edge.type == Edge.parentOf else { return }
    var ancestor: ItemID? = edge.source
    while let current = ancestor {
      if current == edge.target { throw Refusal("edge_constraint_violation: a cycle") }
      ancestor = edges.values.first { $0.type == Edge.parentOf && $0.target == current && $0.id != edge.id }?.source
    }
  }

  private func active(_ id: ItemID) throws -> Row {
    guard let row = items[id] else { throw Refusal("item_not_found") }
    guard row.state != .trashed else { throw Refusal("item_not_found: trashed") }
    return row
  }

  /// Trashing a parent trashes its children.
  private func trash(_ id: ItemID) throws {
    var row = try active(id)
    row.state = .trashed
    items[id] = row
    for edge in edges.values where edge.type == Edge.parentOf && edge.source == id {
      if items[edge.target]?.state != .trashed { try trash(edge.target) }
    }
  }

  private func given<T>(_ value: T?) throws -> T {
    guard let value else { throw Refusal("something is missing") }
    return value
  }

  // MARK: - Afterwards

  /// What answering does to the copy's rows.
  private func adopt(_ copy: WorkingCopy) throws {
    try copy.store.write { (connection) throws(MarfaError) in
      try connection.run("DELETE FROM writes")
      for hash in blobs {
        try connection.run("UPDATE blobs SET stored = 1, uploaded = 1 WHERE hash = ?1") { $0.hash(1, hash) }
      }
      for (id, row) in items {
        try connection.run("UPDATE items SET version = ?2 WHERE id = ?1") {
          $0.id(1, id)
          $0.int(2, row.version)
        }
      }
      for edge in edges.values {
        try connection.run("UPDATE edges SET version = ?2 WHERE id = ?1") {
          $0.id(1, edge.id)
          $0.int(2, edge.version)
        }
      }
    }
  }

  /// The copy shows what the server has.
  private func compare(_ copy: WorkingCopy) throws {
    let (localItems, localEdges) = try copy.store.read { (connection) throws(MarfaError) in
      (try connection.allItems(), try connection.allEdges())
    }
    var seen: Set<ItemID> = []
    for item in localItems {
      seen.insert(item.id)
      guard let row = items[item.id] else { throw Refusal("the server has no \(item)") }
      var expected = Row(
        type: item.type, tier: item.tier.rawValue, properties: item.properties, state: item.state,
        version: item.version,
        tags: Set(item.tags))
      expected.extensions = row.extensions
      // Changes that had not gone out when it went to the bin were taken back; the server's answer will say what is so.
      if item.state == .trashed { expected.properties = row.properties }
      guard row == expected else { throw Refusal("the server has \(row), the copy \(expected)") }
    }
    for (id, row) in items where row.state != .trashed && !seen.contains(id) {
      throw Refusal("the copy has lost \(id): \(row)")
    }
    func inSight(_ edge: Edge) -> Bool {
      items[edge.source]?.state == .active && items[edge.target]?.state == .active
    }
    let here = Set(localEdges.filter(inSight).map { "\($0)" })
    let there = Set(edges.values.filter(inSight).map { "\($0)" })
    guard here == there else {
      throw Refusal("the edges differ: here only \(here.subtracting(there)), there only \(there.subtracting(here))")
    }
  }
}
