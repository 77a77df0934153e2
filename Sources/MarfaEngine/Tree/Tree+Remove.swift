import Glibc

extension Tree {
  /// Takes a name away. With a file's last name its item goes to the bin; one that nobody else knows of is taken back
  /// with everything queued about it. Answers the node as it is then (`links` 0: nothing names it any more).
  public func unlink(_ parent: Int64, _ name: FileName) throws(MarfaError) -> Node {
    if let removed = try removeLate(parent, name) { return removed }
    return try change { (change) throws(MarfaError) in
      let directory = try change.directory(parent)
      guard var node = try change.connection.child(parent, name) else { throw .file(.notFound) }
      guard node.kind != .directory else { throw .file(.isDirectory) }
      try change.removeName(&node, from: directory, name)
      return node
    }
  }

  /// Removes a name whose rows go a moment later; `nil` when they have to go at once: of a file with other names, one that is
  /// being written, and one that has no rows yet itself.
  private func removeLate(_ parent: Int64, _ name: FileName) throws(MarfaError) -> Node? {
    guard let lateRows, !lateRows.isNew(parent, name), !lateRows.isFreed(parent, name) else { return nil }
    let found = try store.read(settled: false) { (connection) throws(MarfaError) in try connection.child(parent, name) }
    guard let directory = try row(parent), directory.kind == .directory, let found, found.kind != .directory,
      found.links == 1, !isBeingWritten(found.number)
    else { return nil }
    if case .staged = found.content { return nil }
    return lateRows.remove(found, from: directory, name)
  }

  /// Removes an empty directory: its item goes to the bin, or is taken back.
  public func removeDirectory(_ parent: Int64, _ name: FileName) throws(MarfaError) -> Node {
    try change { (change) throws(MarfaError) in
      let directory = try change.directory(parent)
      guard let node = try change.connection.child(parent, name) else { throw .file(.notFound) }
      guard node.kind == .directory else { throw .file(.notDirectory) }
      try change.removeEmptyDirectory(node, from: directory, name)
      return node
    }
  }
}

extension Tree.Change {
  /// Takes away the one name a node has, wherever it is by now.
  func removeOnlyName(of number: Int64) throws(MarfaError) {
    guard var node = try connection.node(number), node.links == 1, let place = try connection.entries(of: number).first
    else { return }
    try removeName(&node, from: try directory(place.parent), place.name)
  }

  func removeName(_ node: inout Node, from directory: Node, _ name: FileName) throws(MarfaError) {
    try connection.deleteEntry(directory.number, name)
    try connection.touch(directory.number, at: now)
    node.links -= 1
    node.ctime = now
    if node.links > 0 {
      try connection.addLinks(node.number, -1, at: now)
      // Moved away by `link` and `unlink` is moved away too.
      if node.links == 1, node.item != nil, let left = try connection.entries(of: node.number).first?.name,
        Displaced.isBackup(left, of: name, tree.settings)
      {
        tree.displaced.withLock { $0.remember(node.number, at: directory.number, name, until: now.nanoseconds) }
      }
      try detach(node, from: directory)
      // Whose bytes are not here stays an item, though no other device sees a name of it.
      if node.kind == .file, !node.local, try !hasNameAmongItems(node), try connection.isHere(node) {
        try localize(&node)
      } else {
        try retitle(node, from: name)
      }
      return
    }
    if let item = node.item { try dropFileItem(item) }
    try connection.deleteNode(node.number)
    switch node.content {
    case .empty: break
    case .blob(let hash): try tree.blobs.release(hash, in: connection)
    // A program that still writes it goes on through its descriptor; a start has nothing to recover.
    case .staged(let id): tree.blobs.removeAfterCommit(node.number, id)
    }
  }

  func removeEmptyDirectory(_ node: Node, from directory: Node, _ name: FileName) throws(MarfaError) {
    guard try connection.isEmptyDirectory(node.number) else { throw .file(.notEmpty) }
    try connection.deleteEntry(directory.number, name)
    try connection.touch(directory.number, at: now)
    if let item = node.item { try outbox.deleteItem(item) }
    try connection.deleteNode(node.number)
  }

  /// A file's last name is gone, and its item goes into the bin. The edges that the server has stay, so that it stands
  /// where it stood when it is restored; others are taken back.
  func dropFileItem(_ item: ItemID) throws(MarfaError) {
    let blob = try connection.item(item)?.blob
    for edge in try connection.edges(from: item, type: Edge.attachedTo) {
      let waits = try connection.hasWrites(about: edge.id)
      if edge.version == 0 || waits { try outbox.deleteEdge(edge.id) }
    }
    try outbox.deleteItem(item)
    if let blob { try tree.blobs.release(blob, in: connection) }
  }

  /// The name that gives a node's item its title: the first that a person gave among items, else the first.
  func titleName(of node: Node) throws(MarfaError) -> FileName? {
    let places = try connection.entries(of: node.number)
    for place in places where !tree.settings.localNames.matches(place.name) {
      if try !directory(place.parent).local { return place.name }
    }
    return places.first?.name
  }

  /// When the name that gave the title is gone, the next one gives it.
  func retitle(_ node: Node, from old: FileName) throws(MarfaError) {
    guard let item = node.item, let current = try connection.item(item), current.title == old.title else { return }
    guard let name = try titleName(of: node), name.title != current.title else { return }
    try outbox.updateItem(item, ["title": .string(name.title)], folding: true)
  }
}
