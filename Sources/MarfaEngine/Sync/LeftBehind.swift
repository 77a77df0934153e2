/// What a server that was set back (restored from a backup, begun anew) knows no more, though it had taken it: whatever is
/// here of that stays, on this device only, where it stands. Should the server know the item again, it is that item's.
extension Tree.Change {
  /// Leaves an item's file or directory to this device; answers the directory's number. A file whose bytes are not here
  /// leaves nothing.
  func leaveBehind(_ id: ItemID) throws(MarfaError) -> Int64? {
    try showLastBytes(of: id)
    guard try connection.isHere(id), var node = try connection.node(of: id) else { return nil }
    // What was made in it and has not gone out stays in it.
    for create in try createsUnsent(in: node) { try takeOff(create) }
    if node.kind == .file { try keepPending(of: id, on: node) }
    let row = if let served = try connection.servedItem(id)?.item { served } else { try connection.item(id) }
    try connection.setParted(node.number, row.map { Parted(version: $0.version, title: $0.title, blob: $0.blob) })
    node.item = nil
    node.local = true
    try connection.updateNode(node)
    // What waits to change it there, or what joins it, has nothing to change any more; here it is as they made it.
    try connection.setServed(id, nil as FullItem?)
    var waiting = try connection.queue(about: id)
    for edge in Set(try connection.edges(touching: id).map(\.id) + connection.servedEdges(touching: id)) {
      waiting += try connection.queue(about: edge)
    }
    waiting += try connection.refusedEdges(joining: id)
    for write in waiting {
      guard let write = try connection.queuedWrite(write.id) else { continue }
      try takeOff(write)
    }
    try connection.setRefused(node.number, id)
    tree.notify([.attributes(node.number)], in: self)
    // One that was always empty is no place that lost what stood in it.
    guard node.kind == .directory, try !connection.isEmptyDirectory(node.number) else { return nil }
    return node.number
  }

  /// An item goes whose bytes the server refused to take from here: those stay, where the file is, on this device only.
  func keepRefusedBytes(of id: ItemID) throws(MarfaError) {
    guard let node = try connection.node(of: id), case .blob = node.content, !tree.isBeingWritten(node.number),
      let refused = try connection.queue(about: id).last(where: { $0.kind == .updateItem && $0.blob != nil }),
      refused.state == .refused, let hash = refused.blob, try connection.blob(hash)?.held ?? false
    else { return }
    try showLastBytes(of: id)
    try keepHere(id)
    guard let title = try connection.item(id)?.title else { return }
    try connection.setParted(node.number, Parted(version: refused.baseVersion ?? 0, title: title, blob: nil))
  }

  /// A file whose bytes the server refused shows what it has: what was written last is in the refused write only.
  private func showLastBytes(of id: ItemID) throws(MarfaError) {
    guard let node = try connection.node(of: id), case .blob(let shown) = node.content,
      let written = try connection.queue(about: id).last(where: { $0.kind == .updateItem && $0.blob != nil })?.blob,
      written != shown, try connection.blob(written)?.held ?? false
    else { return }
    try show(written, in: node, since: now)
  }

  /// The bytes of a version that the server took and knows no more stay beside those it has, on this device only, as far as
  /// they are here.
  func keepLostVersion(of item: Item, before known: Item) throws(MarfaError) {
    guard let node = try connection.node(of: item.id),
      case .blob(let hash) = node.content, hash == item.blob, known.blob != hash, try connection.isHere(node),
      let copy = try keep(hash, beside: node, labelled: "before the server was set back")
    else { return }
    // No server will ever have an item of this id: it says only how the file came to be this device's.
    try connection.setRefused(copy, .mint())
  }

  /// Bytes that are here stay beside a file that is to have others, on this device only. Answers their node's number.
  @discardableResult
  func keep(_ hash: BlobHash, beside node: Node, labelled words: String) throws(MarfaError) -> Int64? {
    guard let place = try connection.entries(of: node.number).first else { return nil }
    var copy = node
    copy.item = nil
    copy.local = true
    copy.content = .blob(hash)
    copy.size = try connection.blob(hash)?.size
    copy = try connection.insertNode(copy)
    let name = try connection.freeName(place.parent, place.name.labelled(words))
    try connection.insertEntry(place.parent, name, node: copy.number)
    try connection.addLinks(copy.number, 1 - node.links, at: now)
    try connection.touch(place.parent, at: now)
    tree.notify([.entry(parent: place.parent, name: name), .node(place.parent)], in: self)
    return copy.number
  }

