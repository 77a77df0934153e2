/// Puts writes into the queue, inside the transaction that changes the rows they are about: what a local read shows and
/// what will be sent are one.
///
/// A write that has not gone out may still be changed or taken back; one that has never is (contract, "The queue").
struct Outbox {
  let connection: Connection
  /// Now.
  let now: Timestamp
  /// When the writes queued here may go out.
  let notBefore: Timestamp

  init(_ connection: Connection, now: Timestamp = .now, settling nanoseconds: Int64 = 0) {
    self.connection = connection
    self.now = now
    notBefore = Timestamp(nanoseconds: now.nanoseconds + nanoseconds)
  }

  // MARK: - Uploads

  /// Queues the upload of held bytes, and answers the write that sends them, an earlier one where it still waits; `nil`
  /// when this copy has uploaded them before. That another device's row names them is not enough: a row lends the bytes
  /// only when its writer had uploaded them or could read them as it wrote (contract, "Blobs"), and by then the other row
  /// may be gone. One upload serves every item that names the same bytes. `lasting`: it stays without an item that needs it (`blobs.put`).
  @discardableResult
  func upload(_ hash: BlobHash, mimeType: String, lasting: Bool = false) throws(MarfaError) -> WriteID? {
    if let existing = try uploadWrite(hash) {
      if lasting { try setBody(existing, ["mime_type": .string(mimeType), "lasting": true]) }
      return existing
    }
    // What is not here can't be sent: the server's word for it is all there is.
    if let blob = try connection.blob(hash), blob.uploaded || (blob.stored && !blob.held) { return nil }
    var body: JSON.Object = ["mime_type": .string(mimeType)]
    if lasting { body["lasting"] = true }
    return try insert(.uploadBlob, blob: hash, body: body)
  }

  private func uploadWrite(_ hash: BlobHash) throws(MarfaError) -> WriteID? {
    try connection.first(
      """
      SELECT number FROM writes WHERE blob = ?1 AND kind = 'upload_blob' AND state NOT IN ('refused', 'dead')
      ORDER BY number LIMIT 1
      """, { $0.hash(1, hash) }, { WriteID($0.int(0)) })
  }

  /// Takes back the upload of bytes that nothing waits for any more, when it has not gone out.
  func releaseUpload(_ hash: BlobHash) throws(MarfaError) {
    try connection.run(
      """
      DELETE FROM writes WHERE blob = ?1 AND kind = 'upload_blob' AND gone_out = 0
        AND json_extract(body, '$.lasting') IS NOT 1
        AND NOT EXISTS (SELECT 1 FROM writes w WHERE w.blob = ?1 AND w.kind <> 'upload_blob')
      """
    ) { $0.hash(1, hash) }
  }

  // MARK: - Items

  /// Inserts an item and queues its create.
  func createItem(_ item: Item) throws(MarfaError) -> WriteID {
    try connection.insertItem(item)
    let upload = try upload(of: item.properties, mimeType: item.mimeType)
    let id = try insert(
      .createItem, item: item.id, blob: item.blob,
      body: [
        "type": .string(item.type), "tier": .string(item.tier.rawValue), "properties": .object(item.properties),
      ], dependsOn: [upload])
    for tag in item.tags { try addTag(item.id, tag) }
    return id
  }

  /// Merges properties into an item and queues the update on the version held. With `folding`, a create or update of it
  /// that has not gone out is changed instead. `baseVersion`: it is a change of that version, older than the one held.
  /// Answers the write that now carries the change.
  @discardableResult
  func updateItem(
    _ id: ItemID, _ changes: JSON.Object, type: String? = nil, folding: Bool, baseVersion: Int64? = nil
  ) throws(MarfaError) -> WriteID {
    guard let item = try connection.item(id) else { throw .itemNotFound(id) }
    try keepServed(id)
    var properties = item.properties
    properties.merge(changes)
    try connection.setItem(id, type: type ?? item.type, properties: properties)
    if folding, let waiting = try unsentFields(of: id), (waiting.base ?? 0) <= baseVersion ?? .max {
      var body = waiting.body
      var merged = body["properties"]?.object ?? [:]
      merged.merge(changes)
      body["properties"] = .object(merged)
      // Only a create names the type: the server knows no change of one.
      if waiting.kind == .createItem, let type { body["type"] = .string(type) }
      try setBody(waiting.id, body)
      if let hash = changes["blob_ref"]?.string.flatMap({ BlobHash($0) }) {
        let upload = try upload(of: changes, mimeType: properties["mime_type"]?.string)
        let create = waiting.kind == .createItem ? nil : try createWrite(of: id)
        try setDependencies(waiting.id, [create, upload], blob: hash)
      }
      return waiting.id
    }
    let upload = try upload(of: changes, mimeType: properties["mime_type"]?.string)
    return try insert(
      .updateItem, item: id, blob: changes["blob_ref"]?.string.flatMap { BlobHash($0) },
      body: ["properties": .object(changes)], baseVersion: baseVersion ?? item.version,
      dependsOn: [try createWrite(of: id), upload])
  }

