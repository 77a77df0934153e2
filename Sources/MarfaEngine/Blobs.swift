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
        try change.hold(staged, hash, size: size, mimeType: type)
        let upload = try change.outbox.upload(hash, mimeType: type, lasting: true)
        copy.store.afterCommit { [copy] in copy.blobStore.discard(staged) }
        return (hash, upload)
      }
    }
  }

  /// Calls `body` with the path where a blob's bytes are, fetching them first when they aren't here. **The file stays
  /// there only while `body` runs**, whatever the budget or other fetches do. Throws ``MarfaError/noRoom(size:left:)`` when
  /// the volume has no room for them. A copy without a server, and a reader, throw ``MarfaError/bytesAbsent(_:)`` for what
  /// is not here.
  public func withFile<T>(_ hash: BlobHash, _ body: (String) async throws -> T) async throws -> T {
    copy.blobStore.pin(hash)
    defer { copy.blobStore.unpin(hash) }
    if try !copy.blobStore.isHeld(hash) { try await fetch(hash) }
    return try await body(copy.blobStore.files.held(hash))
  }

  /// Opens a blob's bytes for reading ranges of them, whether they are here or not. A copy without a server, and a reader,
  /// throw ``MarfaError/bytesAbsent(_:)`` for what is not here.
  public func open(_ hash: BlobHash) throws(MarfaError) -> RangeReader { try copy.fetcher.open(hash) }

  /// Says that a blob's bytes, which are here, are being read, as long as what this returns lives: they are not let go of
  /// meanwhile, and count as read now.
  public func reading(_ hash: BlobHash) -> BytesInUse {
    copy.fetcher.noteRead(hash)
    return BytesInUse(hash, in: copy.blobStore)
  }

  /// Has a blob's bytes here whole, fetching what is missing. Cancel the task to stop it: what came stays.
  public func fetch(_ hash: BlobHash, progress: (@Sendable (Int64) -> Void)? = nil) async throws(MarfaError) {
    let ticket = Lock<WholeFetch?>(.leaf, nil)
    let result = await withTaskCancellationHandler {
      await withUnsafeContinuation { (continuation: UnsafeContinuation<Result<Void, MarfaError>, Never>) in
        let fetch = copy.fetcher.whole(hash, progress: progress) { continuation.resume(returning: $0) }
        ticket.withLock { $0 = fetch }
        if Task.isCancelled { fetch.cancel() }
      }
    } onCancel: {
      ticket.withLock { $0 }?.cancel()
    }
    try result.get()
  }

  /// The same for who has no task: `then` is called exactly once, on a thread that must not be kept; `progress` with the
  /// bytes here, now and then.
  @discardableResult
  public func fetch(
    _ hash: BlobHash, progress: (@Sendable (Int64) -> Void)? = nil,
    then: @escaping @Sendable (Result<Void, MarfaError>) -> Void
  ) -> WholeFetch {
    copy.fetcher.whole(hash, progress: progress, then: then)
  }

  /// Why these bytes would not stay once they are fetched, as far as is known before.
  public func refusalToStay(_ hash: BlobHash) throws(MarfaError) -> MarfaError? {
    try copy.store.snapshot { (connection) throws(MarfaError) in
      guard let size = try connection.blob(hash)?.size, let budget = try copy.blobStore.allowance(in: connection),
        size > budget, try !connection.isOutsideBudget(hash)
      else { return nil }
      return .overBudget(size: size, budget: budget)
    }
  }

  /// Which of these, fetched a moment ago, do not stay here, as the budget is.
  public func notStaying(_ hashes: Set<BlobHash>) throws(MarfaError) -> Set<BlobHash> {
    guard !hashes.isEmpty else { return [] }
    return try copy.store.snapshot { (connection) throws(MarfaError) in
      try copy.blobStore.going(hashes, in: connection)
    }
  }

  /// The bytes the budget allows now; `nil` for no budget.
  public func allowance() throws(MarfaError) -> Int64? {
    try copy.store.snapshot { (connection) throws(MarfaError) in try copy.blobStore.allowance(in: connection) }
  }

  /// Which attachments are outside the budget.
  public func keep() throws(MarfaError) -> KeepSetting {
    try copy.store.read { (connection) throws(MarfaError) in try connection.keep() }
  }

  /// Throws `EPERM` for bytes that ``letGo(_:)`` would not take, open or not: pinned, or nobody else's.
  public func checkLetGo(_ hash: BlobHash) throws(MarfaError) {
    try copy.store.read { (connection) throws(MarfaError) in try copy.blobStore.checkLetGo(hash, in: connection) }
  }

  /// Lets a blob's bytes go though it be an attachment kept, and answers the bytes removed. `EBUSY` while it is open;
  /// `EPERM` when it is pinned, or when the only bytes are here.
  @discardableResult
  public func letGo(_ hash: BlobHash) throws(MarfaError) -> Int64 {
    try copy.change { (change) throws(MarfaError) in
      let removed = try copy.blobStore.letGo(hash, in: change.connection)
      let nodes = try change.connection.nodes(showing: hash)
      copy.tree.notify(nodes.map { .attributes($0) }, in: change)
      return removed
    }
  }

  /// Tells a blob's size, asking the server when nobody knows it yet; that is waited for for so many seconds. `then` is
  /// called exactly once, at once when the size is known.
  public func size(
    _ hash: BlobHash, waiting seconds: Double, then: @escaping @Sendable (Result<Int64, MarfaError>) -> Void
  ) {
    copy.fetcher.size(of: hash, wait: Int64(seconds * 1e9), then: then)
  }

  /// How many of a blob's bytes are here, of one that is not here whole.
  public func partialBytes(_ hash: BlobHash) throws(MarfaError) -> Int64 {
    if let open = copy.fetcher.bytesHere(hash) { return open }
    return try copy.store.read { (connection) throws(MarfaError) in try connection.partialBytes(hash) } ?? 0
  }

  /// Learns in the background the size of every file that states none. For after rows came.
  public func learnSizes() { copy.fetcher.learnSizes() }

  /// True when bytes that are not here are fetched.
  public var canFetch: Bool { copy.fetcher.source != nil }

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
    let removed = try copy.change { (change) throws(MarfaError) in
      try change.connection.setBudget(budget)
      return try trim(change)
    }
    copy.fetcher.room.refresh()
    return removed
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
    try copy.blobStore.trim(to: try copy.blobStore.allowance(in: change.connection), in: change.connection)
  }

  /// Removes every file the copy can fetch again, leaves the budget as it is, and returns the bytes removed. Attachments
  /// kept, what is being read or fetched, and bytes whose upload waits stay. Where what is held can't be read it takes
  /// nothing and throws ``MarfaError/store(_:)``.
  @discardableResult
  public func removeFetchedFiles() throws(MarfaError) -> Int64 {
    try copy.change { (change) throws(MarfaError) in try copy.blobStore.removeFetched(in: change.connection) }
  }

  /// Fetches the attachments the copy doesn't hold whole, smallest first, so that they're there offline. It goes on with the
  /// part of a file an earlier fetch left, and waits out a server that asks for a minute or less. It stops at the first
  /// file the disk has no room for, once the server can't be reached, or asks for a longer wait; a file that fails
  /// otherwise is passed over. A reader throws ``MarfaError/readingHandle``, a copy without a server
  /// ``MarfaError/noServer``; when its task is cancelled it throws ``MarfaError/canceled``, and the files fetched stay.
  public func fetchKept(progress: (@Sendable (KeptProgress) -> Void)? = nil) async throws(MarfaError) -> KeptFetch {
    let ticket = Lock<KeptFetchRun?>(.leaf, nil)
    let result = await withTaskCancellationHandler {
      await withUnsafeContinuation { (continuation: UnsafeContinuation<Result<KeptFetch, MarfaError>, Never>) in
        let run = fetchKept(progress: progress) { continuation.resume(returning: $0) }
        ticket.withLock { $0 = run }
        if Task.isCancelled { run.cancel() }
      }
    } onCancel: {
      ticket.withLock { $0 }?.cancel()
    }
    return try result.get()
  }

  /// The same for who has no task: `then` is called exactly once, on a thread that must not be kept.
  @discardableResult
  public func fetchKept(
    progress: (@Sendable (KeptProgress) -> Void)? = nil,
    then: @escaping @Sendable (Result<KeptFetch, MarfaError>) -> Void
  ) -> KeptFetchRun {
    let run = KeptFetchRun(copy, progress: progress, then: then)
    run.begin()
    return run
  }
}
