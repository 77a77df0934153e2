/// What a server's answer to a write makes of the rows, in the transaction that takes the write off the queue (contract,
/// "Verdicts").
extension Tree.Change {
  /// What an answer carried of the row it is about.
  enum Answered {
    case item(ItemRow)
    case edge(EdgeRow)
    case metadata(ItemMetadata)
    case extensions(JSON.Object)
    /// The bytes are there.
    case stored
    /// Done, and nothing was said of the row.
    case nothing
  }

  /// The server took a write: it leaves the queue, its row is adopted unless the copy holds a later one, and the writes
  /// behind it stay laid over that. `asMade`: without a difference to settle, so that the next edit is one of the version
  /// answered. `mustRead`: the row is to be read back.
  func accept(_ write: QueuedWrite, _ answer: Answered, asMade: Bool, mustRead: Bool) throws(MarfaError) {
    try connection.run("DELETE FROM writes WHERE number = ?1") { $0.int(1, write.id.number) }
    if let item = write.item {
      try settle(item, write, answer)
      if case .item(let row) = answer, asMade { try rebase(behind: write, item: item, to: row.version) }
      if mustRead { try connection.owe(item) }
    } else if let edge = write.edge {
      try settle(edge, write, answer)
      if case .edge(let row) = answer, asMade { try rebase(behind: write, edge: edge, to: row.version) }
    } else if let blob = write.blob {
      try connection.run("UPDATE blobs SET stored = 1 WHERE hash = ?1") { $0.hash(1, blob) }
      try notify(showing: blob)
      // Nothing may name it any more.
      try tree.blobs.release(blob, in: connection)
    }
    // What a create or update named, no write keeps any longer.
    if write.kind != .uploadBlob, let blob = write.blob { try tree.blobs.release(blob, in: connection) }
  }

  /// The server refused a write, or it never can be sent: its content is kept until it is discarded, and the copy is put
  /// back. What waited on it is refused too, unsent, naming it.
  func refuse(_ write: QueuedWrite, _ refusal: Refusal) throws(MarfaError) {
    try refuse(write, .refused(refusal), state: .refused)
  }

  /// A write failed for the last time. What it says stays shown; what waited on it is refused, unsent.
  func bury(_ write: QueuedWrite, _ words: String) throws(MarfaError) {
    try refuse(write, .dead(words), state: .dead)
  }

  private func refuse(_ write: QueuedWrite, _ verdict: Verdict, state: WriteState) throws(MarfaError) {
    try connection.setVerdict(write.id, state, verdict)
    var refused = state == .refused ? [write] : []
    var causes = [write]
    while let cause = causes.popLast() {
      for waiting in try connection.writesWaiting(on: cause.id) {
        let words = "it waited on write \(write.id), which \(state == .dead ? "failed" : "was refused")"
        let refusal = Refusal(code: "dependency_refused", message: words, becauseOf: write.id)
        try connection.setVerdict(waiting.id, .refused, .refused(refusal))
        refused.append(waiting)
        causes.append(waiting)
      }
    }
    for write in refused { try putBack(write) }
  }

  /// Puts a write that failed, and those refused because of it, back into their places, under fresh keys.
  func release(_ write: QueuedWrite) throws(MarfaError) {
    var released = [write]
    var next = 0
    while next < released.count {
      for waiting in try connection.writesRefused(becauseOf: released[next].id) { released.append(waiting) }
      next += 1
    }
    for write in released {
      try connection.run(
        """
        UPDATE writes SET state = 'queued', verdict = NULL, failures = 0, gone_out = 0, not_before = 0,
          idempotency_key = ?2 WHERE number = ?1
        """
      ) {
        $0.int(1, write.id.number)
        if write.kind == .uploadBlob { $0.null(2) } else { $0.bytes(2, .version7(milliseconds: now.milliseconds)) }
      }
    }
    // Shown again, each over what the server has: first what others hang on.
    for write in released where write.state == .refused {
      if let item = write.item {
        let was = try connection.fullItem(item)
        var served = try connection.servedItem(item)
        if served == nil { served = try known(was) }
        try render(item, try connection.overlaid(item, over: served), was: was, seen: nil)
      }
    }
    for write in released where write.state == .refused {
      if let edge = write.edge {
        let was = try connection.fullEdge(edge)
        let served = try connection.servedEdge(edge) ?? was.flatMap { $0.edge.version > 0 ? $0 : nil }
        try connection.setServed(edge, served)
        try render(edge, try connection.overlaid(edge, over: served), was: was, seen: nil)
      }
    }
  }

