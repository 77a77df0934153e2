import Glibc
import MarfaEngine

/// An item as the server holds it, for tests to look at.
public struct ServerItem: Sendable, Equatable {
  /// Its id.
  public var id: String
  /// Its type.
  public var type: String
  /// `library` or `feed`.
  public var tier: String
  /// `active`, `archived`, `trashed`, `revoked`.
  public var state: String
  /// Its version.
  public var version: Int64
  /// Its properties.
  public var properties: JSON.Object
  /// Its tags, in the order they were added.
  public var tags: [String]
  /// Its extensions by namespace.
  public var extensions: JSON.Object

  init(_ row: ItemRow) {
    id = row.id
    type = row.type
    tier = row.tier
    state = row.state
    version = row.version
    properties = row.properties
    tags = row.tags
    extensions = row.extensions
  }

  /// `properties.title`.
  public var title: String? { properties["title"]?.string }
  /// `properties.blob_ref`.
  public var blob: String? { properties["blob_ref"]?.string }
}

/// An edge as the server holds it.
public struct ServerEdge: Sendable, Equatable {
  /// Its id.
  public var id: String
  /// Where it starts.
  public var source: String
  /// Where it ends.
  public var target: String
  /// Its type.
  public var type: String
  /// Its version.
  public var version: Int64
  /// Its properties.
  public var properties: JSON.Object

  init(_ row: EdgeRow) {
    id = row.id
    source = row.source
    target = row.target
    type = row.type
    version = row.version
    properties = row.properties
  }
}

/// Another device with every right, without a wire between: what it changes, every event stream tells.
/// Valid inside ``ContractServer/change(_:)`` only.
public final class ServerDevice {
  let books: Books

  fileprivate init(_ books: Books) { self.books = books }

  // MARK: - Items

  /// Makes an item; answers its id.
  @discardableResult
  public func createItem(
    _ type: String, _ properties: JSON.Object, id: String? = nil, tier: String = "library", tags: [String] = []
  ) throws(ServerRefusal) -> String {
    let id = id ?? ItemID.mint().description
    _ = try books.createItem(
      .admin, id: id, type: type, tier: tier, properties: properties, occurredAt: nil, source: "device", sourceID: nil)
    if !tags.isEmpty { try addTags(id, tags) }
    return id
  }

  /// Makes a note.
  @discardableResult
  public func createNote(_ title: String, body: String = "", tags: [String] = []) throws(ServerRefusal) -> String {
    try createItem("core.note", ["title": .string(title), "body": .string(body)], tags: tags)
  }

  /// Makes a file item of bytes, attached to `host` when there is one; answers the item's id.
  @discardableResult
  public func createFile(
    _ title: String, _ bytes: [UInt8], mime: String = "application/octet-stream", attachedTo host: String? = nil,
    type: String? = nil
  ) throws(ServerRefusal) -> String {
    let hash = try putBlob(bytes, mime: mime)
    let id = try createItem(
      type ?? FileTypes.type(forMIME: mime),
      ["title": .string(title), "blob_ref": .string(hash), "mime_type": .string(mime)])
    if let host { try createEdge("attached-to", from: id, to: host) }
    return id
  }

  /// Merges properties into an item, on the version it has; answers the new one. `type` and `tier` move it elsewhere.
  @discardableResult
  public func updateItem(
    _ id: String, _ properties: JSON.Object = [:], replaces: Bool = false, type: String? = nil, tier: String? = nil
  ) throws(ServerRefusal) -> Int64 {
    guard let version = try books.item(id)?.version else { throw .noItem(id) }
    return try books.updateItem(
      .admin, id, version: version, properties: properties, replaces: replaces, resolves: false, type: type, tier: tier
    ).row.version
  }

  /// Gives a file item other bytes; answers their hash.
  @discardableResult
  public func replaceBytes(_ id: String, _ bytes: [UInt8]) throws(ServerRefusal) -> String {
    let hash = try putBlob(bytes)
    try updateItem(id, ["blob_ref": .string(hash)])
    return hash
  }

  /// Into the bin, with its children.
  public func trash(_ id: String) throws(ServerRefusal) { _ = try books.trash(.admin, id) }
  /// Out of the bin, with what its trashing took.
  public func restore(_ id: String) throws(ServerRefusal) { _ = try books.restore(.admin, id) }
  /// `active` or `archived`.
  public func transition(_ id: String, to state: String) throws(ServerRefusal) {
    _ = try books.transition(.admin, id, to: state)
  }
  /// Gone for good, edges at both ends with it.
  public func purge(_ id: String) throws(ServerRefusal) { try books.purge(id) }

  /// Adds tags.
  public func addTags(_ id: String, _ tags: [String]) throws(ServerRefusal) {
    _ = try books.changeMetadata(.admin, id) { $0.add(tags) }
  }
  /// Removes a tag.
  public func removeTag(_ id: String, _ tag: String) throws(ServerRefusal) {
    _ = try books.changeMetadata(.admin, id) { row in row.tags.removeAll { $0 == tag } }
  }
  /// Sets or, with `nil`, removes an extension.
  public func setExtension(_ id: String, _ namespace: String, _ value: JSON.Object?) throws(ServerRefusal) {
    _ = try books.changeMetadata(.admin, id) { $0.extensions[namespace] = value.map { .object($0) } }
  }

  // MARK: - Edges

  /// Draws an edge; answers its id.
  @discardableResult
  public func createEdge(
    _ type: String, from source: String, to target: String, id: String? = nil, _ properties: JSON.Object = [:]
  ) throws(ServerRefusal) -> String {
    let id = id ?? EdgeID.mint().description
    _ = try books.createEdge(.admin, id: id, source: source, target: target, type: type, properties: properties)
    return id
  }

