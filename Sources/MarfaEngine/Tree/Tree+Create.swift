import Glibc

extension Tree {
  /// Makes a directory: an item of ``Settings/directoryType``, and a `parent-of` edge unless it is in the root.
  public func makeDirectory(_ parent: Int64, _ name: FileName, mode: mode_t, owner: Owner) throws(MarfaError) -> Node {
    // Files that have no rows yet are none of its business, but for one of this name.
    let lateRows = lateRows
    let isFreed = lateRows?.isFreed(parent, name) ?? false
    return try change(after: isFreed ? .all : .none) { (change) throws(MarfaError) in
      if lateRows?.isNew(parent, name) == true { throw .file(.exists) }
      let directory = try change.directory(parent)
      var node = try change.newNode(.directory, in: directory, name, mode: mode, owner: owner)
      if directory.mode & S_ISGID != 0 { node.mode |= S_ISGID }
      if !node.local { node.item = try change.createDirectoryItem(titled: name, in: directory) }
      node = try change.connection.insertNode(node)
      try change.connection.insertEntry(parent, name, node: node.number)
      try change.connection.touch(parent, at: change.now)
      lateRows?.touch(parent, at: change.now)
      return node
    }
  }

  /// Makes an empty file. With `writing`, a staged file for a program that is about to write it comes with it: while
  /// that is there, a crash takes the name away again.
  public func createFile(_ parent: Int64, _ name: FileName, mode: mode_t, owner: Owner, writing: Bool)
    throws(MarfaError) -> (node: Node, staged: StagedFile?)
  {
    if writing, let made = try makeLate(parent, name, mode: mode, owner: owner) { return made }
    var made: [StagedFile] = []
    defer { for staged in made { blobs.discard(staged) } }
    let node = try change { (change) throws(MarfaError) in
      let directory = try change.directory(parent)
      let node = try change.connection.insertNode(
        try change.newNode(.file, in: directory, name, mode: mode, owner: owner))
      try change.connection.insertEntry(parent, name, node: node.number)
      try change.connection.touch(parent, at: change.now)
      if writing { made.append(try blobs.stage(for: node.number, isNew: true)) }
      return node
    }
    // Those of a transaction that did not come through go; the last is the file's.
    return (node, made.popLast())
  }

  /// Makes a file that gets its rows once it is closed; `nil` for one that has to have them at once: an editor's own, and
  /// what takes the place of a file renamed away a moment ago.
  private func makeLate(_ parent: Int64, _ name: FileName, mode: mode_t, owner: Owner) throws(MarfaError)
    -> (node: Node, staged: StagedFile?)?
  {
    guard let lateRows, !settings.localNames.matches(name), displaced.withLock({ $0.isEmpty }) else { return nil }
    // Asked before the rows are: they may go in between.
    let isFreed = lateRows.isFreed(parent, name)
    guard let directory = try row(parent) else { throw .file(.notFound) }
    guard directory.kind == .directory else { throw .file(.notDirectory) }
    let isTaken = try store.read(settled: false) { (connection) throws(MarfaError) in
      try connection.child(parent, name) != nil
    }
    guard !isTaken || isFreed else { throw .file(.exists) }
    guard !directory.local else { return nil }
    return try lateRows.make(directory, name, mode: mode, owner: owner)
  }

  /// Makes a symbolic link. It lives on this device only.
  public func makeSymlink(_ parent: Int64, _ name: FileName, target: [UInt8], owner: Owner) throws(MarfaError) -> Node {
    try makeSpecial(parent, name, mode: 0o777, target: target, size: Int64(target.count), owner: owner)
  }

  /// Makes a named pipe, a socket or a device, as the type in `mode` says. It lives on this device only, and is the
  /// kernel's to open.
  public func makeSpecial(
    _ parent: Int64, _ name: FileName, mode: mode_t, device: dev_t, owner: Owner
  ) throws(MarfaError) -> Node {
    let number = Int64(truncatingIfNeeded: device)
    return try makeSpecial(parent, name, mode: mode, target: [], size: number, owner: owner)
  }

  private func makeSpecial(
    _ parent: Int64, _ name: FileName, mode: mode_t, target: [UInt8], size: Int64, owner: Owner
  ) throws(MarfaError) -> Node {
    try change { (change) throws(MarfaError) in
      let directory = try change.directory(parent)
      var node = try change.newNode(.special, in: directory, name, mode: mode, owner: owner)
      node.mode |= mode & S_IFMT
      node.local = true
      node.size = size
      node = try change.connection.insertNode(node, target: target)
      try change.connection.insertEntry(parent, name, node: node.number)
      try change.connection.touch(parent, at: change.now)
      return node
    }
  }

  /// Gives a file one more name: one more `attached-to` edge when the directory is another item.
  public func link(_ number: Int64, to parent: Int64, _ name: FileName) throws(MarfaError) -> Node {
    try change { (change) throws(MarfaError) in
      let directory = try change.directory(parent)
      guard var node = try change.connection.node(number) else { throw .file(.notFound) }
      guard node.kind != .directory else { throw .file(.notPermitted) }
      guard try change.connection.child(parent, name) == nil else { throw .file(.exists) }
      try change.connection.insertEntry(parent, name, node: number)
      try change.connection.addLinks(number, 1, at: change.now)
      try change.connection.touch(parent, at: change.now)
      node.links += 1
      node.ctime = change.now
      if node.item != nil {
        try change.attach(node, in: directory)
      } else if node.kind == .file, node.local, !directory.local, !settings.localNames.matches(name) {
        // An editor's own file became somebody's.
        node.local = false
        try change.promote(&node)
        try change.connection.updateNode(node)
      }
      return node
    }
  }
}

extension Tree.Change {
  /// The item a directory is, and its edge from the directory it is in.
  func createDirectoryItem(titled name: FileName, in directory: Node) throws(MarfaError) -> ItemID {
    let type = tree.settings.directoryType
    var properties = ItemType.requiredProperties(of: type)
    properties["title"] = .string(name.title)
    let item = Item(
      id: .mint(), type: type, properties: properties, state: .active, tier: .library, version: 0, tags: [],
      pinned: false)
    _ = try outbox.createItem(item)
    if let host = directory.item {
      try outbox.createEdge(
        Edge(id: .mint(), source: host, target: item.id, type: Edge.parentOf, properties: [:], version: 0))
    }
    return item.id
  }

  /// Draws the edge that a name in this directory stands for, unless it is there, or the directory is the root or on
  /// this device only.
  func attach(_ node: Node, in directory: Node) throws(MarfaError) {
    guard let file = node.item, let host = directory.item else { return }
    guard try connection.edge(from: file, to: host, type: Edge.attachedTo) == nil else { return }
    try attach(file, to: host)
  }

  /// Draws the edge from a file item to what it is attached to.
  func attach(_ file: ItemID, to host: ItemID) throws(MarfaError) {
    try outbox.createEdge(
      Edge(id: .mint(), source: file, target: host, type: Edge.attachedTo, properties: [:], version: 0))
  }

  /// Takes away the edge to a directory in which the node has no name left.
  func detach(_ node: Node, from directory: Node) throws(MarfaError) {
    guard let file = node.item, let host = directory.item else { return }
    let others = try connection.entries(of: node.number)
    guard !others.contains(where: { $0.parent == directory.number }) else { return }
    if let edge = try connection.edge(from: file, to: host, type: Edge.attachedTo) { try outbox.deleteEdge(edge.id) }
  }
}