  /// The newest create or update of an item, when it has not gone out and nothing but tags follows it.
  private func unsentFields(of id: ItemID) throws(MarfaError) -> (
    id: WriteID, kind: WriteKind, body: JSON.Object, base: Int64?
  )? {
    let newest = try connection.first(
      """
      SELECT number, kind, body, gone_out = 0 AND state = 'queued', base_version FROM writes
      WHERE item = ?1 AND kind NOT IN ('add_tag', 'remove_tag') ORDER BY number DESC LIMIT 1
      """, { $0.id(1, id) },
      {
        (
          WriteID($0.int(0)), WriteKind(rawValue: $0.text(1)), Connection.object($0.text(2)), $0.bool(3),
          $0.optionalInt(4)
        )
      })
    guard let (write, kind, body, unsent, base) = newest, unsent, let kind, kind == .createItem || kind == .updateItem
    else { return nil }
    return (write, kind, body, base)
  }

  /// The create of an item, when it still waits.
  private func createWrite(of id: ItemID) throws(MarfaError) -> WriteID? {
    try connection.first(
      "SELECT number FROM writes WHERE item = ?1 AND kind = 'create_item' AND state NOT IN ('refused', 'dead')",
      { $0.id(1, id) }, { WriteID($0.int(0)) })
  }

  /// True when the item's create waits here and has not gone out: nobody else knows of it.
  func isUnsent(_ id: ItemID) throws(MarfaError) -> Bool {
    try connection.first(
      "SELECT 1 FROM writes WHERE item = ?1 AND kind = 'create_item' AND gone_out = 0", { $0.id(1, id) }, { _ in true })
      ?? false
  }

  /// Puts an item into the bin and queues that; one nobody else knows of goes with everything queued about it.
  /// Answers the delete's write, `nil` when everything was taken back.
  @discardableResult
  func deleteItem(_ id: ItemID) throws(MarfaError) -> WriteID? {
    if try isUnsent(id) {
      try withdraw(id)
      return nil
    }
    try keepServed(id)
    // Changes that have not gone out would only change what is in the bin.
    let blobs = try namedBlobs(id)
    try connection.run("DELETE FROM writes WHERE item = ?1 AND kind = 'update_item' AND gone_out = 0") { $0.id(1, id) }
    try relink(id)
    for hash in blobs { try releaseUpload(hash) }
    try connection.setItem(id, state: .trashed)
    return try insert(.deleteItem, item: id, dependsOn: try aheadOfDeleting(id))
  }

  /// The server puts an item's children into the bin with it. What is on its way out of it goes first; so does a child
  /// that is being deleted itself, or its delete would find it in the bin.
  private func aheadOfDeleting(_ id: ItemID) throws(MarfaError) -> [WriteID] {
    try connection.all(
      """
      SELECT w.number FROM served s JOIN writes w ON w.edge = s.id
      WHERE json_extract(s.row, '$.source') = ?2 AND json_extract(s.row, '$.type') = 'parent-of'
        AND w.state NOT IN ('refused', 'dead')
      UNION SELECT w.number FROM edges e JOIN writes w ON w.item = e.target
      WHERE e.source = ?1 AND e.type = 'parent-of' AND w.kind = 'delete_item'
        AND w.state NOT IN ('refused', 'dead')
      """,
      {
        $0.id(1, id)
        $0.text(2, "\(id)")
      }, { WriteID($0.int(0)) })
  }

  /// The server knows one parent of a child and no ring: an edge that gives `child` the parent `parent` waits for the
  /// writes that take the child from another one, or the parent, or one above it, from where it was.
  private func aheadOfMoving(_ child: ItemID, to parent: ItemID, by edge: EdgeID) throws(MarfaError) -> [WriteID] {
    var ahead = try movesWaiting(of: child).filter { $0.edge != edge }.map(\.id)
    var above: ItemID? = parent
    var seen: Set<ItemID> = [child]
    while let item = above, seen.insert(item).inserted {
      ahead += try movesWaiting(of: item).map(\.id)
      above = try connection.edges(to: item, type: Edge.parentOf).first?.source
    }
    return ahead
  }

