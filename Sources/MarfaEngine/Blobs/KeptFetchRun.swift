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
  /// Files at once: small ones cost a round trip each.
  private static let atOnce = 4

  private struct State {
    var left: [(hash: BlobHash, size: Int64?)] = []
    var running: [BlobHash: (place: Int, fetch: WholeFetch)] = [:]
    var begun = 0
    var progress = KeptProgress(files: 0, bytes: 0, fetched: 0, fetchedBytes: 0)
    /// Why no more are begun.
    var stop: Stop?
    var isCanceled = false
    var isOver = false
  }
  /// What ended it early: why, which is what is said of those that are left, and which file it was.
  private struct Stop {
    var reason: NotHeldReason
    var words: String
    var place: Int

    /// Whether it ends the fetch of the file at a place that is under way. One that no room was found for says nothing of
    /// those begun before it: they are smaller.
    func ends(_ place: Int) -> Bool { reason != .noRoom || place > self.place }
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
      return state.running.values.map(\.fetch)
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
          state.begun += 1
          state.running[next.hash] = (state.begun, WholeFetch())
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
        let fetch = copy.fetcher.whole(hash, patience: copy.fetcher.settings.keptPatience) { result in
          self.fetched(hash, result)
        }
        let isCanceled = state.withLock { state in
          // It may be over already.
          state.running[hash]?.fetch = fetch
          return state.isCanceled || state.stop.map { $0.ends(state.running[hash]?.place ?? 0) } ?? false
        }
        if isCanceled { fetch.cancel() }
      }
    }
  }

  private func fetched(_ hash: BlobHash, _ result: Result<Void, MarfaError>) {
    let size = (try? copy.blobs.size(hash)) ?? nil
    let (progress, own, ends) = state.withLock { state -> (KeptProgress, Stop?, [WholeFetch]) in
      let place = state.running.removeValue(forKey: hash)?.place ?? 0
      var ends: [WholeFetch] = []
      var own: Stop?
      switch result {
      case .success:
        state.progress.fetched += 1
        state.progress.fetchedBytes += size ?? 0
      case .failure(let error):
        own = KeptFetchRun.stop(for: error, at: place)
        if state.stop == nil, let own {
          state.stop = own
          ends = state.running.values.filter { own.ends($0.place) }.map(\.fetch)
        }
        // One that was ended for another's sake is not here for the same reason.
        if error == .canceled { state.left.append((hash, size)) }
      }
      return (state.progress, own, ends)
    }
    if let own { copy.fetcher.note(hash, own.reason, own.words) }
    for fetch in ends { fetch.cancel() }
    self.progress?(progress)
    goOn()
  }

  /// The failures after which the next file would fare no better.
  private static func stop(for error: MarfaError, at place: Int) -> Stop? {
    switch error {
    case .noRoom: Stop(reason: .noRoom, words: error.description, place: place)
    case .notFetched(_, let failure) where failure.reason == .unreachable || failure.reason == .rateLimited:
      Stop(reason: failure.reason, words: "\(failure)", place: place)
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
