/// Bytes of a working copy on this device (seed "Read a file's bytes", "Files on the device").
public struct Blobs: Sendable {
  let copy: WorkingCopy

  /// Copies a file's bytes beside the store and queues their upload, with no file item.
  @discardableResult
  public func put(file path: String, mimeType: String? = nil) throws(MarfaError) -> (blob: BlobHash, upload: WriteID?) {
    guard !copy.isReader else { throw .readingHandle }
    let staged = try copy.blobStore.stage(copying: path)
    let (hash, size): (BlobHash, Int64)
    do throws(MarfaError) { (hash, size) = try staged.finish() } catch {
      copy.blobStore.discard(staged)
      throw error
    }
    let type = mimeType ?? MIMEType.of(Array(Path.lastComponent(path).utf8), path: staged.path)
    return try copy.blobStore.keeping(staged, as: hash, size: size) { () throws(MarfaError) in
      try copy.change { (change) throws(MarfaError) in
        try copy.blobStore.hold(staged, hash, size: size, mimeType: type, in: change.connection, at: change.now)
        let upload = try change.outbox.upload(hash, mimeType: type, lasting: true)
        copy.store.afterCommit { [copy] in copy.blobStore.discard(staged) }
        return (hash, upload?.id)
      }
    }
  }

  /// Calls `body` with the path where a blob's bytes are. **The file stays there only while `body` runs**, whatever the
  /// budget does. A copy without a server, and a reader, throw ``MarfaError/bytesAbsent(_:)`` for what is not here.
  public func withFile<T>(_ hash: BlobHash, _ body: (String) async throws -> T) async throws -> T {
    copy.blobStore.pin(hash)
    defer { copy.blobStore.unpin(hash) }
    guard try copy.blobStore.isHeld(hash) else { throw MarfaError.bytesAbsent(hash) }
    return try await body(copy.blobStore.files.held(hash))
  }

  /// Whether the copy holds a blob's bytes.
  public func isHeld(_ hash: BlobHash) throws(MarfaError) -> Bool { try copy.blobStore.isHeld(hash) }

  /// What is known of a blob's size, in bytes.
  public func size(_ hash: BlobHash) throws(MarfaError) -> Int64? {
    try copy.store.read { (connection) throws(MarfaError) in try connection.blob(hash)?.size }
  }

  /// Why a blob's bytes are not here, and the last error in words; `nil` when they are.
  public func notHeld(_ hash: BlobHash) throws(MarfaError) -> (reason: NotHeldReason, detail: String?)? {
    try copy.store.read { (connection) throws(MarfaError) in
      guard let row = try connection.blob(hash) else { return (.notFetched, nil) }
      return row.held ? nil : (row.reason, row.detail)
    }
  }

  /// What the cache holds, read with no request.
  public func cache() throws(MarfaError) -> FileCache {
    try copy.store.snapshot { (connection) throws(MarfaError) in try copy.blobStore.cache(in: connection) }
  }

  /// Chooses the budget, trims to it at once and returns the bytes removed. The store keeps the choice.
  @discardableResult
  public func setBudget(_ budget: FileBudget) throws(MarfaError) -> Int64 {
    if case .bytes(let bytes) = budget, bytes < 0 { throw .invalid("a budget can't be negative") }
    return try copy.change { (change) throws(MarfaError) in
      try change.connection.setBudget(budget)
      return try trim(change)
    }
  }

  /// Chooses which attachments are outside the budget. The store keeps the choice.
  public func setKeep(_ keep: KeepSetting) throws(MarfaError) {
    try copy.change { (change) throws(MarfaError) in try change.connection.setSetting("keep", keep.rawValue) }
  }

  /// Trims to the budget now and returns the bytes removed.
  @discardableResult
  public func trim() throws(MarfaError) -> Int64 {
    try copy.change { (change) throws(MarfaError) in try trim(change) }
  }

  private func trim(_ change: Tree.Change) throws(MarfaError) -> Int64 {
    let cache = try copy.blobStore.cache(in: change.connection)
    return try copy.blobStore.trim(to: cache.budget, in: change.connection)
  }

  /// Removes every file the copy can fetch again, leaves the budget as it is, and returns the bytes removed. Attachments
  /// kept and bytes whose upload waits stay.
  @discardableResult
  public func removeFetchedFiles() throws(MarfaError) -> Int64 {
    try copy.change { (change) throws(MarfaError) in try copy.blobStore.removeFetched(in: change.connection) }
  }

  /// Fetches the attachments the copy doesn't hold whole. A reader throws ``MarfaError/readingHandle``, a copy without a
  /// server ``MarfaError/noServer``.
  public func fetchKept() async throws(MarfaError) -> KeptFetch {
    throw copy.isReader ? .readingHandle : .noServer
  }
}