  /// Writes that wait about an edge that the server has, between a child and its parent.
  private func movesWaiting(of child: ItemID) throws(MarfaError) -> [(id: WriteID, edge: EdgeID?)] {
    try connection.all(
      """
      SELECT w.number, w.edge FROM served s JOIN writes w ON w.edge = s.id
      WHERE json_extract(s.row, '$.target') = ?1 AND json_extract(s.row, '$.type') = 'parent-of'
        AND w.state NOT IN ('refused', 'dead')
      """, { $0.text(1, "\(child)") }, { (WriteID($0.int(0)), $0.edgeID(1)) })
  }

  private func withdraw(_ id: ItemID) throws(MarfaError) {
    let blobs = try namedBlobs(id)
    for edge in try connection.edges(touching: id) { try deleteEdge(edge.id) }
    try connection.run("DELETE FROM writes WHERE item = ?1") { $0.id(1, id) }
    try connection.deleteItemRow(id)
    for hash in blobs { try releaseUpload(hash) }
  }

  /// The bytes that writes of an item name.
  private func namedBlobs(_ id: ItemID) throws(MarfaError) -> [BlobHash] {
    try connection.all(
      "SELECT DISTINCT blob FROM writes WHERE item = ?1 AND blob IS NOT NULL", { $0.id(1, id) }, { $0.hash(0) }
    ).compactMap { $0 }
  }

  /// Closes the gaps that writes taken back leave in an item's chain: what followed one of them follows the one before
  /// it, or it could overtake that one.
  private func relink(_ id: ItemID) throws(MarfaError) {
    try connection.run(
      """
      UPDATE writes SET follows =
        (SELECT max(ahead.number) FROM writes ahead WHERE ahead.item = ?1 AND ahead.number < writes.number)
      WHERE item = ?1 AND gone_out = 0 AND NOT EXISTS (SELECT 1 FROM writes ahead WHERE ahead.number = writes.follows)
      """
    ) { $0.id(1, id) }
  }

  func restoreItem(_ id: ItemID) throws(MarfaError) -> WriteID {
    try keepServed(id)
    try connection.setItem(id, state: .active)
    return try insert(.restoreItem, item: id)
  }

  func transitionItem(_ id: ItemID, to state: ItemState) throws(MarfaError) -> WriteID {
    try keepServed(id)
    try connection.setItem(id, state: state)
    return try insert(
      .transitionItem, item: id, body: ["state": .string(state.rawValue)], dependsOn: [try createWrite(of: id)])
  }

  // MARK: - Tags, metadata, extensions

  /// Adds a tag; taking back a removal that has not gone out, when that is what it does.
  @discardableResult
  func addTag(_ id: ItemID, _ tag: String) throws(MarfaError) -> WriteID? {
    try keepServed(id)
    try connection.addTagRow(id, tag)
    if try takeBack(.removeTag, id, tag) { return nil }
    return try insert(.addTag, item: id, body: ["tags": [.string(tag)]], dependsOn: [try createWrite(of: id)])
  }

  /// Removes a tag; taking back an addition that has not gone out, when that is what it does.
  @discardableResult
  func removeTag(_ id: ItemID, _ tag: String) throws(MarfaError) -> WriteID? {
    try keepServed(id)
    try connection.removeTagRow(id, tag)
    if try takeBack(.addTag, id, tag) { return nil }
    return try insert(.removeTag, item: id, body: ["tag": .string(tag)], dependsOn: [try createWrite(of: id)])
  }

  private func takeBack(_ kind: WriteKind, _ id: ItemID, _ tag: String) throws(MarfaError) -> Bool {
    let taken = try connection.run(
      """
      DELETE FROM writes WHERE number = (SELECT max(number) FROM writes WHERE item = ?1 AND kind IN ('add_tag', 'remove_tag')
        AND coalesce(json_extract(body, '$.tag'), json_extract(body, '$.tags[0]')) = ?3) AND kind = ?2 AND gone_out = 0
      """
    ) {
      $0.id(1, id)
      $0.text(2, kind.rawValue)
      $0.text(3, tag)
    }
    if taken > 0 { try relink(id) }
    return taken > 0
  }

