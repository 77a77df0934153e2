import Glibc

/// The items as directories and files: what each operation of a filesystem reads, and what it changes and queues
/// (SEMANTICS.md, "What each operation queues"). Each call is one transaction; any thread may call.
public final class Tree: Sendable {
  /// How the tree behaves; the store keeps none of it.
  public struct Settings: Sendable {
    /// The type of item a new directory is.
    public var directoryType = "core.note"
    /// Names of files that stay on this device.
    public var localNames = LocalNames.standard
    /// How long a new write waits before it may go out, so that an editor's next step changes it instead of adding to
    /// it. Nanoseconds.
    public var settling: Int64 = 2_000_000_000
    /// New files get their rows a moment after they are closed, and removed ones lose them so, those of many in one
    /// transaction. What a mount wants, whose programs make thousands; other processes see it that moment later.
    public var groupsRows = false
    /// The usual ones.
    public init() {}
  }

  let store: Store
  let blobs: BlobStore
  let settings: Settings
  let observer = Lock<TreeObserver?>(.leaf, nil)
  /// The directory whose row was read last, and how much was committed before.
  private let directory = Lock<(node: Node, commits: Int)?>(.leaf, nil)
  let leftOvers = Lock<Void>(.recovery, ())
  /// Files that a program is writing.
  private let writing = Lock<Set<Int64>>(.leaf, [])
  /// Those of them whose items went meanwhile, and which would have gone with them.
  let spared = Lock<Set<Int64>>(.leaf, [])
  let displaced = Lock<Displaced>(.leaf, Displaced())
  /// Files made or removed a moment ago, of which the rows don't say so yet; `nil` in a reader.
  private let late = Lock<LateRows?>(.leaf, nil)
  var lateRows: LateRows? { late.withLock { $0 } }

  init(store: Store, blobs: BlobStore, settings: Settings) {
    self.store = store
    self.blobs = blobs
    self.settings = settings
  }

  /// From now on files get and lose their rows late. After the recovery, which looks for what has none.
  func beginLateRows() {
    guard settings.groupsRows else { return }
    let rows = LateRows(self, store: store, blobs: blobs)
    late.withLock { $0 = rows }
    store.precede(with: rows)
  }

  // MARK: - Being written

  /// Says whether a file holds what a program wrote and nobody has sealed yet. While it does, no server's word takes it
  /// away: what the person is writing stays, and becomes an item of its own.
  public func setBeingWritten(_ number: Int64, _ isBeingWritten: Bool) {
    writing.withLock { writing in
      if isBeingWritten { writing.insert(number) } else { writing.remove(number) }
    }
  }

  /// The last program that might have written to a file is gone, and nothing of what it wrote is left to seal. Was the file
  /// spared for its sake only, and not written after all, it goes as its item did.
  public func endWriting(_ number: Int64) throws(MarfaError) {
    setBeingWritten(number, false)
    guard spared.withLock({ $0.remove(number) }) != nil else { return }
    try change { (change) throws(MarfaError) in
      guard let node = try change.connection.node(number), node.item == nil, !node.local, case .blob = node.content
      else {
        return
      }
      try change.drop(node)
    }
  }

  /// True while ``setBeingWritten(_:_:)`` says so.
  func isBeingWritten(_ number: Int64) -> Bool { writing.withLock { !$0.isEmpty && $0.contains(number) } }

  // MARK: - Reading

  /// The node of this number, `nil` when there is none (any more).
  public func node(_ number: Int64) throws(MarfaError) -> Node? {
    let lateRows = lateRows
    if let node = lateRows?.node(number) { return node }
    if lateRows?.isRemoved(number) == true { return nil }
    // Asked before the row is read, which may be written in between.
    let touched = lateRows?.touched(number)
    guard var node = try row(number) else { return nil }
    if let touched {
      node.mtime = max(node.mtime, touched)
      node.ctime = max(node.ctime, touched)
    }
    return node
  }

  /// A node as its row says. Of a directory it is remembered until something is committed: the kernel asks for it again
  /// after each name that is made or removed in it.
  func row(_ number: Int64) throws(MarfaError) -> Node? {
    // Another process's commits are not counted.
    guard store.isWriter else {
      return try store.read { (connection) throws(MarfaError) in try connection.node(number) }
    }
    // Counted before the row is read: what is committed meanwhile makes this stale, never fresh.
    let commits = store.commits
    if let known = directory.withLock({ $0 }), known.node.number == number, known.commits == commits {
      return known.node
    }
    let node = try store.read(settled: false) { (connection) throws(MarfaError) in try connection.node(number) }
    if let node, node.kind == .directory { directory.withLock { $0 = (node, commits) } }
    return node
  }

  /// The node that shows an item.
  public func node(of item: ItemID) throws(MarfaError) -> Node? {
    try store.read { (connection) throws(MarfaError) in try connection.node(of: item) }
  }

