import Glibc

/// A working copy: a local store that answers without a network and queues every write until a server answers it.
/// This is the engine's face (ARCHITECTURE.md, "The engine"). Any thread may call anything.
public final class WorkingCopy: Sendable {
  /// How a store is opened.
  public struct Options: Sendable {
    /// Only look, even when nobody else has the store open.
    public var reader = false
    /// How the tree behaves.
    public var tree = Tree.Settings()
    /// How long things take that fetch.
    var fetching = Fetcher.Settings()
    /// The usual ones.
    public init() {}
  }

  /// True when this opening made the store.
  public let isNew: Bool
  /// The items as directories and files.
  public let tree: Tree
  let store: Store
  let blobStore: BlobStore
  let fetcher: Fetcher
  private let sealing = WorkQueue(name: "marfa-recovery", threads: 1)
  /// What events told of the rows that are asked for.
  let news = News()
  /// What they told of edges, by the item that draws them.
  let edgeNews = News()
  /// Its server, once it is connected to one.
  let link = Lock<ServerLink?>(.leaf, nil)
  private let isOver = Lock<Bool>(.leaf, false)

  /// Opens the store at `path`, making it when it is not there. When another process has it open, this one becomes a
  /// reader (``isReader``). Mends what a crash left; see ``recoveredFiles()``.
  public init(path: String, options: Options = Options()) throws(MarfaError) {
    // One store has one lock, whatever links lead to it.
    store = try Store(path: Path.resolved(path), mode: options.reader ? .reader : .writerIfFree)
    // A store brought back without its bytes would show every file and could read none.
    if (try? Path.status(BlobFiles(beside: store.path).root)) ?? nil == nil {
      let held = try store.read { (connection) throws(MarfaError) in
        try connection.first("SELECT count FROM counters WHERE name = 'held'", { _ in }, { Int($0.int(0)) }) ?? 0
      }
      if held > 0 { throw .unusable(.bytesMissing(path: store.path, files: held)) }
    }
    blobStore = try BlobStore(store: store)
    tree = Tree(store: store, blobs: blobStore, settings: options.tree)
    fetcher = Fetcher(blobs: blobStore, store: store, settings: options.fetching) {
      [observer = tree.observer] changes in
      if !changes.isEmpty { observer.withLock { $0 }?.body(changes) }
    }
    guard store.isWriter else {
      isNew = false
      return
    }
    let wasOpen = try store.write { (connection) throws(MarfaError) -> Bool in
      defer { _ = try? connection.setSetting("open", "yes") }
      return try connection.setting("open") != nil
    }
    isNew = try store.write { (connection) throws(MarfaError) in
      guard try connection.setting("store_id") == nil else { return false }
      try connection.setSetting("store_id", "\(ItemID.mint())")
      // The root is whose store it is, from when it is.
      guard var root = try connection.node(Node.root) else { return true }
      root.uid = Owner.current.uid
      root.gid = Owner.current.gid
      (root.atime, root.mtime, root.ctime) = (.now, .now, .now)
      try connection.updateNode(root)
      return true
    }
    let titles = try Recovery.takeLateRows(tree)
    try Recovery.sweepPartial(tree)
    for (node, id) in try Recovery.run(tree, titles: titles) {
      // Mount first: the bytes are readable as they are, and hashing many may take a while.
      sealing.post { [tree] in
        do throws(MarfaError) {
          _ = try tree.sealLeftOver(id, of: node)
        } catch {
          Log.error("a file closed before the last process ended could not be sealed yet: \(error)")
        }
      }
    }
    tree.beginLateRows()
    // The last process did not end by itself: it may have left bytes that nothing refers to.
    if wasOpen { sealing.post { [tree, isOver] in Recovery.sweepHeld(tree) { isOver.withLock { $0 } } } }
  }

  /// The process that says it holds the right to write a store; it may have ended since.
  public static func holder(of path: String) -> Int? { StoreLock.holder(beside: Path.resolved(path)) }

  /// Where the store is, without symbolic links.
  public var path: String { store.path }
  /// True when this handle only reads.
  public var isReader: Bool { !store.isWriter }
  /// The folder with the bytes, `NAME.db.blobs`.
  public var blobsFolder: String { blobStore.files.root }

  /// The items, and files attached to them.
  public var items: Items { Items(copy: self) }
  /// The edges between items.
  public var edges: Edges { Edges(copy: self) }
  /// Bytes on this device.
  public var blobs: Blobs { Blobs(copy: self) }
  /// The writes that wait.
  public var queue: Queue { Queue(copy: self) }

