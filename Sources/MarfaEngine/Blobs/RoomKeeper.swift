import Glibc

/// The room that fetched bytes may take: asked before they are asked for, so that neither the volume nor the budget is
/// filled by what is on its way.
final class RoomKeeper: Sendable {
  private struct State {
    /// Asked for and not written yet.
    var promised: Int64 = 0
    /// In the files that are open, of those the budget counts.
    var open: Int64 = 0
    var allowance: Int64?
  }
  private let state = Lock<State>(.leaf, State())
  private let folder: String
  private let allowance: @Sendable () -> Int64?

  /// `allowance` answers what the budget allows; `nil` for no budget.
  init(folder: String, allowance: @escaping @Sendable () -> Int64?) {
    self.folder = folder
    self.allowance = allowance
  }

  /// What can still be written on the volume.
  var left: Int64 {
    guard let volume = try? VolumeRoom.of(folder) else { return .max }
    return max(0, volume.available - volume.reserve)
  }

  /// Promises room for bytes about to be asked for; `within` the budget or outside it. False when there is none.
  func take(_ bytes: Int64, within isBudgeted: Bool) -> Bool {
    let left = left
    return state.withLock { state in
      guard left - state.promised >= bytes else { return false }
      if isBudgeted, let allowance = state.allowance, allowance - state.open - state.promised < bytes { return false }
      state.promised += bytes
      return true
    }
  }

  /// Promises more, whether there is room or not.
  func promise(_ bytes: Int64) { state.withLock { $0.promised += bytes } }

  /// What was promised is written, or not needed.
  func give(_ bytes: Int64) { state.withLock { $0.promised -= bytes } }

  /// So many bytes within the budget are open now; negative when they no longer are.
  func count(_ bytes: Int64) { state.withLock { $0.open += bytes } }

  /// Asks again what the budget allows: it, or what is here, changed. Reads the store.
  func refresh() {
    let allowed = allowance()
    state.withLock { $0.allowance = allowed }
  }
}

/// Whether the server can be reached, as far as the last answers say.
final class LinkState: Sendable {
  private struct State {
    var failure = FetchFailure.unreachable("")
    var until: Int64 = 0
    var delay: Int64 = 0
    var isTrying = false
  }
  private let state = Lock<State>(.leaf, State())
  private let first: Int64
  private let last: Int64

  /// After a failure nothing is tried for `first` nanoseconds, after each further one for twice as long, `last` at most.
  init(first: Int64, last: Int64) {
    self.first = first
    self.last = last
  }

  /// Why nothing is tried now; `nil` when it may be: then whoever asked is the one who tries.
  func refusal(_ now: Int64) -> FetchFailure? {
    state.withLock { state in
      guard state.delay > 0 else { return nil }
      if now < state.until { return state.failure }
      state.isTrying = true
      state.until = now + state.delay
      return nil
    }
  }

  /// It could not be reached, or sent nothing: those who are refused are told which.
  func failed(_ failure: FetchFailure, _ now: Int64) {
    state.withLock { state in
      state.failure = failure
      if state.delay == 0 || state.isTrying || now >= state.until {
        state.delay = state.delay == 0 ? first : min(last, state.delay * 2)
      }
      state.isTrying = false
      state.until = now + state.delay
    }
  }

  /// It answered.
  func worked() { state.withLock { if $0.delay > 0 { $0 = State() } } }

  /// When it may be tried again, while it is known not to be reachable.
  var retryAt: Int64? { state.withLock { $0.delay > 0 ? $0.until : nil } }

  /// True while it is known not to be reachable.
  var isDown: Bool { state.withLock { $0.delay > 0 } }
}
