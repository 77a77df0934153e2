/// The items of a working copy, and files attached to them (seed "Attach a file").
public struct Items: Sendable {
  let copy: WorkingCopy

  /// An item, `nil` when the copy has none of this id.
  public func get(_ id: ItemID) throws(MarfaError) -> Item? {
    try copy.store.read { (connection) throws(MarfaError) in try connection.item(id) }
  }

  /// Pins an item, so that what is attached to it is kept here, or lets it go. On this device only.
  public func setPinned(_ id: ItemID, _ pinned: Bool) throws(MarfaError) {
    try copy.change { (change) throws(MarfaError) in
      guard try change.connection.item(id) != nil else { throw .itemNotFound(id) }
      try change.connection.setItem(id, pinned: pinned)
    }
  }

  /// The item a node of the tree shows.
  public func item(ofNode number: Int64) throws(MarfaError) -> Item? {
    try copy.store.read { (connection) throws(MarfaError) in
      guard let id = try connection.node(number)?.item else { return nil }
      return try connection.item(id)
    }
  }

  /// Creates an item and queues that. Answers it and the write.
  public func create(type: String, properties: JSON.Object, tier: Tier = .library) throws(MarfaError) -> (
    item: Item, write: WriteID
  ) {
    guard !type.isEmpty, type != "*" else { throw .invalid("an item needs a type") }
    var complete = ItemType.requiredProperties(of: type)
    complete.merge(properties)
    let item = Item(
      id: .mint(), type: type, properties: complete, state: .active, tier: tier, version: 0, tags: [], pinned: false)
    return try copy.change { (change) throws(MarfaError) in
      let write = try change.outbox.createItem(item)
      try change.show(item)
      return (item, write)
    }
  }

  /// Merges properties into an item and queues the update on the version the copy holds.
  @discardableResult
  public func update(_ id: ItemID, _ changes: JSON.Object) throws(MarfaError) -> WriteID {
    try copy.change { (change) throws(MarfaError) in
      guard let before = try change.connection.item(id) else { throw .itemNotFound(id) }
      let write = try change.outbox.updateItem(id, changes, folding: false)
      try change.retitle(id, from: before.title)
      return write
    }
  }

  /// Puts an item into the bin and queues that. `nil`: nobody else knew of it, and everything queued was taken back.
  @discardableResult
  public func delete(_ id: ItemID) throws(MarfaError) -> WriteID? {
    try copy.change { (change) throws(MarfaError) in
      guard let item = try change.connection.item(id) else { throw .itemNotFound(id) }
      try change.hide(id)
      let write = try change.outbox.deleteItem(id)
      if let blob = item.blob { try copy.blobStore.release(blob, in: change.connection) }
      return write
    }
  }

  /// Brings an item back from the bin and queues that.
  @discardableResult
  public func restore(_ id: ItemID) throws(MarfaError) -> WriteID {
    try copy.change { (change) throws(MarfaError) in
      guard var item = try change.connection.item(id) else { throw .itemNotFound(id) }
      let write = try change.outbox.restoreItem(id)
      item.state = .active
      if try change.connection.node(of: id) == nil {
        try change.show(item)
        for edge in try change.connection.edges(touching: id) { try change.show(edge) }
      }
      return write
    }
  }

  /// Archives an item, or makes it active again, and queues that.
  @discardableResult
  public func transition(_ id: ItemID, to state: ItemState) throws(MarfaError) -> WriteID {
    guard state == .active || state == .archived else {
      throw .invalid("an item is moved to active or archived; the bin has a call of its own")
    }
    return try copy.change { (change) throws(MarfaError) in
      guard try change.connection.item(id) != nil else { throw .itemNotFound(id) }
      return try change.outbox.transitionItem(id, to: state)
    }
  }

  /// Adds a tag and queues that. `nil`: it took back a removal that had not gone out.
  @discardableResult
  public func addTag(_ id: ItemID, _ tag: String) throws(MarfaError) -> WriteID? {
    guard !tag.isEmpty else { throw .invalid("a tag can't be empty") }
    return try change(id) { (change) throws(MarfaError) in try change.outbox.addTag(id, tag) }
  }