  /// Ends the handle: finishes what is being sealed and folds the log into the database. Call nothing afterwards.
  public func close() {
    isOver.withLock { $0 = true }
    let server = link.withLock { link in
      defer { link = nil }
      return link
    }
    server?.close()
    store.onCommit(nil)
    sealing.close(dropping: true)
    fetcher.close()
    tree.lateRows?.close()
    blobStore.reaper.close()
    if store.isWriter { try? store.write { (connection) throws(MarfaError) in try connection.setSetting("open", nil) } }
    store.close()
  }

  /// From now on bytes that are not here come from `source`: reads fetch, and sizes nobody knows are learnt. A reader
  /// fetches nothing (seed "Read a file's bytes").
  func connect(_ source: any ByteSource) {
    guard !isReader else { return }
    fetcher.connect(source)
    fetcher.learnSizes()
  }

  /// How many transactions this handle has committed: what was read before one may be stale after it.
  public var commits: Int { store.commits }

  /// The same, with what was changed a moment ago and had no rows yet.
  public func settledCommits() throws(MarfaError) -> Int {
    try store.settle()
    return store.commits
  }

  /// SQLite's count of other processes' changes (contract, "Local rules": how a reader learns of the writer's saves).
  public func dataVersion() throws(MarfaError) -> Int64 { try store.dataVersion() }

  /// Where bytes are that were being written when a process ended: paths under ``blobsFolder``, for the person to look
  /// through and remove.
  public func recoveredFiles() -> [String] {
    let folder = blobsFolder + "/recovered"
    return ((try? Path.names(in: folder)) ?? []).sorted().map { "\(folder)/\($0)" }
  }

  /// Where everything stands, read with no request.
  public func status() throws(MarfaError) -> Status {
    try store.snapshot { (connection) throws(MarfaError) in
      Status(
        path: path, storeID: try connection.setting("store_id") ?? "", isReader: isReader,
        server: try connection.setting("origin"), hydration: try connection.hydrationState(),
        passedOver: try connection.passedOver(), leftBehind: try connection.leftBehind(),
        conflictedCopies: Int(
          try connection.first(
            """
            SELECT count(*) FROM tags t JOIN items i ON i.number = t.item
            WHERE t.tag = 'conflicted-copy' AND i.state <> 'trashed'
            """
          ) { $0.int(0) } ?? 0),
        items: Int(
          try connection.first(
            "SELECT count(*) FROM nodes WHERE item IS NOT NULL AND links > 0", { _ in }, { $0.int(0) }) ?? 0),
        files: Int(
          try connection.first("SELECT count(*) FROM nodes WHERE kind = 2 AND links > 0", { _ in }, { $0.int(0) }) ?? 0),
        localFiles: Int(
          try connection.first(
            "SELECT count(*) FROM nodes WHERE kind = 2 AND item IS NULL AND links > 0", { _ in }, { $0.int(0) }) ?? 0),
        queue: try connection.queueCounts(), fileCache: try blobStore.cache(in: connection),
        keep: try connection.keep(),
        recovered: recoveredFiles())
    }
  }

  /// Where a working copy stands.
  public struct Status: Sendable, Equatable {
    /// The store.
    public var path: String
    /// Minted when the store was made.
    public var storeID: String
    public var isReader: Bool
    /// The origin of the server it is bound to, whether or not it is asked now; `nil` for a copy without one.
    public var server: String?
    /// Whether it has all it declared of that server.
    public var hydration: HydrationState
    /// Rows of the server that could not be understood since the list was brought last.
    public var passedOver: Int
    /// Files and directories that are on this device only because the server was set back to before it had them.
    public var leftBehind: Int
    /// Copies the server made of what was changed here and elsewhere and it could not merge.
    public var conflictedCopies: Int
    /// Items not in the bin.
    public var items: Int
    /// Files in the tree.
    public var files: Int
    /// Those of them that are on this device only: empty, or an editor's own.
    public var localFiles: Int
    public var queue: QueueCounts
    public var fileCache: FileCache
    public var keep: KeepSetting
    /// See ``WorkingCopy/recoveredFiles()``.
    public var recovered: [String]
  }

  /// Runs a change of rows that did not come through the tree.
  func change<T>(_ body: (Tree.Change) throws(MarfaError) -> T) throws(MarfaError) -> T {
    let now = Timestamp.now
    return try store.write { (connection) throws(MarfaError) in
      try body(Tree.Change(connection: connection, outbox: Outbox(connection, now: now), now: now, tree: tree))
    }
  }
}