  func metadata(_ id: ItemID, tags: [String], replacing: Bool) throws(MarfaError) -> WriteID {
    try keepServed(id)
    if replacing {
      for tag in try connection.tags(of: id) { try connection.removeTagRow(id, tag) }
    }
    for tag in tags { try connection.addTagRow(id, tag) }
    var body: JSON.Object = ["tags": .array(tags.map { .string($0) })]
    // A replacement is of all of it: what it does not name would be gone.
    if replacing, let extensions = try connection.fullItem(id)?.extensions, !extensions.isEmpty {
      body["extensions"] = .object(extensions)
    }
    return try insert(
      replacing ? .replaceMetadata : .mergeMetadata, item: id, body: body, dependsOn: [try createWrite(of: id)])
  }

  func writeExtension(_ id: ItemID, _ namespace: String, _ value: JSON.Object?) throws(MarfaError) -> WriteID {
    try keepServed(id)
    try connection.setExtension(id, namespace, value.map { .object($0) })
    guard let value else {
      return try insert(
        .deleteExtension, item: id, body: ["namespace": .string(namespace)], dependsOn: [try createWrite(of: id)])
    }
    return try insert(
      .writeExtension, item: id, body: ["namespace": .string(namespace), "value": .object(value)],
      dependsOn: [try createWrite(of: id)])
  }

  // MARK: - Edges

  /// Draws an edge and queues its create, waiting on the creates of both ends.
  @discardableResult
  func createEdge(_ edge: Edge) throws(MarfaError) -> WriteID {
    let moves = edge.type == Edge.parentOf ? try aheadOfMoving(edge.target, to: edge.source, by: edge.id) : []
    try connection.insertEdge(edge)
    try connection.beganAttachment(edge)
    return try insert(
      .createEdge, edge: edge.id,
      body: [
        "source_id": .string("\(edge.source)"), "target_id": .string("\(edge.target)"),
        "edge_type": .string(edge.type), "properties": .object(edge.properties),
      ], dependsOn: [try createWrite(of: edge.source), try createWrite(of: edge.target)] + moves)
  }

  /// Changes an edge's properties or one of its ends. With `folding`, a create of it that has not gone out is changed
  /// instead.
  @discardableResult
  func updateEdge(
    _ id: EdgeID, source: ItemID? = nil, target: ItemID? = nil, properties: JSON.Object? = nil, folding: Bool
  ) throws(MarfaError) -> WriteID {
    guard var edge = try connection.edge(id) else { throw .edgeNotFound(id) }
    try keepServed(id)
    var changes: JSON.Object = [:]
    if let source {
      edge.source = source
      changes["source_id"] = .string("\(source)")
    }
    if let target {
      edge.target = target
      changes["target_id"] = .string("\(target)")
    }
    if let properties {
      edge.properties.merge(properties)
      changes["properties"] = .object(edge.properties)
    }
    var moves: [WriteID] = []
    if let source, edge.type == Edge.parentOf { moves = try aheadOfMoving(edge.target, to: source, by: id) }
    try connection.setEdge(edge)
    let newest = try connection.first(
      "SELECT number, kind, body, gone_out = 0 AND state = 'queued' FROM writes WHERE edge = ?1 ORDER BY number DESC LIMIT 1",
      { $0.id(1, id) },
      { (WriteID($0.int(0)), WriteKind(rawValue: $0.text(1)), Connection.object($0.text(2)), $0.bool(3)) })
    if folding, let (write, kind, body, unsent) = newest, unsent, kind == .createEdge || kind == .updateEdge,
      moves.allSatisfy({ $0.number < write.number })
    {
      var merged = body
      merged.merge(changes)
      try setBody(write, merged)
      try setDependencies(
        write,
        [
          kind == .updateEdge ? try createEdgeWrite(id) : nil, try createWrite(of: edge.source),
          try createWrite(of: edge.target),
        ] + moves)
      return write
    }
    return try insert(
      .updateEdge, edge: id, body: changes, baseVersion: edge.version,
      dependsOn: [try createEdgeWrite(id), try createWrite(of: edge.source), try createWrite(of: edge.target)] + moves)
  }

  private func createEdgeWrite(_ id: EdgeID) throws(MarfaError) -> WriteID? {
    try connection.first(
      "SELECT number FROM writes WHERE edge = ?1 AND kind = 'create_edge' AND state NOT IN ('refused', 'dead')",
      { $0.id(1, id) }, { WriteID($0.int(0)) })
  }

