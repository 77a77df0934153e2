import Glibc

/// A node of the tree: what an inode number names (schema, table `nodes`).
public struct Node: Sendable, Equatable {
  /// The root directory's number.
  public static let root: Int64 = 1
  /// The directory of what a first hydration brings, until all of it is here. No path leads to it.
  static let incoming: Int64 = -1

  /// What a node is.
  public enum Kind: Int64, Sendable {
    case directory = 1
    case file = 2
    /// What stays on this device: a symbolic link, a named pipe, a socket or a device.
    case special = 3
  }

  /// Where a file's bytes are.
  public enum Content: Sendable, Equatable {
    /// Nowhere: the file is empty.
    case empty
    /// Sealed under their hash.
    case blob(BlobHash)
    /// Closed or synced, and not sealed yet: the file `staged/NUMBER-ID`.
    case staged(StagedID)

    /// Tells one content from another in few bits, of which the lowest 24 are as good as any: other bytes have the same by
    /// chance only. 0 where there are none.
    public var tag: UInt64 {
      switch self {
      case .empty: 0
      case .blob(let hash): hash.low.low | 1
      case .staged(let id): id.bytes.low | 1
      }
    }
  }

  /// `st_ino`.
  public var number: Int64
  public var kind: Kind
  /// The item it shows; `nil` while it has none.
  public var item: ItemID?
  /// True when it lives on this device only and is never queued.
  public var local: Bool
  /// Permission bits; of a special node that is no link, its type's as well.
  public var mode: mode_t
  public var uid: uid_t
  public var gid: gid_t
  public var atime: Timestamp
  public var mtime: Timestamp
  public var ctime: Timestamp
  /// How many entries name it.
  public var links: Int64
  /// Where the bytes are.
  public var content: Content
  /// Of the content, or of a link's target, in bytes; of a device, its number; `nil` until it is learnt.
  public var size: Int64?
  /// Of bytes that are not here whole, how many were here when the row was read; `nil` when all are.
  public var partialBytes: Int64?

  /// `st_mode`: the kind and the permission bits.
  public var fileMode: mode_t {
    switch kind {
    case .directory: S_IFDIR | mode
    case .file: S_IFREG | mode
    case .special: mode & S_IFMT == 0 ? S_IFLNK | mode : mode
    }
  }

  /// `st_rdev`: a device's number, otherwise 0.
  public var device: dev_t { isDevice ? dev_t(truncatingIfNeeded: size ?? 0) : 0 }
  /// `st_size`, as far as it is known.
  public var length: Int64 { isDevice ? 0 : size ?? 0 }

  private var isDevice: Bool { fileMode & S_IFMT == S_IFCHR || fileMode & S_IFMT == S_IFBLK }
}

extension Node {
  /// One that a program makes in a directory, without a number yet, of which nothing is in the store.
  init(new kind: Kind, in parent: Node, mode: mode_t, owner: Owner, at now: Timestamp) {
    self.init(
      number: 0, kind: kind, item: nil, local: false, mode: mode & 0o7777, uid: owner.uid,
      // A directory with the set-group bit hands its group on (inode(7)).
      gid: parent.mode & S_ISGID != 0 ? parent.gid : owner.gid, atime: now, mtime: now, ctime: now, links: 1,
      content: .empty, size: 0)
  }
}

/// Which staged file.
public struct StagedID: Hashable, Sendable {
  let bytes: Bytes128
  /// The node was made with it (``BlobFiles/mintStaged(isNew:)``).
  public var isNew: Bool { bytes.high & 0xf000 == 0x8000 }
}

/// An entry as a listing shows it.
public struct Entry: Sendable {
  /// The cookie: a listing goes on behind it.
  public var cookie: Int64
  public var name: FileName
  public var node: Node
}

/// Who does something, for the owner of what it makes.
public struct Owner: Sendable, Equatable {
  public var uid: uid_t
  public var gid: gid_t
  /// Wraps both.
  public init(uid: uid_t, gid: gid_t) {
    self.uid = uid
    self.gid = gid
  }
  /// This process's own.
  public static var current: Owner { Owner(uid: getuid(), gid: getgid()) }
}

