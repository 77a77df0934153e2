/// What the store says of one node, read in one moment: what its extended attributes are made of.
public struct FileFacts: Sendable {
  public var node: Node
  /// The file item; `nil` for a file on this device only.
  public var item: Item?
  /// Its `attached-to` edges, oldest first.
  public var edges: [Edge] = []
  /// The bytes the node shows, when they are sealed.
  public var blob: BlobHash?
  /// True when they are here whole.
  public var isHeld = true
  /// How many of them are here, of those not here whole.
  public var partialBytes: Int64 = 0
  /// Why not, and the last error in words.
  public var notHeld: (reason: NotHeldReason, detail: String?)?
  /// True when the server has answered that it holds them.
  public var isStored = false
  /// The write that sends them.
  public var upload: QueuedWrite?
  /// Its place in the queue, from 1.
  public var uploadPosition: Int?
  /// The first write about the item that waits, and its place.
  public var waiting: (write: QueuedWrite, position: Int)?
  /// The write that ``waiting`` waits for.
  public var awaited: WriteID?
  /// Why it is no item: the write that was refused or failed.
  public var refusal: QueuedWrite?
  /// It is no item because the server was set back to before it had it.
  public var isLeftBehind = false
  /// True when it hangs on an item the budget's `keep` setting protects.
  public var isKeptAsAttachment = false
  /// True when it, or what it hangs on, is pinned.
  public var isPinned = false
  /// The text that embeds it in the item it hangs on.
  public var embed: String?
}

/// What the store says of a directory and what is in it.
public struct DirectoryFacts: Sendable {
  public var node: Node
  public var item: Item?
  /// Files in it, and the bytes they state.
  public var attachments = Tally()
  /// Those whose bytes are here.
  public var held = Tally()
  /// Those whose bytes are not.
  public var notHeld = Tally()
  /// Writes waiting about it and the files in it, and the bytes of those with other bytes than the server has.
  public var queued = Tally()
  /// Why it is no item: the write that was refused or failed.
  public var refusal: QueuedWrite?
  /// It is no item because the server was set back to before it had it.
  public var isLeftBehind = false

  /// A count and the bytes of what is counted.
  public struct Tally: Sendable, Equatable {
    public var count: Int64 = 0
    public var bytes: Int64 = 0
  }
}

extension WorkingCopy {
  /// What the store says of a file or symbolic link. Never waits, fetches or hashes.
  public func facts(ofFile number: Int64) throws(MarfaError) -> FileFacts? {
    try store.snapshot { (connection) throws(MarfaError) in
      guard let node = try connection.node(number) else { return nil }
      var facts = FileFacts(node: node)
      if case .blob(let hash) = node.content {
        facts.blob = hash
        let row = try connection.blob(hash)
        facts.isHeld = row?.held ?? false
        facts.isStored = row?.stored ?? false
        if !facts.isHeld {
          facts.notHeld = (row?.reason ?? .notFetched, row?.detail)
          let recorded = try connection.partialBytes(hash)
          facts.partialBytes = fetcher.bytesHere(hash) ?? recorded ?? 0
        }
        facts.upload = try connection.upload(of: hash)
        if let upload = facts.upload { facts.uploadPosition = try connection.queuePosition(upload.id) }
      }
      guard let id = node.item, let item = try connection.item(id) else {
        facts.refusal = try connection.refusal(ofNode: number)
        facts.isLeftBehind = try connection.isLeftBehind(number)
        return facts
      }
      facts.item = item
      facts.edges = try connection.edges(from: id, type: Edge.attachedTo)
      if let write = try connection.queue(about: id).first {
        facts.waiting = (write, try connection.queuePosition(write.id))
        facts.awaited = try connection.awaited(by: write)
      }
      let keep = try connection.keep()
      facts.isPinned = item.pinned
      for edge in facts.edges {
        guard let host = try connection.item(edge.target), host.state != .trashed else { continue }
        if host.pinned { facts.isPinned = true }
        if keep == .attached || (keep == .pinned && host.pinned) { facts.isKeptAsAttachment = true }
      }
      if let host = facts.edges.first?.target { facts.embed = try items.embedText(of: id, in: host, connection) }
      return facts
    }
  }

  /// What the store says of a directory.
  public func facts(ofDirectory number: Int64) throws(MarfaError) -> DirectoryFacts? {
    try store.snapshot { (connection) throws(MarfaError) in
      guard let node = try connection.node(number) else { return nil }
      var facts = DirectoryFacts(node: node)
      if let id = node.item {
        facts.item = try connection.item(id)
      } else {
        facts.refusal = try connection.refusal(ofNode: number)
        facts.isLeftBehind = try connection.isLeftBehind(number)
      }
      facts.attachments = try connection.tally(
        """
        SELECT count(*), coalesce(sum(n.size), 0) FROM entries e JOIN nodes n ON n.number = e.node
        WHERE e.parent = ?1 AND n.kind = 2
        """, number)
      // Few are not here: looked for from their side.
      facts.notHeld = try connection.tally(
        """
        SELECT count(*), coalesce(sum(n.size), 0) FROM blobs b CROSS JOIN nodes n ON n.hash = b.hash
          CROSS JOIN entries e ON e.node = n.number WHERE b.held = 0 AND e.parent = ?1
        """, number)
      facts.held.count = facts.attachments.count - facts.notHeld.count
      facts.held.bytes = facts.attachments.bytes - facts.notHeld.bytes
      facts.queued = try connection.tally(
        """
        SELECT count(*), coalesce(sum(iif(w.blob IS NULL, 0, n.size)), 0) FROM entries e JOIN nodes n ON n.number = e.node
          JOIN writes w ON w.item = n.item WHERE e.parent = ?1 AND n.kind = 2
        """, number)
      if let id = node.item { facts.queued.count += Int64(try connection.queue(about: id).count) }
      return facts
    }
  }
}

extension Connection {
  fileprivate func tally(_ sql: StaticString, _ directory: Int64) throws(MarfaError) -> DirectoryFacts.Tally {
    try first(sql, { $0.int(1, directory) }, { DirectoryFacts.Tally(count: $0.int(0), bytes: $0.int(1)) })
      ?? DirectoryFacts.Tally()
  }
}
