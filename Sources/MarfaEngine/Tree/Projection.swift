import Glibc

/// What the tree shows of rows that were not made through it: items and edges of the engine's own calls, and later of a
/// server. In the transaction that changes the rows.
extension Tree.Change {
  /// Owner and permissions of what the filesystem did not make: this process's, as a file anybody may read.
  private func plainNode(_ kind: Node.Kind, _ item: Item) throws(MarfaError) -> Node {
    let owner = Owner.current
    var node = Node(
      number: 0, kind: kind, item: item.id, local: false, mode: kind == .directory ? 0o755 : 0o644,
      uid: owner.uid, gid: owner.gid, atime: now, mtime: now, ctime: now, links: 0, content: .empty, size: 0)
    if kind == .file, let hash = item.blob {
      node.content = .blob(hash)
      try connection.know(hash, mimeType: item.mimeType, stored: item.version > 0)
      node.size = try connection.blob(hash)?.size
    }
    return node
  }

  /// Shows an item that was inserted: in the root until an edge says otherwise. `since` is when the server changed it last.
  func show(_ item: Item, since: Timestamp? = nil) throws(MarfaError) {
    var plain = try plainNode(item.isFile ? .file : .directory, item)
    if let since { (plain.atime, plain.mtime, plain.ctime) = (since, since, since) }
    let node = try connection.insertNode(plain)
    try addEntry(node.number, of: item, in: top)
  }

  /// Shows an edge that was drawn: the child in its parent, the attachment in its host. An edge that the tree can't show
  /// shows nothing: a second parent, a parent that is in its own child.
  func show(_ edge: Edge) throws(MarfaError) {
    guard let (holder, held) = ends(edge), let directory = try connection.node(of: holder),
      directory.kind == .directory, let node = try connection.node(of: held), let item = try connection.item(held),
      item.state != .trashed
    else { return }
    if edge.type == Edge.parentOf ? node.kind != .directory : node.kind != .file { return }
    let places = try connection.entries(of: node.number)
    guard !places.contains(where: { $0.parent == directory.number }) else { return }
    if edge.type == Edge.parentOf {
      guard places.allSatisfy({ $0.parent == Node.root || $0.parent == Node.incoming }) else { return }
      var ancestor: Int64? = directory.number
      while let current = ancestor {
        if current == node.number { return }
        ancestor = try connection.parent(of: current)
      }
    }
    for place in places where place.parent == Node.root || place.parent == Node.incoming {
      try removeEntry(node, from: place.parent)
    }
    try addEntry(node.number, of: item, in: directory.number)
  }

  /// A file or directory that was this device's own for a while is an item's again: the person put it where it stands, and
  /// an edge is drawn for that. A directory that another device gave a parent stands there.
  func drawPlaces(of node: Node, _ item: Item) throws(MarfaError) {
    for place in try connection.entries(of: node.number) {
      let holder = try directory(place.parent)
      if node.kind == .file {
        try attach(node, in: holder)
        continue
      }
      let parents = try connection.edges(to: item.id, type: Edge.parentOf).map(\.source)
      if parents.isEmpty {
        if holder.item != nil { try moveDirectoryItem(item.id, to: holder) }
      } else if place.parent != Node.root, !parents.contains(where: { $0 == holder.item }) {
        try removeEntry(node, from: place.parent)
        try addEntry(node.number, of: item, in: top)
      }
    }
    // What the server took before comes back by itself, as this did.
    if node.kind == .directory { try promoteContents(of: node, sparingLeftBehind: true) }
  }

  /// Takes away what an edge showed; what is left without a place stands in the root.
  func hide(_ edge: Edge) throws(MarfaError) {
    guard let (holder, held) = ends(edge), let directory = try connection.node(of: holder),
      let node = try connection.node(of: held), let item = try connection.item(held)
    else { return }
    // One of the same ends, drawn since and heard of first, shows the same.
    let drawn = try connection.edges(placing: held, type: edge.type)
    if drawn.contains(where: { $0.id != edge.id && $0.source == edge.source && $0.target == edge.target }) { return }
    try removeEntry(node, from: directory.number)
    guard try connection.entries(of: node.number).isEmpty else { return }
    try addEntry(node.number, of: item, in: top)
    if edge.type == Edge.parentOf {
      try reconsider(held, except: edge.id)
      try reconsider(topmost(of: directory.number), except: edge.id)
    }
  }

