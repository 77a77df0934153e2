/// What a server says of its rows, laid under the writes that wait and shown, in the transaction that learns of it
/// (contract, "Events" and "The queue"). Nothing here queues anything.
extension Tree.Change {
  // MARK: - Items

  /// Takes a server's row of an item. One strictly older than the row held changes nothing. `slice` is what the copy
  /// declared: a row outside it goes, unless it is pinned or a write about it waits.
  func receive(_ row: ItemRow, slice: Slice, seen: Int64? = nil) throws(MarfaError) {
    let shown = try connection.fullItem(row.id)
    let waiting = try connection.hasWrites(about: row.id)
    let before = waiting ? try connection.servedItem(row.id) : shown
    // A hydration is what the server has now: one that was restored from a backup has older versions.
    if seen == nil, let before, before.item.version > row.version { return }
    let full = FullItem(row, before: before)
    if let before, before.item.blob != full.item.blob {
      // A version names one content, and a later one is never followed by an earlier.
      let isSetBack = try before.item.version >= row.version ? true : connection.isServerBehind()
      if isSetBack { try keepLostVersion(of: before.item, before: full.item) }
    }
    guard waiting || slice.holds(type: row.type, tier: row.tier) || shown?.item.pinned == true else {
      return try forget(row.id, purged: false)
    }
    try connection.setServed(row.id, waiting ? full : nil)
    try render(row.id, waiting ? try connection.overlaid(row.id, over: full) : full, was: shown, seen: seen)
    if waiting, seen != nil { try rebase(try connection.queue(about: row.id), onto: row.version) }
  }

  /// A server that was set back has an older version than waiting edits are of: they are edits of what it has now, and those
  /// that it would not settle for that go anew.
  private func rebase(_ writes: [QueuedWrite], onto version: Int64) throws(MarfaError) {
    for write in writes where write.state == .queued || write.state == .blocked {
      guard let base = write.baseVersion, base > version, version > 0 else { continue }
      if write.hasGoneOut { try release(write) }
      try connection.run("UPDATE writes SET base_version = ?2 WHERE number = ?1") {
        $0.int(1, write.id.number)
        $0.int(2, version)
      }
    }
  }

  /// Takes an item's tags and extensions.
  func receive(_ metadata: ItemMetadata, of id: ItemID) throws(MarfaError) {
    let shown = try connection.fullItem(id)
    let waiting = try connection.hasWrites(about: id)
    guard var full = waiting ? try connection.servedItem(id) : shown else { return }
    full.item.tags = metadata.tags
    full.extensions = metadata.extensions
    if waiting { try connection.setServed(id, full) }
    try render(id, waiting ? try connection.overlaid(id, over: full) : full, was: shown, seen: nil)
  }

  /// The server has no such item any more (it is purged), or it left the slice. One about which a write waits is shown
  /// until that is answered.
  func forget(_ id: ItemID, purged: Bool) throws(MarfaError) {
    try connection.setServed(id, nil)
    let waits = try connection.hasWrites(about: id)
    if !waits { try keepRefusedBytes(of: id) }
    if purged {
      // Before its edges go: a file that is being written here stays where they have it.
      if !waits { try hide(id) }
      // Bytes that wait to be given to it will be refused, and stay where they are.
      let stays = waits ? try connection.hasBytesWaiting(of: id) : false
      // The edges at both ends went with it. One about which a write waits is shown until that is answered; what counts
      // is what it joins on the server, for the write may be to join others.
      let drawn = try connection.edges(touching: id).map(\.id)
      for edge in Set(try drawn + connection.servedEdges(touching: id)) {
        if let served = try connection.servedEdge(edge)?.edge, served.source != id, served.target != id { continue }
        if stays, try connection.edge(edge)?.source == id, try !connection.hasWrites(about: edge) {
          try connection.deleteEdgeRow(edge)
          continue
        }
        try forget(edge)
      }
    }
    if !waits { try remove(id) }
  }

  /// Makes an item's row and its place in the tree what they are to be; `nil` takes both away.
  func render(_ id: ItemID, _ full: FullItem?, was: FullItem?, seen: Int64?) throws(MarfaError) {
    guard let full else { return try remove(id) }
    let item = full.item
    if was == full {
      if let seen { try connection.markSeen(id, seen) }
    } else {
      try connection.setFullItem(full, seen: seen)
    }
    guard item.state != .trashed else {
      // Put into the bin elsewhere: what was written here and is not answered yet stays, and so does what was refused.
      if try connection.hasBytesWaiting(of: id) { return }
      try keepRefusedBytes(of: id)
      return try hide(id)
    }
    guard let node = try connection.node(of: id) else { return try appear(full) }
    if was == full { return }
    // Its type is of another kind now.
    if (node.kind == .file) != item.isFile {
      try hide(id)
      return try appear(full)
    }
    if let was { try retitle(id, from: was.item.title) }
    if node.kind == .file, item.blob != was?.item.blob { try showBytes(of: full, in: node) }
    if was != nil { tree.notify([.attributes(node.number)], in: self) }
  }