  /// Removes a tag and queues that. `nil`: it took back an addition that had not gone out.
  @discardableResult
  public func removeTag(_ id: ItemID, _ tag: String) throws(MarfaError) -> WriteID? {
    try change(id) { (change) throws(MarfaError) in try change.outbox.removeTag(id, tag) }
  }

  /// Replaces the item's tags as one write, or adds to them.
  @discardableResult
  public func setMetadata(_ id: ItemID, tags: [String], replacing: Bool) throws(MarfaError) -> WriteID {
    guard !tags.contains("") else { throw .invalid("a tag can't be empty") }
    return try change(id) { (change) throws(MarfaError) in
      try change.outbox.metadata(id, tags: tags, replacing: replacing)
    }
  }

  /// Writes an extension's values on an item, or deletes them with `nil`, and queues that.
  @discardableResult
  public func setExtension(_ id: ItemID, _ namespace: String, _ value: JSON.Object?) throws(MarfaError) -> WriteID {
    guard !namespace.isEmpty else { throw .invalid("an extension needs a namespace") }
    return try change(id) { (change) throws(MarfaError) in
      try change.outbox.writeExtension(id, namespace, value)
    }
  }

  /// An extension's values on an item.
  public func extensionValue(_ id: ItemID, _ namespace: String) throws(MarfaError) -> JSON.Object? {
    try copy.store.read { (connection) throws(MarfaError) in try connection.extensionValue(id, namespace)?.object }
  }

  private func change<T>(_ id: ItemID, _ body: (Tree.Change) throws(MarfaError) -> T) throws(MarfaError) -> T {
    try copy.change { (change) throws(MarfaError) in
      guard try change.connection.item(id) != nil else { throw .itemNotFound(id) }
      return try body(change)
    }
  }
}

// MARK: - Files

extension Items {
  /// Attaches a copy of the file at `path` to an item: an upload, a file item naming the bytes, and an `attached-to`
  /// edge, queued in one transaction. The original is never touched. Throws ``MarfaError/noRoom(size:left:)`` when the
  /// volume can't take the copy; nothing is written then.
  public func attach(to host: ItemID, file path: String, _ attachment: Attachment = Attachment()) throws(MarfaError)
    -> Attached
  {
    let prepared = try prepare(path, attachment)
    return try change(prepared) { (change) throws(MarfaError) in
      guard try change.connection.item(host) != nil else { throw .itemNotFound(host) }
      let (upload, create) = try add(prepared, in: change)
      let edge = Edge(
        id: .mint(), source: prepared.item.id, target: host, type: Edge.attachedTo, properties: [:], version: 0)
      let attach = try change.outbox.createEdge(edge)
      try change.show(edge)
      return Attached(
        file: prepared.item.id, edge: edge.id, blob: prepared.hash, upload: upload, create: create, attach: attach,
        embed: try embedText(of: prepared.item.id, in: host, change.connection))
    }
  }

  /// Attaches a file and adds its embed to the end of the item's body, based on the version the copy holds. Throws
  /// ``EmbedFailure`` with the attachment when the body step fails, ``MarfaError`` when nothing was written.
  public func embed(file path: String, in host: ItemID, _ attachment: Attachment = Attachment()) throws -> Embedded {
    let attached = try attach(to: host, file: path, attachment)
    do throws(MarfaError) {
      let edit = try copy.change { (change) throws(MarfaError) -> WriteID in
        guard let item = try change.connection.item(host) else { throw .itemNotFound(host) }
        guard let field = try change.connection.bodyField(of: item.type) else { throw .noBody(type: item.type) }
        guard let text = attached.embed else {
          throw .notNamedAlone(title: try change.connection.item(attached.file)?.title ?? "")
        }
        let body = item.properties[field]?.string ?? ""
        let separator = body.isEmpty ? "" : body.hasSuffix("\n") ? "\n" : "\n\n"
        return try change.outbox.updateItem(host, [field: .string(body + separator + text)], folding: false)
      }
      return Embedded(attached: attached, edit: edit)
    } catch {
      throw EmbedFailure(attached: attached, reason: error)
    }
  }