  /// What the server still has and stood in a directory left behind stands where the server has it; a directory with
  /// nothing left in it goes, and the one it was in, when that is the same.
  func clear(leftBehind number: Int64) throws(MarfaError) {
    var current: Int64? = number
    while let number = current, let node = try connection.node(number), node.item == nil,
      try connection.isLeftBehind(number)
    {
      try moveOut(of: node)
      guard try connection.isEmptyDirectory(number), let place = try connection.entries(of: number).first else {
        return
      }
      try connection.deleteEntry(place.parent, place.name)
      try connection.deleteNode(number)
      try connection.touch(place.parent, at: now)
      tree.notify([.entry(parent: place.parent, name: place.name), .node(place.parent)], in: self)
      current = place.parent
    }
  }

  /// Which bytes a server that was set back may still have is told by its rows: others are not let go of here, and are
  /// uploaded again when they are named. Of those it is asked.
  func forgetStored() throws(MarfaError) {
    try connection.run(
      """
      UPDATE blobs SET stored = 0 WHERE stored = 1 AND NOT EXISTS (
        SELECT 1 FROM nodes n JOIN items i ON i.id = n.item
        WHERE n.hash = blobs.hash AND i.version > 0 AND NOT EXISTS (SELECT 1 FROM writes w WHERE w.item = i.id))
      """)
    try connection.doubtAll()
    try forgetUploads()
  }
}

/// The row that the server had last of an item whose file or directory is this device's own since.
struct Parted {
  var version: Int64
  var title: String
  /// `nil`: its bytes are no server's.
  var blob: BlobHash?
}

extension Connection {
  func setParted(_ node: Int64, _ row: Parted?) throws(MarfaError) {
    guard let row else {
      try run("DELETE FROM parted WHERE node = ?1") { $0.int(1, node) }
      return
    }
    try run("INSERT OR REPLACE INTO parted(node, version, title, blob) VALUES (?1, ?2, ?3, ?4)") {
      $0.int(1, node)
      $0.int(2, row.version)
      $0.text(3, row.title)
      $0.hash(4, row.blob)
    }
  }

  func parted(_ node: Int64) throws(MarfaError) -> Parted? {
    try first(
      "SELECT version, title, blob FROM parted WHERE node = ?1", { $0.int(1, node) },
      { Parted(version: $0.int(0), title: $0.text(1), blob: $0.hash(2)) })
  }

  /// True while the server's log ends before the cursor it gave: it was set back.
  func isServerBehind() throws(MarfaError) -> Bool { try setting("behind") != nil }

  /// How many files and directories are on this device only because the server was set back.
  func leftBehind() throws(MarfaError) -> Int {
    try first(
      """
      SELECT count(*) FROM nodes n WHERE n.refused IS NOT NULL AND n.links > 0
        AND NOT EXISTS (SELECT 1 FROM writes w WHERE w.item = n.refused)
      """
    ) { Int($0.int(0)) } ?? 0
  }

  /// The creates of edges that the server refused, to or from an item.
  fileprivate func refusedEdges(joining id: ItemID) throws(MarfaError) -> [QueuedWrite] {
    let numbers = try all(
      """
      SELECT number FROM writes WHERE state = 'refused' AND kind = 'create_edge'
        AND (json_extract(body, '$.source_id') = ?1 OR json_extract(body, '$.target_id') = ?1)
      """, { $0.text(1, "\(id)") }, { WriteID($0.int(0)) })
    return try queuedWrites(numbers)
  }

  /// True for one of them.
  func isLeftBehind(_ node: Int64) throws(MarfaError) -> Bool {
    try first(
      """
      SELECT 1 FROM nodes n WHERE n.number = ?1 AND n.refused IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM writes w WHERE w.item = n.refused)
      """, { $0.int(1, node) }, { _ in true }) ?? false
  }
}
