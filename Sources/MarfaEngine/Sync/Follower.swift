/// Keeps a copy current: hydrates it when it has to be, then holds the server's stream of events and applies each, with
/// the cursor, in one transaction (contract, "Events"). One thread waits and applies; events come on the network's.
final class Follower: Sendable {
  /// How it goes about it.
  struct Settings: Sendable {
    var types: [String]?
    var tier: TierFilter?
    /// Seconds before a stream that ended is opened again; doubled up to the longest.
    var shortestWait = 1.0
    var longestWait = 30.0
  }

  private struct State {
    var isOver = false
    /// Wake up and try again, whatever it waits for.
    var isAwake = false
    var isHydrationWanted = false
    var isReopeningWanted = false
    /// The stream that is held now.
    var stream: Handler?
    var isLive = false
    var trouble: RemoteFailure?
    var progress: HydrationProgress?
    /// How many hydrations are through.
    var hydrations = 0
  }

  /// Events on their way from the network's thread to ours.
  private final class Handler: EventHandler {
    struct Waiting {
      var events: [ServerEvent] = []
      /// About how many bytes they hold.
      var size = 0
      /// Wake up: there is something else to do.
      var isWoken = false
      var isPaused = false
      var end: Result<Void, RemoteFailure>?
    }
    let waiting = Monitor(Waiting())
    /// So many wait before the network is asked to.
    static let limit = 1000
    /// Or so many bytes.
    static let sizeLimit = 4 << 20

    func event(_ event: ServerEvent) -> Flow {
      waiting.update { waiting in
        waiting.events.append(event)
        waiting.size += event.raw.roughSize
        guard waiting.events.count >= Self.limit || waiting.size >= Self.sizeLimit else { return .goOn }
        waiting.isPaused = true
        return .pause
      }
    }

    func end(_ result: Result<Void, RemoteFailure>) { waiting.update { $0.end = result } }

    func wake() { waiting.update { $0.isWoken = true } }
  }

  /// How a stream ended.
  private enum Ending {
    /// Open it again.
    case ended(RemoteFailure?)
    /// The log no longer reaches to the cursor; or it ends before it, as that of a server that was set back.
    case expired(isBehind: Bool)
    case over
  }

  private let copy: WorkingCopy
  private let server: Server
  private let drain: Drain
  private let settings: Settings
  private let cancellation = Cancellation()
  private let state = Monitor(State())
  private let isDone = Monitor(false)
  /// Told when the copy caught up with the server.
  private let onLive: @Sendable () -> Void

  init(
    _ copy: WorkingCopy, _ server: Server, _ drain: Drain, _ settings: Settings, onLive: @escaping @Sendable () -> Void
  ) {
    self.copy = copy
    self.server = server
    self.drain = drain
    self.settings = settings
    self.onLive = onLive
  }

  /// Begins. Call once.
  func start() {
    startThread(named: "marfa-follow") { [self] in
      run()
      isDone.update { $0 = true }
    }
  }

  /// Has it end. Returns at once.
  func stop() {
    state.update { $0.isOver = true }
    cancellation.cancel()
  }

  /// Ends. Returns once nothing is applied any more.
  func close() {
    stop()
    _ = isDone.wait { $0 ? true : nil }
  }

  /// True while the stream is open and has caught up.
  var isLive: Bool { state.read { $0.isLive } }
  /// Why it is not.
  var trouble: RemoteFailure? { state.read { $0.trouble } }
  /// How far a hydration that runs is.
  var progress: HydrationProgress? { state.read { $0.progress } }
  /// How many hydrations are through since it began.
  var hydrations: Int { state.read { $0.hydrations } }

  /// Tries again now.
  func retryNow() { state.update { $0.isAwake = true } }

  /// Opens the stream anew now.
  func openAnew() {
    let stream = state.update {
      $0.isAwake = true
      $0.isReopeningWanted = true
      return $0.stream
    }
    stream?.wake()
  }

  /// Hydrates anew, though nothing makes it.
  func hydrateAgain() {
    let stream = state.update {
      $0.isHydrationWanted = true
      $0.isAwake = true
      return $0.stream
    }
    stream?.wake()
  }

  /// Waits until the copy has caught up; false when it took longer.
  func waitUntilLive(_ deadline: Deadline) -> Bool { state.wait(until: deadline) { $0.isLive ? true : nil } ?? false }

  // MARK: - The thread