  /// Adds a file attached to nothing: the upload and a file item, then a write for each tag.
  public func addFile(_ path: String, _ attachment: Attachment = Attachment(), tags: [String] = []) throws(MarfaError)
    -> Added
  {
    guard !tags.contains("") else { throw .invalid("a tag can't be empty") }
    let prepared = try prepare(path, attachment)
    return try change(prepared) { (change) throws(MarfaError) in
      let (upload, create) = try add(prepared, in: change)
      var seen: Set<String> = []
      for tag in tags where seen.insert(tag).inserted { try change.outbox.addTag(prepared.item.id, tag) }
      return Added(file: prepared.item.id, blob: prepared.hash, upload: upload, create: create)
    }
  }

  /// The text that embeds an attached file in an item's body, `![[title]]`; `nil` when the title can't name the file
  /// alone: it is empty, has a character the embed's own grammar uses, or another attachment of the item has it.
  public func embedText(of file: ItemID, in host: ItemID) throws(MarfaError) -> String? {
    try copy.store.read { (connection) throws(MarfaError) in try embedText(of: file, in: host, connection) }
  }

  private struct Prepared {
    var item: Item
    var staged: StagedFile
    var hash: BlobHash
    var size: Int64
    var mimeType: String
  }

  /// Copies and hashes the file, outside any transaction.
  private func prepare(_ path: String, _ attachment: Attachment) throws(MarfaError) -> Prepared {
    guard !copy.isReader else { throw .readingHandle }
    let name = Path.lastComponent(path)
    let staged = try copy.blobStore.stage(copying: path)
    do throws(MarfaError) {
      let (hash, size) = try staged.finish()
      let mimeType = attachment.mimeType ?? MIMEType.of(Array(name.utf8), path: staged.path)
      let type = attachment.type ?? FileTypes.type(forMIME: mimeType)
      guard FileTypes.isFileType(type) else { throw .invalid("\(type) is no type of file: core.file, or one under it") }
      guard mimeType.split(separator: "/", omittingEmptySubsequences: false).count == 2 else {
        throw .invalid("\(mimeType) is no MIME type")
      }
      let item = Item(
        id: .mint(), type: type,
        properties: [
          "blob_ref": .string(hash.description), "mime_type": .string(mimeType),
          "title": .string(attachment.title ?? FileName.text(of: Array(name.utf8))),
        ], state: .active, tier: attachment.tier ?? .library, version: 0, tags: [], pinned: false)
      return Prepared(item: item, staged: staged, hash: hash, size: size, mimeType: mimeType)
    } catch {
      copy.blobStore.discard(staged)
      throw error
    }
  }

  private func change<T>(_ prepared: Prepared, _ body: (Tree.Change) throws(MarfaError) -> T) throws(MarfaError) -> T {
    try copy.blobStore.keeping(prepared.staged, as: prepared.hash, size: prepared.size) { () throws(MarfaError) in
      try copy.change(body)
    }
  }

  private func add(_ prepared: Prepared, in change: Tree.Change) throws(MarfaError) -> (
    upload: WriteID?, create: WriteID
  ) {
    try change.hold(prepared.staged, prepared.hash, size: prepared.size, mimeType: prepared.mimeType)
    let upload = try change.outbox.upload(prepared.hash, mimeType: prepared.mimeType)
    let create = try change.outbox.createItem(prepared.item)
    try change.show(prepared.item)
    copy.store.afterCommit { [copy] in copy.blobStore.discard(prepared.staged) }
    return (upload, create)
  }

  func embedText(of file: ItemID, in host: ItemID, _ connection: Connection) throws(MarfaError) -> String? {
    guard let title = try connection.item(file)?.title, !["", ".", ".."].contains(title),
      !title.unicodeScalars.contains(where: { "[]|#\n\r".unicodeScalars.contains($0) })
    else { return nil }
    // Another of this title is shown under the same name with a number (``FileName/numbered(_:)``), unless it has other
    // names as well: so only names that begin alike and files of several names are looked at, however many attachments
    // there are.
    guard let directory = try connection.node(of: host)?.number else { return "![[\(title)]]" }
    let stem = FileName.showing(title: title, type: "core.file", id: file).stem
    let others =
      try connection.items(in: directory, namesBeginning: stem) + connection.itemsOfSeveralNames(in: directory)
    for other in others where other != file {
      if try connection.item(other)?.title == title { return nil }
    }
    return "![[\(title)]]"
  }
}
