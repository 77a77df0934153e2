/// Sizes of what is not here.
extension Fetcher {
  struct SizeAsks: Sendable {
    struct Ask: Sendable {
      let id: Int
      /// The walk's: it need not be written down at once.
      var isWalk = false
      /// What fails and may pass is asked again up to this moment.
      var until = Int64.min
      let then: @Sendable (Result<Int64, MarfaError>) -> Void
    }
    /// By what was asked for and not answered; nobody may wait for it any more.
    var asks: [BlobHash: [Ask]] = [:]
    var lastID = 0
    /// What the server asked not to be asked for before this moment, and the seconds it said.
    var resting: [BlobHash: (until: Int64, seconds: Int?)] = [:]

    mutating func rest(of hash: BlobHash, _ now: Int64) -> (until: Int64, seconds: Int?)? {
      guard let rest = resting[hash] else { return nil }
      if rest.until > now { return rest }
      resting[hash] = nil
      return nil
    }

    /// The walk over all that have none.
    var isWalking = false
    var isAgain = false
    var waiting: [BlobHash] = []
    var cursor: BlobHash?
    var isAtEnd = false
    /// Asked for and not answered.
    var asking: Set<BlobHash> = []
  }
  /// Questions of the walk at once: fewer than a source takes, so that one about a file somebody looks at needn't wait.
  private static let mostAsked = 6
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
    guard source != nil else { return then(.failure(.bytesAbsent(hash))) }
    let now = Monotonic.now
    let until = wait.map { now + $0 } ?? .min
    var first: Int64?
    if let rest = sizes.withLock({ $0.rest(of: hash, now) }) {
      guard rest.until <= until else {
        return then(.failure(.notFetched(hash, .rateLimited(seconds: rest.seconds))))
      }
      first = rest.until
    } else if let refusal = link.refusal(now) {
      guard let again = link.retryAt, again <= until else { return then(.failure(.notFetched(hash, refusal))) }
      first = again
    }
    let (id, isFirst) = sizes.withLock { sizes -> (Int, Bool) in
      sizes.lastID += 1
      let isFirst = sizes.asks[hash] == nil
      sizes.asks[hash, default: []].append(SizeAsks.Ask(id: sizes.lastID, until: until, then: then))
      return (sizes.lastID, isFirst)
    }
    if wait != nil {
      alarm.at(until) { [self] in
        let late = sizes.withLock { sizes -> SizeAsks.Ask? in
          guard let index = sizes.asks[hash]?.firstIndex(where: { $0.id == id }) else { return nil }
          // The question stays asked: somebody else may come before it is answered.
          return sizes.asks[hash]?.remove(at: index)
        }
        late?.then(.failure(.notFetched(hash, .timedOut("its size did not come in time"))))
      }
    }
    guard isFirst else { return }
    if let first { alarm.at(first) { [self] in askAgain(hash) } } else { question(hash) }
  }

  private func question(_ hash: BlobHash) {
    guard let source else { return answer(hash, .failure(.canceled), again: nil) }
    source.size(of: hash) { [self] result in settle(hash, result) }
  }

  /// The moment has come to ask once more, when somebody still waits.
  private func askAgain(_ hash: BlobHash) {
    let isWanted = sizes.withLock { sizes in
      if sizes.asks[hash]?.isEmpty ?? true { sizes.asks[hash] = nil }
      return sizes.asks[hash] != nil
    }
    guard isWanted else { return }
    if let refusal = link.refusal(Monotonic.now) {
      return answer(hash, .failure(.notFetched(hash, refusal)), again: link.retryAt)
    }
    question(hash)
  }

  private func settle(_ hash: BlobHash, _ result: Result<Int64, BytesFailure>) {
    let isPosted = queue.post { [self] in
      let (result, again) = judged(hash, result)
      if case .success(let size) = result {
        learnt(hash, size)
        if sizes.withLock({ $0.asks[hash]?.contains { !$0.isWalk } ?? false }) { flushPending() }
      }
      answer(hash, result, again: again)
    }
    if !isPosted { answer(hash, .failure(.canceled), again: nil) }
  }

  /// Tells those who asked; those who have time until `again` go on waiting, and it is asked again then: one answer that
  /// got lost must not show a file without a length.
  private func answer(_ hash: BlobHash, _ result: Result<Int64, MarfaError>, again: Int64?) {
    let (told, isWaitedFor) = sizes.withLock { sizes -> ([SizeAsks.Ask], Bool) in
      let asks = sizes.asks.removeValue(forKey: hash) ?? []
      guard let again else { return (asks, false) }
      let staying = asks.filter { $0.until >= again }
      if !staying.isEmpty { sizes.asks[hash] = staying }
      return (asks.filter { $0.until < again }, !staying.isEmpty)
    }
    if told.contains(where: { !$0.isWalk }), case .success = result {
      // Somebody came since it was looked.
      flushPending()
    }
    for ask in told { ask.then(result) }
    if let again, isWaitedFor { alarm.at(again) { [self] in askAgain(hash) } }
  }

  /// Nobody is answered any more: whoever waits is told so.
  func closeSizes() {
    let asks = sizes.withLock { sizes in
      defer { sizes.asks = [:] }
      return sizes.asks.values.flatMap { $0 }
    }
    for ask in asks { ask.then(.failure(.canceled)) }
  }

  /// What an answer means, what is to be remembered of it, and when it is worth asking again.
  private func judged(
    _ hash: BlobHash, _ answer: Result<Int64, BytesFailure>
  ) -> (result: Result<Int64, MarfaError>, again: Int64?) {
    let failure: FetchFailure
    var again: Int64?
    switch answer {
    case .success(let size):
      link.worked()
      if size > 0, size <= BlobFetch.largestSize { return (.success(size), nil) }
      failure = .failed("the server says that there are \(size) bytes")
    case .failure(.unreachable(let words)), .failure(.stopped(let words)):
      failure = .unreachable(words)
      link.failed(failure, Monotonic.now)
      again = link.retryAt
    case .failure(.timedOut(let words)):
      failure = .timedOut(words)
      link.failed(failure, Monotonic.now)
      again = link.retryAt
    case .failure(.rateLimited(let seconds)):
      failure = .rateLimited(seconds: seconds)
      // An hour is as good as never.
      let until = Monotonic.now + Int64(max(1, min(seconds ?? 1, 3600))) * settings.second
      sizes.withLock { $0.resting[hash] = (until, seconds) }
      again = until
    case .failure(.absent): failure = .absent
    case .failure(.credentialRefused(let words)): failure = .credentialRefused(words)
    case .failure(.failed(let words)): failure = .failed(words)
    case .failure(.canceled): return (.failure(.canceled), nil)
    }
    note(hash, failure.reason, "\(failure)")
    return (.failure(.notFetched(hash, failure)), again)
  }

  // MARK: - All of them

  /// Learns the size of every file that has none, in the background, a few at a time. Called again while it is at work, it
  /// looks through all once more. `isNews`: the server has just told of some, so that it is there.
  func learnSizes(isNews: Bool = false) {
    guard store.isWriter, source != nil else { return }
    if isNews { link.worked() }
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
    guard source != nil else { return walked(hash, stopping: true) }
    if let rest = sizes.withLock({ $0.rest(of: hash, Monotonic.now) }) {
      alarm.at(rest.until) { [self] in learnSizes() }
      return walked(hash, stopping: false)
    }
    let isFirst = sizes.withLock { sizes in
      sizes.lastID += 1
      let ask = SizeAsks.Ask(id: sizes.lastID, isWalk: true) { [self] result in
        switch result {
        case .failure(.notFetched(_, .unreachable)), .failure(.notFetched(_, .timedOut)),
          .failure(.notFetched(_, .rateLimited)),
          .failure(.notFetched(_, .credentialRefused)), .failure(.canceled):
          walked(hash, stopping: true)
        case .success, .failure: walked(hash, stopping: false)
        }
      }
      let isFirst = sizes.asks[hash] == nil
      sizes.asks[hash, default: []].append(ask)
      return isFirst
    }
    if isFirst { question(hash) }
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
    if isStopped {
      let now = Monotonic.now
      let moment = min(link.retryAt.map { max($0, now + settings.offlineFirst) } ?? .max, now + settings.offlineLast)
      alarm.at(moment) { [self] in learnSizes() }
    }
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
