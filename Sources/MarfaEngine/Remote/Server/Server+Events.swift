extension Server {
  /// `GET /events`: the log after `cursor`, then what happens; without a cursor, what happens from now on. Each event is
  /// given to `handler` on the network's thread. The stream is held open until it is cancelled, ends or falls silent
  /// (``ServerLimits/eventSilence``).
  public func events(after cursor: String?, _ handler: any EventHandler) -> Transfer {
    var headers: [(name: String, value: String)] = [("Accept", "text/event-stream")]
    if let cursor { headers.append(("Last-Event-ID", cursor)) }
    var request = request(.get, "/events", headers: headers)
    request.idle = limits.eventSilence
    return network.start(request, EventExchange(limits, handler))
  }
}

/// Takes the stream of events apart and hands each on.
private final class EventExchange: TransferHandler {
  private struct State {
    var collector: AnswerCollector
    var parser: EventStreamParser
    /// False for a refusal, whose body says why.
    var isStream = false
    /// Frames that came in one piece with one the handler paused at.
    var held: [EventFrame] = []
    var problem: RemoteFailure?
  }
  private let state: Lock<State>
  private let handler: any EventHandler
  private let limits: ServerLimits

  init(_ limits: ServerLimits, _ handler: any EventHandler) {
    self.handler = handler
    self.limits = limits
    let state = State(
      collector: AnswerCollector(limits: limits), parser: EventStreamParser(limit: limits.eventBytes))
    self.state = Lock(.leaf, state)
  }

  func head(_ head: HTTPHead) -> Flow {
    state.withLock { state in
      let flow = state.collector.take(head)
      guard Contract.judge(head) == .success else { return flow }
      guard head["content-type"]?.lowercased().hasPrefix("text/event-stream") == true else {
        state.problem = .unreadable("it is no stream of events")
        return .stop
      }
      state.isStream = true
      return flow
    }
  }

  func bytes(_ bytes: UnsafeRawBufferPointer) -> Flow {
    let flow: Flow? = state.withLock { state in
      guard state.isStream else { return state.collector.take(bytes) }
      do throws(EventStreamParser.TooLarge) {
        state.held += try state.parser.take(bytes)
        return nil
      } catch {
        state.problem = .unreadable("an event is larger than \(Bytes.text(Int64(limits.eventBytes)))")
        return .stop
      }
    }
    return flow ?? resumed()
  }

  /// Hands on what is held, until the handler wants no more.
  func resumed() -> Flow {
    var frames = state.withLock { state in
      defer { state.held = [] }
      return state.held[...]
    }
    while let frame = frames.popFirst() {
      let flow: Flow
      do throws(RemoteFailure) {
        flow = handler.event(try ServerEvent(frame, values: limits.answerValues))
      } catch {
        state.withLock { $0.problem = error }
        return .stop
      }
      switch flow {
      case .goOn: continue
      case .stop: return .stop
      case .pause:
        let rest = Array(frames)
        state.withLock { $0.held = rest }
        return .pause
      }
    }
    return .goOn
  }

  func end(_ result: Result<Void, NetworkFailure>) {
    let outcome: Result<Void, RemoteFailure> = state.withLock { state in
      if let problem = state.problem { return .failure(problem) }
      if state.isStream { return result.mapError { RemoteFailure($0) } }
      return state.collector.result(result).map { _ in () }
    }
    handler.end(outcome)
  }
}

extension ServerEvent {
  /// Reads a frame. The name is the `event:` line's (contract "Events"); what it is treated by is what it carries.
  init(_ frame: EventFrame, values: Int) throws(RemoteFailure) {
    raw = try Decode.object(try JSON(answer: frame.data, values: values), "an event's data")
    name = String(frame.name.prefix(128))
    do throws(RemoteFailure) { content = try ServerEvent.content(name, raw) } catch {
      // The same event would come again and again, and nothing behind it.
      guard frame.id != nil, case .unreadable(let words) = error else { throw error }
      content = .unreadable(UnreadableRow(raw["edge"] == nil ? .item : .edge, .object(raw), words))
    }
    id = nil
    if let text = frame.id {
      guard ServerEvent.isCursor(text) else { throw .unreadable("an event's id is no number") }
      id = text
    } else {
      switch content {
      case .streamCursor, .streamLive, .catchupTooOld, .cursorAhead, .streamIncomplete, .unknown: break
      case .item, .purged, .edge, .metadata, .unreadable:
        throw .unreadable("an event comes without its id, so the cursor could not move past it")
      }
    }
  }

  private static func content(_ name: String, _ data: JSON.Object) throws(RemoteFailure) -> Content {
    switch name {
    case "stream_cursor":
      guard let cursor = try cursor(data["cursor"]) else { throw .unreadable("stream_cursor names no cursor") }
      return .streamCursor(cursor)
    case "stream_live": return .streamLive(try cursor(data["cursor"]))
    case "catchup_too_old": return .catchupTooOld(minRetained: try cursor(data["min_retained_id"]))
    case "cursor_ahead": return .cursorAhead(head: try cursor(data["head"]))
    case "stream_incomplete":
      return .streamIncomplete(
        reason: String((data["reason"]?.string ?? "").prefix(1000)), cursor: try cursor(data["cursor"]))
    case "item.purged":
      // What is gone for good need not be whole.
      return .purged(try Decode.id(data["item"]?.object?["id"] ?? data["item_id"] ?? data["id"], "a purged item's id"))
    default: break
    }
    if let item = data["item"], item != .null { return .item(try ItemRow(data)) }
    if let edge = data["edge"], edge != .null {
      return .edge(try EdgeRow(edge), sourceType: try Decode.optionalText(data["source_type"], "source_type"))
    }
    if let metadata = data["metadata"]?.object {
      let owner: ItemID = try Decode.id(metadata["item_id"] ?? data["item_id"], "the metadata's item")
      return .metadata(owner, try ItemMetadata(metadata))
    }
    return .unknown
  }

  /// A cursor or nothing. They are texts of digits; a number is taken for one.
  private static func cursor(_ value: JSON?) throws(RemoteFailure) -> String? {
    guard let value, value != .null else { return nil }
    if let number = value.integer, number >= 0 { return String(number) }
    guard let text = value.string, isCursor(text) else { throw .unreadable("a cursor is no number") }
    return text
  }

  private static func isCursor(_ text: String) -> Bool {
    (1...20).contains(text.utf8.count) && text.utf8.allSatisfy { (0x30...0x39).contains($0) }
  }
}
