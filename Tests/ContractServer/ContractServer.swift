import MarfaEngine

/// A Marfa server for tests: the contract (version 0) as a real one keeps it, over real sockets, with faults on demand
/// and a record of what a client must never do.
///
/// State is in SQLite and files under its folder: it survives being stopped and started, and being made again on the
/// same folder. It stops when its last reference goes. All of its methods may be called from any thread.
public final class ContractServer: Sendable {
  private let instance: Instance

  /// Makes a server on a folder (made when it is not there) and starts it.
  public init(folder: String, _ options: ServerOptions = ServerOptions()) throws(ServerRefusal) {
    instance = try Instance(folder: folder, options)
  }

  // Here and not in the instance: its own threads may hold that one last, and cannot wait for themselves.
  deinit { instance.stop() }

  /// Starts it again after ``stop()``, on the same ports. Does nothing while it runs.
  public func start() throws(ServerRefusal) { try instance.start() }
  /// Ends every connection and listens no more: whoever comes is refused the connection.
  public func stop() { instance.stop() }

  // MARK: - Where it is

  /// The instance's base, prefix included: `http://127.0.0.1:PORT`.
  public var url: String { instance.url }
  /// The object store's origin: `http://127.0.0.2:PORT`.
  public var storeURL: String { instance.storeURL }
  /// A place on the object store's host that answers whoever is redirected there, and notes a credential.
  public var elsewhereURL: String { instance.elsewhereURL }
  /// Where `/-/faults` and its like are asked; `nil` without an admin port.
  public var adminURL: String? { instance.adminURL }
  /// The secret of the first key.
  public var key: String { instance.key }
  /// Its name, the same as long as its folder lives.
  public var instanceID: String { instance.instanceID }

  // MARK: - What happened

  /// What clients must never do, and did.
  public var violations: [Violation] { instance.violations }
  /// The requests so far, the oldest of very many left out.
  public var requests: [RequestRecord] { instance.requests }
  /// Sums over them.
  public var stats: ServerStats { instance.stats }
  /// The number of the last request: later ones have greater numbers.
  public var lastRequest: Int { instance.lastRequest }
  /// The head of the event log.
  public var head: Int64 { instance.head }
  /// Forgets requests, sums and violations so far.
  public func forgetRecords() { instance.forgetRecords() }
  /// Waits until the requests so far are such that `body` returns something; `nil` after so many seconds. `body` sees
  /// them again after each change, and must not ask the server anything.
  public func waitForRequests<R>(seconds: Double = 30, _ body: ([RequestRecord]) -> R?) -> R? {
    instance.waitForRequests(seconds: seconds, body)
  }
  /// Waits until so many event streams are held; false after so many seconds.
  public func waitForStreams(_ count: Int = 1, seconds: Double = 30) -> Bool {
    instance.waitForStreams(count, seconds: seconds)
  }

  // MARK: - What befalls it

  /// What goes wrong on demand.
  public var faults: Faults { instance.faults }
  /// The line between the server and everyone.
  public var link: Link {
    get { instance.link }
    set { instance.link = newValue }
  }
  /// Ends every event stream, plainly or with `stream_incomplete` and a reason.
  public func cutStreams(incomplete reason: String? = nil) { instance.cutStreams(incomplete: reason) }
  /// Drops all but the last events: older cursors are answered `catchup_too_old`.
  public func retireEvents(keeping count: Int) throws(ServerRefusal) { try instance.retireEvents(keeping: count) }
  /// The results of keyed writes so far are retained no more: a retry of one is 422 `idempotency_result_not_retained`.
  public func forgetResults() throws(ServerRefusal) { try instance.forgetResults() }
  /// Every signed link given so far is over.
  public func expireLinks() throws(ServerRefusal) { try instance.expireLinks() }
  /// Writes down how every row stands, for ``restoreSnapshot()``.
  public func takeSnapshot(_ name: String = "") throws(ServerRefusal) { try instance.takeSnapshot(name) }
  /// Puts every row back to the snapshot, as a restored backup does: cursors past it are answered `cursor_ahead`.
  public func restoreSnapshot(_ name: String = "") throws(ServerRefusal) { try instance.restoreSnapshot(name) }
  /// Adds or replaces an item type.
  public func add(_ type: TypeRow) { instance.add(type) }

  // MARK: - Another device

  /// Changes or reads the server's rows as another device, all of it at once: one transaction, taken back when `body`
  /// throws; every event stream tells what it changed. Nothing else is answered meanwhile, so make no request inside.
  public func change<R>(_ body: (ServerDevice) throws -> R) throws -> R { try instance.change(body) }
  /// The item with this id, in any state.
  public func item(_ id: String) throws -> ServerItem? { try change { try $0.item(id) } }
}
