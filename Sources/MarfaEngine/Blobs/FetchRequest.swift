/// One transfer of a blob's bytes, from being planned to its end.
final class FetchRequest: Sendable {
  private struct State {
    var transfer: (any BytesTransfer)?
    var isCanceled = false
    var isResumed = false
  }
  private let state = Lock<State>(.leaf, State())
  /// Its number among a blob's.
  let id: Int
  /// What is asked for; `nil` for the whole of a host that knows no ranges.
  let range: Range<Int64>?

  init(id: Int, range: Range<Int64>?) {
    self.id = id
    self.range = range
  }

  /// It has begun. A cancel that came before it is passed on.
  func began(_ transfer: any BytesTransfer) {
    let (cancels, resumes) = state.withLock { state in
      state.transfer = transfer
      return (state.isCanceled, state.isResumed)
    }
    if cancels { transfer.cancel() } else if resumes { transfer.resume() }
  }

  func cancel() {
    let transfer = state.withLock { state in
      state.isCanceled = true
      return state.transfer
    }
    transfer?.cancel()
  }

  func resume() {
    let transfer = state.withLock { state in
      state.isResumed = true
      return state.transfer
    }
    transfer?.resume()
  }
}
