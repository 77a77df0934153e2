import Glibc

extension Tree {
  /// A new staged file for a node's next content. It remembers which version of the item the program that writes it has
  /// before it: another device may change the item until it is sealed.
  public func stage(for node: Int64) throws(MarfaError) -> StagedFile {
    let base = try store.read { (connection) throws(MarfaError) in try connection.contentBase(node) }
    return try blobs.stage(for: node, base: base)
  }

  /// Opens held bytes for reading. `EBADMSG` when the file has another length than was sealed: it was cut by a power
  /// loss or by hand, and what is left of it is not what its name says.
  public func open(_ hash: BlobHash, size: Int64?) throws(MarfaError) -> Descriptor {
    if let staged = lateRows?.descriptor(of: hash) { return staged }
    return try blobs.openWhole(hash, size: size)
  }

  /// Opens a node's staged content for reading: how a reader sees what the writer has not sealed yet. `nil` when it has
  /// been sealed meanwhile.
  public func openForReading(_ staged: StagedID, of node: Int64) throws(MarfaError) -> Descriptor? {
    let path = blobs.files.staged(node, staged)
    do throws(Errno) { return try Descriptor.open(path, O_RDONLY) } catch {
      if error == .notFound { return nil }
      throw .io(error, path)
    }
  }

  /// Takes back a new file whose bytes could not be written whole: its names go. One that was renamed over an item's
  /// file before it was closed shows that item's bytes again instead. Answers where the names were.
  public func abandon(_ number: Int64) throws(MarfaError) -> [(parent: Int64, name: FileName)] {
    if let place = lateRows?.abandon(number) { return [place] }
    return try change { (change) throws(MarfaError) in
      guard var node = try change.connection.node(number), node.content == .empty else { return [] }
      if let item = node.item, let item = try change.connection.item(item), let hash = item.blob {
        try change.connection.know(hash, mimeType: item.mimeType, stored: item.version > 0)
        node.content = .blob(hash)
        node.size = try change.connection.blob(hash)?.size
        try change.connection.updateNode(node)
        return []
      }
      let places = try change.connection.entries(of: number)
      for place in places { try change.removeName(&node, from: try change.directory(place.parent), place.name) }
      return places
    }
  }

  /// A file that was made and closed with nothing in it is there from now on. Answers it.
  public func keepEmpty(_ number: Int64) throws(MarfaError) -> Node? {
    if lateRows?.node(number) != nil { try store.settle() }
    return try node(number)
  }

  /// Returns when the room of everything let go so far is free again.
  public func settle() {
    // What was removed a moment ago is let go of with its rows.
    do throws(MarfaError) { try store.settle() } catch {
      Log.warning("what was removed just now stays a while: \(error)")
    }
    blobs.reaper.settle()
  }

  /// Throws staged bytes away.
  public func discard(_ staged: StagedFile) { blobs.discard(staged) }

  /// Everything committed so far survives power loss when it returns.
  public func synchronize() throws(MarfaError) { try store.synchronize() }

  /// Held bytes and their place survive power loss when it returns. `synced`: a file whose bytes do already; they need no
  /// more when it is the one that is held.
  public func synchronize(_ hash: BlobHash, synced: Descriptor? = nil) throws(MarfaError) {
    try store.settle()
    let file = try blobs.open(hash)
    do throws(Errno) {
      if try synced?.status().st_ino != file.status().st_ino { try file.synchronize() }
      try blobs.files.synchronizeHeld(hash)
    } catch {
      throw .io(error, blobs.files.held(hash))
    }
    try store.synchronize()
  }

