/// The writes that wait (contract "The queue").
public struct Queue: Sendable {
  let copy: WorkingCopy

  /// The waiting writes in order, behind `after`, at most `limit`.
  public func writes(after: WriteID? = nil, limit: Int = 1000) throws(MarfaError) -> [QueuedWrite] {
    try copy.store.snapshot { (connection) throws(MarfaError) in
      try connection.saying(try connection.queue(after: after, limit: limit))
    }
  }

  /// Where what a write is about stands in the tree, what was refused too; the names of the file for bytes.
  public func paths(of write: QueuedWrite) throws(MarfaError) -> [String] {
    if let item = write.item { return try paths(of: item) }
    guard let blob = write.blob else { return [] }
    // Others may have the same bytes, sent long ago.
    let named = try copy.store.read { (connection) throws(MarfaError) in try connection.itemNaming(blob) }
    if let named { return try paths(of: named) }
    let number = try copy.store.read { (connection) throws(MarfaError) in try connection.nodes(showing: blob).first }
    guard let number else { return [] }
    return try copy.tree.paths(of: number)
  }

  /// Where an item stands in the tree, though its create was refused.
  public func paths(of item: ItemID) throws(MarfaError) -> [String] {
    let number = try copy.store.snapshot { (connection) throws(MarfaError) -> Int64? in
      if let node = try connection.node(of: item) { return node.number }
      return try connection.node(refused: item)?.number
    }
    guard let number else { return [] }
    return try copy.tree.paths(of: number)
  }

  /// The waiting writes about an item, in order.
  public func writes(about item: ItemID) throws(MarfaError) -> [QueuedWrite] {
    try copy.store.snapshot { (connection) throws(MarfaError) in
      try connection.saying(try connection.queue(about: item))
    }
  }

  /// The write that sends these bytes, when one waits.
  public func upload(of blob: BlobHash) throws(MarfaError) -> QueuedWrite? {
    try copy.store.read { (connection) throws(MarfaError) in try connection.upload(of: blob) }
  }

  /// The place of a write, from 1.
  public func position(_ id: WriteID) throws(MarfaError) -> Int {
    try copy.store.read { (connection) throws(MarfaError) in try connection.queuePosition(id) }
  }

  /// How many writes stand where.
  public func counts() throws(MarfaError) -> QueueCounts {
    try copy.store.read { (connection) throws(MarfaError) in try connection.queueCounts() }
  }

  /// The write that this one waits for: one that it names, or the one ahead of it to the same row, not answered yet. `nil`
  /// when it waits for nothing but its turn (contract, "Verdicts": `awaiting_dependency`).
  public func awaited(by write: QueuedWrite) throws(MarfaError) -> WriteID? {
    try copy.store.read { (connection) throws(MarfaError) in try connection.awaited(by: write) }
  }

  /// How many writes may still go out by themselves: all that are queued or on their way, but for those that wait,
  /// directly or not, for one that is blocked. Reads the whole queue.
  public func moving() throws(MarfaError) -> Int {
    try copy.store.snapshot { (connection) throws(MarfaError) in
      let counts = try connection.queueCounts()
      let going = (counts.byState[.queued] ?? 0) + (counts.byState[.sending] ?? 0)
      guard going > 0, counts.byState[.blocked] ?? 0 > 0 else { return going }
      // What a write waits for stands ahead of it.
      var stuck: Set<WriteID> = []
      var moving = 0
      var last: WriteID?
      while true {
        let piece = try connection.queue(after: last, limit: 1000)
        for write in piece {
          if write.state == .blocked
            || (write.state == .queued
              && (write.dependsOn + [write.follows].compactMap { $0 }).contains { stuck.contains($0) })
          {
            stuck.insert(write.id)
          } else if write.state == .queued || write.state == .sending {
            moving += 1
          }
        }
        guard piece.count == 1000, let end = piece.last else { return moving }
        last = end.id
      }
    }
  }

  // MARK: - What a person does with a write

  /// Sends nothing more until ``resume()``; the copy goes on following its server. It holds until this process ends.
  public func pause() throws(MarfaError) { try drain().isPaused = true }

  /// Sends again.
  public func resume() throws(MarfaError) { try drain().isPaused = false }

  /// Sends a write again that is blocked, dead, or was refused unsent, under a fresh idempotency key, with what waited on
  /// it. One the server refused is never released (contract, "Verdicts").
  public func release(_ id: WriteID) throws(MarfaError) {
    try copy.change { (change) throws(MarfaError) in
      let write = try find(id, change)
      switch write.verdict {
      case .blocked, .dead: break
      case .refused(let refusal) where refusal.becauseOf != nil:
        // What it names must come to be first; what it only follows need not.
        for other in write.dependsOn
        where try change.connection.queuedWrite(other).map({ $0.state == .refused || $0.state == .dead }) ?? false {
          throw .invalid("write \(id) needs what write \(other) makes; see to that one first")
        }
      case .refused:
        throw .invalid("the server refused write \(id), and would again; discard it, and make the change anew")
      case nil, .accepted, .merged, .conflicted: throw .invalid("write \(id) waits for nothing but its turn")
      }
      var change = change
      change.isReleasing = true
      try change.release(write)
    }
    copy.link.withLock { $0 }?.drain.retryNow()
  }

