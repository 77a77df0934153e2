import MarfaEngine

/// A fetch that a command asks for.
final class FetchJob: Sendable {
  /// Files at once.
  private static let atOnce = 4

  /// A file to be fetched.
  struct File: Sendable {
    var hash: BlobHash
    var size: Int64?
  }

  private struct State {
    var left: [File] = []
    var running = 0
    var isCanceled = false
    /// What is under way, to be cancelled.
    var fetches: [BlobHash: WholeFetch] = [:]
    var kept: KeptFetchRun?
    /// Bytes here of those under way.
    var partial: [BlobHash: Int64] = [:]
    var files = 0
    var bytes: Int64 = 0
    var fetched = 0
    var fetchedBytes: Int64 = 0
    var failed = 0
    /// Of those that failed: the budget does not keep them.
    var notKept = 0
    /// Fetched, and to be looked at in the end: do they stay?
    var done: [File] = []
    var isEnding = false
    var failure: CommandFailure?
    /// Why files did not come, by a word for it: in the order they came up.
    var reasons: [(code: String, words: String, files: Int)] = []
    var isOver = false

    mutating func add(_ code: String, _ words: String, files: Int = 1) {
      if let place = reasons.firstIndex(where: { $0.code == code }) {
        reasons[place].files += files
      } else {
        reasons.append((code, words, files))
      }
    }

    mutating func add(_ error: MarfaError) {
      // The bytes' hash is no reason.
      if case .notFetched(_, let why) = error { return add(CommandFailure(error).code, "\(why)") }
      add(CommandFailure(error).code, "\(error)")
    }
  }
  private let state = Lock<State>(.leaf, State())
  private let over = Monitor(false)
  private let blobs: Blobs

  /// Fetches these.
  init(_ files: [File], _ blobs: Blobs) {
    self.blobs = blobs
    state.withLock { state in
      state.left = files.reversed()
      state.files = files.count
      state.bytes = files.reduce(0) { $0 + ($1.size ?? 0) }
    }
    for _ in 0..<Self.atOnce { next() }
  }

  /// Fetches every attachment that is not here.
  init(keptOf blobs: Blobs) {
    self.blobs = blobs
    let run = blobs.fetchKept(
      progress: { progress in
        self.state.withLock { state in
          state.files = progress.files
          state.bytes = progress.bytes
          state.fetched = progress.fetched
          state.fetchedBytes = progress.fetchedBytes
        }
      },
      then: { result in
        self.state.withLock { state in
          state.isOver = true
          switch result {
          case .success(let fetch):
            state.fetched = fetch.fetched
            state.fetchedBytes = fetch.bytes
            state.failed = max(0, state.files - fetch.fetched)
            for entry in fetch.attachments?.notHeldByReason ?? [] where state.failed > 0 && entry.reason != .notInCopy {
              state.add(entry.reason.rawValue, entry.reason.words, files: entry.attachments)
            }
          case .failure(let error): state.failure = CommandFailure(error)
          }
        }
        self.over.update { $0 = true }
      })
    let isCanceled = state.withLock { state in
      state.kept = run
      return state.isCanceled
    }
    if isCanceled { run.cancel() }
  }

  /// Ends it. What came stays.
  func cancel() {
    let (fetches, kept) = state.withLock { state -> ([WholeFetch], KeptFetchRun?) in
      state.isCanceled = true
      state.failed += state.left.count
      state.left = []
      return (Array(state.fetches.values), state.kept)
    }
    for fetch in fetches { fetch.cancel() }
    kept?.cancel()
  }

  /// Returns once it is over.
  func wait() { _ = over.wait { $0 ? true : nil } }

  private func next() {
    while true {
      let file = state.withLock { state -> File? in
        guard let file = state.left.popLast() else { return nil }
        state.running += 1
        return file
      }
      guard let file else { return end() }
      // Not brought over the network to be thrown away.
      if let refusal = (try? blobs.refusalToStay(file.hash)) ?? nil {
        note(file, .failure(refusal))
        continue
      }
      let fetch = blobs.fetch(
        file.hash, progress: { bytes in self.state.withLock { $0.partial[file.hash] = bytes } },
        then: { result in
          self.note(file, result)
          self.next()
        })
      let isCanceled = state.withLock { state in
        // It may be over already: to cancel it then does nothing.
        if !state.isOver { state.fetches[file.hash] = fetch }
        return state.isCanceled
      }
      if isCanceled { fetch.cancel() }
      return
    }
  }

  private func note(_ file: File, _ result: Result<Void, MarfaError>) {
    state.withLock { state in
      let bytes = state.partial.removeValue(forKey: file.hash)
      state.fetches[file.hash] = nil
      state.running -= 1
      switch result {
      case .success:
        let size = file.size ?? bytes ?? 0
        state.fetched += 1
        state.fetchedBytes += size
        state.done.append(File(hash: file.hash, size: size))
      case .failure(let error):
        state.failed += 1
        state.add(error)
        if case .overBudget = error { state.notKept += 1 }
        state.failure = state.failure ?? CommandFailure(error)
      }
    }
  }

  /// Everything came, or not. What the budget takes again at once was not fetched for anybody.
  private func end() {
    let fetched = state.withLock { state -> [File]? in
      guard state.left.isEmpty, state.running == 0, !state.isEnding else { return nil }
      state.isEnding = true
      return state.done
    }
    guard let fetched else { return }
    var gone = (try? blobs.notStaying(Set(fetched.map(\.hash)))) ?? []
    // One may have made room for the next.
    for file in fetched where (try? blobs.isHeld(file.hash)) == false { gone.insert(file.hash) }
    let budget = gone.isEmpty ? 0 : ((try? blobs.allowance()) ?? nil) ?? 0
    state.withLock { state in
      for file in fetched where gone.contains(file.hash) {
        state.fetched -= 1
        state.fetchedBytes -= file.size ?? 0
        state.failed += 1
        state.notKept += 1
        state.add(.overBudget(size: file.size, budget: budget))
        state.failure = state.failure ?? CommandFailure(.overBudget(size: file.size, budget: budget))
      }
      state.isOver = true
      state.fetches = [:]
    }
    over.update { $0 = true }
  }

  /// How far it is.
  var json: JSON.Object {
    state.withLock { state in
      var result: JSON.Object = [
        "files": .integer(state.files), "bytes": .integer(state.bytes), "fetched": .integer(state.fetched),
        "fetched_bytes": .integer(state.fetchedBytes + state.partial.values.reduce(0, +)),
        "failed": .integer(state.failed), "not_kept": .integer(state.notKept), "over": .bool(state.isOver),
      ]
      result["reasons"] = .array(
        state.reasons.map { ["code": .string($0.code), "message": .string($0.words), "files": .integer($0.files)] })
      if let failure = state.failure { result["error"] = failure.json }
      return result
    }
  }
}

extension NotHeldReason {
  /// Why a file did not come.
  fileprivate var words: String {
    switch self {
    case .notFetched: "not fetched yet"
    case .noRoom: "there is no room"
    case .unreachable: "the server can't be reached"
    case .rateLimited: "the server asks for a wait"
    case .absent: "the server holds no such bytes"
    case .failed: "the fetch failed"
    case .notInCopy: "only the edge is here"
    }
  }
}

/// The fetches that are under way, by the words of those who asked for them.
final class FetchJobs: Sendable {
  private let jobs = Lock<[String: FetchJob]>(.leaf, [:])

  func set(_ key: String?, _ job: FetchJob?) {
    guard let key else { return }
    jobs.withLock { $0[key] = job }
  }

  func find(_ key: String) -> FetchJob? { jobs.withLock { $0[key] } }
}
