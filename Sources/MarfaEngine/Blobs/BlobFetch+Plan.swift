/// What to ask for next.
extension BlobFetch {
  /// Neighbouring blocks that readers wait for go together up to this.
  private static let largestDemand: Int64 = 1 << 20
  private static let smallestAhead: Int64 = 256 << 10
  private static let largestAhead: Int64 = 4 << 20
  /// Requests for what nobody waits for yet, at once.
  private static let mostAhead = 8
  /// A request with no more than this to come is let end though nobody wants it: ending it early may cost the connection.
  private static let worthEnding: Int64 = 256 << 10

  /// Asks for what is wanted, is not here and is not coming. Under the lock.
  func plan(_ state: inout State, _ after: inout After) {
    guard state.phase == .partial, !state.waiters.isEmpty || !state.wholes.isEmpty || !state.readers.isEmpty else {
      return
    }
    guard Monotonic.now >= state.retryAt else { return planLater(&state, &after) }
    guard let size = state.size else { return planFirst(&state, &after) }
    if state.ignoresRanges { return planThrough(size, &state, &after) }
    var wanted = BlockSet()
    for waiter in state.waiters { wanted.insert(Block.covering(waiter.range)) }
    for run in wanted.runs {
      for missing in uncovered(run, state) { ask(for: missing, upTo: Self.largestDemand, size, &state, &after) }
    }
    for streams in state.readers.values {
      for stream in streams.ahead {
        let range = stream.next..<min(stream.next + stream.window, max(size, stream.next))
        askAhead(range, piece: stream.window / 8, near: stream.next + stream.window / 2, size, &state, &after)
      }
    }
    if !state.wholes.isEmpty { askAhead(0..<size, piece: size / 8, near: size, size, &state, &after) }
  }

  /// Runs of blocks neither here nor coming.
  private func uncovered(_ blocks: Range<Int64>, _ state: State) -> [Range<Int64>] {
    let missing = state.blocks.missing(from: blocks)
    if missing.isEmpty || (state.requests.isEmpty && state.memory.isEmpty) { return missing }
    var covered = BlockSet()
    for running in state.requests.values where !running.isDropped { covered.insert(running.blocks) }
    for block in state.memory.blocks { covered.insert(block..<block + 1) }
    return missing.flatMap { covered.missing(from: $0) }
  }

  private func ask(
    for blocks: Range<Int64>, upTo most: Int64, _ size: Int64, _ state: inout State, _ after: inout After
  ) {
    var first = blocks.lowerBound
    while first < blocks.upperBound {
      let next = min(first + most / Block.size, blocks.upperBound)
      let range = Block.bytes(first..<next, of: size)
      start(range.lowerBound, range.upperBound, &state, &after)
      first = next
    }
  }

  /// Asks for a window's worth in pieces, few enough to be had at once.
  private func askAhead(
    _ range: Range<Int64>, piece: Int64, near: Int64, _ size: Int64, _ state: inout State, _ after: inout After
  ) {
    let piece = max(Self.smallestAhead, min(Self.largestAhead, piece)) / Block.size
    for run in uncovered(Block.covering(range), state) {
      var first = run.lowerBound
      while first < run.upperBound {
        guard state.requests.values.count(where: { !$0.isDropped }) < Self.mostAhead else { return }
        let next = min(first + piece, run.upperBound)
        // A window that moves on a little does not ask for a little each time.
        let bytes = Block.bytes(first..<next, of: size)
        guard next - first == piece || bytes.upperBound == size || bytes.lowerBound < near else { return }
        start(bytes.lowerBound, bytes.upperBound, &state, &after)
        first = next
      }
    }
  }

  /// The first question about a blob whose size nobody knows: the size, unless the answer tells it by the way.
  private func planFirst(_ state: inout State, _ after: inout After) {
    guard state.requests.isEmpty, !state.isAskingSize, !state.waiters.isEmpty || !state.wholes.isEmpty else { return }
    if state.waiters.contains(where: { $0.range.lowerBound < Block.size }) {
      return start(0, Block.size, &state, &after)
    }
    askSize(&state, &after)
  }

  func askSize(_ state: inout State, _ after: inout After) {
    guard !state.isAskingSize else { return }
    state.isAskingSize = true
    after.add {
      self.fetcher.size(of: self.hash, wait: nil) { result in
        self.update { state, after in
          state.isAskingSize = false
          switch result {
          case .success(let size): if self.learn(size, &state, &after) { self.plan(&state, &after) }
          case .failure(let error): self.failAll(error, &state, &after)
          }
        }
        self.fetcher.retire(self)
      }
    }
  }

  /// A host that knows no ranges is read through once, for everybody.
  private func planThrough(_ size: Int64, _ state: inout State, _ after: inout After) {
    let isWanted = { (block: Int64) in state.waiters.contains { Block.covering($0.range).contains(block) } }
    if let running = state.requests.values.first(where: { $0.isWhole && !$0.isDropped }) {
      if running.isPaused, isWaitedFor(behind: running.position, state) {
        state.requests[running.request.id]?.isPaused = false
        let request = running.request
        after.add { request.resume() }
      }
      // What it passed and memory did not keep has to be read again.
      if !running.isKept,
        state.waiters.contains(where: { waiter in
          Block.covering(waiter.range).contains {
            ($0 + 1) * Block.size <= running.position && !state.memory.contains($0) && !state.blocks.contains($0)
          }
        })
      {
        drop(running.request.id, &state)
      }
      return
    }
    // One that is ending goes first: the host would only be asked for the whole twice.
    guard state.requests.isEmpty else { return }
    guard !state.waiters.isEmpty || !state.wholes.isEmpty else { return }
    state.memory.shrink(isWanted: isWanted)
    start(0, size, whole: true, &state, &after)
  }