  /// Makes staged bytes a node's content as they are, without hashing them: they survive this process from now on, and
  /// with `durably` power loss. What is written to them later is written in place.
  public func adopt(_ staged: StagedFile, mtime: Timestamp, durably: Bool) throws(MarfaError) -> Node? {
    if durably {
      do throws(Errno) {
        try staged.descriptor.synchronize()
        try Path.synchronizeDirectory(blobs.files.root + "/staged")
      } catch {
        throw .io(error, staged.path)
      }
    }
    let size = staged.size
    let node = try change { (change) throws(MarfaError) -> Node? in
      guard var node = try change.connection.node(staged.node) else { return nil }
      let before = node.content
      node.content = .staged(staged.id)
      node.size = size
      node.mtime = mtime
      node.ctime = max(node.ctime, mtime)
      try change.connection.updateNode(node)
      try change.connection.setStagedBase(node.number, staged.base)
      // An item goes on naming the bytes it had until the new ones are sealed.
      if case .blob(let hash) = before, node.item == nil { try blobs.release(hash, in: change.connection) }
      return node
    }
    if durably { try store.synchronize() }
    return node
  }

  /// Seals staged bytes: hashes them, moves them to where they are never written again, makes them the node's content
  /// and queues what that means, in one transaction. Equal bytes are kept once. A node whose last name is gone gets
  /// nothing; `nil` is answered then. No writer may be at work on `staged`.
  public func seal(_ staged: StagedFile, mtime: Timestamp) throws(MarfaError) -> Node? {
    guard staged.size > 0 else { return try sealEmpty(staged.node, staged, mtime: mtime) }
    if let node = try lateRows?.seal(staged, mtime: mtime) { return node }
    let (hash, size) = try staged.finish()
    let name = try store.read { (connection) throws(MarfaError) in try connection.entries(of: staged.node).first?.name }
    let mimeType = MIMEType.of(name?.bytes ?? [], path: staged.path)
    do throws(MarfaError) {
      return try change { (change) throws(MarfaError) in
        try change.seal(staged, hash, size: size, mimeType: mimeType, mtime: mtime)
      }
    } catch {
      blobs.forget(hash)
      throw error
    }
  }

  /// A file was closed with nothing in it. The server holds no empty blob: it is empty here, and only here.
  public func sealEmpty(_ number: Int64, _ staged: StagedFile?, mtime: Timestamp) throws(MarfaError) -> Node? {
    try change { (change) throws(MarfaError) -> Node? in
      guard var node = try change.connection.node(number) else {
        if let staged { store.afterCommit { [blobs] in blobs.discard(staged) } }
        return nil
      }
      let before = node.content
      if let staged {
        if before == .staged(staged.id) {
          blobs.removeAfterCommit(number, staged.id)
        } else {
          store.afterCommit { [blobs] in blobs.discard(staged) }
        }
      }
      node.content = .empty
      node.size = 0
      node.mtime = mtime
      node.ctime = max(node.ctime, mtime)
      // Its item stays as it is known, or queued, elsewhere: the next bytes are its next version.
      try change.connection.updateNode(node)
      if case .blob(let old) = before {
        try change.outbox.releaseUpload(old)
        try blobs.release(old, in: change.connection)
      }
      return node
    }
  }
}

extension Tree.Change {
  func seal(_ staged: StagedFile, _ hash: BlobHash, size: Int64, mimeType: String, mtime: Timestamp)
    throws(MarfaError) -> Node?
  {
    let blobs = tree.blobs
    guard var node = try connection.node(staged.node) else {
      tree.store.afterCommit { blobs.discard(staged) }
      return nil
    }
    let before = node.content
    if before == .staged(staged.id) {
      // The name the row had may be what an fsync promised: it goes only once the new row is as durable.
      blobs.removeAfterCommit(staged.node, staged.id, sealedAs: hash)
    } else {
      tree.store.afterCommit { blobs.discard(staged) }
    }
    try hold(staged, hash, size: size, mimeType: mimeType)
    node.content = .blob(hash)
    node.size = size
    node.mtime = mtime
    node.ctime = max(node.ctime, mtime)
    try connection.updateNode(node)
    if !node.local { try contentChanged(&node, hash, mimeType: mimeType, over: staged.base) }
    if case .blob(let old) = before, old != hash {
      try outbox.releaseUpload(old)
      try blobs.release(old, in: connection)
    }
    return node
  }

  /// Gives finished bytes their name and their row (``BlobStore/hold(_:_:size:mimeType:in:at:)``), and files that showed
  /// them before their length.
  func hold(_ staged: StagedFile, _ hash: BlobHash, size: Int64, mimeType: String?) throws(MarfaError) {
    let sized = try tree.blobs.hold(staged, hash, size: size, mimeType: mimeType, in: connection, at: now)
    tree.notify(sized.map { .attributes($0) }, in: self)
  }

