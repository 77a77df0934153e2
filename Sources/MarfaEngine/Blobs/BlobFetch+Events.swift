import Glibc

/// What comes.
extension BlobFetch {
  /// How often a request that brings nothing is made again.
  private static let mostFailures = 3
  /// No blob is larger: a host that says so is not believed.
  static let largestSize: Int64 = 1 << 44

  /// Takes an event of a transfer, on the source's thread.
  func handle(_ event: BytesEvent, _ request: FetchRequest) -> BytesFlow {
    switch event {
    case .head(let total, let offset, let ignoresRange):
      return update { state, after in
        head(total, offset, ignoresRange, request, &state, &after)
      }
    case .bytes(let bytes): return take(bytes, request)
    case .end(let result):
      update { state, after in end(result, request, &state, &after) }
      fetcher.retire(self)
      return .stop
    }
  }

  // MARK: - The head

  private func head(
    _ total: Int64?, _ offset: Int64, _ ignoresRange: Bool, _ request: FetchRequest, _ state: inout State,
    _ after: inout After
  ) -> BytesFlow {
    guard var running = state.requests[request.id], !running.isDropped, state.phase == .partial else { return .stop }
    let now = Monotonic.now
    fetcher.link.worked()
    state.delay = now - running.asked
    running.hasHead = true
    let isFirst = state.size == nil
    if let total {
      guard learn(total, &state, &after) else { return .stop }
    }
    guard let size = state.size else {
      // It does not say how long it is: that is asked for, and then for these bytes again.
      drop(request.id, &state)
      askSize(&state, &after)
      return .stop
    }
    if ignoresRange {
      guard offset == 0 else {
        refuse(.failed("the host answers with other bytes than were asked for"), &state, &after)
        return .stop
      }
      state.ignoresRanges = true
      // One of them is read through, for all.
      if state.requests.values.contains(where: { $0.request.id != request.id && $0.isWhole && !$0.isDropped }) {
        drop(request.id, &state)
        return .stop
      }
      for other in state.requests.keys where other != request.id { drop(other, &state) }
      let promised = running.isKept ? size - (running.end - running.position) : 0
      if promised > 0 { fetcher.room.promise(promised) }
      state.requests[request.id] = Running(
        request: running.request, position: 0, end: size, isKept: running.isKept, isWhole: true, asked: running.asked,
        hasHead: true, promised: running.promised + max(0, promised))
      return .goOn
    }
    guard offset == running.position else {
      refuse(.failed("the host answers with other bytes than were asked for"), &state, &after)
      return .stop
    }
    if running.end > size {
      fetcher.room.give(min(running.promised, running.end - size))
      running.promised -= min(running.promised, running.end - size)
      running.end = size
    }
    state.requests[request.id] = running
    if isFirst { plan(&state, &after) }
    return .goOn
  }

  /// A size is said. False when it can't be so: nothing of this blob is believed then.
  func learn(_ total: Int64, _ state: inout State, _ after: inout After) -> Bool {
    if let size = state.size {
      if size == total { return true }
      refuse(.failed("the server says \(total) bytes where \(size) are known"), &state, &after)
      return false
    }
    guard total > 0, total <= BlobFetch.largestSize else {
      refuse(.failed("the server says that there are \(total) bytes"), &state, &after)
      return false
    }
    state.size = total
    let hash = hash
    after.add { [fetcher] in fetcher.learnt(hash, total) }
    var left: [Waiter] = []
    for var waiter in state.waiters {
      waiter.range = waiter.range.clamped(to: 0..<total)
      if waiter.range.isEmpty {
        let then = waiter.then
        after.add { then(.success(.bytes([]))) }
      } else {
        left.append(waiter)
      }
    }
    state.waiters = left
    return true
  }

  /// It can't be had, for a reason that asking again at once does not mend.
  private func refuse(_ failure: FetchFailure, _ state: inout State, _ after: inout After) {
    state.refusal = failure
    state.retryAt = Monotonic.now + fetcher.settings.refusalHolds
    state.failures = 0
    fetcher.note(hash, failure.reason, "\(failure)")
    failAll(.notFetched(hash, failure), &state, &after)
  }

  // MARK: - Bytes