  /// Takes back a write that has not gone out, with what waits on it; the copy shows what it was without them. Bytes that
  /// were to replace others stay beside those, on this device. Answers the writes that went along.
  @discardableResult
  public func withdraw(_ id: WriteID) throws(MarfaError) -> [WriteID] {
    try copy.change { (change) throws(MarfaError) in
      let write = try find(id, change)
      guard !write.hasGoneOut else {
        let isAnswered = write.state == .blocked || write.state == .refused || write.state == .dead
        throw .invalid(
          isAnswered
            ? "write \(id) has gone out and was not taken; discard it to give it up"
            : "write \(id) has gone out: the server may have done it. Once it is answered, undo what it did, or discard it"
        )
      }
      return try giveUp(write, change)
    }
  }

  /// Gives up a write that is blocked, refused or dead, with what waits on it. What it said is gone from the queue; a file
  /// or directory it was to make stays on this device, and so do bytes that were to replace others, beside those.
  /// Answers the writes that went along.
  @discardableResult
  public func discard(_ id: WriteID) throws(MarfaError) -> [WriteID] {
    try copy.change { (change) throws(MarfaError) in
      let write = try find(id, change)
      guard write.state == .blocked || write.state == .refused || write.state == .dead else {
        throw .invalid(
          write.hasGoneOut
            ? "write \(id) has gone out and waits for its answer; until there is one it can't be given up"
            : "write \(id) still waits for its turn; withdraw it instead")
      }
      return try giveUp(write, change)
    }
  }

  /// Bytes that only this write, or one that waits on it, names stay beside the file, on this device.
  private func giveUp(_ write: QueuedWrite, _ change: Tree.Change) throws(MarfaError) -> [WriteID] {
    let connection = change.connection
    // What waits on it goes along: with an upload the edit that names its bytes.
    var going = [write]
    var next = 0
    while next < going.count {
      let id = going[next].id
      for other in try connection.writesWaiting(on: id) + connection.writesRefused(becauseOf: id)
      where !going.contains(where: { $0.id == other.id }) { going.append(other) }
      next += 1
    }
    for item in Set(going.compactMap(\.item)) {
      let written = try connection.queue(about: item).last {
        $0.kind == .updateItem && $0.blob != nil && $0.id.number >= write.id.number
      }
      guard let hash = written?.blob, try connection.blob(hash)?.held == true, let node = try connection.node(of: item)
      else { continue }
      let served = try connection.servedItem(item)?.item
      let known = if let served { served } else { try connection.item(item) }
      if known?.blob != hash { try change.keep(hash, beside: node, labelled: "not sent") }
    }
    return try change.takeOff(write)
  }

  private func drain() throws(MarfaError) -> Drain {
    guard let link = copy.link.withLock({ $0 }) else { throw copy.isReader ? .readingHandle : .noServer }
    return link.drain
  }

  private func find(_ id: WriteID, _ change: Tree.Change) throws(MarfaError) -> QueuedWrite {
    guard let write = try change.connection.queuedWrite(id) else { throw .invalid("no write \(id) is in the queue") }
    return write
  }
}

extension Connection {
  /// The item that the first write gives these bytes to.
  fileprivate func itemNaming(_ blob: BlobHash) throws(MarfaError) -> ItemID? {
    try first(
      "SELECT item FROM writes WHERE blob = ?1 AND item IS NOT NULL ORDER BY number LIMIT 1", { $0.hash(1, blob) },
      { $0.itemID(0) }) ?? nil
  }

  /// Writes with what they wait for: one that may not go yet, for another has to be answered, says which (contract,
  /// `awaiting_dependency`). Its state stays ``WriteState/queued``: it goes by itself.
  fileprivate func saying(_ writes: [QueuedWrite]) throws(MarfaError) -> [QueuedWrite] {
    var writes = writes
    for index in writes.indices where writes[index].state == .queued {
      let ahead: WriteID? = try first(
        """
        SELECT x.ahead FROM waits x JOIN writes a ON a.number = x.ahead
        WHERE x.write = ?1 AND (x.must = 1 OR a.state <> 'refused') ORDER BY x.ahead LIMIT 1
        """, { $0.int(1, writes[index].id.number) }, { WriteID($0.int(0)) })
      writes[index].awaits = ahead
    }
    return writes
  }
}