  private func run() {
    var failures = 0
    // How often the log did not reach to the cursor of a hydration that had just ended.
    var isFresh = false
    while !state.read({ $0.isOver }) {
      var failure: RemoteFailure?
      do throws(MarfaError) {
        let wanted = state.update { state in
          defer { state.isHydrationWanted = false }
          return state.isHydrationWanted
        }
        let isNeeded = try isHydrationNeeded()
        if wanted || isNeeded {
          do throws(MarfaError) { try hydrate() } catch {
            // It was asked for, and goes on being.
            if wanted { state.update { $0.isHydrationWanted = true } }
            throw error
          }
          isFresh = true
        }
        switch try follow() {
        case .over: return
        case .expired(let isBehind):
          try copy.expire(isBehind: isBehind)
          // A log that does not even reach to where it just said it was is not asked again at once.
          if !isFresh { continue }
          failure = .unreadable("its log does not reach to where it just said it stands")
        case .ended(let reason): failure = reason
        }
        isFresh = false
      } catch {
        if case .canceled = error { continue }
        if case .remote(let reason) = error { failure = reason } else { failure = .unreadable("\(error)") }
      }
      let wasLive = state.update { state in
        defer {
          state.isLive = false
          if let failure, state.trouble?.unnumbered != failure.unnumbered {
            Log.warning("the server is not followed for now: \(failure)")
          }
          state.trouble = failure
          state.progress = nil
        }
        return state.isLive
      }
      failures = wasLive ? 0 : failures + 1
      let doubled = min(settings.shortestWait * Double(1 << min(failures, 10)), settings.longestWait)
      if let asked = failure?.retryAfter {
        // What the server asks for is waited out, whoever wants it sooner.
        _ = state.wait(until: .after(seconds: Double(asked) + 0.05)) { $0.isOver ? true : nil }
      }
      _ = state.wait(until: .after(seconds: doubled - Double(failure?.retryAfter ?? 0))) { state in
        if state.isOver || state.isAwake {
          state.isAwake = false
          return true
        }
        return nil
      }
    }
  }

  /// True when the copy does not have all of what it declares now.
  private func isHydrationNeeded() throws(MarfaError) -> Bool {
    if try copy.hydration() != .complete { return true }
    let declared = try copy.store.read { (connection) throws(MarfaError) in try connection.slice() }
    if let types = settings.types, Set(types) != Set(declared.types) { return true }
    if let tier = settings.tier, tier != declared.tier { return true }
    return false
  }

  private func hydrate() throws(MarfaError) {
    state.update { $0.progress = HydrationProgress() }
    defer { state.update { $0.progress = nil } }
    try drain.holding { () throws(MarfaError) in
      var hydration = Hydration(copy: copy, server: server, cancellation: cancellation)
      hydration.progress = { [state] progress in state.update { $0.progress = progress } }
      hydration.bound = { [drain] in drain.noteBound() }
      try hydration.run(types: settings.types, tier: settings.tier)
    }
    state.update { $0.hydrations += 1 }
    Log.notice("the copy has all it declared")
  }

  private func follow() throws(MarfaError) -> Ending {
    let cursor = try copy.cursor()
    let handler = Handler()
    state.update {
      $0.stream = handler
      $0.isReopeningWanted = false
    }
    let sought = drain.untold
    let transfer = server.events(after: cursor, handler)
    let token = cancellation.onCancel { transfer.cancel() }
    let isUnwanted = state.read { $0.isHydrationWanted }
    defer {
      cancellation.remove(token)
      transfer.cancel()
      state.update { $0.stream = nil }
    }
    if isUnwanted { return .ended(nil) }
    while true {
      let (events, end, isPaused): ([ServerEvent], Result<Void, RemoteFailure>?, Bool) =
        handler.waiting.wait { waiting in
          guard !waiting.events.isEmpty || waiting.end != nil || waiting.isWoken else { return nil }
          defer {
            waiting.events = []
            waiting.size = 0
            waiting.isWoken = false
            waiting.isPaused = false
          }
          return (waiting.events, waiting.end, waiting.isPaused)
        } ?? ([], nil, false)
      if state.read({ $0.isOver }) { return .over }
      if let ending = try apply(events, sought) { return ending }
      if isPaused { transfer.resume() }
      switch end {
      case nil: break
      case .success: return .ended(nil)
      case .failure(.canceled): return state.read { $0.isOver } ? .over : .ended(nil)
      case .failure(let failure): return .ended(failure)
      }
      if state.read({ $0.isHydrationWanted || $0.isReopeningWanted }) { return .ended(nil) }
    }
  }

  /// Applies what came, a few hundred to a transaction; answers how the stream ended, when an event says so. `sought`: the
  /// rows that this stream tells of by the time it is live, if they are gone.
  private func apply(_ events: [ServerEvent], _ sought: Set<ItemID>) throws(MarfaError) -> Ending? {
    var rest = events[...]
    while !rest.isEmpty {
      let piece = rest.prefix { !$0.endsStream }.prefix(200)
      if !piece.isEmpty {
        try copy.apply(Array(piece))
        if state.read({ $0.isLive }), piece.contains(where: \.bringsBytes) { copy.fetcher.learnSizes(isNews: true) }
        rest = rest.dropFirst(piece.count)
        if piece.contains(where: { if case .streamLive = $0.content { true } else { false } }) {
          goLive()
          drain.noteSearched(sought)
        }
        continue
      }
      guard let event = rest.first else { break }
      switch event.content {
      case .catchupTooOld, .cursorAhead:
        Log.notice("the server's log does not reach to where this copy stands (\(event.name)): it is hydrated again")
        if case .cursorAhead = event.content { return .expired(isBehind: true) }
        return .expired(isBehind: false)
      case .streamIncomplete(let reason, let cursor):
        Log.notice("the stream of events broke off (\(reason)) and is opened again")
        if let cursor { try copy.moveCursor(to: cursor) }
        return .ended(nil)
      default: rest = rest.dropFirst()
      }
    }
    return nil
  }

