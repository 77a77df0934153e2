/// Asks a server that was set back which of the bytes that are here it still has.
///
/// What its rows name it need not have: a create whose bytes it had taken before is taken without them after. Until it has said so,
/// no bytes count as stored there; those that it has lost are uploaded once more, and named again by an update of their item, for
/// a reference lends only what its writer had uploaded before it (contract, "Blobs").
final class DoubtedBytes: Sendable {
  private struct State {
    var isOver = false
    var isLooking = false
    var isWanted = false
  }

  private let copy: WorkingCopy
  private let server: Server
  /// Seconds after which what was queued is looked for again.
  private let interval: Double
  private let cancellation = Cancellation()
  private let state = Monitor(State())
  private let askers = WorkQueue(name: "marfa-doubt", threads: 8)

  init(_ copy: WorkingCopy, _ server: Server, interval: Double) {
    self.copy = copy
    self.server = server
    self.interval = interval
  }

  /// Looks through what is in doubt, in a thread of its own. Returns at once.
  func look() {
    let begins = state.update { state in
      state.isWanted = true
      defer { if !state.isOver { state.isLooking = true } }
      return !state.isLooking && !state.isOver
    }
    if begins { startThread(named: "marfa-doubted") { [self] in run() } }
  }

  /// Has it end. Returns at once.
  func stop() {
    state.update { $0.isOver = true }
    cancellation.cancel()
  }

  /// Ends. Returns once nothing is asked any more.
  func close() {
    stop()
    _ = state.wait { $0.isLooking ? nil : true }
    askers.close()
  }

  private func run() {
    var said = ""
    while true {
      state.update { $0.isWanted = false }
      let isDone: Bool
      do throws(MarfaError) { isDone = try lookOnce() } catch {
        let words = "which bytes the server still has is not known yet: \(error)"
        if case .canceled = error {} else if words != said { Log.warning(words) }
        said = words
        isDone = false
      }
      let isOver = state.update { state in
        let isOver = state.isOver || (isDone && !state.isWanted)
        if isOver { state.isLooking = false }
        return isOver
      }
      if isOver { return }
      _ = state.wait(until: .after(seconds: interval)) { $0.isOver || $0.isWanted ? true : nil }
    }
  }

  /// False when something is to be looked for again later: what was queued for it is not through, or it could not be asked.
  private func lookOnce() throws(MarfaError) -> Bool {
    var last: BlobHash?
    while true {
      if state.read({ $0.isOver }) { throw .canceled }
      let piece = try copy.store.read { (connection) throws(MarfaError) in
        try connection.doubted(after: last, limit: 64)
      }
      guard let end = piece.last else { break }
      last = end
      let (answers, failure) = try ask(piece)
      try copy.change { (change) throws(MarfaError) in
        for (hash, isThere) in answers {
          if isThere { try change.connection.trust(hash) } else { try change.bringBack(hash) }
        }
      }
      guard let failure else { continue }
      if failure == .canceled { throw .canceled }
      // One that can't be asked about keeps no other from it; a server that can't be asked is left alone for a while.
      if answers.isEmpty { throw .remote(failure) }
    }
    return try copy.store.read { (connection) throws(MarfaError) in try !connection.isAnyDoubted() }
  }

  private func ask(_ hashes: [BlobHash]) throws(MarfaError) -> (
    answers: [(hash: BlobHash, isThere: Bool)], failure: RemoteFailure?
  ) {
    let answers = Monitor<[Result<(hash: BlobHash, isThere: Bool), RemoteFailure>]>([])
    for hash in hashes {
      let isPosted = askers.post { [self] in
        let answer: Result<(hash: BlobHash, isThere: Bool), RemoteFailure> = Result { () throws(RemoteFailure) in
          (hash, try server.size(of: hash, cancellation) != nil)
        }
        answers.update { $0.append(answer) }
      }
      guard isPosted else { throw .canceled }
    }
    let all = answers.wait { $0.count == hashes.count ? $0 : nil } ?? []
    var found: [(hash: BlobHash, isThere: Bool)] = []
    var failed: RemoteFailure?
    for answer in all {
      switch answer {
      case .success(let answer): found.append(answer)
      case .failure(let failure): failed = failure
      }
    }
    return (found, failed)
  }
}

extension Tree.Change {
  /// A server that names these bytes does not have them: it is sent them, once.
  fileprivate func bringBack(_ hash: BlobHash) throws(MarfaError) {
    let isFirst = try connection.doubt(hash)
    let items = try connection.items(showing: hash)
    Log.warning(
      isFirst
        ? "the server lost the bytes of \(items.first?.title ?? "\(hash)") when it was set back: they are sent once more"
        : "the server names the bytes of \(items.first?.title ?? "\(hash)") and does not give them: they stay here")
    guard isFirst else { return }
    for item in items {
      try outbox.updateItem(
        item.id, ["blob_ref": .string(hash.description), "mime_type": .string(item.mimeType ?? MIMEType.unknown)],
        folding: true)
    }
  }
}

extension Connection {
  /// Nothing that is here counts as stored before the server has said so (``DoubtedBytes``).
  func doubtAll() throws(MarfaError) { try run("UPDATE blobs SET doubted = 1 WHERE held = 1") }

  /// Bytes in doubt that rows of the server name, and about which nothing waits.
  fileprivate func doubted(after last: BlobHash?, limit: Int) throws(MarfaError) -> [BlobHash] {
    try all(
      """
      SELECT b.hash FROM blobs b WHERE b.doubted IN (1, 2) AND b.held = 1 AND (?1 IS NULL OR b.hash > ?1)
        AND NOT EXISTS (SELECT 1 FROM writes w WHERE w.blob = b.hash)
        AND EXISTS (SELECT 1 FROM nodes n JOIN items i ON i.id = n.item WHERE n.hash = b.hash AND i.version > 0)
      ORDER BY b.hash LIMIT ?2
      """,
      {
        $0.hash(1, last)
        $0.int(2, Int64(limit))
      }, { $0.hash(0) }
    ).compactMap { $0 }
  }

  fileprivate func isAnyDoubted() throws(MarfaError) -> Bool {
    try first(
      """
      SELECT 1 FROM blobs b WHERE b.doubted IN (1, 2) AND b.held = 1
        AND EXISTS (SELECT 1 FROM nodes n JOIN items i ON i.id = n.item WHERE n.hash = b.hash) LIMIT 1
      """
    ) { _ in true } ?? false
  }

  /// The server has them.
  fileprivate func trust(_ hash: BlobHash) throws(MarfaError) {
    try run("UPDATE blobs SET doubted = 0, stored = 1 WHERE hash = ?1") { $0.hash(1, hash) }
  }

  /// It does not. Answers whether that is news.
  fileprivate func doubt(_ hash: BlobHash) throws(MarfaError) -> Bool {
    let before = try first("SELECT doubted FROM blobs WHERE hash = ?1", { $0.hash(1, hash) }, { $0.int(0) }) ?? 0
    try run("UPDATE blobs SET doubted = doubted + 1, stored = 0, uploaded = 0 WHERE hash = ?1") { $0.hash(1, hash) }
    return before == 1
  }

  fileprivate func items(showing hash: BlobHash) throws(MarfaError) -> [Item] {
    let ids = try all(
      "SELECT item FROM nodes WHERE hash = ?1 AND item IS NOT NULL ORDER BY number", { $0.hash(1, hash) },
      { $0.itemID(0) }
    ).compactMap { $0 }
    var items: [Item] = []
    for id in ids { if let item = try item(id), item.blob == hash { items.append(item) } }
    return items
  }
}
