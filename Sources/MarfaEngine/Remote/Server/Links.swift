/// A signed link, used exactly as it was given.
struct Link: Equatable {
  var address: WebAddress
  /// Not used after this moment of ``Monotonic``; some time before the server's own.
  var goodUntil: Int64
}

/// The links to blobs: one per hash, kept until shortly before it expires, and one request for it shared by all who wait.
final class Links: @unchecked Sendable {
  // Safe: everything mutable is touched only on the network's thread, where all of ``ByteFetch`` runs; asserted by those
  // who call.
  private struct Entry {
    var link: Link?
    var requests = 0
    var isAsking = false
    var waiting: [@Sendable (Result<Link, RangeFailure>) -> Void] = []
    /// Not asked for again before this moment, after it could not be had.
    var restsUntil: Int64 = .min
  }
  private var entries: [BlobHash: Entry] = [:]
  /// When hosts that links led to answered last, and those that are asked for one byte, for the connection's sake.
  private var hosts: [String: Int64] = [:]
  private var reaching: Set<String> = []
  private static let mostHosts = 64
  /// A host may close a connection over which nothing goes; this long none does.
  private static let idle: Int64 = 15_000_000_000
  private static let mostEntries = 4096
  /// How long no link is asked for after one could not be had, or was of no use.
  private static let rest: Int64 = 10_000_000_000

  /// Where a request for bytes goes.
  enum Route: Equatable {
    /// To the bound origin, with the key: no link was ever at hand.
    case origin
    case link(Link)
    /// There was a link and it is over: a new one is waited for.
    case renewal
  }

  /// Counts a request and says where it goes. The first of a hash asks the origin, in one round trip; from the second on a
  /// link is asked for, and used once it is here. A short one, which a program may wait for, does not wait for a connection
  /// to the link's host: until there is one, the origin is asked.
  func route(_ hash: BlobHash, isShort: Bool, _ server: Server) -> Route {
    assert(server.network.isOwnThread)
    makeRoom()
    var entry = entries[hash] ?? Entry()
    entry.requests += 1
    entries[hash] = entry
    if let link = entry.link {
      guard link.goodUntil > Monotonic.now else { return .renewal }
      return isShort && !isReached(link, server) ? .origin : .link(link)
    }
    if entry.requests > 1 && !entry.isAsking && entry.restsUntil < Monotonic.now {
      entries[hash]?.isAsking = true
      // Behind the request for the bytes, which somebody waits for: it gets the connection that is open and free.
      server.network.perform { [weak server] in
        guard let server else { return }
        server.links.ask(hash, server)
      }
    }
    return .origin
  }

  /// Whether the link's host answered a moment ago, so that there is a connection to it; otherwise one is made.
  private func isReached(_ link: Link, _ server: Server) -> Bool {
    let host = link.address.host
    if let last = hosts[host], last + Links.idle > Monotonic.now { return true }
    if link.address.leads(to: server.origin) { return true }
    if reaching.insert(host).inserted {
      if reaching.count > Links.mostHosts { reaching = [host] }
      let request = HTTPRequest(
        .get, link.address.text, headers: [("Range", "bytes=0-0"), ("Accept-Encoding", "identity")])
      server.network.start(
        request,
        Reaching { [weak server] in
          // Whatever came of it: what asks for bytes finds out, and says so.
          server?.links.reached(host)
          server?.links.reaching.remove(host)
        })
    }
    return false
  }

  /// A link's host answered.
  func reached(_ host: String) {
    if hosts.count >= Links.mostHosts { hosts = [:] }
    hosts[host] = Monotonic.now
  }

  /// Another link than `stale` (which its host did not take, or which is over): the one that came meanwhile, or a new one.
  func renew(
    _ hash: BlobHash, insteadOf stale: Link?, _ server: Server,
    _ whenDone: @escaping @Sendable (Result<Link, RangeFailure>) -> Void
  ) {
    assert(server.network.isOwnThread)
    if let link = entries[hash]?.link, link != stale, link.goodUntil > Monotonic.now { return whenDone(.success(link)) }
    entries[hash, default: Entry()].waiting.append(whenDone)
    if entries[hash]?.isAsking != true { ask(hash, server) }
  }

