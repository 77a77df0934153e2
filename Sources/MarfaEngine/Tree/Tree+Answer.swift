/// What a server's answer to a write makes of the rows, in the transaction that takes the write off the queue (contract,
/// "Verdicts").
extension Tree.Change {
  /// What an answer carried of the row it is about.
  enum Answered: Equatable, Sendable {
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
      if case .item(let row) = answer { try rebase(behind: write, to: row.version, asMade: asMade) }
      if mustRead { try connection.owe(item) }
    } else if let edge = write.edge {
      let source = try connection.edge(edge)?.source
      try settle(edge, write, answer)
      if case .edge(let row) = answer { try rebase(behind: write, to: row.version, asMade: asMade) }
      if mustRead, let source { try connection.owe(source) }
    } else if let blob = write.blob {
      try connection.run("UPDATE blobs SET stored = 1, uploaded = 1 WHERE hash = ?1") { $0.hash(1, blob) }
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
    try putBack(refused)
  }

  /// Puts a write that failed, and those refused because of it, back into their places, under fresh keys.
  func release(_ write: QueuedWrite) throws(MarfaError) {
    var released = [write]
    // What the server would not settle is settled by whoever releases it: over what the server has now.
    let rebases = [.blocked(.conflictUnresolved), .blocked(.ancestorUnavailable)].contains(write.verdict)
    var next = 0
    while next < released.count {
      for waiting in try connection.writesRefused(becauseOf: released[next].id) { released.append(waiting) }
      next += 1
    }
    for write in released {
      try connection.run(
        """
        UPDATE writes SET state = 'queued', verdict = NULL, failures = 0, gone_out = 0, overtaken = 0, not_before = 0,
          idempotency_key = ?2 WHERE number = ?1
        """
      ) {
        $0.int(1, write.id.number)
        if write.kind == .uploadBlob { $0.null(2) } else { $0.bytes(2, .version7(milliseconds: now.milliseconds)) }
      }
    }
    if rebases, let version = try servedVersion(write), write.baseVersion != nil {
      try connection.run("UPDATE writes SET base_version = ?2 WHERE number = ?1") {
        $0.int(1, write.id.number)
        $0.int(2, version)
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

  private func servedVersion(_ write: QueuedWrite) throws(MarfaError) -> Int64? {
    if let item = write.item { return try connection.servedItem(item)?.item.version }
    if let edge = write.edge { return try connection.servedEdge(edge)?.edge.version }
    return nil
  }

  /// The row shown, when it is the server's own; kept as such, for a write is laid over it again.
  private func known(_ shown: FullItem?) throws(MarfaError) -> FullItem? {
    guard let shown, shown.item.version > 0 else { return nil }
    try connection.setServed(shown.item.id, shown)
    return shown
  }

  /// Takes a write and what waits on it off the queue, and shows what there is without them. With a directory that is not
  /// to be, what was made in it and has not gone out either. Answers those that went along.
  @discardableResult
  func takeOff(_ write: QueuedWrite) throws(MarfaError) -> [WriteID] {
    var gone = [write]
    var known: Set<WriteID> = [write.id]
    var next = 0
    while next < gone.count {
      let id = gone[next].id
      var held: [QueuedWrite] = []
      if gone[next].kind == .createItem, let item = gone[next].item, let node = try connection.node(of: item) {
        held = try createsUnsent(in: node)
      }
      for waiting in try connection.writesWaiting(on: id) + connection.writesRefused(becauseOf: id) + held
      where known.insert(waiting.id).inserted {
        guard waiting.state != .sending else {
          throw .invalid("write \(waiting.id), which waits on it, is being sent just now; try again")
        }
        gone.append(waiting)
      }
      next += 1
    }
    for write in gone { try connection.run("DELETE FROM writes WHERE number = ?1") { $0.int(1, write.id.number) } }
    // What was refused has been put back before. What is in a directory before that: it stays in it.
    try putBack(gone.filter { $0.state != .refused }.reversed())
    for write in gone {
      // An item of which nothing waits any more is a file of this device like any other.
      if let item = write.item, let node = try connection.node(refused: item), try connection.queue(about: item).isEmpty
      {
        try connection.setRefused(node.number, nil)
      }
      if let blob = write.blob {
        if write.kind != .uploadBlob { try outbox.releaseUpload(blob) }
        try tree.blobs.release(blob, in: connection)
      }
    }
    return gone.dropFirst().map(\.id)
  }

  /// The creates, not gone out, of what has its only place in a directory.
  func createsUnsent(in node: Node) throws(MarfaError) -> [QueuedWrite] {
    guard node.kind == .directory else { return [] }
    var creates: [QueuedWrite] = []
    for child in try connection.childItems(of: node.number) {
      guard let held = try connection.node(of: child.item), held.links == 1 else { continue }
      creates += try connection.queue(about: child.item).filter { $0.kind == .createItem && !$0.hasGoneOut }
    }
    return creates
  }

  /// Shows what there is without writes that were just refused or taken off the queue. The server's rows are owed. A row
  /// is put back once, however many of the writes are about it: what the server has of it is known only until then.
  func putBack(_ writes: [QueuedWrite]) throws(MarfaError) {
    var done: Set<Bytes128> = []
    for item in writes.compactMap(\.item) where done.insert(item.bytes).inserted { try putBack(item, writes) }
    for edge in writes.compactMap(\.edge) where done.insert(edge.bytes).inserted { try putBack(edge) }
    for write in writes where write.kind == .uploadBlob {
      if let blob = write.blob { try notify(showing: blob) }
    }
  }

  private func putBack(_ item: ItemID, _ writes: [QueuedWrite]) throws(MarfaError) {
    let served = try connection.servedItem(item)
    let was = try connection.fullItem(item)
    let shown = try connection.overlaid(item, over: served)
    if shown.map({ $0.item.state == .trashed }) ?? true, let was, let node = try connection.node(of: item) {
      // What was made here stays; what was another's and is gone goes, but for bytes that were written here.
      let ours =
        if case .blob(let hash) = node.content {
          writes.last { $0.item == item && $0.blob == hash }
        } else {
          nil as QueuedWrite?
        }
      if was.item.version == 0 || ours != nil { try keepHere(item) }
      if was.item.version > 0, let ours {
        let parted = Parted(version: ours.baseVersion ?? 0, title: was.item.title, blob: nil)
        try connection.setParted(node.number, parted)
      }
    }
    try render(item, shown, was: was, seen: nil)
    if served != nil || (was?.item.version ?? 0) > 0 { try connection.owe(item, isTold: served == nil) }
    if try !connection.hasWrites(about: item) { try connection.setServed(item, nil) }
  }

  private func putBack(_ edge: EdgeID) throws(MarfaError) {
    let served = try connection.servedEdge(edge)
    let was = try connection.fullEdge(edge)
    try render(edge, try connection.overlaid(edge, over: served), was: was, seen: nil)
    for source in Set([served?.edge.source, was?.edge.source].compactMap { $0 }) {
      // An item the server never had has no row to read; one that is not here may be gone there, and this edge with it.
      if try connection.item(source).map({ $0.version > 0 }) ?? (served != nil) { try connection.owe(source) }
    }
    if try !connection.hasWrites(about: edge) { try connection.setServed(edge, nil) }
  }

  /// The item of a file or directory is not to be: what the person made stays where it is, on this device only.
  func keepHere(_ item: ItemID) throws(MarfaError) {
    guard var node = try connection.node(of: item) else { return }
    // The items in a directory are other devices' too: they stand where those see them.
    if node.kind == .directory { try moveOut(of: node) }
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
    // Events come in the server's order, and answers when they will: what an event of the same version said meanwhile
    // may be newer, and what this answer says is told by an event too.
    switch answer {
    case .item(let row) where isNewer(row.version, than: before?.item.version, write):
      served = FullItem(row, before: before)
    case .metadata(let metadata) where !write.isOvertaken:
      served?.item.tags = metadata.tags
      served?.extensions = metadata.extensions
    case .extensions(let extensions) where !write.isOvertaken: served?.extensions = extensions
    case .item, .edge, .metadata, .extensions, .stored, .nothing: break
    }
    // An answer without a row still did what was asked.
    switch write.kind {
    case .deleteItem where !write.isOvertaken: served?.item.state = .trashed
    case .restoreItem where !write.isOvertaken: if case .nothing = answer { served?.item.state = .active }
    default: break
    }
    // Gone from the server since, or not told of yet: shown as the answer has it until that is known.
    if write.isOvertaken, before == nil { try connection.owe(id, isTold: true) }
    let waiting = try connection.hasWrites(about: id)
    try connection.setServed(id, waiting ? served : nil)
    if !waiting, let served, !served.item.pinned,
      try !connection.slice().holds(type: served.item.type, tier: served.item.tier)
    {
      // It was here for the write's sake only.
      return try remove(id)
    }
    try render(id, waiting ? try connection.overlaid(id, over: served) : served ?? was, was: was, seen: nil)
    if let node = try connection.node(of: id) { tree.notify([.attributes(node.number)], in: self) }
  }

  private func settle(_ id: EdgeID, _ write: QueuedWrite, _ answer: Answered) throws(MarfaError) {
    let was = try connection.fullEdge(id)
    let before = try connection.servedEdge(id)
    var served = before
    var isUnknown = false
    switch answer {
    case .edge(let row):
      if isNewer(row.version, than: before?.edge.version, write) {
        served = FullEdge(edge: row.edge, rest: row.rest)
      }
    // Done, and it is not known how it stands: it is shown as it was until it is read.
    case .nothing where write.kind != .deleteEdge: isUnknown = served == nil
    default: break
    }
    if write.kind == .deleteEdge { served = nil }
    // As with an item: the row of the one that draws it says which edges there are.
    if write.isOvertaken, before == nil, let source = (served ?? was)?.edge.source { try connection.owe(source) }
    let waiting = try connection.hasWrites(about: id)
    try connection.setServed(id, waiting ? served : nil)
    if isUnknown { served = was }
    try render(id, waiting ? try connection.overlaid(id, over: served) : served, was: was, seen: nil)
  }

  /// Whether an answer's row says more than the one held. An overtaken one does only when its version is later.
  private func isNewer(_ version: Int64, than held: Int64?, _ write: QueuedWrite) -> Bool {
    guard let held else { return true }
    return write.isOvertaken ? held < version : held <= version
  }

  /// The next edit of the row is one of the version the server just answered with, when the write landed as it was made
  /// (contract, "Verdicts"); one that was made of an older version than the write was keeps that. Edits of a row that had
  /// no version yet are edits of the one its create was answered with.
  private func rebase(behind write: QueuedWrite, to version: Int64, asMade: Bool) throws(MarfaError) {
    if asMade {
      try connection.run(
        """
        UPDATE writes SET base_version = ?4 WHERE gone_out = 0 AND base_version < ?4 AND base_version >= ?5 AND number =
          (SELECT min(number) FROM writes WHERE (item = ?1 OR edge = ?2) AND number > ?3
            AND kind IN ('update_item', 'update_edge') AND state <> 'refused')
        """
      ) {
        $0.id(1, write.item)
        $0.id(2, write.edge)
        $0.int(3, write.id.number)
        $0.int(4, version)
        $0.int(5, write.baseVersion ?? 0)
      }
    }
    guard write.kind == .createItem || write.kind == .createEdge else { return }
    try connection.run(
      "UPDATE writes SET base_version = ?3 WHERE (item = ?1 OR edge = ?2) AND gone_out = 0 AND base_version = 0"
    ) {
      $0.id(1, write.item)
      $0.id(2, write.edge)
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
  /// True for a directory, and for a file whose bytes are on this device.
  func isHere(_ item: ItemID) throws(MarfaError) -> Bool {
    guard let node = try node(of: item) else { return false }
    return try isHere(node)
  }

  /// True for anything but a file whose bytes are elsewhere.
  func isHere(_ node: Node) throws(MarfaError) -> Bool {
    guard case .blob(let hash) = node.content else { return true }
    return try blob(hash)?.held ?? false
  }

  /// The server told of an item or edge: what has gone out about it may be answered with less.
  func overtake(_ row: Bytes128) throws(MarfaError) {
    try run("UPDATE writes SET overtaken = 1 WHERE item = ?1 AND gone_out = 1") { $0.bytes(1, row) }
    try run("UPDATE writes SET overtaken = 1 WHERE edge = ?1 AND gone_out = 1") { $0.bytes(1, row) }
  }

  /// The server is about to tell of every row.
  func overtakeAll() throws(MarfaError) { try run("UPDATE writes SET overtaken = 1 WHERE gone_out = 1") }

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
    return try queuedWrites(numbers)
  }

  /// The writes that wait for this one and have not been refused.
  func writesWaiting(on id: WriteID) throws(MarfaError) -> [QueuedWrite] {
    let numbers = try all(
      """
      SELECT w.number FROM waits x JOIN writes w ON w.number = x.write
      WHERE x.ahead = ?1 AND w.state NOT IN ('refused', 'dead') ORDER BY w.number
      """, { $0.int(1, id.number) }, { WriteID($0.int(0)) })
    return try queuedWrites(numbers)
  }
}
