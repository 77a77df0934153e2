import MarfaEngine

/// One held event stream (contract "Events"). Its connection's thread alone uses it.
final class EventStream {
  private let source: any EventSource
  private let actor: Actor
  private let requested: Int64?
  private let types: [String]
  private let ending: Ending?
  private let limit: Int?
  private let generation: Int
  private var phase = Phase.opening
  private var cursor: Int64 = 0
  private var replayEnd: Int64 = 0
  private var sent = 0
  private var lastBytes = Clock.now

  private enum Phase {
    case opening, replaying, live, over
  }

  /// How a stream ends before its time.
  enum Ending {
    case retired, ahead
    case incomplete(String)
  }

  init(
    _ source: any EventSource, actor: Actor, after requested: Int64?, types: [String], ending: Ending?, limit: Int?
  ) {
    self.source = source
    self.actor = actor
    self.requested = requested
    self.types = types
    self.ending = ending
    self.limit = limit
    generation = source.generation
  }

  /// The next frames; waits for them. `nil` at the end.
  func next(_ exchange: Exchange) -> [UInt8]? {
    let frames = frames(exchange)
    lastBytes = Clock.now
    return frames.map { Array($0.utf8) }
  }

  private func frames(_ exchange: Exchange) -> String? {
    switch phase {
    case .opening: return open()
    case .replaying:
      let (text, reached) = events(upTo: replayEnd)
      if phase == .over { return text }
      if !reached { return text.isEmpty ? frames(exchange) : text }
      if case .incomplete(let reason)? = ending { return text + incomplete(reason) }
      phase = .live
      let live = requested == nil ? "null" : "\"\(replayEnd)\""
      return text + frame("stream_live", "\"cursor\":\(live)}")
    case .live:
      while true {
        if source.isStopping || exchange.isAbandoned { return nil }
        if let reason = source.interruption(since: generation) {
          return reason.isEmpty ? nil : incomplete(reason)
        }
        let (text, _) = events(upTo: .max)
        if !text.isEmpty { return text }
        if phase == .over { return nil }
        let ping = lastBytes + source.pingInterval
        if Clock.now >= ping { return ":ping\n\n" }
        source.waitForEvents(after: cursor, until: min(ping, Clock.now + 0.25))
      }
    case .over: return nil
    }
  }

  private func open() -> String {
    let (head, oldest) = source.log()
    var text = frame("stream_cursor", "\"cursor\":\"\(head)\"}")
    cursor = requested ?? head
    replayEnd = head
    phase = .replaying
    if case .ahead? = ending {
      phase = .over
      text += frame("cursor_ahead", "\"head\":\"\(head)\",\"requested\":\"\(cursor)\"}")
    } else if case .retired? = ending {
      phase = .over
      text += frame(
        "catchup_too_old", "\"min_retained_id\":\"\(max(oldest, cursor + 2))\",\"requested\":\"\(cursor)\"}")
    } else if cursor > head {
      phase = .over
      text += frame("cursor_ahead", "\"head\":\"\(head)\",\"requested\":\"\(cursor)\"}")
    } else if cursor + 1 < oldest {
      phase = .over
      text += frame("catchup_too_old", "\"min_retained_id\":\"\(oldest)\",\"requested\":\"\(cursor)\"}")
    }
    return text
  }

  /// The next events, at most up to `end`; whether that was reached.
  private func events(upTo end: Int64) -> (text: String, reached: Bool) {
    let (events, last) = source.events(after: cursor, limit: 200, for: actor, types: types)
    // What the log let go of before it was sent must not be passed over: whoever asks again is told that it is gone.
    if cursor + 1 < source.log().oldest { return (incomplete("log_retired"), false) }
    var text = ""
    for event in events {
      guard event.id <= end else {
        cursor = end
        return (text, true)
      }
      text += "id: \(event.id)\n" + frame(event.name, event.data)
      cursor = event.id
      sent += 1
      if sent == limit {
        phase = .over
        return (text, false)
      }
    }
    let reached = last >= end || last == cursor && events.isEmpty
    cursor = max(cursor, min(last, end))
    return (text, reached || cursor >= end)
  }

  private func incomplete(_ reason: String) -> String {
    phase = .over
    return frame("stream_incomplete", "\"reason\":\(JSON.string(reason).text),\"cursor\":\"\(cursor)\"}")
  }

  private func frame(_ name: String, _ data: String) -> String {
    "event: \(name)\ndata: {\"\(source.nameKey)\":\"\(name)\",\(data)\n\n"
  }
}

/// Where event streams get their events: the server.
protocol EventSource: AnyObject, Sendable {
  /// What names the event within its data.
  var nameKey: String { get }
  var pingInterval: Double { get }
  var isStopping: Bool { get }
  /// Raised with each interruption.
  var generation: Int { get }
  /// Why streams opened in that generation end: nothing, an empty text for a plain end, or a reason.
  func interruption(since generation: Int) -> String?
  func log() -> (head: Int64, oldest: Int64)
  func events(after cursor: Int64, limit: Int, for actor: Actor, types: [String])
    -> (events: [(id: Int64, name: String, data: String)], last: Int64)
  func waitForEvents(after cursor: Int64, until deadline: Double)
}