  /// An item that had no node: it came, was restored, or was refused here and is there now.
  private func appear(_ full: FullItem) throws(MarfaError) {
    let item = full.item
    if var node = try connection.node(refused: item.id), (node.kind == .file) == item.isFile {
      try connection.setRefused(node.number, nil)
      node.item = item.id
      node.local = false
      try connection.updateNode(node)
      try dropPending(on: node)
      try takeUp(full, in: node)
      try connection.setParted(node.number, nil)
      tree.notify([.attributes(node.number)], in: self)
    } else {
      try show(item, since: full.updatedAt)
    }
    for edge in try connection.edges(touching: item.id) { try show(edge) }
  }

  /// A file or directory that was this device's own for a while is an item's again: what was done to it meanwhile is
  /// queued.
  private func takeUp(_ full: FullItem, in node: Node) throws(MarfaError) {
    let parted = try connection.parted(node.number)
    if node.kind == .file, case .blob(let hash) = node.content, let blob = full.item.blob, hash != blob {
      if hash == parted?.blob {
        // Changed elsewhere, and not here.
        try showBytes(of: full, in: node)
      } else {
        // What was refused then is queued anew.
        for write in try connection.queue(about: full.item.id) where write.state == .refused && write.blob == hash {
          try takeOff(write)
        }
        try setContent(
          of: full.item.id, hash, mimeType: try connection.blob(hash)?.mimeType ?? MIMEType.unknown,
          over: parted.map { StagedFile.Base(version: $0.version, blob: $0.blob) })
      }
    }
    if let parted, parted.title != full.item.title {
      let before = FileName.showing(title: parted.title, type: full.item.type, id: full.item.id)
      if try connection.entries(of: node.number).contains(where: { $0.name == before || $0.name.title == parted.title })
      {
        // Called otherwise elsewhere, and not here.
        try retitle(full.item.id, from: parted.title)
      }
    }
    let names = try connection.entries(of: node.number).map(\.name)
    let shown = FileName.showing(title: full.item.title, type: full.item.type, id: full.item.id)
    let isItsOwn = names.contains { name in
      name.title == full.item.title || name == shown || (2...1000).contains { shown.numbered($0) == name }
    }
    if !isItsOwn, let name = names.first {
      try outbox.updateItem(full.item.id, ["title": .string(name.title)], folding: true)
    }
    if node.kind == .file, node.content == .empty { try showBytes(of: full, in: node) }
    if !isReleasing { try drawPlaces(of: node, full.item) }
  }

  /// A file shows the bytes its item names. What a program is writing meanwhile stays what it is: it is sealed as a
  /// change of the version it began with.
  private func showBytes(of full: FullItem, in node: Node) throws(MarfaError) {
    if case .staged = node.content { return }
    guard let hash = full.item.blob, node.content != .blob(hash) else { return }
    try connection.know(hash, mimeType: full.item.mimeType, stored: full.item.version > 0)
    try show(hash, in: node, since: full.updatedAt ?? now)
  }

  /// Gives a file other sealed bytes.
  func show(_ hash: BlobHash, in node: Node, since: Timestamp) throws(MarfaError) {
    var node = node
    let before = node.content
    node.content = .blob(hash)
    node.size = try connection.blob(hash)?.size
    node.mtime = since
    node.ctime = now
    try connection.updateNode(node)
    if case .blob(let old) = before { try tree.blobs.release(old, in: connection) }
    let places = try connection.entries(of: node.number).map { TreeChange.Place(parent: $0.parent, name: $0.name) }
    tree.notify([.bytes(node.number, places)], in: self)
  }

  /// Takes an item out of the copy, with the edges it draws.
  func remove(_ id: ItemID) throws(MarfaError) {
    try hide(id)
    for edge in try connection.edges(touching: id) where edge.source == id {
      guard try !connection.hasWrites(about: edge.id) else { continue }
      try hide(edge)
      try connection.deleteEdgeRow(edge.id)
    }
    try connection.deleteItemRow(id)
  }

  // MARK: - Edges

  /// Takes a server's row of an edge. One strictly older than the row held changes nothing.
  func receive(_ row: EdgeRow, seen: Int64? = nil) throws(MarfaError) {
    let shown = try connection.fullEdge(row.id)
    let waiting = try connection.hasWrites(about: row.id)
    let before = waiting ? try connection.servedEdge(row.id) : shown
    if seen == nil, let before, before.edge.version > row.version { return }
    let full = FullEdge(edge: row.edge, rest: row.rest)
    try connection.setServed(row.id, waiting ? full : nil)
    try render(row.id, waiting ? try connection.overlaid(row.id, over: full) : full, was: shown, seen: seen)
    if waiting, seen != nil { try rebase(try connection.queue(about: row.id), onto: row.version) }
    // One of the same ends that waits to be drawn, or was refused because of this one, is drawn.
    for write in try connection.creates(ofEdgeLike: row.edge) {
      guard let write = try connection.queuedWrite(write) else { continue }
      try takeOff(write)
    }
  }

