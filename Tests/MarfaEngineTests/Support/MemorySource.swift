import Glibc

@testable import MarfaEngine

/// Bytes elsewhere, in this process: a double of the server and its links. The one place where one is right: what is tested
/// with it is timing (which bytes are asked for while which others are on their way, and who waits for what), and a real
/// server answers in its own time. That a real server is understood is tested over real sockets.
final class MemorySource: ByteSource {
  /// How one request is answered.
  struct Answer: Sendable {
    /// Bytes after which it ends, with `failure` or as if it were whole; `nil`: all of them.
    var ends: Int64?
    var failure: BytesFailure?
    /// Sends the whole whatever is asked.
    var ignoresRange = false
    /// The size it states, where that is not the real one.
    var total: Int64??
    /// Sends other bytes than there are.
    var isWrong = false
    /// Sends nothing, not even a head, until it is cancelled.
    var isSilent = false
    /// Where it says that its bytes begin.
    var offset: Int64?
    /// Bytes of one event.
    var piece = 16 << 10
  }

  struct Asked: Sendable, Equatable {
    var hash: BlobHash
    var range: Range<Int64>?
  }

  private struct State {
    var blobs: [BlobHash: [UInt8]] = [:]
    var asked: [Asked] = []
    var sizesAsked: [BlobHash] = []
    var sent: Int64 = 0
    var running = 0
    var mostRunning = 0
    var canceled = 0
    /// Bytes each request may send now; `nil`: as many as it likes.
    var allowed: Int64?
    var answer: @Sendable (Int, Asked) -> Answer = { _, _ in Answer() }
    var sizeFailure: BytesFailure?
    var isSizeSilent = false
    var sizeWaiters: [@Sendable () -> Void] = []
  }
  private let state = Lock<State>(.leaf, State())

  /// Another blob.
  @discardableResult
  func add(_ bytes: [UInt8]) -> BlobHash {
    let hash = MemorySource.hash(bytes)
    state.withLock { $0.blobs[hash] = bytes }
    return hash
  }

  static func hash(_ bytes: [UInt8]) -> BlobHash {
    guard let sha = try? SHA256() else { fatalError("no SHA-256") }
    bytes.withUnsafeBytes { sha.update($0) }
    return sha.finish()
  }

