import Glibc
import MarfaEngine

/// The server itself, which its connections' threads keep alive; ``ContractServer`` is what its owner holds.
final class Instance: Sendable {
  /// What goes wrong on demand.
  let faults = Faults()
  let options: ServerOptions
  let line: Line
  let books: Monitor<Books>
  let ledger = Ledger()
  let signals = Monitor(Signals())
  let lifecycle: Monitor<Lifecycle>
  private let ports: Monitor<(instance: UInt16, store: UInt16, admin: UInt16)>
  /// Its name, the same as long as its folder lives.
  let instanceID: String

  /// What threads wait for.
  struct Signals {
    var head: Int64 = 0
    var isStopping = false
    var generation = 0
    var reason = ""
    var uploads = 0
  }

  /// The listeners, while there are any.
  struct Lifecycle {
    var listeners: [Listener] = []
  }

  /// Makes a server on a folder (made when it is not there) and starts it.
  init(folder: String, _ options: ServerOptions = ServerOptions()) throws(ServerRefusal) {
    self.options = options
    line = Line(options.link)
    let books = try Books(folder: folder, catalogue: options.catalogue, retainedEvents: options.retainedEvents)
    instanceID = try books.instance()
    self.books = Monitor(books)
    lifecycle = Monitor(Lifecycle())
    ports = Monitor((options.port, options.storePort, options.adminPort ?? 0))
    try start()
  }

  /// Starts it again after ``stop()``, on the same ports. Does nothing while it runs.
  func start() throws(ServerRefusal) {
    try lifecycle.update { (state) throws(ServerRefusal) in
      guard state.listeners.isEmpty else { return }
      let head = books.update { $0.head }
      signals.update { signals in
        signals.isStopping = false
        signals.head = head
      }
      let ports = self.ports.update { $0 }
      // The object store is another host, not only another port.
      var listeners = [
        Listener(.instance, address: "127.0.0.1", port: ports.instance, service: self),
        Listener(.store, address: "127.0.0.2", port: ports.store, service: self),
      ]
      if options.adminPort != nil {
        listeners.append(Listener(.instance, address: "127.0.0.1", port: ports.admin, service: AdminService(self)))
      }
      do throws(ServerRefusal) {
        for listener in listeners { try listener.start() }
      } catch {
        for listener in listeners { listener.stop() }
        throw error
      }
      self.ports.update {
        $0 = (listeners[0].port, listeners[1].port, listeners.count > 2 ? listeners[2].port : 0)
      }
      state.listeners = listeners
    }
  }

  /// Ends every connection and listens no more: whoever comes is refused the connection.
  func stop() {
    signals.update { $0.isStopping = true }
    faults.release()
    lifecycle.update { state in
      for listener in state.listeners { listener.stop() }
      state.listeners = []
    }
  }

  /// The instance's base, prefix included: `http://127.0.0.1:PORT`.
  var url: String { "http://127.0.0.1:\(ports.update { $0.instance })\(options.prefix)" }
  /// The object store's origin: `http://127.0.0.2:PORT`.
  var storeURL: String { "http://127.0.0.2:\(ports.update { $0.store })" }
  /// A place on the object store's host that answers whoever is redirected there, and notes a credential.
  var elsewhereURL: String { storeURL + "/elsewhere" }
  /// Where `/-/faults` and its like are asked; `nil` without an admin port.
  var adminURL: String? { options.adminPort.map { _ in "http://127.0.0.1:\(ports.update { $0.admin })" } }
  /// The secret of the first key.
  var key: String { options.keys.first?.secret ?? "" }
  /// The line between the server and everyone.
  var link: Link {
    get { line.link }
    set { line.link = newValue }
  }

  // MARK: - What happened

  /// What clients must never do, and did.
  var violations: [Violation] {
    let (violations, twins) = ledger.update { ($0.violations, $0.twins) }
    // One that is gone was taken away by whoever knew of it.
    return violations + twins.filter { isThere($0.key) }.values
  }
  /// True for an item or an edge that is there, as the records name it.
  private func isThere(_ row: String) -> Bool {
    let parts = row.split(separator: " ").map(String.init)
    guard parts.count == 2 else { return false }
    return books.update { books in
      if parts[0] == "edges" {
        return (try? books.database.row("SELECT 1 FROM edges WHERE id = ?1", .text(parts[1]))) != nil
      }
      return (try? books.database.row("SELECT 1 FROM items WHERE id = ?1", .text(parts[1]))) != nil
    }
  }

  /// The requests so far, the oldest of very many left out.
  var requests: [RequestRecord] { ledger.update { $0.requests } }
  /// Sums over them.
  var stats: ServerStats { ledger.update { $0.stats } }
  /// The number of the last request: later ones have greater numbers.
  var lastRequest: Int { ledger.update { $0.last } }
  /// The head of the event log.
  var head: Int64 { books.update { $0.head } }