  /// The server has no such edge any more.
  func forget(_ id: EdgeID) throws(MarfaError) {
    try connection.setServed(id, nil as FullEdge?)
    guard try !connection.hasWrites(about: id) else { return }
    try render(id, nil, was: try connection.fullEdge(id), seen: nil)
  }

  /// Makes an edge's row and what it shows what they are to be.
  func render(_ id: EdgeID, _ full: FullEdge?, was: FullEdge?, seen: Int64?) throws(MarfaError) {
    if let was,
      full?.edge.source != was.edge.source || full?.edge.target != was.edge.target
        || full?.edge.type != was.edge.type
    {
      try connection.deleteEdgeRow(id)
      try hide(was.edge)
    }
    guard let full else { return }
    if was == full {
      if let seen { try connection.markSeen(id, seen) }
    } else {
      try connection.setFullEdge(full, seen: seen)
      if was == nil { try connection.beganAttachment(full.edge) }
    }
    try show(full.edge)
  }
}

extension Connection {
  /// True for a file whose bytes a write of this device waits to give to its item.
  fileprivate func hasBytesWaiting(of id: ItemID) throws(MarfaError) -> Bool {
    try first(
      """
      SELECT 1 FROM nodes n JOIN writes w ON w.item = n.item AND w.blob = n.hash
      WHERE n.item = ?1 AND w.kind = 'update_item' AND w.state <> 'refused' LIMIT 1
      """, { $0.id(1, id) }, { _ in true }) ?? false
  }

  /// Creates of edges with the same ends and type that have not gone out, or that the server refused for there being one.
  fileprivate func creates(ofEdgeLike edge: Edge) throws(MarfaError) -> [WriteID] {
    try all(
      """
      SELECT w.number FROM edges e JOIN writes w ON w.edge = e.id
      WHERE e.source = ?1 AND e.target = ?2 AND e.type = ?3 AND e.id <> ?4 AND e.version = 0
        AND w.kind = 'create_edge' AND w.gone_out = 0
      UNION SELECT number FROM writes
      WHERE state = 'refused' AND kind = 'create_edge' AND json_extract(verdict, '$.code') = 'edge_constraint_violation'
        AND edge <> ?4 AND json_extract(body, '$.source_id') = ?5 AND json_extract(body, '$.target_id') = ?6
        AND json_extract(body, '$.edge_type') = ?3
      """,
      {
        $0.id(1, edge.source)
        $0.id(2, edge.target)
        $0.text(3, edge.type)
        $0.id(4, edge.id)
        $0.text(5, "\(edge.source)")
        $0.text(6, "\(edge.target)")
      }, { WriteID($0.int(0)) })
  }

  fileprivate func markSeen(_ id: ItemID, _ seen: Int64) throws(MarfaError) {
    try run("UPDATE items SET seen = ?2 WHERE id = ?1") {
      $0.id(1, id)
      $0.int(2, seen)
    }
  }

  fileprivate func markSeen(_ id: EdgeID, _ seen: Int64) throws(MarfaError) {
    try run("UPDATE edges SET seen = ?2 WHERE id = ?1") {
      $0.id(1, id)
      $0.int(2, seen)
    }
  }

  /// Edges about which a write waits, moved or taken away here, and which join this item on the server.
  func servedEdges(touching id: ItemID) throws(MarfaError) -> [EdgeID] {
    try all(
      """
      SELECT id FROM served WHERE json_extract(row, '$.source') = ?1
      UNION SELECT id FROM served WHERE json_extract(row, '$.target') = ?1
      """, { $0.text(1, "\(id)") }, { $0.edgeID(0) }
    ).compactMap { $0 }
  }

  /// The node that stayed here when the create of this item was refused.
  func node(refused item: ItemID) throws(MarfaError) -> Node? {
    try first(
      """
      SELECT number, kind, item, local, mode, uid, gid, atime, mtime, ctime, hash, staged, size, links
      FROM nodes WHERE refused = ?1
      """, { $0.id(1, item) }, { $0.node(0) })
  }

  /// True for what stayed here when the server refused its item, as long as what it refused is in the queue.
  func isRefused(_ node: Int64) throws(MarfaError) -> Bool {
    try first(
      "SELECT 1 FROM nodes n JOIN writes w ON w.item = n.refused WHERE n.number = ?1 LIMIT 1", { $0.int(1, node) },
      { _ in true }) ?? false
  }

  func setRefused(_ node: Int64, _ item: ItemID?) throws(MarfaError) {
    try run("UPDATE nodes SET refused = ?2 WHERE number = ?1") {
      $0.int(1, node)
      $0.id(2, item)
    }
  }
}