  private func goLive() {
    let isNew = state.update { state in
      defer {
        state.isLive = true
        state.trouble = nil
      }
      return !state.isLive
    }
    if isNew { onLive() }
  }
}

extension ServerEvent {
  /// It may name bytes whose size nobody here knows.
  fileprivate var bringsBytes: Bool {
    if case .item(let row) = content { row.properties["blob_ref"] != nil } else { false }
  }

  fileprivate var endsStream: Bool {
    switch content {
    case .catchupTooOld, .cursorAhead, .streamIncomplete: true
    default: false
    }
  }
}

extension WorkingCopy {
  func cursor() throws(MarfaError) -> String? {
    try store.read { (connection) throws(MarfaError) in try connection.setting("cursor") }
  }

  func moveCursor(to cursor: String) throws(MarfaError) {
    try store.write { (connection) throws(MarfaError) in try connection.setSetting("cursor", cursor) }
  }

  /// The log does not reach to the cursor: what is here stays until it is hydrated again.
  func expire(isBehind: Bool) throws(MarfaError) {
    try store.write { (connection) throws(MarfaError) in
      try connection.setSetting("cursor", nil)
      try connection.setSetting("hydration", HydrationState.expired.rawValue)
      if isBehind { try connection.setSetting("behind", "yes") }
    }
  }

  /// Applies events and moves the cursor to the last of them, in one transaction.
  func apply(_ events: [ServerEvent]) throws(MarfaError) {
    try change { (change) throws(MarfaError) in
      let slice = try change.connection.slice()
      var cursor: String?
      for event in events {
        if let row = event.row {
          news.hear(row)
          try change.connection.overtake(row)
        }
        if case .edge(let row, _) = event.content { edgeNews.hear(row.source.bytes) }
        try change.apply(event, slice)
        if let id = event.id { cursor = id }
        if case .streamLive(let live?) = event.content, ServerEvent.isFurther(live, than: cursor ?? "") {
          let stored = try cursor == nil ? change.connection.setting("cursor") ?? "" : ""
          if ServerEvent.isFurther(live, than: stored) { cursor = live }
        }
      }
      if let cursor { try change.connection.setSetting("cursor", cursor) }
    }
  }
}

extension ServerEvent {
  /// The row it is about.
  fileprivate var row: Bytes128? {
    switch content {
    case .item(let row): row.id.bytes
    case .purged(let id), .metadata(let id, _): id.bytes
    case .edge(let row, _): row.id.bytes
    case .streamCursor, .streamLive, .catchupTooOld, .cursorAhead, .streamIncomplete, .unreadable, .unknown: nil
    }
  }

  /// Compares two cursors: decimal numbers of any length.
  static func isFurther(_ a: String, than b: String) -> Bool {
    let (a, b) = (a.drop { $0 == "0" }, b.drop { $0 == "0" })
    return a.utf8.count != b.utf8.count ? a.utf8.count > b.utf8.count : a > b
  }
}

extension Tree.Change {
  /// What an event says, by what it carries.
  fileprivate func apply(_ event: ServerEvent, _ slice: Slice) throws(MarfaError) {
    switch event.content {
    case .streamCursor, .streamLive, .catchupTooOld, .cursorAhead, .streamIncomplete, .unknown: break
    case .unreadable(let row): try passOver(row)
    case .item(let row):
      let isHeld = try connection.item(row.id) != nil
      try receive(row, slice: slice)
      // One that entered the slice, or came back, drew edges before: they are not said again.
      guard !isHeld, row.version > 1 || event.name != "item.created" else { return }
      if try connection.item(row.id) != nil { try connection.owe(row.id) }
    case .purged(let id): try forget(id, purged: true)
    case .edge(let row, _):
      if event.name == "edge.deleted" { return try forget(row.id) }
      if Hydration.wholeEdgeTypes.contains(row.type) { return try receive(row) }
      if try connection.item(row.source) != nil { try receive(row) }
    case .metadata(let id, let metadata): try receive(metadata, of: id)
    }
  }
}

extension RemoteFailure {
  /// Without the request's own number: the same again is no news.
  fileprivate var unnumbered: RemoteFailure {
    guard case .refused(var refusal) = self else { return self }
    refusal.requestID = nil
    return .refused(refusal)
  }
}

extension JSON.Object {
  /// About how many bytes it takes in memory; not exact.
  fileprivate var roughSize: Int { members.reduce(64) { $0 + $1.key.utf8.count + $1.value.roughSize } }
}

extension JSON {
  fileprivate var roughSize: Int {
    switch self {
    case .null, .bool: 16
    case .number(let text), .string(let text): 32 + text.utf8.count
    case .array(let values): values.reduce(32) { $0 + $1.roughSize }
    case .object(let object): object.roughSize
    }
  }
}