  /// A fresh link was refused by its host: for a while the origin is asked.
  func distrust(_ hash: BlobHash, _ server: Server) {
    assert(server.network.isOwnThread)
    entries[hash]?.link = nil
    entries[hash]?.restsUntil = Monotonic.now + Links.rest
  }

  /// `GET /blobs/{hash}/url`.
  private func ask(_ hash: BlobHash, _ server: Server) {
    entries[hash, default: Entry()].isAsking = true
    server.network.start(
      server.request(.get, "/blobs/\(hash)/url"),
      Exchange(server.limits) { [weak server] result in
        guard let server else { return }
        server.links.answered(hash, result, server)
      })
  }

  private func answered(_ hash: BlobHash, _ result: Result<Answer, RemoteFailure>, _ server: Server) {
    let link: Result<Link, RangeFailure>
    do throws(RemoteFailure) {
      link = .success(try Links.link(try server.object(try result.get()), server.origin))
    } catch {
      link = .failure(RangeFailure(error))
    }
    var entry = entries[hash] ?? Entry()
    let waiting = entry.waiting
    entry.waiting = []
    entry.isAsking = false
    switch link {
    case .success(let link): entry.link = link
    case .failure: entry.restsUntil = Monotonic.now + Links.rest
    }
    entries[hash] = entry
    for whenDone in waiting { whenDone(link) }
  }

  /// `{"url","expires_in"}`.
  static func link(_ answer: JSON.Object, _ origin: Origin) throws(RemoteFailure) -> Link {
    let text = try Decode.text(answer["url"], "a link's url")
    let base = WebAddress(origin.description)
    // A link on the instance may come as a path of it.
    guard let address = text.hasPrefix("/") ? base?.resolving(text) : WebAddress(text) else {
      throw .unreadable("a link leads nowhere that can be asked")
    }
    guard let seconds = answer["expires_in"]?.integer, seconds >= 0 else {
      throw .unreadable("a link does not say when it expires")
    }
    let life = min(seconds, 604_800)
    let margin = min(30, (life + 3) / 4)
    return Link(address: address, goodUntil: Monotonic.now + (life - margin) * 1_000_000_000)
  }

  private func makeRoom() {
    guard entries.count >= Links.mostEntries else { return }
    let now = Monotonic.now
    entries = entries.filter { $0.value.isAsking || ($0.value.link?.goodUntil ?? .min) > now }
    if entries.count >= Links.mostEntries { entries = entries.filter { $0.value.isAsking } }
  }
}

/// Asks a link's host for one byte, and is done when it has answered in any way.
private final class Reaching: TransferHandler {
  private let whenDone: @Sendable () -> Void

  init(_ whenDone: @escaping @Sendable () -> Void) { self.whenDone = whenDone }

  // A host that sends more is cut off: its connection is of no use then.
  func head(_ head: HTTPHead) -> Flow { head.contentLength ?? .max <= 1024 ? .goOn : .stop }
  func bytes(_ bytes: UnsafeRawBufferPointer) -> Flow { .goOn }
  func end(_ result: Result<Void, NetworkFailure>) { whenDone() }
}

extension RangeFailure {
  /// What the bound server's failure is to who asked for bytes.
  init(_ failure: RemoteFailure) {
    switch failure {
    case .notConnected(let words), .unreachable(let words): self = .unreachable(words)
    case .timedOut(let words): self = .timedOut(words)
    case .notTheServers(429, let seconds), .busy(429, let seconds, _): self = .rateLimited(seconds: seconds)
    case .notTheServers, .busy: self = .unreachable(failure.description)
    case .refused(let refusal):
      switch refusal.status {
      case 401, 403: self = .credentialRefused
      case 404: self = .absent
      default: self = .refused(refusal.description)
      }
    case .contractMismatch(let named): self = .mismatch(named: named)
    case .unreadable, .file: self = .refused(failure.description)
    case .canceled: self = .canceled
    }
  }
}
