import Glibc

/// One blob that is not here whole and is being read or fetched: which blocks are in, what is asked for, who waits.
///
/// A state machine under one lock. What it decides to do outside, asking the source, answering a reader, writing to the
/// store, is collected in an ``After`` and done once the lock is free.
final class BlobFetch: Sendable {
  let hash: BlobHash
  let fetcher: Fetcher
  let state: Lock<State>
  /// What has been hashed of the beginning.
  let digest = Lock<Digest>(.digest, Digest())

  struct Digest {
    var sha: SHA256?
    var done: Int64 = 0
  }

  /// What to do when the lock is free.
  struct After {
    private(set) var jobs: [@Sendable () -> Void] = []
    mutating func add(_ job: @escaping @Sendable () -> Void) { jobs.append(job) }
    func run() { for job in jobs { job() } }
  }

  enum Phase: Sendable, Equatable {
    /// Some of it is not here.
    case partial
    /// All of it is here and is being hashed.
    case verifying
    /// It is under `held/`.
    case held
    /// What came does not hash to its name. Nobody who had it open is served again.
    case spoiled
    /// The working copy is closed.
    case closed
  }

  /// A read that waits for its bytes.
  struct Waiter: Sendable {
    let id: Int
    var range: Range<Int64>
    let since: Int64
    let then: @Sendable (Result<RangeBytes, MarfaError>) -> Void
  }

  /// Somebody who wants the whole held.
  struct Whole: Sendable {
    let id: Int
    let since: Int64
    /// How long without a byte before it gives up, in nanoseconds.
    let patience: Int64
    let progress: (@Sendable (Int64) -> Void)?
    let then: @Sendable (Result<Void, MarfaError>) -> Void
  }

  /// A transfer under way.
  struct Running: Sendable {
    let request: FetchRequest
    /// The next byte of the blob that comes.
    var position: Int64
    var end: Int64
    /// Its bytes go to the file; otherwise they are served from memory and not kept.
    let isKept: Bool
    let isWhole: Bool
    let asked: Int64
    var hasHead = false
    var isPaused = false
    /// Nothing of it is wanted any more; its end is still to come.
    var isDropped = false
    /// Bytes that were new.
    var received: Int64 = 0
    /// Reserved on the volume and not written yet.
    var promised: Int64

    var blocks: Range<Int64> { Block.covering(position..<max(position, end)) }
  }

  struct State {
    var phase = Phase.partial
    var size: Int64?
    var file: Descriptor?
    /// Blocks in the file.
    var blocks = BlockSet()
    /// Of blocks that are coming or were left half way: how many bytes from their beginning are in the file.
    var prefix: [Int64: Int64] = [:]
    var memory = MemoryBlocks()
    /// Bytes in the file that the store does not know of.
    var unrecorded: Int64 = 0
    var isFlushing = false
    var isFlushDue = false
    /// It is outside the budget.
    let isKept: Bool
    /// Counted by the fetcher as open bytes within the budget.
    var counted: Int64 = 0

    var requests: [Int: Running] = [:]
    var waiters: [Waiter] = []
    var readers: [Int: ReadStreams] = [:]
    var wholes: [Whole] = []
    var lastID = 0
    /// The fetcher knows it no more.
    var isRetired = false

    /// Failures since the last byte that came.
    var failures = 0
    /// Nothing is asked before this moment.
    var retryAt: Int64 = 0
    /// The last such moment somebody was set to go on at.
    var plannedAt: Int64 = 0
    /// Why reads that find nothing here fail at once until ``retryAt``.
    var refusal: FetchFailure?
    /// When something came last, or a wait that was asked for ended.
    var lastProgress: Int64 = 0
    var lastByte: Int64 = 0
    var ignoresRanges = false
    var isAskingSize = false
    /// Nothing more is kept until this moment: reads are served from memory.
    var servedThroughUntil: Int64 = 0
    var isWatched = false
    /// Bytes a second, and nanoseconds to the first byte, as seen last.
    var rate: Double = 0
    var rateSince: Int64 = 0
    var rateBytes: Int64 = 0
    var delay: Int64 = 0
    /// Bytes in order from the beginning that the hasher was told of.
    var hashTold: Int64 = 0
    var isHashing = false
    /// When those who want the whole were last told how far it is.
    var toldAt: Int64 = 0

    mutating func newID() -> Int {
      lastID += 1
      return lastID
    }

    var isIdle: Bool {
      readers.isEmpty && waiters.isEmpty && wholes.isEmpty && requests.isEmpty && !isFlushing && unrecorded == 0
        && !isAskingSize && !isHashing && phase != .verifying
    }
  }