  /// What a directory holds under a name; the bytes are the kernel's own and are not kept.
  public func lookup(_ parent: Int64, _ name: UnsafeRawBufferPointer) throws(MarfaError) -> Node? {
    let lateRows = lateRows
    if let node = lateRows?.lookup(parent, name) { return node }
    if lateRows?.isFreed(parent, FileName(stored: Array(name))) == true { return nil }
    let node = try store.read(settled: false) { (connection) throws(MarfaError) in
      try connection.child(parent, lent: name)
    }
    // A directory's times are not all in its row.
    if let node, node.kind == .directory, lateRows != nil { return try self.node(node.number) }
    return node
  }

  /// Hands a directory's entries to `body`, in the order of their cookies, behind `cookie` (0: from the beginning),
  /// until it answers false. Entries that come or go meanwhile move no other.
  public func list(_ parent: Int64, after cookie: Int64, _ body: (Entry) -> Bool) throws(MarfaError) {
    try store.read { (connection) throws(MarfaError) in
      try connection.each(
        """
        SELECT e.number, e.name, n.number, n.kind, n.item, n.local, n.mode, n.uid, n.gid, n.atime, n.mtime, n.ctime,
          n.hash, n.staged, n.size, n.links, (SELECT coalesce((SELECT p.bytes FROM partials p WHERE p.hash = b.hash), 0) FROM blobs b
          WHERE b.hash = n.hash AND b.held = 0)
        FROM entries e JOIN nodes n ON n.number = e.node WHERE e.parent = ?1 AND e.number > ?2 ORDER BY e.number
        """,
        {
          $0.int(1, parent)
          $0.int(2, cookie)
        }
      ) { row in
        body(Entry(cookie: row.int(0), name: FileName(stored: row.blob(1)), node: row.node(2)))
      }
    }
  }

  /// The directory a directory is in; the root is in itself.
  public func parent(of directory: Int64) throws(MarfaError) -> Int64 {
    try store.read { (connection) throws(MarfaError) in try connection.parent(of: directory) } ?? Node.root
  }

  /// Where a symbolic link leads.
  public func linkTarget(_ number: Int64) throws(MarfaError) -> [UInt8]? {
    try store.read { (connection) throws(MarfaError) in
      try connection.first(
        "SELECT target FROM nodes WHERE number = ?1 AND kind = 3", { $0.int(1, number) }, { $0.blob(0) })
    }
  }

  /// Where a node has its names.
  public func places(of number: Int64) throws(MarfaError) -> [(parent: Int64, name: FileName)] {
    try store.read { (connection) throws(MarfaError) in try connection.entries(of: number) }
  }

  /// The names a node has, oldest first: `folder/name` from the root, for a person to read.
  public func paths(of number: Int64) throws(MarfaError) -> [String] {
    try store.snapshot { (connection) throws(MarfaError) in
      var paths: [String] = []
      for (parent, name) in try connection.entries(of: number) {
        var parts = [name.title]
        var directory = parent
        while directory != Node.root, let entry = try connection.entries(of: directory).first {
          parts.append(entry.name.title)
          directory = entry.parent
        }
        paths.append(parts.reversed().joined(separator: "/"))
      }
      return paths
    }
  }

  // MARK: - Changing

  /// What a transaction that changes the tree works with.
  struct Change {
    let connection: Connection
    let outbox: Outbox
    let now: Timestamp
    let tree: Tree
    /// Where what nothing holds stands: the root, or out of sight while a first hydration runs.
    var top = Node.root
    /// Refused writes are put back into their places: edges of what comes back are drawn by those.
    var isReleasing = false
  }

  func change<T>(after late: Store.LateShare = .all, _ body: (Change) throws(MarfaError) -> T) throws(MarfaError) -> T {
    let now = Timestamp.now
    return try store.write(after: late) { (connection) throws(MarfaError) in
      let outbox = Outbox(connection, now: now, settling: settings.settling)
      return try body(Change(connection: connection, outbox: outbox, now: now, tree: self))
    }
  }
}

extension Tree.Change {
  /// The directory of this number. `ENOENT` when it is gone, `ENOTDIR` when it is none.
  func directory(_ number: Int64) throws(MarfaError) -> Node {
    guard let node = try connection.node(number) else { throw .file(.notFound) }
    guard node.kind == .directory else { throw .file(.notDirectory) }
    return node
  }

  /// A new node of this directory under a name nothing has yet.
  func newNode(_ kind: Node.Kind, in parent: Node, _ name: FileName, mode: mode_t, owner: Owner) throws(MarfaError)
    -> Node
  {
    guard try connection.child(parent.number, name) == nil else { throw .file(.exists) }
    var node = Node(new: kind, in: parent, mode: mode, owner: owner, at: now)
    node.local = parent.local || tree.settings.localNames.matches(name)
    return node
  }
}