extension Row {
  /// A node from fifteen columns in the order of ``Connection/nodeColumns``, beginning at `first`.
  func node(_ first: Int32) -> Node {
    let content: Node.Content =
      if let hash = hash(first + 10) {
        .blob(hash)
      } else if let staged = Bytes128(bytes: lentBlob(first + 11)) {
        .staged(StagedID(bytes: staged))
      } else {
        .empty
      }
    return Node(
      number: int(first), kind: Node.Kind(rawValue: int(first + 1)) ?? .file, item: itemID(first + 2),
      local: bool(first + 3), mode: mode_t(truncatingIfNeeded: int(first + 4)),
      uid: uid_t(truncatingIfNeeded: int(first + 5)), gid: gid_t(truncatingIfNeeded: int(first + 6)),
      atime: time(first + 7), mtime: time(first + 8), ctime: time(first + 9), links: int(first + 13), content: content,
      size: content == .empty && isNull(first + 12) ? 0 : optionalInt(first + 12),
      partialBytes: optionalInt(first + 14))
  }
}

/// The rows of `nodes` and `entries`. Fifteen node columns, always in this order:
/// number kind item local mode uid gid atime mtime ctime hash staged size links, and the bytes here of those not held.
extension Connection {
  func node(_ number: Int64) throws(MarfaError) -> Node? {
    try first(
      """
      SELECT number, kind, item, local, mode, uid, gid, atime, mtime, ctime, hash, staged, size, links,
        (SELECT coalesce((SELECT p.bytes FROM partials p WHERE p.hash = b.hash), 0) FROM blobs b
          WHERE b.hash = nodes.hash AND b.held = 0)
      FROM nodes WHERE number = ?1
      """, { $0.int(1, number) }, { $0.node(0) })
  }

  func node(of item: ItemID) throws(MarfaError) -> Node? {
    try first(
      """
      SELECT number, kind, item, local, mode, uid, gid, atime, mtime, ctime, hash, staged, size, links,
        (SELECT coalesce((SELECT p.bytes FROM partials p WHERE p.hash = b.hash), 0) FROM blobs b
          WHERE b.hash = nodes.hash AND b.held = 0)
      FROM nodes WHERE item = ?1
      """, { $0.id(1, item) }, { $0.node(0) })
  }

  func child(_ parent: Int64, _ name: FileName) throws(MarfaError) -> Node? {
    let found: Result<Node?, MarfaError> = name.bytes.withUnsafeBytes { bytes in
      Result { () throws(MarfaError) in try child(parent, lent: bytes) }
    }
    return try found.get()
  }

  /// As ``child(_:_:)``, for bytes that come straight from the kernel and need not be a name.
  func child(_ parent: Int64, lent name: UnsafeRawBufferPointer) throws(MarfaError) -> Node? {
    try first(
      """
      SELECT n.number, n.kind, n.item, n.local, n.mode, n.uid, n.gid, n.atime, n.mtime, n.ctime, n.hash, n.staged,
        n.size, n.links, (SELECT coalesce((SELECT p.bytes FROM partials p WHERE p.hash = b.hash), 0) FROM blobs b
          WHERE b.hash = n.hash AND b.held = 0)
      FROM entries e JOIN nodes n ON n.number = e.node WHERE e.parent = ?1 AND e.name = ?2
      """,
      {
        $0.int(1, parent)
        $0.blob(2, lent: name)
      }, { $0.node(0) })
  }

