/// Sizes of what is not here.
extension Fetcher {
  struct SizeAsks: Sendable {
    struct Ask: Sendable {
      let id: Int
      /// The walk's: it need not be written down at once.
      var isWalk = false
      let then: @Sendable (Result<Int64, MarfaError>) -> Void
    }
    /// By what was asked for and not answered; nobody may wait for it any more.
    var asks: [BlobHash: [Ask]] = [:]
    var lastID = 0

    /// The walk over all that have none.
    var isWalking = false
    var isAgain = false
    var waiting: [BlobHash] = []
    var cursor: BlobHash?
    var isAtEnd = false
    /// Asked for and not answered.
    var asking: Set<BlobHash> = []
  }
  /// Questions of the walk at once.
  private static let mostAsked = 8
  /// Hashes taken from the store at once.
  private static let page: Int64 = 256

  /// Tells a blob's size, from the store or else from the server, which is waited for for `wait` nanoseconds (as long as it
  /// takes when `nil`). The store has it when `then` is called, exactly once.
  func size(of hash: BlobHash, wait: Int64?, then: @escaping @Sendable (Result<Int64, MarfaError>) -> Void) {
    let known: Int64?
    do throws(MarfaError) {
      known = try store.read { (connection) throws(MarfaError) in try connection.blob(hash)?.size }
    } catch {
      return then(.failure(error))
    }
    if let known { return then(.success(known)) }
    guard let source else { return then(.failure(.bytesAbsent(hash))) }
    if let refusal = link.refusal(Monotonic.now) { return then(.failure(.notFetched(hash, refusal))) }
    let (id, isFirst) = sizes.withLock { sizes -> (Int, Bool) in
      sizes.lastID += 1
      let isFirst = sizes.asks[hash] == nil
      sizes.asks[hash, default: []].append(SizeAsks.Ask(id: sizes.lastID, then: then))
      return (sizes.lastID, isFirst)
    }
    if let wait {
      alarm.at(Monotonic.now + wait) { [self] in
        let late = sizes.withLock { sizes -> SizeAsks.Ask? in
          guard let index = sizes.asks[hash]?.firstIndex(where: { $0.id == id }) else { return nil }
          // The question stays asked: somebody else may come before it is answered.
          return sizes.asks[hash]?.remove(at: index)
        }
        late?.then(.failure(.notFetched(hash, .timedOut("its size did not come in time"))))
      }
    }
    if isFirst { source.size(of: hash) { [self] result in settle(hash, result) } }
  }

  private func settle(_ hash: BlobHash, _ answer: Result<Int64, BytesFailure>) {
    let isPosted = queue.post { [self] in
      let result = judged(hash, answer)
      if case .success(let size) = result {
        learnt(hash, size)
        if sizes.withLock({ $0.asks[hash]?.contains { !$0.isWalk } ?? false }) { flushPending() }
      }
      for ask in sizes.withLock({ $0.asks.removeValue(forKey: hash) ?? [] }) {
        // Somebody came since it was looked.
        if !ask.isWalk { flushPending() }
        ask.then(result)
      }
    }
    if !isPosted {
      for ask in sizes.withLock({ $0.asks.removeValue(forKey: hash) ?? [] }) { ask.then(.failure(.canceled)) }
    }
  }

  /// What an answer means, and what is to be remembered of it.
  private func judged(_ hash: BlobHash, _ answer: Result<Int64, BytesFailure>) -> Result<Int64, MarfaError> {
    let failure: FetchFailure
    switch answer {
    case .success(let size):
      link.worked()
      if size > 0, size <= BlobFetch.largestSize { return .success(size) }
      failure = .failed("the server says that there are \(size) bytes")
    case .failure(.unreachable(let words)), .failure(.stopped(let words)):
      link.failed(words, Monotonic.now)
      failure = .unreachable(words)
    case .failure(.rateLimited(let seconds)): failure = .rateLimited(seconds: seconds)
    case .failure(.absent): failure = .absent
    case .failure(.credentialRefused(let words)): failure = .credentialRefused(words)
    case .failure(.failed(let words)): failure = .failed(words)
    case .failure(.canceled): return .failure(.canceled)
    }
    note(hash, failure.reason, "\(failure)")
    return .failure(.notFetched(hash, failure))
  }

