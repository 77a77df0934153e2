/// What became of a row that was read back.
enum ReadBack: Sendable {
  case taken
  /// Events told of the row while it was read, and may be newer: it is read again.
  case overtaken
  /// The server has none and has not told of that, so nothing was changed: its event is on its way, or it was set back.
  case untold
}

/// What the queue makes of a judgement, in one transaction.
extension WorkingCopy {
  /// Does to a write that was sent, as it was before it was, what came of it. `wait`: how long a write that failed this often, or can't be sent now, waits before it is tried again.
  func settle(
    _ write: QueuedWrite, _ judgement: Judgement, _ answer: WriteAnswer?, wait: (Int) -> Double
  ) throws(MarfaError) {
    var isUnreadable: String?
    var answered = Tree.Change.Answered.nothing
    if case .verdict(let verdict) = judgement, verdict.isSuccess, let answer {
      do throws(RemoteFailure) { answered = try .init(answer, to: write) } catch { isUnreadable = "\(error)" }
    }
    if write.kind == .uploadBlob, case .verdict(.accepted) = judgement { answered = .stored }
    let judgement = isUnreadable.map { Judgement.failure($0) } ?? judgement
    try change { (change) throws(MarfaError) in
      // Taken back meanwhile, by hand: nobody waits for this answer.
      guard let current = try change.connection.queuedWrite(write.id), current.state == .sending else { return }
      switch judgement {
      case .verdict(let verdict):
        switch verdict {
        case .accepted:
          try change.accept(current, answered, asMade: true, mustRead: false)
        case .merged, .conflicted:
          try change.accept(current, answered, asMade: false, mustRead: answered.isNothing)
        case .refused(let refusal): try change.refuse(current, refusal)
        case .blocked: try change.connection.setVerdict(current.id, .blocked, verdict)
        case .dead(let words): try change.bury(current, words)
        }
      case .doneUnread(let row):
        try change.accept(
          current, row ?? .nothing, asMade: row.map { current.landedAsMade(as: $0) } ?? false,
          mustRead: row == nil && current.kind != .deleteEdge)
      case .goneAlready:
        try change.accept(current, .nothing, asMade: true, mustRead: current.kind == .deleteItem)
      // Not even a connection was made: it may still be changed and taken back, as before.
      case .environmental(.notConnected) where !write.hasGoneOut: try change.connection.setUnsent(current.id)
      case .environmental, .contractMismatch, .canceled: try change.connection.setVerdict(current.id, .queued, nil)
      case .unsendable: try change.connection.setQueued(current.id, after: wait(0), change.now)
      case .failure(let words):
        let failures = try change.connection.countFailure(current.id)
        guard failures >= Judgement.ceiling else {
          return try change.connection.setQueued(current.id, after: wait(failures), change.now)
        }
        try change.bury(current, words)
      }
    }
    if case .verdict(.conflicted) = judgement {
      let title = try write.item.flatMap { (item) throws(MarfaError) in try items.get(item)?.title } ?? ""
      Log.notice("\(title) was changed here and elsewhere: both are kept, one as a copy tagged \"conflicted-copy\"")
    }
    if case .verdict(let verdict) = judgement, !verdict.isSuccess {
      Log.warning("write \(write.id) (\(write.kind.rawValue)) is \(verdict.word): \(verdict.words)")
    }
  }

  /// Takes a row that was read back, with the edges it draws; `nil`: the server has none.
  func applyReadBack(_ id: ItemID, _ row: ItemRow?, _ edges: [EdgeRow], heard: (item: Int, edges: Int))
    throws(MarfaError)
    -> ReadBack
  {
    try change { (change) throws(MarfaError) in
      if news.isHeard(id.bytes, since: heard.item) || edgeNews.isHeard(id.bytes, since: heard.edges) {
        return .overtaken
      }
      guard let row else {
        guard try change.connection.isToldGone(id) else { return .untold }
        try change.connection.settleOwed(id)
        try change.forget(id, purged: false)
        return .taken
      }
      try change.connection.settleOwed(id)
      try change.receive(row, slice: try change.connection.slice())
      // What it draws that is held whatever its ends are, when it is not held itself.
      let isHeld = try change.connection.item(id) != nil
      let edges = isHeld ? edges : edges.filter { Hydration.wholeEdgeTypes.contains($0.type) }
      for edge in edges { try change.receive(edge) }
      guard row.carriesEdges else { return .taken }
      // Those it does not draw any more.
      let drawn = Set(edges.map(\.id))
      for edge in try change.connection.edges(touching: id)
      where edge.source == id && edge.version > 0 && !drawn.contains(edge.id) {
        // One that a write is to move here is another's on the server.
        if try !change.connection.hasWrites(about: edge.id) { try change.forget(edge.id) }
      }
      return .taken
    }
  }
}

