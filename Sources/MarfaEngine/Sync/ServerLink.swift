import Glibc

/// How a working copy meets its server.
public struct RemoteOptions: Sendable {
  /// Which server.
  public var origin: Origin
  /// The key; `nil` asks without one.
  public var credential: Credential?
  /// The types the copy declares; `nil`: those it declared before, else every type the server has but its own.
  public var types: [String]?
  /// The tier it declares; `nil`: the one before, else the library.
  public var tier: TierFilter?
  /// Limits of the network.
  public var network = NetworkLimits()
  /// Limits of the server's answers.
  public var limits = ServerLimits()
  /// Seconds to wait after something on the network failed, and the longest of the waits that follow.
  public var waits = (shortest: 1.0, longest: 30.0)
  /// Writes in flight at once, and uploads.
  public var inFlight = (writes: 8, uploads: 4)

  /// The usual ones.
  public init(_ origin: Origin, credential: Credential? = nil) {
    self.origin = origin
    self.credential = credential
  }
}

/// A working copy's server: the stream it follows and the queue it is sent, while the copy is open.
final class ServerLink: Sendable {
  let server: Server
  let network: Network
  let drain: Drain
  let follower: Follower
  let doubted: DoubtedBytes
  private let bytes: ServerBytes
  /// Bytes that come make the stream be tried again this often at most.
  private static let hurry: Int64 = 5_000_000_000
  private let fetcher: Fetcher

  init(_ copy: WorkingCopy, _ options: RemoteOptions) throws(MarfaError) {
    network = Network(limits: options.network)
    server = Server(
      origin: options.origin, credential: options.credential, network: network, limits: options.limits)
    var sending = Drain.Settings()
    sending.writes = max(1, options.inFlight.writes)
    sending.uploads = max(1, options.inFlight.uploads)
    sending.shortestWait = options.waits.shortest
    sending.longestWait = options.waits.longest
    bytes = ServerBytes(server)
    fetcher = copy.fetcher
    let drain = Drain(copy, server, sending)
    self.drain = drain
    var following = Follower.Settings()
    following.types = options.types
    following.tier = options.tier
    following.shortestWait = options.waits.shortest
    following.longestWait = options.waits.longest
    let doubted = DoubtedBytes(copy, server, interval: options.waits.longest)
    self.doubted = doubted
    follower = Follower(
      copy, server, drain, following,
      onLive: { [fetcher] in
        drain.retryNow()
        // What could not be fetched before is tried again at once.
        fetcher.link.worked()
        fetcher.learnSizes()
        doubted.look()
      })
    // Whoever waits to try again because nothing could be reached need not, when bytes came. Not for each of them: what is
    // read goes on by the thousand, and the stream may be broken alone.
    let hurry = Lock<(next: Int64, isWaiting: Bool)>(.leaf, (.min, false))
    bytes.onAnswer { [weak follower] in
      guard let follower, !follower.isLive, follower.trouble?.isOfTheWay ?? true else { return }
      let now = Monotonic.now
      let wait = hurry.withLock { hurry -> Int64? in
        guard !hurry.isWaiting else { return nil }
        hurry.isWaiting = hurry.next > now
        defer { hurry.next = max(hurry.next, now) + ServerLink.hurry }
        return max(hurry.next, now) - now
      }
      guard let wait else { return }
      if wait == 0 { return follower.retryNow() }
      // It was tried a moment ago, perhaps before the server was there.
      startThread(named: "marfa-hurry") { [weak follower] in
        usleep(useconds_t(wait / 1000))
        hurry.withLock { $0.isWaiting = false }
        follower?.retryNow()
      }
    }
    drain.onStreamWanted { [weak follower] in follower?.openAnew() }
    try drain.start()
    fetcher.connect(bytes)
    copy.store.onCommit { drain.noteCommit() }
    follower.start()
  }

  func close() {
    // Both at once: a hydration may be waiting for an answer that the drain waits for.
    follower.stop()
    drain.stop()
    doubted.stop()
    follower.close()
    drain.close()
    doubted.close()
    bytes.close()
    network.close()
  }
}