  /// True when somebody waits for a block that ends behind `position`: one that is half here counts.
  func isWaitedFor(behind position: Int64, _ state: State) -> Bool {
    state.waiters.contains { Block.covering($0.range).upperBound * Block.size > position }
  }

  private func start(
    _ from: Int64, _ end: Int64, whole isWhole: Bool = false, _ state: inout State, _ after: inout After
  ) {
    let now = Monotonic.now
    let isKept: Bool
    var from = from
    // What came of its first block does not come again, where it is kept.
    let prefix = isWhole ? 0 : state.prefix[from / Block.size] ?? 0
    if !state.wholes.isEmpty {
      isKept = fetcher.room.take(end - from - prefix, within: false)
      if !isKept {
        let error = MarfaError.noRoom(size: state.size ?? end, left: fetcher.room.left)
        fetcher.note(hash, .noRoom, error.description)
        for whole in state.wholes { after.add { whole.then(.failure(error)) } }
        state.wholes = []
        if state.waiters.isEmpty { return }
      }
    } else if now < state.servedThroughUntil {
      isKept = false
    } else {
      isKept = fetcher.room.take(end - from - prefix, within: !state.isKept)
      if isKept {
        state.servedThroughUntil = 0
      } else {
        // Something may be let go for it; until then it is served as it comes.
        state.servedThroughUntil = now + fetcher.settings.roomRetry
        fetcher.makeRoom()
      }
    }
    if isKept { from += prefix }
    let request = FetchRequest(id: state.newID(), range: isWhole ? nil : from..<end)
    state.requests[request.id] = Running(
      request: request, position: from, end: end, isKept: isKept, isWhole: isWhole, asked: now,
      promised: isKept ? end - from : 0)
    after.add { self.send(request) }
  }

  private func send(_ request: FetchRequest) {
    guard let source = fetcher.source else {
      _ = handle(.end(.failure(.unreachable("there is no server"))), request)
      return
    }
    request.began(source.bytes(of: hash, range: request.range) { event in self.handle(event, request) })
  }

  /// Ends what nobody waits for and no window holds.
  func dropUnwanted(_ state: inout State) {
    guard state.wholes.isEmpty, let size = state.size else { return }
    for running in state.requests.values
    where running.isPaused || running.end - running.position > Self.worthEnding {
      if running.isWhole && !(state.waiters.isEmpty && state.readers.isEmpty) { continue }
      let range = running.position..<running.end
      if state.waiters.contains(where: { Block.bytes(Block.covering($0.range), of: size).overlaps(range) }) { continue }
      if state.readers.values.contains(where: { $0.covers(range) }) { continue }
      drop(running.request.id, &state)
    }
  }

  // MARK: - Waiting

  /// Why nothing is asked now; `nil` when it may be.
  func refusal(_ state: inout State, patience: Int64? = nil) -> FetchFailure? {
    let now = Monotonic.now
    if let refusal = state.refusal {
      if now < state.retryAt, case .rateLimited = refusal {
        return state.retryAt - now > (patience ?? fetcher.settings.patience) ? refusal : nil
      }
      if now < state.retryAt { return refusal }
      state.refusal = nil
    }
    return fetcher.link.refusal(now)
  }

  /// Has somebody look whether bytes still come.
  func watch(_ state: inout State, _ after: inout After) {
    guard !state.isWatched else { return }
    let now = Monotonic.now
    let moments =
      state.waiters.map { max($0.since, state.lastProgress) + fetcher.settings.patience }
      + state.wholes.map { max($0.since, state.lastProgress) + $0.patience }
    guard let first = moments.min() else { return }
    state.isWatched = true
    after.add { self.fetcher.alarm.at(max(first, now + 10_000_000)) { self.look() } }
  }

  /// Whoever waited long enough without a byte waits no more.
  private func look() {
    update { state, after in
      state.isWatched = false
      guard state.phase == .partial else { return watch(&state, &after) }
      let now = Monotonic.now
      let patience = fetcher.settings.patience
      let failure = FetchFailure.timedOut("no byte came for \(patience / 1_000_000_000) seconds")
      let error = MarfaError.notFetched(hash, failure)
      let progress = state.lastProgress
      let late = state.waiters.filter { max($0.since, progress) + patience <= now }
      let lateWholes = state.wholes.filter { max($0.since, progress) + $0.patience <= now }
      if !late.isEmpty || !lateWholes.isEmpty {
        state.waiters.removeAll { waiter in late.contains { $0.id == waiter.id } }
        state.wholes.removeAll { whole in lateWholes.contains { $0.id == whole.id } }
        for waiter in late { after.add { waiter.then(.failure(error)) } }
        for whole in lateWholes { after.add { whole.then(.failure(error)) } }
        // They bring nothing. Whoever comes next has them asked again.
        for running in state.requests.values where max(running.asked, progress) + patience <= now {
          drop(running.request.id, &state)
        }
        fetcher.note(hash, failure.reason, "\(failure)")
        fetcher.link.failed(failure, now)
        after.add { self.fetcher.retire(self) }
      }
      watch(&state, &after)
    }
  }

  /// Goes on at `state.retryAt`.
  func planLater(_ state: inout State, _ after: inout After) {
    let moment = state.retryAt
    guard state.plannedAt != moment else { return }
    state.plannedAt = moment
    after.add {
      self.fetcher.alarm.at(moment) {
        self.update { state, after in self.plan(&state, &after) }
      }
    }
  }
}
