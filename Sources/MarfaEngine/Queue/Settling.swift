/// What the queue makes of a judgement, in one transaction.
extension WorkingCopy {
  /// Does to a write that was sent what came of it.
  func settle(_ write: QueuedWrite, _ judgement: Judgement, _ answer: WriteAnswer?) throws(MarfaError) {
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
        case .accepted: try change.accept(current, answered, asMade: true, mustRead: false)
        case .merged, .conflicted: try change.accept(current, answered, asMade: false, mustRead: answered.isNothing)
        case .refused(let refusal): try change.refuse(current, refusal)
        case .blocked: try change.connection.setVerdict(current.id, .blocked, verdict)
        case .dead(let words): try change.bury(current, words)
        }
      case .doneUnread: try change.accept(current, .nothing, asMade: false, mustRead: true)
      case .environmental, .contractMismatch, .canceled: try change.connection.setVerdict(current.id, .queued, nil)
      case .failure(let words):
        let failures = try change.connection.countFailure(current.id)
        guard failures >= Judgement.ceiling else { return try change.connection.setVerdict(current.id, .queued, nil) }
        try change.bury(current, words)
      }
    }
    if case .verdict(let verdict) = judgement, !verdict.isSuccess {
      Log.warning("write \(write.id) (\(write.kind.rawValue)) is \(verdict.word): \(verdict.words)")
    }
  }

  /// Takes a row that was read back; `nil`: the server has none.
  func applyReadBack(_ id: ItemID, _ row: ItemRow?) throws(RemoteFailure) {
    do throws(MarfaError) {
      try change { (change) throws(MarfaError) in
        try change.connection.settleOwed(id)
        guard let row else { return try change.forget(id, purged: false) }
        try change.receive(row, slice: try change.connection.slice())
        for block in row.edges {
          for edge in block.edges { try change.receive(edge) }
        }
      }
    } catch {
      Log.error("a row that was read back could not be kept: \(error)")
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

extension Connection {
  /// One failure more; answers how many there are.
  fileprivate func countFailure(_ id: WriteID) throws(MarfaError) -> Int {
    try run("UPDATE writes SET failures = failures + 1 WHERE number = ?1") { $0.int(1, id.number) }
    return try first("SELECT failures FROM writes WHERE number = ?1", { $0.int(1, id.number) }, { Int($0.int(0)) }) ?? 0
  }
}