  /// Gives an edge another source, another target or more properties.
  public func updateEdge(
    _ id: String, source: String? = nil, target: String? = nil, _ properties: JSON.Object? = nil
  ) throws(ServerRefusal) {
    _ = try books.updateEdge(.admin, id, version: nil, properties: properties, source: source, target: target)
  }

  /// Removes an edge.
  public func deleteEdge(_ id: String) throws(ServerRefusal) { try books.deleteEdge(.admin, id) }

  // MARK: - Blobs

  /// Keeps bytes; answers their hash as the wire has it.
  @discardableResult
  public func putBlob(_ bytes: [UInt8], mime: String = "application/octet-stream") throws(ServerRefusal) -> String {
    let upload = try Upload(path: "\(books.folder)/blobs/.device")
    bytes.withUnsafeBytes { upload.add($0) }
    return try keep(upload, mime)
  }

  /// Keeps so many bytes that look random and are the same for one seed; answers their hash. They are never in memory
  /// at once.
  @discardableResult
  public func putBlob(size: Int64, seed: UInt64, mime: String = "application/octet-stream") throws(ServerRefusal)
    -> String
  {
    let upload = try Upload(path: "\(books.folder)/blobs/.device")
    var state = seed
    var block = [UInt64](repeating: 0, count: 1 << 17)
    while upload.count < size {
      for index in block.indices {
        // xorshift64*: fast, and no two blocks alike.
        state = state == 0 ? 0x9e37_79b9_7f4a_7c15 : state
        state ^= state >> 12
        state ^= state << 25
        state ^= state >> 27
        block[index] = state &* 0x2545_f491_4f6c_dd1d
      }
      block.withUnsafeBytes { bytes in
        upload.add(UnsafeRawBufferPointer(rebasing: bytes.prefix(Int(clamping: size - upload.count))))
      }
    }
    return try keep(upload, mime)
  }

  private func keep(_ upload: Upload, _ mime: String) throws(ServerRefusal) -> String {
    if let failure = upload.failure { throw .broken("\(failure)") }
    let hash = upload.finish()
    _ = try books.keepBlob(.admin, hash, mime: mime, size: upload.count, file: upload.path)
    return hash.description
  }

  /// Loses a blob's bytes: whoever asks is told 404.
  public func loseBlob(_ hash: String) throws(ServerRefusal) {
    guard let hash = BlobHash(hash) else { throw .noBlob(hash) }
    try books.loseBlob(hash)
  }

  /// The bytes of a blob, whoever may read it.
  public func blobBytes(_ hash: String) throws(ServerRefusal) -> [UInt8] {
    guard let name = BlobHash(hash) else { throw .noBlob(hash) }
    let blob = try books.blob(name)
    var bytes = [UInt8](repeating: 0, count: Int(blob.size))
    let result: Result<Int, Errno> = bytes.withUnsafeMutableBytes { buffer in
      Result { () throws(Errno) in try blob.file.read(into: buffer, at: 0) }
    }
    do { _ = try result.get() } catch { throw .broken("\(error)") }
    return bytes
  }

  // MARK: - Looking

  /// An item in any state.
  public func item(_ id: String) throws(ServerRefusal) -> ServerItem? { try books.item(id).map(ServerItem.init) }

  /// Every item there is, in any state, in the order of their making.
  public func items() throws(ServerRefusal) -> [ServerItem] {
    try books.database.rows("SELECT \(ItemRow.columns) FROM items ORDER BY n").map { ServerItem(ItemRow($0)) }
  }

  /// An earlier version's properties.
  public func properties(_ id: String, version: Int64) throws(ServerRefusal) -> JSON.Object? {
    try books.database.row(
      "SELECT properties FROM versions WHERE id = ?1 AND version = ?2", .text(id), Value(version)
    ).map { ItemRow.object($0[0].text) }
  }

  /// Every edge there is, in the order of their making.
  public func edges() throws(ServerRefusal) -> [ServerEdge] {
    try books.database.rows("SELECT \(EdgeRow.columns) FROM edges ORDER BY n").map { ServerEdge(EdgeRow($0)) }
  }

  /// An edge.
  public func edge(_ id: String) throws(ServerRefusal) -> ServerEdge? {
    try books.database.row("SELECT \(EdgeRow.columns) FROM edges WHERE id = ?1", .text(id)).map {
      ServerEdge(EdgeRow($0))
    }
  }

  /// Every blob: hash → size.
  public func blobs() throws(ServerRefusal) -> [String: Int64] {
    var blobs: [String: Int64] = [:]
    for row in try books.database.rows("SELECT hash, size FROM blobs") { blobs[row[0].text] = row[1].int }
    return blobs
  }

  /// The log that is kept: number and name of each event.
  public func events() throws(ServerRefusal) -> [(id: Int64, name: String)] {
    try books.database.rows("SELECT id, event FROM events ORDER BY id").map { ($0[0].int, $0[1].text) }
  }
}

@available(*, unavailable) extension ServerDevice: Sendable {}

extension Instance {
  func change<R>(_ body: (ServerDevice) throws -> R) throws -> R {
    // One closure's error of any kind, through two typed ones.
    let result: Result<R, any Error> = try withBooks { (books) throws(ServerRefusal) in
      var outcome: Result<R, any Error>?
      do throws(ServerRefusal) {
        return try books.transaction { () throws(ServerRefusal) in
          let inner = Result { try body(ServerDevice(books)) }
          outcome = inner
          if case .failure(let error) = inner { throw error as? ServerRefusal ?? .broken("\(error)") }
          return inner
        }
      } catch {
        if let outcome { return outcome }
        throw error
      }
    }
    return try result.get()
  }
}