  /// Inserts a node with no entry yet. It gets its number here, unless it has one already. Answers it with its number.
  func insertNode(_ node: Node, target: [UInt8]? = nil, numbered: Int64? = nil) throws(MarfaError) -> Node {
    let number: Int64
    if let numbered {
      number = numbered
    } else if let nodeNumbers {
      number = try nodeNumbers.next()
    } else {
      throw .readingHandle
    }
    try run(
      """
      INSERT INTO nodes(kind, item, local, number, mode, uid, gid, atime, mtime, ctime, links, hash, size, target)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
      """
    ) {
      $0.int(1, node.kind.rawValue)
      $0.id(2, node.item)
      $0.bool(3, node.local)
      $0.int(4, number)
      $0.int(5, Int64(node.mode))
      $0.int(6, Int64(node.uid))
      $0.int(7, Int64(node.gid))
      $0.time(8, node.atime)
      $0.time(9, node.mtime)
      $0.time(10, node.ctime)
      $0.int(11, node.links)
      if case .blob(let hash) = node.content { $0.hash(12, hash) } else { $0.null(12) }
      $0.int(13, node.size)
      if let target { $0.blob(14, target) } else { $0.null(14) }
    }
    var node = node
    node.number = number
    return node
  }

  /// Writes everything of a node but its links and a link's target.
  func updateNode(_ node: Node) throws(MarfaError) {
    try run(
      """
      UPDATE nodes SET item = ?2, local = ?3, mode = ?4, uid = ?5, gid = ?6, atime = ?7, mtime = ?8, ctime = ?9,
        hash = ?10, staged = ?11, size = ?12, refused = iif(?2 IS NULL, refused, NULL) WHERE number = ?1
      """
    ) {
      $0.int(1, node.number)
      $0.id(2, node.item)
      $0.bool(3, node.local)
      $0.int(4, Int64(node.mode))
      $0.int(5, Int64(node.uid))
      $0.int(6, Int64(node.gid))
      $0.time(7, node.atime)
      $0.time(8, node.mtime)
      $0.time(9, node.ctime)
      if case .blob(let hash) = node.content { $0.hash(10, hash) } else { $0.null(10) }
      if case .staged(let id) = node.content { $0.bytes(11, id.bytes) } else { $0.null(11) }
      $0.int(12, node.size)
    }
  }

  func deleteNode(_ number: Int64) throws(MarfaError) {
    try run("DELETE FROM nodes WHERE number = ?1") { $0.int(1, number) }
  }

  /// Adds an entry. The parent's times move, and the node's links are counted by the caller.
  func insertEntry(_ parent: Int64, _ name: FileName, node: Int64) throws(MarfaError) {
    try run(
      """
      INSERT INTO entries(parent, number, name, node)
      VALUES (?1, (SELECT coalesce(max(number), 0) + 1 FROM entries WHERE parent = ?1), ?2, ?3)
      """
    ) {
      $0.int(1, parent)
      $0.blob(2, name.bytes)
      $0.int(3, node)
    }
  }

  func deleteEntry(_ parent: Int64, _ name: FileName) throws(MarfaError) {
    try run("DELETE FROM entries WHERE parent = ?1 AND name = ?2") {
      $0.int(1, parent)
      $0.blob(2, name.bytes)
    }
  }

  /// Renames an entry in its directory; its cookie stays.
  func renameEntry(_ parent: Int64, _ name: FileName, to newName: FileName) throws(MarfaError) {
    try run("UPDATE entries SET name = ?3 WHERE parent = ?1 AND name = ?2") {
      $0.int(1, parent)
      $0.blob(2, name.bytes)
      $0.blob(3, newName.bytes)
    }
  }

  /// An entry's place in its directory's listing.
  func entryNumber(_ parent: Int64, _ name: FileName) throws(MarfaError) -> Int64? {
    try first(
      "SELECT number FROM entries WHERE parent = ?1 AND name = ?2",
      {
        $0.int(1, parent)
        $0.blob(2, name.bytes)
      }, { $0.int(0) })
  }

  /// Moves an entry to a place that nothing has.
  func setEntryNumber(_ parent: Int64, _ name: FileName, _ number: Int64) throws(MarfaError) {
    try run("UPDATE entries SET number = ?3 WHERE parent = ?1 AND name = ?2") {
      $0.int(1, parent)
      $0.blob(2, name.bytes)
      $0.int(3, number)
    }
  }

  func addLinks(_ node: Int64, _ change: Int64, at now: Timestamp) throws(MarfaError) {
    try run("UPDATE nodes SET links = links + ?2, ctime = ?3 WHERE number = ?1") {
      $0.int(1, node)
      $0.int(2, change)
      $0.time(3, now)
    }
  }