  /// Shows an edge that waited for its turn, now that another is gone: a second parent's, or one that would have closed
  /// a ring.
  private func reconsider(_ held: ItemID?, except edge: EdgeID? = nil) throws(MarfaError) {
    guard let held else { return }
    for other in try connection.edges(to: held, type: Edge.parentOf) where other.id != edge { try show(other) }
  }

  /// A program here took a directory out of another, or out of what is in it: an edge that would have closed a ring there
  /// is shown.
  func reconsider(above directory: Node) throws(MarfaError) { try reconsider(topmost(of: directory.number)) }

  /// The item of the directory that stands in the root and has this one in it.
  private func topmost(of directory: Int64) throws(MarfaError) -> ItemID? {
    var current = directory
    while let parent = try connection.parent(of: current), parent != Node.root, parent != Node.incoming,
      parent != current
    {
      current = parent
    }
    return try connection.node(current)?.item
  }

  /// Takes an item out of the tree: it is in the bin, or gone. What it held stands in the root.
  func hide(_ id: ItemID) throws(MarfaError) {
    guard let node = try connection.node(of: id) else { return }
    var left: [ItemID] = []
    let above = node.kind == .directory ? try topmost(of: node.number) : nil
    if node.kind == .directory {
      left = try moveOut(of: node)
      // What lives on this device only and stood in it would be out of reach: the directory stays, as one of this
      // device only too.
      guard try connection.isEmptyDirectory(node.number) else {
        var left = node
        left.item = nil
        try localize(&left)
        return
      }
    }
    if node.kind == .file, isUnsealed(node) {
      // Its next seal makes an item of its own of it.
      var left = node
      left.item = nil
      try connection.updateNode(left)
      if case .blob = node.content { tree.spared.withLock { _ = $0.insert(node.number) } }
      let title = try title(id)
      Log.warning("\(title) went from the server while it was being written here: what is written stays")
      tree.notify([.attributes(node.number)], in: self)
      return
    }
    try drop(node)
    for child in left { try reconsider(child) }
    if above != id { try reconsider(above) }
  }

  /// Takes a node with all its names out of the tree.
  func drop(_ node: Node) throws(MarfaError) {
    for place in try connection.entries(of: node.number) { try removeEntry(node, from: place.parent) }
    try connection.deleteNode(node.number)
    if case .blob(let hash) = node.content { try tree.blobs.release(hash, in: connection) }
  }

  /// Takes what shows items out of a directory that is no item's any more: what has no other place stands in the root.
  @discardableResult
  func moveOut(of directory: Node) throws(MarfaError) -> [ItemID] {
    var left: [ItemID] = []
    for child in try connection.childItems(of: directory.number) {
      guard let item = try connection.item(child.item), let node = try connection.node(of: child.item) else { continue }
      try removeEntry(node, from: directory.number)
      guard try connection.entries(of: node.number).isEmpty else { continue }
      try addEntry(node.number, of: item, in: top)
      left.append(child.item)
    }
    return left
  }

  /// True for a file with bytes that a person wrote and nothing has sealed yet.
  private func isUnsealed(_ node: Node) -> Bool {
    if case .staged = node.content { return true }
    return tree.isBeingWritten(node.number)
  }

  /// What an item is called in the log.
  private func title(_ id: ItemID) throws(MarfaError) -> String { try connection.item(id)?.title ?? "\(id)" }

  /// An item's title may have changed: its names follow. One that would be shown under the name it was shown under keeps
  /// its number.
  func retitle(_ id: ItemID, from old: String) throws(MarfaError) {
    guard let node = try connection.node(of: id), let item = try connection.item(id) else { return }
    let wanted = FileName.showing(title: item.title, type: item.type, id: item.id)
    guard wanted != FileName.showing(title: old, type: item.type, id: item.id) else { return }
    for place in try connection.entries(of: node.number) where place.name != wanted {
      let name = try connection.freeName(place.parent, wanted)
      try rename(place.parent, place.name, to: name)
      try passOn(place.name, in: place.parent)
    }
  }

  private func rename(_ directory: Int64, _ old: FileName, to new: FileName) throws(MarfaError) {
    try connection.renameEntry(directory, old, to: new)
    tree.notify([.entry(parent: directory, name: old), .entry(parent: directory, name: new)], in: self)
  }