extension WorkingCopy {
  /// Binds the copy to a server and begins to follow it and to send what waits. Returns at once; the network is met by
  /// threads of the copy's own. Throws ``MarfaError/readingHandle`` for a reader, and ``StoreProblem/boundElsewhere(path:bound:asked:)``
  /// when the store is bound to another origin (contract, "Requests and answers").
  public func connect(_ options: RemoteOptions) throws(MarfaError) {
    guard !isReader else { throw .readingHandle }
    if let types = options.types, types.isEmpty || types.contains("*") || types.contains("") {
      throw .invalid("a copy declares the types it holds, by name; neither none nor \"*\" is a choice")
    }
    if let bound = try origin(), bound != options.origin.description {
      throw .unusable(.boundElsewhere(path: path, bound: bound, asked: options.origin.description))
    }
    guard link.withLock({ $0 == nil }) else { throw .invalid("the copy is connected already") }
    // Remembered until one has answered: the next mount must not take a store for one that is to have no server.
    let asked = options.origin.description
    if try origin() == nil, try askedOrigin() != asked {
      try store.write { (connection) throws(MarfaError) in try connection.setSetting("asked_origin", asked) }
    }
    if let credential = options.credential { try note(key: credential) }
    // It is bound once a server has answered there: an address with a slip in it binds nothing.
    let made = try ServerLink(self, options)
    link.withLock { $0 = made }
  }

  /// The server a copy is bound to, whether or not it is asked now; before one has answered, the one that is asked.
  public func origin() throws(MarfaError) -> String? {
    let bound = try store.read { (connection) throws(MarfaError) in try connection.setting("origin") }
    return bound ?? link.withLock { $0?.server.origin.description }
  }

  /// The server of a copy, whether or not it is asked now or has ever answered.
  public func knownOrigin() throws(MarfaError) -> String? {
    if let origin = try origin() { return origin }
    return try askedOrigin()
  }

  /// The server that was asked for last, of a copy that is bound to none yet.
  public func askedOrigin() throws(MarfaError) -> String? {
    try store.read { (connection) throws(MarfaError) in
      guard try connection.setting("origin") == nil else { return nil }
      return try connection.setting("asked_origin")
    }
  }

  /// How it stands with the server; `nil` for a copy that is connected to none.
  public var serverStatus: ServerStatus? {
    guard let link = link.withLock({ $0 }) else { return nil }
    let isKeyRefused = link.follower.trouble?.isKeyRefused ?? false || link.drain.trouble == .credential
    return ServerStatus(
      origin: link.server.origin.description,
      // A stream that was opened before its key was refused may be held a while longer: that is not online.
      isOnline: link.follower.isLive && !isKeyRefused, isPaused: link.drain.isPaused,
      hydrationProgress: link.follower.progress, hydrations: link.follower.hydrations,
      trouble: link.follower.trouble.map { "\($0)" }, queueTrouble: link.drain.trouble.map { "\($0)" },
      bytesSent: link.drain.bytesOnTheirWay,
      isKeyRefused: isKeyRefused)
  }

  /// How many bytes of an upload have gone out; `nil` for one that is not being sent.
  public func uploadProgress(of hash: BlobHash) -> Int64? { link.withLock { $0 }?.drain.progress(of: hash) }

  /// Waits until the copy has caught up with its server: false when that took longer, or there is none.
  public func waitUntilLive(seconds: Double) -> Bool {
    link.withLock { $0 }?.follower.waitUntilLive(.after(seconds: seconds)) ?? false
  }

  /// Tries the network again now, whatever it waits for.
  public func retryNow() {
    let link = link.withLock { $0 }
    link?.follower.retryNow()
    link?.drain.retryNow()
    link?.doubted.look()
    fetcher.link.worked()
  }

  /// Brings the whole slice here again. Returns at once.
  public func hydrateAgain() throws(MarfaError) {
    guard let link = link.withLock({ $0 }) else { throw isReader ? .readingHandle : .noServer }
    link.follower.hydrateAgain()
  }
}

/// How a copy stands with its server.
public struct ServerStatus: Sendable, Equatable {
  public var origin: String
  /// True while its events are held, it has caught up, and the key is accepted.
  public var isOnline: Bool
  /// Nothing is sent until it is resumed.
  public var isPaused: Bool
  /// Present while a hydration runs.
  public var hydrationProgress: HydrationProgress?
  /// How many hydrations are through since it was connected.
  public var hydrations: Int
  /// Why it is not followed now, in words.
  public var trouble: String?
  /// Why nothing is sent now, in words.
  public var queueTrouble: String?
  /// The bytes of the uploads under way that have gone out.
  public var bytesSent: Int64
  /// The key is not accepted: nothing goes on before there is another.
  public var isKeyRefused: Bool
}

extension RemoteFailure {
  /// Nothing of the server's own was heard.
  fileprivate var isOfTheWay: Bool {
    switch self {
    case .notConnected, .unreachable, .timedOut, .notTheServers: true
    case .busy, .refused, .contractMismatch, .unreadable, .file, .canceled: false
    }
  }
  fileprivate var isKeyRefused: Bool { if case .refused(let refusal) = self { refusal.status == 401 } else { false } }
}