  /// A directory's entries changed.
  func touch(_ directory: Int64, at now: Timestamp) throws(MarfaError) {
    try run("UPDATE nodes SET mtime = ?2, ctime = ?2 WHERE number = ?1") {
      $0.int(1, directory)
      $0.time(2, now)
    }
  }

  func isEmptyDirectory(_ number: Int64) throws(MarfaError) -> Bool {
    try first("SELECT 1 FROM entries WHERE parent = ?1 LIMIT 1", { $0.int(1, number) }, { _ in true }) == nil
  }

  /// The directory a directory is in; `nil` for the root.
  func parent(of directory: Int64) throws(MarfaError) -> Int64? {
    try first("SELECT parent FROM entries WHERE node = ?1 LIMIT 1", { $0.int(1, directory) }, { $0.int(0) })
  }

  /// Where a node has its names: always in the same order, within a directory the oldest first.
  func entries(of node: Int64) throws(MarfaError) -> [(parent: Int64, name: FileName)] {
    try all(
      "SELECT parent, name FROM entries WHERE node = ?1 ORDER BY parent, number", { $0.int(1, node) },
      { ($0.int(0), FileName(stored: $0.blob(1))) })
  }

  /// The items of a directory whose names begin with these bytes.
  func items(in parent: Int64, namesBeginning prefix: [UInt8]) throws(MarfaError) -> [ItemID] {
    try all(
      """
      SELECT n.item FROM entries e JOIN nodes n ON n.number = e.node
      WHERE e.parent = ?1 AND e.name >= ?2 AND e.name <= ?3 AND n.item IS NOT NULL
      """,
      {
        $0.int(1, parent)
        $0.blob(2, prefix)
        $0.blob(3, prefix + [UInt8](repeating: 0xff, count: FileName.limit + 1))
      }, { $0.itemID(0) }
    ).compactMap { $0 }
  }

  /// The items of a directory whose names may be numbered ones of this name, the oldest first.
  func numberedNames(of name: FileName, in parent: Int64) throws(MarfaError) -> [(name: FileName, item: ItemID)] {
    // Between ` (` and what sorts after every ` (…`; a name that is cut begins otherwise, and keeps its number.
    let prefix = name.stem
    return try all(
      """
      SELECT e.name, n.item FROM entries e JOIN nodes n ON n.number = e.node
      WHERE e.parent = ?1 AND e.name > ?2 AND e.name < ?3 AND n.item IS NOT NULL ORDER BY e.number LIMIT 100
      """,
      {
        $0.int(1, parent)
        $0.blob(2, prefix + Array(" (".utf8))
        $0.blob(3, prefix + Array(" )".utf8))
      }, { row in row.itemID(1).map { (FileName(stored: row.blob(0)), $0) } }
    ).compactMap { $0 }
  }

  /// The items of a directory's files that have other names too.
  func itemsOfSeveralNames(in parent: Int64) throws(MarfaError) -> [ItemID] {
    try all(
      """
      SELECT n.item FROM nodes n JOIN entries e ON e.node = n.number
      WHERE n.links > 1 AND e.parent = ?1 AND n.item IS NOT NULL
      """, { $0.int(1, parent) }, { $0.itemID(0) }
    ).compactMap { $0 }
  }

  /// A free name in a directory for something that would be called `name` (SEMANTICS.md, "Names": the older keeps it).
  func freeName(_ parent: Int64, _ name: FileName) throws(MarfaError) -> FileName {
    if try child(parent, name) == nil { return name }
    // Doubling, then halving: a thousand notes called "Untitled" cost ten lookups each, not a thousand.
    var taken = 1
    var free = 2
    while try child(parent, name.numbered(free)) != nil {
      taken = free
      free *= 2
    }
    while free - taken > 1 {
      let middle = (free + taken) / 2
      if try child(parent, name.numbered(middle)) == nil { free = middle } else { taken = middle }
    }
    return name.numbered(free)
  }
}
