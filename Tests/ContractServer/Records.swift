import MarfaEngine

/// A request as it came, and what became of it.
public struct RequestRecord: Sendable {
  /// Its number, from 1, over both origins.
  public let number: Int
  /// Which origin it came to.
  public let origin: Fault.Origin
  /// The number of its connection, from 1, over both origins.
  public let connection: Int
  /// `GET` …
  public let method: String
  /// Path and query as sent.
  public let target: String
  /// Headers by lower-case name. A credential is there as `Bearer NAME`, with its key's name, never its secret.
  public let headers: [String: String]
  /// The name of its key.
  public let key: String?
  /// Seconds on the monotonic clock at which its head was in.
  public let began: Double
  /// Bytes of its body so far.
  public internal(set) var received: Int64 = 0
  /// The hash of its body, once it was in (for requests that are no upload).
  public internal(set) var bodyHash: BlobHash?
  /// The answer's status; `nil` when there was none.
  public internal(set) var status: Int?
  /// Bytes of the answer's body that went out.
  public internal(set) var sent: Int64 = 0
  /// Seconds at which it was over; `nil` while it is under way.
  public internal(set) var ended: Double?
  /// True when the whole answer went out.
  public internal(set) var completed = false
  /// True when a fault had a part in it.
  public internal(set) var faulty = false

  /// The path alone.
  public var path: String { String(target.prefix { $0 != "?" }) }
}

/// Something a client of the contract must never do.
public struct Violation: Sendable, CustomStringConvertible {
  /// What.
  public enum Kind: String, Sendable, CaseIterable {
    /// A credential at a link, at the object store or wherever else a link or redirect led.
    case credentialElsewhere
    /// An idempotency key came with another request.
    case keyReused
    /// A write without an idempotency key.
    case writeWithoutKey
    /// An upload with one.
    case keyOnUpload
    /// An item or edge update without the version it read.
    case updateWithoutVersion
    /// An edge update with a `conflict` key.
    case edgeConflictKey
    /// An edge whose end was never created, or whose create was not answered yet; or a write to such a row.
    case beforeItsCreate
    /// A row naming bytes whose upload was not answered yet.
    case beforeItsUpload
    /// One create under two ids.
    case createdTwice
    /// A query or body key the contract does not have.
    case undeclaredKey
    /// A JSON body not sent as JSON.
    case notJSON
    /// A signed link that is not exactly as it was given.
    case linkAltered
    /// Two writes of one key to one row under way at once.
    case concurrentWrites
    /// An id that is another row's.
    case idReused
    /// Again before the wait a `Retry-After` asked for.
    case tooEarly
    /// An event stream asked for some types only.
    case narrowedStream
  }

  /// What it was.
  public let kind: Kind
  /// Which request did it.
  public let request: Int
  /// In words.
  public let words: String

  public var description: String { "\(kind.rawValue) (request \(request)): \(words)" }
}

/// Sums over the requests so far.
public struct ServerStats: Sendable, Equatable {
  /// Of one kind of request.
  public struct Kind: Sendable, Equatable {
    /// How many.
    public var requests = 0
    /// Bytes of their bodies.
    public var received: Int64 = 0
    /// Bytes of their answers' bodies.
    public var sent: Int64 = 0
  }

  /// By method and path with ids left out: `GET /items/*`, `GET store` …
  public var kinds: [String: Kind] = [:]
  /// Connections taken.
  public var connections = 0
  /// Requests.
  public var requests: Int { kinds.values.reduce(0) { $0 + $1.requests } }
  /// Bytes of the requests' bodies.
  public var received: Int64 { kinds.values.reduce(0) { $0 + $1.received } }
  /// Bytes of the answers' bodies.
  public var sent: Int64 { kinds.values.reduce(0) { $0 + $1.sent } }
  /// Bytes of blobs sent, whichever way they were asked for.
  public var blobBytesSent: Int64 {
    kinds.reduce(0) { $0 + ($1.key == "GET store" || $1.key.hasPrefix("GET /blobs/") ? $1.value.sent : 0) }
  }
  /// The sums of one kind.
  public subscript(_ kind: String) -> Kind { kinds[kind] ?? Kind() }
}

/// What was asked, and what should not have been. Any thread.
final class Ledger: Sendable {
  struct State {
    var requests: [RequestRecord] = []
    /// The number of the first record in `requests`.
    var first = 1
    var last = 0
    var violations: [Violation] = []
    var stats = ServerStats()
    /// Row → the requests that are writing it.
    var writing: [String: [(request: Int, key: String, socket: Int32)]] = [:]
    /// Rows whose create came and was not answered yet, and uploads the same: by which key. Whoever else learnt of one, by
    /// an event, may build on it.
    var unanswered: [String: String] = [:]
    /// Those of them whose answer broke on its way.
    var lost: Set<String> = []
    /// Those of these that another write stood on since: which one.
    var suspects: [String: Int] = [:]
    /// Rows and uploads whose making was answered.
    var answered: Set<String> = []
    /// Idempotency keys under way, and what each has stood for: key's owner and key.
    var claimedKeys: Set<String> = []
    var keys: [String: String] = [:]
    /// Creates whose answer was lost, by what they said → their id.
    var lostCreates: [String: String] = [:]
    /// Their rows, where another was made that says the same: who does not ask for the first again has made it twice.
    var twins: [String: Violation] = [:]
    /// What every create said → its id.
    var creates: [String: String] = [:]
    /// Method, target and key → when it may come again.
    var notBefore: [String: Double] = [:]
  }

  private let state = Monitor(State())
  private static let keptRequests = 50_000

  func update<R>(_ body: (inout State) -> R) -> R { state.update(body) }

  func wait<R>(seconds: Double, for body: (inout State) -> R?) -> R? {
    state.wait(until: .after(seconds: seconds), for: body)
  }

  /// Takes a new request in.
  func begin(_ make: (Int) -> RequestRecord) -> Int {
    update { state in
      state.last += 1
      if state.requests.count == Ledger.keptRequests {
        state.requests.removeFirst(Ledger.keptRequests / 2)
        state.first += Ledger.keptRequests / 2
      }
      state.requests.append(make(state.last))
      return state.last
    }
  }

  func record(_ number: Int, _ change: (inout RequestRecord) -> Void) {
    update { state in
      let index = number - state.first
      if state.requests.indices.contains(index) { change(&state.requests[index]) }
    }
  }

  func violate(_ kind: Violation.Kind, _ request: Int, _ words: String) {
    update { $0.violations.append(Violation(kind: kind, request: request, words: words)) }
  }

  func count(_ kind: String, _ change: (inout ServerStats.Kind) -> Void) {
    update { change(&$0.stats.kinds[kind, default: ServerStats.Kind()]) }
  }
}
