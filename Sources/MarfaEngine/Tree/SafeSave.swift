/// Editors do not write files, they dance. This file keeps a file item with its name through the two dances that change
/// which node has the name: a temporary renamed over it, and the original renamed away before the name is written anew
/// (SEMANTICS.md, "Safe saves").

/// Names that were renamed away a moment ago, and the node that had them: whoever takes the name next takes the item.
struct Displaced {
  /// How long "a moment" is, in nanoseconds: an editor's dance takes milliseconds, a slow disk's a few seconds.
  static let window: Int64 = 10_000_000_000

  private struct Place: Hashable {
    var parent: Int64
    var name: FileName
  }
  private var nodes: [Place: (node: Int64, since: Int64)] = [:]

  /// True when a file renamed so may be an editor's backup: an editor's own name, one that has the old name in it, or
  /// one that ends as backups and temporaries do. A photo that gets a name of its own is no backup.
  static func isBackup(_ name: FileName, of old: FileName, _ settings: Tree.Settings) -> Bool {
    if settings.localNames.matches(name) { return true }
    let text = name.title
    if text.contains(FileName(stored: old.stem).title) { return true }
    return [".bak", ".tmp", ".temp", ".old", ".orig", ".backup", ".sav"].contains { text.lowercased().hasSuffix($0) }
  }

  var isEmpty: Bool { nodes.isEmpty }

  mutating func remember(_ node: Int64, at parent: Int64, _ name: FileName, until now: Int64) {
    if nodes.count >= 256 { nodes = nodes.filter { now - $0.value.since < Displaced.window } }
    nodes[Place(parent: parent, name: name)] = (node, now)
  }

  mutating func take(_ parent: Int64, _ name: FileName, at now: Int64) -> Int64? {
    guard !nodes.isEmpty, let found = nodes.removeValue(forKey: Place(parent: parent, name: name)) else { return nil }
    return now - found.since < Displaced.window ? found.node : nil
  }
}

extension Tree.Change {
  /// True when a rename of `node` over `present` hands the item on: both are files, `node` has this one name, and
  /// whatever other names `present` has are backups beside the one that is taken (made by `ln` before it).
  func takesOver(_ node: Node, _ present: Node, in parent: Int64, _ name: FileName) throws(MarfaError) -> Bool {
    guard present.item != nil, node.kind == .file, present.kind == .file, node.links == 1 else { return false }
    if present.links == 1 { return true }
    // They are to have its bytes, and only an item can bring those here.
    guard try connection.isHere(present) else { return false }
    return try connection.entries(of: present.number).allSatisfy { place in
      place.parent == parent && (place.name == name || Displaced.isBackup(place.name, of: name, tree.settings))
    }
  }

  /// A node that lost its item to the one that has its name now: an editor's own file or a new item, as its name says.
  func settleBackup(_ backup: inout Node) throws(MarfaError) {
    guard let place = try connection.entries(of: backup.number).first else { return }
    backup.local = try directory(place.parent).local || tree.settings.localNames.matches(place.name)
    if !backup.local { try promote(&backup) }
    try connection.updateNode(backup)
  }

  /// `node` becomes the file `name` that `other` was: item, edges, tags and attributes are its own now; its bytes are
  /// the item's next version. `other` is left without an item. The caller writes `node`.
  func takeOver(_ node: inout Node, itemOf other: inout Node, called name: FileName) throws(MarfaError) {
    guard let item = other.item else { return }
    if let own = node.item {
      node.item = nil
      try connection.updateNode(node)
      try dropFileItem(own)
    }
    other.item = nil
    try connection.updateNode(other)
    node.item = item
    node.local = false
    try connection.updateNode(node)
    try connection.run("UPDATE OR IGNORE attributes SET node = ?1 WHERE node = ?2") {
      $0.int(1, node.number)
      $0.int(2, other.number)
    }
    if case .blob(let hash) = node.content {
      try setContent(of: item, hash, mimeType: try mimeType(of: hash, called: name))
    }
    try applyPending(node, to: item)
  }

  /// The MIME type of held bytes under a name: they may have been sealed under a temporary one that says nothing.
  func mimeType(of hash: BlobHash, called name: FileName) throws(MarfaError) -> String {
    if let type = MIMEType.byName(name.bytes) { return type }
    return try connection.blob(hash)?.mimeType ?? MIMEType.unknown
  }

  /// When the name `node` is getting was renamed away a moment ago: `node` takes the item of the one that had it, and
  /// that one, a backup now, becomes an editor's own file or a new item, as its name says.
  func takeOverDisplaced(_ node: inout Node, at parent: Int64, _ name: FileName) throws(MarfaError) -> Bool {
    guard let number = tree.displaced.withLock({ $0.take(parent, name, at: now.nanoseconds) }), number != node.number,
      var backup = try connection.node(number), backup.links == 1, let item = backup.item,
      // A backup is to have its bytes, and only an item can bring those here.
      try connection.isHere(backup), let place = try connection.entries(of: number).first
    else { return false }
    try takeOver(&node, itemOf: &backup, called: name)
    try outbox.updateItem(item, ["title": .string(name.title)], folding: true)
    let directory = try directory(place.parent)
    if place.parent != parent {
      // The item is attached where the name is, not where the backup went.
      if let host = directory.item, let edge = try connection.edge(from: item, to: host, type: Edge.attachedTo) {
        try outbox.deleteEdge(edge.id)
      }
      try attach(node, in: try self.directory(parent))
    }
    try settleBackup(&backup)
    return true
  }
}
