/// Ends blocking calls from another thread: whoever waits passes it along, whoever wants the end calls ``cancel()``.
/// One may serve many calls, at a time or one after the other; once cancelled it stays so.
public final class Cancellation: Sendable {
  private struct State {
    var isCanceled = false
    var next = 0
    var actions: [Int: @Sendable () -> Void] = [:]
  }
  private let state = Lock<State>(.leaf, State())

  /// Not cancelled yet.
  public init() {}

  /// Ends every call that waits with it, and every later one at its start. From any thread; returns at once.
  public func cancel() {
    let actions = state.withLock { state in
      state.isCanceled = true
      defer { state.actions = [:] }
      return state.actions
    }
    for action in actions.values { action() }
  }

  /// Whether ``cancel()`` was called.
  public var isCanceled: Bool { state.withLock { $0.isCanceled } }

  /// Has `action` run when this is cancelled, at once if it was already; ``remove(_:)`` takes it back.
  @discardableResult
  public func onCancel(_ action: @escaping @Sendable () -> Void) -> Int? {
    let token: Int? = state.withLock { state in
      guard !state.isCanceled else { return nil }
      state.next += 1
      state.actions[state.next] = action
      return state.next
    }
    if token == nil { action() }
    return token
  }

  /// Takes an action back. It may just be running.
  public func remove(_ token: Int?) {
    guard let token else { return }
    state.withLock { $0.actions[token] = nil }
  }
}