  /// A name is free, not by what was done here: the oldest of those that are numbered because of it has it now. The one
  /// that follows may have come before this one went.
  private func passOn(_ name: FileName, in directory: Int64) throws(MarfaError) {
    // Nobody sees what hangs there, and each gets its name anew when it leaves.
    guard directory != Node.incoming, try connection.child(directory, name) == nil else { return }
    for place in try connection.numberedNames(of: name, in: directory) {
      guard let item = try connection.item(place.item),
        name == FileName.showing(title: item.title, type: item.type, id: item.id)
      else { continue }
      return try rename(directory, place.name, to: name)
    }
  }

  /// The one that holds and the one that is held: a parent and its child, a host and its attachment.
  private func ends(_ edge: Edge) -> (holder: ItemID, held: ItemID)? {
    switch edge.type {
    case Edge.parentOf: (edge.source, edge.target)
    case Edge.attachedTo: (edge.target, edge.source)
    default: nil
    }
  }

  private func addEntry(_ node: Int64, of item: Item, in directory: Int64) throws(MarfaError) {
    let wanted = FileName.showing(title: item.title, type: item.type, id: item.id)
    let name = try connection.freeName(directory, wanted)
    try connection.insertEntry(directory, name, node: node)
    try connection.addLinks(node, 1, at: now)
    try connection.touch(directory, at: now)
    tree.notify([.entry(parent: directory, name: name), .node(directory)], in: self)
  }

  private func removeEntry(_ node: Node, from directory: Int64) throws(MarfaError) {
    for place in try connection.entries(of: node.number) where place.parent == directory {
      try connection.deleteEntry(directory, place.name)
      try connection.addLinks(node.number, -1, at: now)
      try connection.touch(directory, at: now)
      tree.notify([.entry(parent: directory, name: place.name), .node(directory)], in: self)
      try passOn(place.name, in: directory)
    }
  }
}

extension Connection {
  /// The edges of a type that give an item its places: a child's from its parents, an attachment's to its hosts.
  fileprivate func edges(placing held: ItemID, type: String) throws(MarfaError) -> [Edge] {
    type == Edge.parentOf ? try edges(to: held, type: type) : try edges(from: held, type: type)
  }

  func childItems(of directory: Int64) throws(MarfaError) -> [(name: FileName, item: ItemID)] {
    try all(
      """
      SELECT e.name, n.item FROM entries e JOIN nodes n ON n.number = e.node WHERE e.parent = ?1 AND n.item IS NOT NULL
      ORDER BY e.number
      """, { $0.int(1, directory) }, { row in row.itemID(1).map { (FileName(stored: row.blob(0)), $0) } }
    ).compactMap { $0 }
  }
}

/// Who is told of them. In a structure: a bare closure in a generic place is wrapped anew each time it is looked at.
struct TreeObserver: Sendable {
  var body: @Sendable ([TreeChange]) -> Void
}

/// Something in the tree that did not change through a filesystem operation: a kernel that remembers it must forget.
public enum TreeChange: Sendable, Hashable {
  /// A name in a directory came, went or means something else.
  case entry(parent: Int64, name: FileName)
  /// All that is remembered of a node: a directory's listing or a file's bytes, and its attributes.
  case node(Int64)
  /// A node's attributes: its bytes are what they were.
  case attributes(Int64)
  /// A file has other bytes, under the names it has.
  case bytes(Int64, [Place])

  /// Where a node has a name.
  public struct Place: Sendable, Hashable {
    public var parent: Int64
    public var name: FileName
  }
}

extension Tree {
  /// Tells the observer, once the transaction is committed.
  func notify(_ changes: [TreeChange], in change: Change) {
    // Nobody can have seen what no path leads to.
    let changes = changes.filter {
      switch $0 {
      case .entry(let parent, _): parent != Node.incoming
      case .node(let number), .attributes(let number), .bytes(let number, _): number != Node.incoming
      }
    }
    if changes.isEmpty { return }
    store.afterCommit { [observer] in observer.withLock { $0 }?.body(changes) }
  }

  /// Hands later changes to `body`, from whichever thread made them and under the store's lock: it must only note them.
  public func observe(_ body: @escaping @Sendable ([TreeChange]) -> Void) {
    observer.withLock { $0 = TreeObserver(body: body) }
  }
}