  /// The row shown, when it is the server's own; kept as such, for a write is laid over it again.
  private func known(_ shown: FullItem?) throws(MarfaError) -> FullItem? {
    guard let shown, shown.item.version > 0 else { return nil }
    try connection.setServed(shown.item.id, shown)
    return shown
  }

  /// Takes a write and what waits on it off the queue, and shows what there is without them.
  func takeOff(_ write: QueuedWrite) throws(MarfaError) {
    var gone = [write]
    var next = 0
    while next < gone.count {
      let id = gone[next].id
      for waiting in try connection.writesWaiting(on: id) + connection.writesRefused(becauseOf: id)
      where !gone.contains(where: { $0.id == waiting.id }) {
        guard waiting.state != .sending else {
          throw .invalid("write \(waiting.id), which waits on it, is being sent just now; try again")
        }
        gone.append(waiting)
      }
      next += 1
    }
    for write in gone { try connection.run("DELETE FROM writes WHERE number = ?1") { $0.int(1, write.id.number) } }
    for write in gone {
      try putBack(write)
      // An item of which nothing waits any more is a file of this device like any other.
      if let item = write.item, let node = try connection.node(refused: item), try connection.queue(about: item).isEmpty
      {
        try connection.setRefused(node.number, nil)
      }
      if let blob = write.blob { try tree.blobs.release(blob, in: connection) }
    }
  }

  /// Shows what there is without a write that was refused or taken off the queue. The server's row is owed.
  func putBack(_ write: QueuedWrite) throws(MarfaError) {
    if let item = write.item {
      let served = try connection.servedItem(item)
      let was = try connection.fullItem(item)
      let shown = try connection.overlaid(item, over: served)
      if shown == nil, was != nil { try keepHere(item) }
      try render(item, shown, was: was, seen: nil)
      if served != nil { try connection.owe(item) }
      if try !connection.hasWrites(about: item) { try connection.setServed(item, nil) }
    } else if let edge = write.edge {
      let served = try connection.servedEdge(edge)
      let was = try connection.fullEdge(edge)
      try render(edge, try connection.overlaid(edge, over: served), was: was, seen: nil)
      if let source = (served ?? was)?.edge.source { try connection.owe(source) }
      if try !connection.hasWrites(about: edge) { try connection.setServed(edge, nil) }
    } else if let blob = write.blob {
      try notify(showing: blob)
    }
  }

  /// The item of a file or directory is not to be: what the person made stays where it is, on this device only.
  private func keepHere(_ item: ItemID) throws(MarfaError) {
    guard var node = try connection.node(of: item) else { return }
    node.item = nil
    node.local = true
    try connection.updateNode(node)
    try connection.setRefused(node.number, item)
    tree.notify([.attributes(node.number)], in: self)
  }

  private func settle(_ id: ItemID, _ write: QueuedWrite, _ answer: Answered) throws(MarfaError) {
    let was = try connection.fullItem(id)
    let before = try connection.servedItem(id)
    var served = before
    switch answer {
    case .item(let row) where (before?.item.version ?? 0) <= row.version: served = FullItem(row, before: before)
    case .metadata(let metadata):
      served?.item.tags = metadata.tags
      served?.extensions = metadata.extensions
    case .extensions(let extensions): served?.extensions = extensions
    case .item, .edge, .stored, .nothing: break
    }
    // An answer without a row still did what was asked.
    switch write.kind {
    case .deleteItem: served?.item.state = .trashed
    case .restoreItem: if case .nothing = answer { served?.item.state = .active }
    default: break
    }
    let waiting = try connection.hasWrites(about: id)
    try connection.setServed(id, waiting ? served : nil)
    try render(id, waiting ? try connection.overlaid(id, over: served) : served ?? was, was: was, seen: nil)
    if let node = try connection.node(of: id) { tree.notify([.attributes(node.number)], in: self) }
  }

