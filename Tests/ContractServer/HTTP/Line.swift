import MarfaEngine

/// The line's width, shared by all who use it: bodies take their turn.
final class Line: Sendable {
  private struct State {
    var link: Link
    /// When the line is free again: outwards, inwards.
    var free = (out: 0.0, in: 0.0)
  }

  private let state: Monitor<State>

  init(_ link: Link) { state = Monitor(State(link: link)) }

  var link: Link {
    get { state.update { $0.link } }
    set { state.update { $0.link = newValue } }
  }

  /// Waits until so many bytes have gone over the line.
  func pass(_ count: Int, out: Bool) {
    let moment: Double? = state.update { state in
      guard let rate = state.link.bytesPerSecond else { return nil }
      let start = max(Clock.now, out ? state.free.out : state.free.in)
      let end = start + Double(count) / rate
      if out { state.free.out = end } else { state.free.in = end }
      return end
    }
    if let moment { Clock.sleep(until: moment) }
  }

  /// The most bytes to take at once: a few milliseconds of the line, so that bodies share it.
  var block: Int {
    let rate = state.update { $0.link.bytesPerSecond }
    guard let rate else { return 1 << 18 }
    return max(1024, min(1 << 18, Int(rate / 200)))
  }
}
