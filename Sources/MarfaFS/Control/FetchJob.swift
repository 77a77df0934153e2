import MarfaEngine

/// A fetch that a command began: it goes on whether or not somebody asks how far it is.
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
    /// Bytes here of those under way.
    var partial: [BlobHash: Int64] = [:]
    var files = 0
    var bytes: Int64 = 0
    var fetched = 0
    var fetchedBytes: Int64 = 0
    var failed = 0
    var failure: CommandFailure?
    var isOver = false
  }
  private let state = Lock<State>(.leaf, State())
  private let blobs: Blobs

  /// Fetches these.
  init(_ files: [File], _ blobs: Blobs) {
    self.blobs = blobs
    state.withLock { state in
      state.left = files.reversed()
      state.files = files.count
      state.bytes = files.reduce(0) { $0 + ($1.size ?? 0) }
      state.isOver = files.isEmpty
    }
    for _ in 0..<Self.atOnce { next() }
  }

  /// Fetches every attachment that is not here.
  init(keptOf blobs: Blobs) {
    self.blobs = blobs
    blobs.fetchKept(
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
            state.failed = fetch.attachments?.notHeld ?? 0
          case .failure(let error): state.failure = CommandFailure(error)
          }
        }
      })
  }

  private func next() {
    let file = state.withLock { state -> File? in
      guard let file = state.left.popLast() else { return nil }
      state.running += 1
      return file
    }
    guard let file else { return }
    blobs.fetch(
      file.hash, progress: { bytes in self.state.withLock { $0.partial[file.hash] = bytes } },
      then: { result in self.done(file, result) })
  }

  private func done(_ file: File, _ result: Result<Void, MarfaError>) {
    state.withLock { state in
      let bytes = state.partial.removeValue(forKey: file.hash)
      state.running -= 1
      switch result {
      case .success:
        state.fetched += 1
        state.fetchedBytes += file.size ?? bytes ?? 0
      case .failure(let error):
        state.failed += 1
        state.failure = state.failure ?? CommandFailure(error)
      }
      state.isOver = state.left.isEmpty && state.running == 0
    }
    next()
  }

  var isOver: Bool { state.withLock { $0.isOver } }

  /// How far it is.
  var json: JSON.Object {
    state.withLock { state in
      var result: JSON.Object = [
        "files": .integer(state.files), "bytes": .integer(state.bytes), "fetched": .integer(state.fetched),
        "fetched_bytes": .integer(state.fetchedBytes + state.partial.values.reduce(0, +)),
        "failed": .integer(state.failed), "over": .bool(state.isOver),
      ]
      if let failure = state.failure { result["error"] = failure.json }
      return result
    }
  }
}

/// The fetches that commands began, by number. The last few dozen that are over are remembered for those who ask.
final class FetchJobs: Sendable {
  private struct State {
    var last: Int64 = 0
    var jobs: [Int64: FetchJob] = [:]
  }
  private let state = Lock<State>(.leaf, State())

  func add(_ job: FetchJob) -> Int64 {
    state.withLock { state in
      state.last += 1
      state.jobs[state.last] = job
      return state.last
    }
  }

  func find(_ number: Int64) -> FetchJob? { state.withLock { $0.jobs[number] } }

  /// Forgets all but the latest of those that are over.
  func sweep() {
    let (jobs, last) = state.withLock { ($0.jobs, $0.last) }
    for (number, job) in jobs where number + 32 < last && job.isOver { state.withLock { $0.jobs[number] = nil } }
  }
}