extension Tree.Change.Answered {
  var isNothing: Bool { if case .nothing = self { true } else { false } }

  /// What an answer carries of the row that the write is about. Throws when it is not what the contract says.
  init(_ answer: WriteAnswer, to write: QueuedWrite) throws(RemoteFailure) {
    let body = answer.body
    if let item = write.item, body["item"] != nil {
      let row = try ItemRow(body)
      guard row.id == item else { throw .unreadable("it is about another item") }
      self = .item(row)
    } else if let edge = write.edge, let value = body["edge"] {
      let row = try EdgeRow(value)
      guard row.id == edge else { throw .unreadable("it is about another edge") }
      self = .edge(row)
    } else if let value = body["metadata"] {
      self = .metadata(try ItemMetadata(try Decode.object(value, "metadata")))
    } else if let extensions = body["extensions"]?.object {
      self = .extensions(extensions)
    } else {
      self = .nothing
    }
    // A create or an update without its row can't be gone on from.
    if isNothing, [.createItem, .updateItem, .createEdge, .updateEdge].contains(write.kind) {
      throw .unreadable("it does not carry the row")
    }
  }
}

extension Verdict {
  /// True when the server took the write.
  var isSuccess: Bool {
    switch self {
    case .accepted, .merged, .conflicted: true
    case .refused, .blocked, .dead: false
    }
  }

  /// For the log and for people.
  var words: String {
    switch self {
    case .accepted, .merged, .conflicted: word
    case .refused(let refusal): "\(refusal.message) (\(refusal.code))"
    case .blocked(let blocked): blocked.word
    case .dead(let words): words
    }
  }
}

extension QueuedWrite {
  /// True when a row that was read says that the write was done as it was made, and nothing after it.
  fileprivate func landedAsMade(as answer: Tree.Change.Answered) -> Bool {
    let (version, properties): (Int64, JSON.Object)
    switch answer {
    case .item(let row): (version, properties) = (row.version, row.properties)
    case .edge(let row): (version, properties) = (row.version, row.properties)
    case .metadata, .extensions, .stored, .nothing: return false
    }
    guard version == (baseVersion ?? 0) + 1 else { return false }
    return (body["properties"]?.object ?? [:]).members.allSatisfy {
      $0.value == .null || properties[$0.key] == $0.value
    }
  }
}

extension Connection {
  /// A write waits a while before it goes again.
  fileprivate func setQueued(_ id: WriteID, after seconds: Double, _ now: Timestamp) throws(MarfaError) {
    try run("UPDATE writes SET state = 'queued', verdict = NULL, not_before = max(not_before, ?2) WHERE number = ?1") {
      $0.int(1, id.number)
      $0.time(2, Timestamp(nanoseconds: now.nanoseconds + Int64(seconds * 1e9)))
    }
  }

  /// A write is as if it had never been chosen.
  fileprivate func setUnsent(_ id: WriteID) throws(MarfaError) {
    try run("UPDATE writes SET state = 'queued', verdict = NULL, gone_out = 0, overtaken = 0 WHERE number = ?1") {
      $0.int(1, id.number)
    }
  }

  /// One failure more; answers how many there are.
  fileprivate func countFailure(_ id: WriteID) throws(MarfaError) -> Int {
    try run("UPDATE writes SET failures = failures + 1 WHERE number = ?1") { $0.int(1, id.number) }
    return try first("SELECT failures FROM writes WHERE number = ?1", { $0.int(1, id.number) }, { Int($0.int(0)) }) ?? 0
  }
}
