/// How far a fetch of the attachments is.
public struct KeptProgress: Sendable, Equatable {
  /// Files that were missing when it began, and the bytes those state.
  public var files: Int
  public var bytes: Int64
  /// Files fetched by now, and their bytes.
  public var fetched: Int
  public var fetchedBytes: Int64
}

/// A fetch of the attachments that is under way (``Blobs/fetchKept(progress:then:)``).
public final class KeptFetchRun: Sendable {
  /// The longest wait of a server's that is waited out, in nanoseconds.
  private static let longestWait: Int64 = 60_000_000_000
  /// Files at once: small ones cost a round trip each.
  private static let atOnce = 4

  private struct State {
    var left: [(hash: BlobHash, size: Int64?)] = []
    var running: [BlobHash: WholeFetch] = [:]
    var progress = KeptProgress(files: 0, bytes: 0, fetched: 0, fetchedBytes: 0)
    /// Why no more are begun: what those that are left are said not to be here for.
    var stop: (reason: NotHeldReason, words: String)?
    var isCanceled = false
    var isOver = false
  }
  private let state = Lock<State>(.leaf, State())
  private let copy: WorkingCopy
  private let progress: (@Sendable (KeptProgress) -> Void)?
  private let then: @Sendable (Result<KeptFetch, MarfaError>) -> Void

  init(
    _ copy: WorkingCopy, progress: (@Sendable (KeptProgress) -> Void)?,
    then: @escaping @Sendable (Result<KeptFetch, MarfaError>) -> Void
  ) {
    self.copy = copy
    self.progress = progress
    self.then = then
  }

  /// Stops it. What was fetched stays.
  public func cancel() {
    let running = state.withLock { state in
      state.isCanceled = true
      return Array(state.running.values)
    }
    for fetch in running { fetch.cancel() }
  }

  func begin() {
    guard !copy.isReader else { return then(.failure(.readingHandle)) }
    guard copy.blobs.canFetch else { return then(.failure(.noServer)) }
    if !copy.fetcher.queue.post({ self.list() }) { then(.failure(.canceled)) }
  }

  private func list() {
    do throws(MarfaError) {
      let missing = try copy.store.read { (connection) throws(MarfaError) in try connection.keptMissing() }
      let progress = state.withLock { state in
        state.left = missing.reversed()
        state.progress.files = missing.count
        state.progress.bytes = missing.reduce(0) { $0 + ($1.size ?? 0) }
        return state.progress
      }
      self.progress?(progress)
      goOn()
    } catch {
      then(.failure(error))
    }
  }

  private func goOn() {
    while true {
      enum Step {
        case fetch(BlobHash)
        case wait
        case end
      }
      let step = state.withLock { state -> Step in
        if state.isOver { return .wait }
        let isStopped = state.stop != nil || state.isCanceled
        if !isStopped, state.running.count < KeptFetchRun.atOnce, let next = state.left.popLast() {
          state.running[next.hash] = WholeFetch()
          return .fetch(next.hash)
        }
        guard state.running.isEmpty else { return .wait }
        state.isOver = true
        return .end
      }
      switch step {
      case .wait: return
      case .end: return end()
      case .fetch(let hash):
        let fetch = copy.fetcher.whole(hash, patience: KeptFetchRun.longestWait) { result in
          self.fetched(hash, result)
        }
        let isCanceled = state.withLock { state in
          // It may be over already.
          if state.running[hash] != nil { state.running[hash] = fetch }
          return state.isCanceled || state.stop != nil
        }
        if isCanceled { fetch.cancel() }
      }
    }
  }

  private func fetched(_ hash: BlobHash, _ result: Result<Void, MarfaError>) {
    let size = (try? copy.blobs.size(hash)) ?? nil
    let (progress, ends) = state.withLock { state -> (KeptProgress, [WholeFetch]) in
      state.running[hash] = nil
      var ends: [WholeFetch] = []
      switch result {
      case .success:
        state.progress.fetched += 1
        state.progress.fetchedBytes += size ?? 0
      case .failure(let error):
        let stop = KeptFetchRun.stop(for: error)
        if state.stop == nil, let stop {
          state.stop = stop
          ends = Array(state.running.values)
        }
        // One that was ended for another's sake is not here for the same reason.
        if error == .canceled || stop != nil { state.left.append((hash, size)) }
      }
      return (state.progress, ends)
    }
    for fetch in ends { fetch.cancel() }
    self.progress?(progress)
    goOn()
  }

  /// The failures after which the next file would fare no better.
  private static func stop(for error: MarfaError) -> (reason: NotHeldReason, words: String)? {
    switch error {
    case .noRoom: (.noRoom, error.description)
    case .notFetched(_, let failure) where failure.reason == .unreachable || failure.reason == .rateLimited:
      (failure.reason, "\(failure)")
    default: nil
    }
  }

  private func end() {
    let (progress, left, stop, isCanceled) = state.withLock { ($0.progress, $0.left, $0.stop, $0.isCanceled) }
    if let stop {
      for file in left { copy.fetcher.note(file.hash, stop.reason, stop.words) }
    }
    copy.fetcher.flushPending()
    if isCanceled { return then(.failure(.canceled)) }
    do throws(MarfaError) {
      then(
        .success(
          KeptFetch(
            fetched: progress.fetched, bytes: progress.fetchedBytes, attachments: try copy.blobs.cache().attachments)))
    } catch {
      then(.failure(error))
    }
  }
}