  private func settle(_ id: EdgeID, _ write: QueuedWrite, _ answer: Answered) throws(MarfaError) {
    let was = try connection.fullEdge(id)
    var served = try connection.servedEdge(id)
    if case .edge(let row) = answer, (served?.edge.version ?? 0) <= row.version {
      served = FullEdge(edge: row.edge, rest: row.rest)
    }
    if write.kind == .deleteEdge { served = nil }
    let waiting = try connection.hasWrites(about: id)
    try connection.setServed(id, waiting ? served : nil)
    try render(id, waiting ? try connection.overlaid(id, over: served) : served, was: was, seen: nil)
  }

  /// The next edit of the row is one of the version the server just answered with (contract, "Verdicts").
  private func rebase(behind write: QueuedWrite, item: ItemID, to version: Int64) throws(MarfaError) {
    try connection.run(
      """
      UPDATE writes SET base_version = ?3 WHERE gone_out = 0 AND base_version < ?3 AND number =
        (SELECT min(number) FROM writes WHERE item = ?1 AND number > ?2 AND kind = 'update_item' AND state <> 'refused')
      """
    ) {
      $0.id(1, item)
      $0.int(2, write.id.number)
      $0.int(3, version)
    }
  }

  private func rebase(behind write: QueuedWrite, edge: EdgeID, to version: Int64) throws(MarfaError) {
    try connection.run(
      """
      UPDATE writes SET base_version = ?3 WHERE gone_out = 0 AND base_version < ?3 AND number =
        (SELECT min(number) FROM writes WHERE edge = ?1 AND number > ?2 AND kind = 'update_edge' AND state <> 'refused')
      """
    ) {
      $0.id(1, edge)
      $0.int(2, write.id.number)
      $0.int(3, version)
    }
  }

  private func notify(showing blob: BlobHash) throws(MarfaError) {
    let nodes = try connection.all(
      "SELECT number FROM nodes WHERE hash = ?1 AND hash IS NOT NULL LIMIT 100", { $0.hash(1, blob) }, { $0.int(0) })
    if !nodes.isEmpty { tree.notify(nodes.map { .attributes($0) }, in: self) }
  }
}

extension Connection {
  /// Gives a write that stays in the queue its state and why.
  func setVerdict(_ id: WriteID, _ state: WriteState, _ verdict: Verdict?) throws(MarfaError) {
    try run("UPDATE writes SET state = ?2, verdict = ?3 WHERE number = ?1") {
      $0.int(1, id.number)
      $0.text(2, state.rawValue)
      $0.text(3, verdict.map { JSON.object($0.stored).text })
    }
  }

  /// The writes that were refused, unsent, because of this one.
  func writesRefused(becauseOf id: WriteID) throws(MarfaError) -> [QueuedWrite] {
    let numbers = try all(
      """
      SELECT number FROM writes WHERE state = 'refused' AND json_extract(verdict, '$.because_of') = ?1 ORDER BY number
      """, { $0.int(1, id.number) }, { WriteID($0.int(0)) })
    var writes: [QueuedWrite] = []
    for number in numbers {
      if let write = try queuedWrite(number) { writes.append(write) }
    }
    return writes
  }

  /// The writes that wait for this one and have not been refused.
  func writesWaiting(on id: WriteID) throws(MarfaError) -> [QueuedWrite] {
    // An answer of this kind is rare, and a walk over the queue is what it may cost.
    let numbers = try all(
      """
      SELECT number FROM writes WHERE number > ?1 AND state NOT IN ('refused', 'dead')
        AND (follows = ?1 OR instr(',' || depends_on || ',', ',' || ?1 || ',') > 0) ORDER BY number
      """, { $0.int(1, id.number) }, { WriteID($0.int(0)) })
    var writes: [QueuedWrite] = []
    for number in numbers {
      if let write = try queuedWrite(number) { writes.append(write) }
    }
    return writes
  }
}