  private func take(_ bytes: UnsafeRawBufferPointer, _ request: FetchRequest) -> BytesFlow {
    enum Step {
      case stop
      case skip
      case write(Descriptor, at: Int64, count: Int)
      case remember(count: Int)
    }
    let step = state.withLock { state -> Step in
      guard state.phase == .partial, let size = state.size, let running = state.requests[request.id],
        !running.isDropped
      else { return .stop }
      let count = min(Int64(bytes.count), running.end - running.position)
      guard count > 0 else { return .stop }
      let blocks = Block.covering(running.position..<running.position + count)
      if state.blocks.contains(blocks) { return .skip }
      guard running.isKept else { return .remember(count: Int(count)) }
      if state.file == nil { state.file = makeFile(size) }
      guard let file = state.file else {
        state.servedThroughUntil = Monotonic.now + fetcher.settings.roomRetry
        drop(request.id, &state)
        return .stop
      }
      return .write(file, at: running.position, count: Int(count))
    }
    switch step {
    case .stop: return .stop
    case .write(let file, let offset, let count):
      do throws(Errno) {
        try file.write(UnsafeRawBufferPointer(rebasing: bytes[..<count]), at: offset)
      } catch {
        Log.warning("no more of \(hash) is kept: \(error)")
        state.withLock { state in
          state.servedThroughUntil = Monotonic.now + fetcher.settings.roomRetry
          drop(request.id, &state)
        }
        fetcher.makeRoom()
        return .stop
      }
    case .skip, .remember: break
    }
    return update { state, after in
      guard state.phase == .partial, let size = state.size, var running = state.requests[request.id] else {
        return .stop
      }
      let count = min(Int64(bytes.count), running.end - running.position)
      let range = running.position..<running.position + count
      running.position = range.upperBound
      let isNew: Bool
      switch step {
      case .write: isNew = wrote(range, size, &state, &after)
      case .remember: isNew = remember(range, bytes, size, &state)
      case .skip, .stop: isNew = false
      }
      if running.promised > 0 {
        let given = min(running.promised, count)
        running.promised -= given
        fetcher.room.give(given)
      }
      if isNew || !running.isWhole {
        running.received += count
        progressed(count, &state, &after)
      }
      state.requests[request.id] = running
      serve(&state, &after)
      // Its end comes by itself: a transfer that is stopped takes its connection with it.
      if running.position >= running.end { return .goOn }
      if running.isWhole && !running.isKept && state.memory.isFull
        && !isWaitedFor(behind: running.position, state)
      {
        // Nobody may come to have it go on.
        if state.readers.isEmpty && state.wholes.isEmpty {
          drop(request.id, &state)
          return .stop
        }
        state.requests[request.id]?.isPaused = true
        return .pause
      }
      return .goOn
    }
  }

  /// Bytes are in the file. True when some of them were not before.
  private func wrote(_ range: Range<Int64>, _ size: Int64, _ state: inout State, _ after: inout After) -> Bool {
    var isNew = false
    for block in Block.covering(range) where !state.blocks.contains(block) {
      let bytes = Block.bytes(block..<block + 1, of: size)
      let part = range.clamped(to: bytes)
      // Only what goes on where the last of this block ended says anything of its beginning.
      let known = bytes.lowerBound + (state.prefix[block] ?? 0)
      guard known >= part.lowerBound, part.upperBound > known else { continue }
      isNew = true
      guard part.upperBound >= bytes.upperBound else {
        state.prefix[block] = part.upperBound - bytes.lowerBound
        continue
      }
      state.prefix[block] = nil
      state.blocks.insert(block..<block + 1)
      state.unrecorded += Int64(bytes.count)
      if !state.isKept {
        state.counted += Int64(bytes.count)
        fetcher.room.count(Int64(bytes.count))
      }
    }
    if isNew {
      if state.blocks.contains(Block.covering(0..<size)) {
        complete(&state, &after)
      } else {
        flushSoon(&state, &after)
        hashSoon(size, &state, &after)
      }
    }
    return isNew
  }

  /// Bytes that are not kept.
  private func remember(_ range: Range<Int64>, _ bytes: UnsafeRawBufferPointer, _ size: Int64, _ state: inout State)
    -> Bool
  {
    var isNew = false
    for block in Block.covering(range) where !state.blocks.contains(block) && !state.memory.contains(block) {
      let whole = Block.bytes(block..<block + 1, of: size)
      let part = range.clamped(to: whole)
      let slice = UnsafeRawBufferPointer(
        rebasing: bytes[Int(part.lowerBound - range.lowerBound)..<Int(part.upperBound - range.lowerBound)])
      isNew = true
      _ = state.memory.append(slice, to: block, at: part.lowerBound - whole.lowerBound, size: Int64(whole.count))
    }
    let waiters = state.waiters
    state.memory.shrink { block in waiters.contains { Block.covering($0.range).contains(block) } }
    return isNew
  }