  /// A file has other bytes now: its item names them, or it gets an item. Writes the node.
  func contentChanged(_ node: inout Node, _ hash: BlobHash, mimeType: String, over base: StagedFile.Base? = nil)
    throws(MarfaError)
  {
    if let item = node.item {
      try setContent(of: item, hash, mimeType: mimeType, over: base)
      return
    }
    let places = try connection.entries(of: node.number)
    if places.count == 1, let place = places.first {
      if try takeOverDisplaced(&node, at: place.parent, place.name) { return }
    }
    try createFileItem(for: &node, hash, mimeType: mimeType)
    try connection.updateNode(node)
  }

  /// An item names other bytes: the upload, and the update on the version held. Equal bytes are no change. When `base`
  /// names others than the item does now, another device has replaced them since the program began: the update is one of
  /// the version it began with, so that the server keeps both.
  func setContent(of item: ItemID, _ hash: BlobHash, mimeType: String, over base: StagedFile.Base? = nil)
    throws(MarfaError)
  {
    guard let current = try connection.item(item), current.blob != hash else { return }
    let overtaken = base.flatMap { $0.blob != current.blob && $0.version < current.version ? max($0.version, 1) : nil }
    // The type follows the MIME type while it still can, unless somebody chose another.
    var type: String?
    if try outbox.isUnsent(item), current.type == FileTypes.type(forMIME: current.mimeType ?? "") {
      type = FileTypes.type(forMIME: mimeType)
    }
    try outbox.updateItem(
      item, ["blob_ref": .string(hash.description), "mime_type": .string(mimeType)], type: type, folding: true,
      baseVersion: overtaken)
    if let old = current.blob {
      try outbox.releaseUpload(old)
      try tree.blobs.release(old, in: connection)
    }
  }

  /// The file item of a node that has none: the upload, the item, an edge for each directory it has a name in.
  func createFileItem(for node: inout Node, _ hash: BlobHash, mimeType: String) throws(MarfaError) {
    let places = try connection.entries(of: node.number)
    guard let title = try titleName(of: node)?.title else { return }
    let item = try createFileItem(titled: title, hash, mimeType: mimeType)
    node.item = item
    node.local = false
    for place in places { try attach(node, in: try directory(place.parent)) }
    try applyPending(node, to: item)
  }

  /// A file item that no node shows yet, and its upload.
  func createFileItem(titled title: String, _ hash: BlobHash, mimeType: String) throws(MarfaError) -> ItemID {
    let item = Item(
      id: .mint(), type: FileTypes.type(forMIME: mimeType),
      properties: [
        "blob_ref": .string(hash.description), "mime_type": .string(mimeType), "title": .string(title),
      ], state: .active, tier: .library, version: 0, tags: [], pinned: false)
    _ = try outbox.createItem(item)
    return item.id
  }
}

extension Connection {
  /// What a node's content is a content of: its item's version and bytes.
  fileprivate func contentBase(_ node: Int64) throws(MarfaError) -> StagedFile.Base? {
    guard let id = try self.node(node)?.item, let item = try item(id) else { return nil }
    return StagedFile.Base(version: item.version, blob: item.blob)
  }

  /// Keeps what staged content began with, for the process that seals it when this one does not.
  fileprivate func setStagedBase(_ node: Int64, _ base: StagedFile.Base?) throws(MarfaError) {
    try run("UPDATE nodes SET staged_version = ?2, staged_over = ?3 WHERE number = ?1") {
      $0.int(1, node)
      $0.int(2, base?.version)
      $0.hash(3, base?.blob)
    }
  }

  func stagedBase(_ node: Int64) throws(MarfaError) -> StagedFile.Base? {
    try first(
      "SELECT staged_version, staged_over FROM nodes WHERE number = ?1 AND staged_version IS NOT NULL",
      { $0.int(1, node) }, { StagedFile.Base(version: $0.int(0), blob: $0.hash(1)) })
  }
}