  /// Forgets requests, sums and violations so far.
  func forgetRecords() {
    ledger.update { state in
      state.first = state.last + 1
      state.requests = []
      state.violations = []
      state.stats = ServerStats()
    }
  }

  /// Waits until the requests so far are such that `body` returns something; `nil` after so many seconds. `body` sees
  /// them again after each change.
  func waitForRequests<R>(seconds: Double = 30, _ body: ([RequestRecord]) -> R?) -> R? {
    ledger.wait(seconds: seconds) { body($0.requests) }
  }

  /// Waits until so many event streams are held and past their replay's opening; false after so many seconds.
  func waitForStreams(_ count: Int = 1, seconds: Double = 30) -> Bool {
    waitForRequests(seconds: seconds) { requests in
      requests.filter { $0.path.hasSuffix("/events") && $0.status == 200 && $0.ended == nil && $0.sent > 0 }.count
        >= count ? true : nil
    } ?? false
  }

  // MARK: - What befalls it

  /// Ends every event stream, plainly or with `stream_incomplete` and a reason.
  func cutStreams(incomplete reason: String? = nil) {
    signals.update { signals in
      signals.generation += 1
      signals.reason = reason ?? ""
    }
  }

  /// Drops all but the last events: older cursors are answered `catchup_too_old`.
  func retireEvents(keeping count: Int) throws(ServerRefusal) {
    try books.update { (books) throws(ServerRefusal) in try books.retire(keeping: count) }
  }

  /// The results of keyed writes so far are retained no more: a retry of one is 422 `idempotency_result_not_retained`.
  func forgetResults() throws(ServerRefusal) {
    try books.update { (books) throws(ServerRefusal) in _ = try books.database.rows("UPDATE replies SET body = NULL")
    }
  }

  /// Every signed link given so far is over.
  func expireLinks() throws(ServerRefusal) {
    try books.update { (books) throws(ServerRefusal) in try books.expireLinks() }
  }

  /// Writes down how everything stands, for ``restoreSnapshot(_:)``.
  func takeSnapshot(_ name: String) throws(ServerRefusal) {
    try books.update { (books) throws(ServerRefusal) in try books.takeSnapshot(name) }
  }

  /// Puts everything back to the snapshot, as a restored backup does: cursors past it are answered `cursor_ahead`.
  func restoreSnapshot(_ name: String) throws(ServerRefusal) {
    let head = try books.update { (books) throws(ServerRefusal) in
      try books.restoreSnapshot(name)
      return books.head
    }
    signals.update { signals in
      signals.head = head
      // Streams that were open belong to the log that is gone.
      signals.generation += 1
      signals.reason = ""
    }
  }

  /// Adds or replaces an item type.
  func add(_ type: TypeRow) {
    books.update { books in
      books.catalogue.types.removeAll { $0.id == type.id }
      books.catalogue.types.append(type)
    }
  }

  // MARK: - Inside

  /// Runs `body` with the books, and tells the event streams what came of it.
  func withBooks<R>(_ body: (Books) throws(ServerRefusal) -> R) throws(ServerRefusal) -> R {
    var head: Int64 = 0
    defer {
      let now = head
      signals.update { if $0.head != now { $0.head = now } }
    }
    return try books.update { (books) throws(ServerRefusal) in
      defer { head = books.head }
      return try body(books)
    }
  }

  /// The key with this secret.
  func key(_ secret: String) -> APIKey? { options.keys.first { $0.secret == secret } }
}

extension Instance: EventSource {
  var nameKey: String { options.namesEventsOldWay ? "type" : "event_type" }
  var pingInterval: Double { options.pingInterval }
  var isStopping: Bool { signals.update { $0.isStopping } }
  var generation: Int { signals.update { $0.generation } }

  func interruption(since generation: Int) -> String? {
    signals.update { $0.generation == generation ? nil : $0.reason }
  }

  func log() -> (head: Int64, oldest: Int64) {
    books.update { books in (books.head, (try? books.oldestEvent()) ?? 0) }
  }

  func events(after cursor: Int64, limit: Int, for actor: Actor, types: [String])
    -> (events: [(id: Int64, name: String, data: String)], last: Int64)
  {
    books.update { books in
      (try? books.events(after: cursor, limit: limit, for: actor, types: types)) ?? (events: [], last: cursor)
    }
  }

  func waitForEvents(after cursor: Int64, until deadline: Double) {
    let generation = self.generation
    _ = signals.wait(until: .after(seconds: deadline - Clock.now)) {
      $0.head > cursor || $0.isStopping || $0.generation != generation ? true : nil
    }
  }
}