  init(_ hash: BlobHash, fetcher: Fetcher, size: Int64?, partial: (file: Descriptor, row: PartialRow)?, isKept: Bool) {
    self.hash = hash
    self.fetcher = fetcher
    var state = State(isKept: isKept)
    state.size = size
    if let partial {
      state.size = partial.row.size
      state.file = partial.file
      state.blocks = partial.row.blocks
      if !isKept {
        state.counted = partial.row.bytes
        fetcher.room.count(partial.row.bytes)
      }
    }
    self.state = Lock(.fetch, state)
  }

  /// Runs `body` under the lock, then what it decided.
  func update<T>(_ body: (inout State, inout After) -> T) -> T {
    var after = After()
    let result = state.withLock { body(&$0, &after) }
    after.run()
    return result
  }

  // MARK: - Readers

  func addReader() -> Int {
    state.withLock { state in
      let id = state.newID()
      state.readers[id] = ReadStreams()
      return id
    }
  }

  func removeReader(_ id: Int) {
    update { state, after in
      state.readers[id] = nil
      dropUnwanted(&state)
      if state.readers.isEmpty && state.unrecorded > 0 { flushSoon(&state, &after, now: true) }
    }
    fetcher.retire(self)
  }

  func read(
    _ reader: Int, at offset: Int64, count: Int, then: @escaping @Sendable (Result<RangeBytes, MarfaError>) -> Void
  ) -> RangeWait? {
    enum Outcome {
      case answer(Result<RangeBytes, MarfaError>)
      case waits(Int)
    }
    let outcome = update { state, after -> Outcome in
      switch state.phase {
      case .spoiled: return .answer(.failure(.notFetched(hash, .wrongBytes)))
      case .closed: return .answer(.failure(.canceled))
      case .partial, .verifying, .held: break
      }
      // A sum out of range is behind every end.
      let (sum, overflows) = offset.addingReportingOverflow(Int64(count))
      let wanted = offset..<(overflows ? Int64.max : sum)
      let range = state.size.map { wanted.clamped(to: 0..<$0) } ?? wanted
      if range.isEmpty { return .answer(.success(.bytes([]))) }
      note(range, of: reader, &state)
      if state.phase != .verifying, let bytes = available(range, state) {
        if state.phase == .partial { plan(&state, &after) }
        return .answer(bytes)
      }
      if state.phase == .partial, let failure = refusal(&state) {
        return .answer(.failure(.notFetched(hash, failure)))
      }
      let id = state.newID()
      state.waiters.append(Waiter(id: id, range: range, since: Monotonic.now, then: then))
      watch(&state, &after)
      plan(&state, &after)
      return .waits(id)
    }
    switch outcome {
    case .answer(let answer):
      then(answer)
      return nil
    case .waits(let id): return RangeWait(fetch: self, id: id)
    }
  }

  func cancel(waiter id: Int) {
    let then = update { state, _ -> Waiter? in
      guard let index = state.waiters.firstIndex(where: { $0.id == id }) else { return nil }
      let waiter = state.waiters.remove(at: index)
      dropUnwanted(&state)
      return waiter
    }
    then?.then(.failure(.canceled))
    if then != nil { fetcher.retire(self) }
  }

  /// Has the whole fetched, verified and held. `then` is called exactly once.
  func fetchWhole(
    patience: Int64, progress: (@Sendable (Int64) -> Void)?,
    then: @escaping @Sendable (Result<Void, MarfaError>) -> Void
  ) -> Int? {
    enum Outcome {
      case answer(Result<Void, MarfaError>)
      case waits(Int)
    }
    let outcome = update { state, after -> Outcome in
      switch state.phase {
      case .held: return .answer(.success(()))
      case .spoiled: return .answer(.failure(.notFetched(hash, .wrongBytes)))
      case .closed: return .answer(.failure(.canceled))
      case .partial, .verifying: break
      }
      if state.phase == .partial, let failure = refusal(&state, patience: patience) {
        return .answer(.failure(.notFetched(hash, failure)))
      }
      let id = state.newID()
      state.wholes.append(Whole(id: id, since: Monotonic.now, patience: patience, progress: progress, then: then))
      watch(&state, &after)
      plan(&state, &after)
      return .waits(id)
    }
    switch outcome {
    case .answer(let answer):
      then(answer)
      fetcher.retire(self)
      return nil
    case .waits(let id): return id
    }
  }