  // MARK: - All of them

  /// Learns the size of every file that has none, in the background, a few at a time. Called again while it is at work, it
  /// looks through all once more.
  func learnSizes() {
    guard store.isWriter, source != nil else { return }
    sizes.withLock { sizes in
      if sizes.isWalking {
        sizes.isAgain = true
      } else {
        sizes.isWalking = true
        sizes.cursor = nil
        sizes.isAtEnd = false
      }
    }
    walker.post { self.walkOn() }
  }

  private func walkOn() {
    while true {
      let cursor = sizes.withLock { $0.waiting.isEmpty && !$0.isAtEnd ? .some($0.cursor) : BlobHash??.none }
      if case .some(let cursor) = cursor {
        let page = try? store.read { (connection) throws(MarfaError) in
          try connection.unsized(after: cursor, limit: Fetcher.page)
        }
        // Answered, and not in the store yet.
        let learnt = pending.withLock { $0.sizes }
        sizes.withLock { sizes in
          sizes.waiting = (page ?? []).reversed().filter { learnt[$0] == nil && !sizes.asking.contains($0) }
          sizes.cursor = page?.last ?? sizes.cursor
          sizes.isAtEnd = page?.isEmpty ?? true
        }
      }
      enum Step {
        case ask(BlobHash)
        case wait
        case again
      }
      let step = sizes.withLock { sizes -> Step in
        if sizes.asking.count < Fetcher.mostAsked, let next = sizes.waiting.popLast() {
          sizes.asking.insert(next)
          return .ask(next)
        }
        guard sizes.waiting.isEmpty else { return .wait }
        guard sizes.isAtEnd else { return .again }
        if sizes.isAgain {
          sizes.isAgain = false
          sizes.cursor = nil
          sizes.isAtEnd = false
          return .again
        }
        if sizes.asking.isEmpty { sizes.isWalking = false }
        return .wait
      }
      switch step {
      case .again: continue
      case .wait: return
      case .ask(let hash): ask(hash)
      }
    }
  }

  private func ask(_ hash: BlobHash) {
    guard let source else { return walked(hash, stopping: true) }
    let isFirst = sizes.withLock { sizes in
      sizes.lastID += 1
      let ask = SizeAsks.Ask(id: sizes.lastID, isWalk: true) { [self] result in
        switch result {
        case .failure(.notFetched(_, .unreachable)), .failure(.notFetched(_, .rateLimited)),
          .failure(.notFetched(_, .credentialRefused)), .failure(.canceled):
          walked(hash, stopping: true)
        case .success, .failure: walked(hash, stopping: false)
        }
      }
      let isFirst = sizes.asks[hash] == nil
      sizes.asks[hash, default: []].append(ask)
      return isFirst
    }
    if isFirst { source.size(of: hash) { [self] result in settle(hash, result) } }
  }

  /// One of the walk's questions is answered. Where the next would fare no better it stops, and begins anew in a while.
  private func walked(_ hash: BlobHash, stopping: Bool) {
    let isStopped = sizes.withLock { sizes -> Bool in
      sizes.asking.remove(hash)
      guard stopping, sizes.isWalking else { return false }
      let wasStopped = sizes.isAtEnd && sizes.waiting.isEmpty
      sizes.waiting = []
      sizes.isAtEnd = true
      return !wasStopped
    }
    if isStopped { alarm.at(Monotonic.now + settings.offlineLast) { [self] in learnSizes() } }
    walker.post { self.walkOn() }
  }
}

extension Connection {
  /// Bytes that files show, that are not here and state no size, in the order of their hashes.
  func unsized(after hash: BlobHash?, limit: Int64) throws(MarfaError) -> [BlobHash] {
    try all(
      """
      SELECT b.hash FROM blobs b WHERE b.held = 0 AND b.size IS NULL AND (?1 IS NULL OR b.hash > ?1)
        AND EXISTS (SELECT 1 FROM nodes n WHERE n.hash = b.hash)
      ORDER BY b.hash LIMIT ?2
      """,
      {
        $0.hash(1, hash)
        $0.int(2, limit)
      }, { $0.hash(0) }
    ).compactMap { $0 }
  }
}
