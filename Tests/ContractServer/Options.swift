import MarfaEngine

/// A key of the server, and what it may do.
public struct APIKey: Sendable {
  /// What a grant allows.
  public enum Grant: String, Sendable {
    case read, write
  }

  /// What records call it. Two devices that share a server are told apart by their keys.
  public var name: String
  /// The secret.
  public var secret: String
  /// Item type (or `*`) → what it may do with the type and what is under it.
  public var types: [String: Grant]
  /// Edge type (or `*`) → the same.
  public var edges: [String: Grant]

  /// A key; without grants named it may do everything.
  public init(
    _ name: String, secret: String, types: [String: Grant] = ["*": .write], edges: [String: Grant] = ["*": .write]
  ) {
    self.name = name
    self.secret = secret
    self.types = types
    self.edges = edges
  }
}

/// The line between the server and everyone: how far and how wide.
public struct Link: Sendable, Equatable {
  /// Seconds added before each answer, and once more before a connection's first: a round trip.
  public var roundTrip: Double
  /// Bytes a second of all bodies together, one budget each way; `nil` for as fast as it goes.
  public var bytesPerSecond: Double?

  /// A line.
  public init(roundTrip: Double = 0, bytesPerSecond: Double? = nil) {
    self.roundTrip = roundTrip
    self.bytesPerSecond = bytesPerSecond
  }
}

/// Where the links of `GET /blobs/{hash}/url` lead.
public enum LinkPlace: String, Sendable {
  /// To this server: names the contract, answers `HEAD`, 401 once expired.
  case instance
  /// To the object store's own host: names no contract, no `HEAD`, 403 once expired or altered.
  case store
}

/// How a ``ContractServer`` is made.
public struct ServerOptions: Sendable {
  /// The instance's port; 0 for one that is free (kept for later starts).
  public var port: UInt16 = 0
  /// The object store's port.
  public var storePort: UInt16 = 0
  /// The port for ``ContractServer``'s own requests (`/-/faults` …); `nil` for none.
  public var adminPort: UInt16?
  /// A path every request of the instance stands under, such as `/marfa`; empty for none.
  public var prefix = ""
  /// The keys it knows. The first is ``ContractServer/key``.
  public var keys = [APIKey("device", secret: "mk_test_device")]
  /// Its types.
  public var catalogue = Catalogue.standard
  /// Where signed links lead.
  public var links = LinkPlace.store
  /// The line.
  public var link = Link()
  /// Seconds between the comments of a quiet event stream.
  public var pingInterval = 30.0
  /// How many events are kept; `nil` for all.
  public var retainedEvents: Int?
  /// True writes `type` in an event's data instead of `event_type`, as older instances do.
  public var namesEventsOldWay = false
  /// True has every create that equals an earlier one under another id recorded as a violation; false only those whose
  /// earlier one was answered with an answer that was lost. (Two notes alike are legitimate, a retry under a new id is
  /// not.)
  public var flagsEqualCreates = false

  /// The defaults.
  public init() {}
}