  private func progressed(_ count: Int64, _ state: inout State, _ after: inout After) {
    let now = Monotonic.now
    state.lastProgress = now
    state.lastByte = now
    state.failures = 0
    state.refusal = nil
    state.rateBytes += count
    let span = now - state.rateSince
    if span > 2_000_000_000 {
      // After a pause it begins anew.
      state.rateSince = now
      state.rateBytes = 0
    } else if span > 100_000_000 {
      let rate = Double(state.rateBytes) * 1e9 / Double(span)
      state.rate = state.rate == 0 ? rate : max(rate, (state.rate + rate) / 2)
      state.rateSince = now
      state.rateBytes = 0
    }
    guard now - state.toldAt > 50_000_000 else { return }
    for whole in state.wholes {
      guard let progress = whole.progress, let size = state.size else { continue }
      let bytes = state.blocks.bytes(of: size)
      state.toldAt = now
      after.add { progress(bytes) }
    }
  }

  private func makeFile(_ size: Int64) -> Descriptor? {
    do throws(Errno) {
      return try fetcher.files.makePartial(hash, size: size)
    } catch {
      Log.warning("\(fetcher.files.partial(hash)) can't be made: \(error)")
      return nil
    }
  }

  // MARK: - The end

  private func end(
    _ result: Result<Void, BytesFailure>, _ request: FetchRequest, _ state: inout State, _ after: inout After
  ) {
    guard let running = state.requests.removeValue(forKey: request.id) else { return }
    if running.promised > 0 { fetcher.room.give(running.promised) }
    if state.phase == .partial {
      if running.position < running.end && !running.isDropped { fell(short: result, running, &state, &after) }
      plan(&state, &after)
      // Whoever it came for has gone already, and nobody else may come to have it recorded.
      if state.readers.isEmpty && state.wholes.isEmpty { flushSoon(&state, &after, now: true) }
    }
  }

  /// Not all came. What came is kept, and the rest asked for again, a few times.
  private func fell(
    short result: Result<Void, BytesFailure>, _ running: Running, _ state: inout State, _ after: inout After
  ) {
    let now = Monotonic.now
    let failure: FetchFailure
    switch result {
    case .success:
      failure = .unreachable("it stopped \(running.end - running.position) bytes short")
    case .failure(.canceled): return
    case .failure(.absent): return refuse(.absent, &state, &after)
    case .failure(.credentialRefused(let words)): return refuse(.credentialRefused(words), &state, &after)
    case .failure(.rateLimited(let seconds)): return rateLimited(seconds, &state, &after)
    case .failure(.unreachable(let words)): failure = .unreachable(words)
    case .failure(.timedOut(let words)): failure = .timedOut(words)
    case .failure(.stopped(let words)): failure = .unreachable("it stopped part way: \(words)")
    case .failure(.failed(let words)): failure = .failed(words)
    }
    guard running.received == 0 else { return }
    state.failures += 1
    switch result {
    case .failure(.unreachable), .failure(.timedOut): fetcher.link.failed(failure, now)
    default: break
    }
    if state.failures >= BlobFetch.mostFailures {
      state.failures = 0
      // Others fail at once for a while, then one asks again.
      if failure.reason == .unreachable { fetcher.link.failed(failure, now) }
      fetcher.note(hash, failure.reason, "\(failure)")
      return failAll(.notFetched(hash, failure), &state, &after)
    }
    state.retryAt = now + fetcher.settings.retryDelay * Int64(1 << (2 * (state.failures - 1)))
    planLater(&state, &after)
  }

  private func rateLimited(_ seconds: Int?, _ state: inout State, _ after: inout After) {
    let now = Monotonic.now
    // An hour is as good as never.
    let wait = Int64(max(1, min(seconds ?? 1, 3600))) * fetcher.settings.second
    let failure = FetchFailure.rateLimited(seconds: seconds)
    state.refusal = failure
    state.retryAt = max(state.retryAt, now + wait)
    let retryAt = state.retryAt
    let patience = fetcher.settings.patience
    let error = MarfaError.notFetched(hash, failure)
    // Who has waited that long already, asked to wait again and again, waits no more.
    let lastByte = state.lastByte
    let late = state.waiters.filter { now + patience < retryAt || max($0.since, lastByte) + patience <= now }
    let lateWholes = state.wholes.filter { now + $0.patience < retryAt || max($0.since, lastByte) + $0.patience <= now }
    state.waiters.removeAll { waiter in late.contains { $0.id == waiter.id } }
    state.wholes.removeAll { whole in lateWholes.contains { $0.id == whole.id } }
    if !late.isEmpty || !lateWholes.isEmpty { fetcher.note(hash, .rateLimited, "\(failure)") }
    for waiter in late { after.add { waiter.then(.failure(error)) } }
    for whole in lateWholes { after.add { whole.then(.failure(error)) } }
    // Waiting as it was asked to is no lack of progress.
    state.lastProgress = now
    if !state.waiters.isEmpty || !state.wholes.isEmpty {
      state.lastProgress = retryAt
      planLater(&state, &after)
    }
  }
}