  /// Bytes that say where they stand, so that none is taken for another.
  static func pattern(_ count: Int, seed: UInt64 = 1) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var value = seed &* 0x9e37_79b9_7f4a_7c15 | 1
    for index in stride(from: 0, to: count, by: 8) {
      value ^= value << 13
      value ^= value >> 7
      value ^= value << 17
      for byte in 0..<min(8, count - index) { bytes[index + byte] = UInt8(truncatingIfNeeded: value >> (8 * byte)) }
    }
    return bytes
  }

  /// From now on requests, counted from 0, are answered so.
  func answer(_ body: @escaping @Sendable (Int, Asked) -> Answer) { state.withLock { $0.answer = body } }
  /// Every request, those under way too, sends no more than so many bytes from now on. `nil`: all.
  func allow(_ bytes: Int64?) { state.withLock { $0.allowed = bytes } }
  func failSizes(_ failure: BytesFailure?) { state.withLock { $0.sizeFailure = failure } }
  /// Sizes are answered only after ``releaseSizes()``.
  func holdSizes() { state.withLock { $0.isSizeSilent = true } }
  func releaseSizes() {
    let waiters = state.withLock { state in
      state.isSizeSilent = false
      defer { state.sizeWaiters = [] }
      return state.sizeWaiters
    }
    for waiter in waiters { waiter() }
  }

  var asked: [Asked] { state.withLock { $0.asked } }
  var ranges: [Range<Int64>?] { asked.map { $0.range } }
  var sizesAsked: [BlobHash] { state.withLock { $0.sizesAsked } }
  var sent: Int64 { state.withLock { $0.sent } }
  var running: Int { state.withLock { $0.running } }
  var mostRunning: Int { state.withLock { $0.mostRunning } }
  var canceled: Int { state.withLock { $0.canceled } }
  var sizesWaiting: Int { state.withLock { $0.sizeWaiters.count } }

  // MARK: - ByteSource

  final class Transfer: BytesTransfer {
    let isCanceled = Lock<Bool>(.leaf, false)
    /// Pauses less resumptions: one to go on may come before the pause itself is noted.
    private let pauses = Lock<Int>(.leaf, 0)
    var isPaused: Bool { pauses.withLock { $0 > 0 } }
    func cancel() { isCanceled.withLock { $0 = true } }
    func pause() { pauses.withLock { $0 += 1 } }
    func resume() { pauses.withLock { $0 -= 1 } }
  }

  func bytes(
    of hash: BlobHash, range: Range<Int64>?, _ handler: @escaping @Sendable (BytesEvent) -> BytesFlow
  ) -> any BytesTransfer {
    let asked = Asked(hash: hash, range: range)
    let (answer, blob) = state.withLock { state in
      state.asked.append(asked)
      state.running += 1
      state.mostRunning = max(state.mostRunning, state.running)
      return (state.answer(state.asked.count - 1, asked), state.blobs[hash])
    }
    let transfer = Transfer()
    startThread(named: "test-source") { [self] in
      let result = send(blob, asked, answer, transfer, handler)
      state.withLock { state in
        state.running -= 1
        if case .failure(.canceled) = result { state.canceled += 1 }
      }
      _ = handler(.end(result))
    }
    return transfer
  }

  private func send(
    _ blob: [UInt8]?, _ asked: Asked, _ answer: Answer, _ transfer: Transfer,
    _ handler: @Sendable (BytesEvent) -> BytesFlow
  ) -> Result<Void, BytesFailure> {
    while answer.isSilent {
      if transfer.isCanceled.withLock({ $0 }) { return .failure(.canceled) }
      usleep(500)
    }
    if let failure = answer.failure, answer.ends == nil { return .failure(failure) }
    guard let blob else { return .failure(.absent) }
    let whole = 0..<Int64(blob.count)
    let range = answer.ignoresRange ? whole : (asked.range ?? whole).clamped(to: whole)
    let total: Int64? = answer.total ?? Int64(blob.count)
    if handler(.head(total: total, offset: answer.offset ?? range.lowerBound, ignoresRange: answer.ignoresRange))
      == .stop
    {
      return .failure(.canceled)
    }
    var position = range.lowerBound
    let end = min(range.upperBound, range.lowerBound + (answer.ends ?? .max - range.lowerBound))
    while position < end {
      if transfer.isCanceled.withLock({ $0 }) { return .failure(.canceled) }
      let allowed = state.withLock { $0.allowed }
      let left = (allowed ?? .max) - (position - range.lowerBound)
      if left <= 0 || transfer.isPaused {
        usleep(200)
        continue
      }
      let next = min(end, position + min(Int64(answer.piece), left))
      var bytes = Array(blob[Int(position)..<Int(next)])
      if answer.isWrong { for index in bytes.indices { bytes[index] ^= 1 } }
      state.withLock { $0.sent += Int64(bytes.count) }
      let flow = bytes.withUnsafeBytes { handler(.bytes($0)) }
      position = next
      if flow == .stop { return position < range.upperBound ? .failure(.canceled) : .success(()) }
      if flow == .pause { transfer.pause() }
    }
    if let failure = answer.failure { return .failure(failure) }
    return .success(())
  }

  func size(of hash: BlobHash, _ then: @escaping @Sendable (Result<Int64, BytesFailure>) -> Void) {
    let job: @Sendable () -> Void = { [self] in
      let (failure, blob) = state.withLock { ($0.sizeFailure, $0.blobs[hash]) }
      if let failure { return then(.failure(failure)) }
      then(blob.map { .success(Int64($0.count)) } ?? .failure(.absent))
    }
    let waits = state.withLock { state in
      state.sizesAsked.append(hash)
      if state.isSizeSilent { state.sizeWaiters.append(job) }
      return state.isSizeSilent
    }
    if !waits { startThread(named: "test-sizes") { job() } }
  }
}