  /// Takes an edge away and queues that; one whose create has not gone out is taken back whole.
  @discardableResult
  func deleteEdge(_ id: EdgeID) throws(MarfaError) -> WriteID? {
    try keepServed(id)
    try connection.deleteEdgeRow(id)
    let unsent = try connection.first(
      "SELECT 1 FROM writes WHERE edge = ?1 AND kind = 'create_edge' AND gone_out = 0", { $0.id(1, id) }, { _ in true })
    if unsent != nil {
      try connection.run("DELETE FROM writes WHERE edge = ?1") { $0.id(1, id) }
      return nil
    }
    try connection.run("DELETE FROM writes WHERE edge = ?1 AND kind = 'update_edge' AND gone_out = 0") { $0.id(1, id) }
    return try insert(.deleteEdge, edge: id, dependsOn: [try createEdgeWrite(id)])
  }

  // MARK: - The server's rows

  /// Before the first write about an item the server has: its row is kept as it is there, to lay the writes over
  /// whatever comes of it, and to put it back.
  private func keepServed(_ id: ItemID) throws(MarfaError) {
    guard try !connection.hasWrites(about: id), let full = try connection.fullItem(id), full.item.version > 0 else {
      return
    }
    try connection.setServed(id, full)
  }

  private func keepServed(_ id: EdgeID) throws(MarfaError) {
    guard try !connection.hasWrites(about: id), let full = try connection.fullEdge(id), full.edge.version > 0 else {
      return
    }
    try connection.setServed(id, full)
  }

  // MARK: - Rows of the queue

  private func insert(
    _ kind: WriteKind, item: ItemID? = nil, edge: EdgeID? = nil, blob: BlobHash? = nil, body: JSON.Object = [:],
    baseVersion: Int64? = nil, dependsOn: [WriteID?] = []
  ) throws(MarfaError) -> WriteID {
    let follows: Int64?
    if kind == .createItem || kind == .createEdge {
      // The first there is about what was made this moment.
      follows = nil
    } else if let item {
      follows =
        try connection.first(
          "SELECT max(number) FROM writes WHERE item = ?1", { $0.id(1, item) }, { $0.optionalInt(0) }) ?? nil
    } else if let edge {
      follows =
        try connection.first(
          "SELECT max(number) FROM writes WHERE edge = ?1", { $0.id(1, edge) }, { $0.optionalInt(0) }) ?? nil
    } else {
      follows = nil
    }
    try connection.run(
      """
      INSERT INTO writes(kind, item, edge, blob, body, base_version, idempotency_key, follows, queued_at, not_before,
        depends_on)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
      """
    ) {
      $0.text(1, kind.rawValue)
      $0.id(2, item)
      $0.id(3, edge)
      $0.hash(4, blob)
      $0.text(5, JSON.object(body).text)
      $0.int(6, baseVersion)
      if kind == .uploadBlob { $0.null(7) } else { $0.bytes(7, .version7(milliseconds: now.milliseconds)) }
      $0.int(8, follows)
      $0.time(9, now)
      $0.time(10, notBefore)
      $0.text(11, Outbox.text(dependsOn))
    }
    return WriteID(connection.lastInsertedRow)
  }

  /// The writes one depends on, as its column has them.
  private static func text(_ writes: [WriteID?]) -> String? {
    var numbers: [String] = []
    for case let write? in writes where !numbers.contains("\(write)") { numbers.append("\(write)") }
    return numbers.isEmpty ? nil : numbers.joined(separator: ",")
  }

  private func setBody(_ id: WriteID, _ body: JSON.Object) throws(MarfaError) {
    try connection.run(
      "UPDATE writes SET body = ?2, not_before = max(not_before, ?3) WHERE number = ?1 AND gone_out = 0"
    ) {
      $0.int(1, id.number)
      $0.text(2, JSON.object(body).text)
      $0.time(3, notBefore)
    }
  }

  private func setDependencies(_ id: WriteID, _ writes: [WriteID?], blob: BlobHash? = nil) throws(MarfaError) {
    try connection.run(
      "UPDATE writes SET depends_on = ?2, blob = coalesce(?3, blob) WHERE number = ?1 AND gone_out = 0"
    ) {
      $0.int(1, id.number)
      $0.text(2, Outbox.text(writes))
      $0.hash(3, blob)
    }
  }

  /// A create or update that names bytes waits for their upload: a reference lends its read only when its writer had
  /// uploaded the bytes before it (contract, "Blobs").
  private func upload(of properties: JSON.Object, mimeType: String?) throws(MarfaError) -> WriteID? {
    guard let hash = properties["blob_ref"]?.string.flatMap({ BlobHash($0) }) else { return nil }
    return try upload(hash, mimeType: mimeType ?? MIMEType.unknown)
  }
}