  func cancel(whole id: Int) {
    let whole = update { state, _ -> Whole? in
      guard let index = state.wholes.firstIndex(where: { $0.id == id }) else { return nil }
      let whole = state.wholes.remove(at: index)
      dropUnwanted(&state)
      return whole
    }
    whole?.then(.failure(.canceled))
    if whole != nil { fetcher.retire(self) }
  }

  /// Bytes of it that are here.
  var bytesHere: Int64 {
    state.withLock { state in
      guard let size = state.size else { return 0 }
      return state.phase == .held ? size : state.phase == .spoiled ? 0 : state.blocks.bytes(of: size)
    }
  }

  // MARK: - What is here

  private func note(_ range: Range<Int64>, of reader: Int, _ state: inout State) {
    guard var streams = state.readers[reader] else { return }
    let blocks = state.blocks
    let size = state.size ?? .max
    let isSeek = streams.note(range, most: mostAhead(state)) { offset in
      offset < size && !blocks.contains(offset / Block.size)
    }
    state.readers[reader] = streams
    if isSeek { dropUnwanted(&state) }
  }

  /// As much as the link brings in a second, or in four of its round trips when those are long.
  private func mostAhead(_ state: State) -> Int64 {
    if state.servedThroughUntil > 0 { return 1 << 20 }
    let seconds = max(1, Double(state.delay) * 4e-9)
    return max(1 << 20, min(ReadStreams.largestWindow, Int64(min(state.rate * seconds, 1e12))))
  }

  /// A range's bytes when they are all here.
  func available(_ range: Range<Int64>, _ state: State) -> Result<RangeBytes, MarfaError>? {
    let blocks = Block.covering(range)
    if state.phase == .held || state.blocks.contains(blocks) {
      guard let file = state.file else { return .failure(.io(.io, "the file of \(hash)")) }
      return .success(.file(file, count: range.count))
    }
    guard let size = state.size else { return nil }
    var isInFile = true
    for block in blocks where !state.blocks.contains(block) {
      if state.memory.contains(block) {
        isInFile = false
        continue
      }
      // What came of a block is served as it is, unless the block is the whole, which is verified at once.
      guard size > Block.size, let prefix = state.prefix[block],
        block * Block.size + prefix >= min(range.upperBound, (block + 1) * Block.size)
      else { return nil }
    }
    if isInFile, let file = state.file { return .success(.file(file, count: range.count)) }
    return Result { () throws(MarfaError) in .bytes(try assemble(range, state)) }
  }

  private func assemble(_ range: Range<Int64>, _ state: State) throws(MarfaError) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: range.count)
    for block in Block.covering(range) {
      let part = (block * Block.size..<(block + 1) * Block.size).clamped(to: range)
      let target = Int(part.lowerBound - range.lowerBound)..<Int(part.upperBound - range.lowerBound)
      if let memory = state.memory[block] {
        let offset = Int(part.lowerBound - block * Block.size)
        guard offset + part.count <= memory.count else { throw .io(.io, "a block of \(hash) is short") }
        bytes.replaceSubrange(target, with: memory[offset..<offset + part.count])
        continue
      }
      guard let file = state.file else { throw .io(.io, "the file of \(hash)") }
      let result: Result<Int, Errno> = bytes.withUnsafeMutableBytes { buffer in
        Result { () throws(Errno) in
          try file.read(into: UnsafeMutableRawBufferPointer(rebasing: buffer[target]), at: part.lowerBound)
        }
      }
      do throws(Errno) {
        guard try result.get() == part.count else { throw .io }
      } catch {
        throw .io(error, "the file of \(hash)")
      }
    }
    return bytes
  }

  /// Answers everybody whose bytes are in.
  func serve(_ state: inout State, _ after: inout After) {
    guard !state.waiters.isEmpty, state.phase != .verifying else { return }
    var left: [Waiter] = []
    for waiter in state.waiters {
      if let answer = available(waiter.range, state) {
        after.add { waiter.then(answer) }
      } else {
        left.append(waiter)
      }
    }
    state.waiters = left
  }

  /// Nobody gets what they wait for.
  func failAll(_ error: MarfaError, _ state: inout State, _ after: inout After) {
    for waiter in state.waiters { after.add { waiter.then(.failure(error)) } }
    for whole in state.wholes { after.add { whole.then(.failure(error)) } }
    state.waiters = []
    state.wholes = []
    for id in state.requests.keys { drop(id, &state) }
    after.add { self.fetcher.retire(self) }
  }

  /// Ends a transfer early. Its end still comes, and says nothing.
  func drop(_ id: Int, _ state: inout State) {
    guard let running = state.requests[id], !running.isDropped else { return }
    state.requests[id]?.isDropped = true
    running.request.cancel()
  }
}
