extension Server {
  /// A blob's bytes, all of them or one range (contract "Blobs"), from wherever the server's link leads. The first request
  /// for a hash asks the server itself. `handler` is called on the network's thread.
  public func bytes(of hash: BlobHash, range: Range<Int64>?, _ handler: any BytesHandler) -> Transfer {
    let fetch = ByteFetch(self, hash, range, handler)
    if !network.perform({ fetch.begin() }) { handler.end(.failure(.canceled)) }
    return Transfer(
      cancel: { [network] in network.perform { fetch.cancel() } },
      resume: { [network] in network.perform { fetch.resume() } })
  }
}

/// One request for bytes, through as many answers as it takes: the origin's, a link's, a redirect's, a fresh link's.
final class ByteFetch: TransferHandler, @unchecked Sendable {
  // Safe: everything mutable is touched only on the network's thread: `begin`, `cancel` and `resume` are performed there, and
  // a transfer's handler is called there.
  private let server: Server
  private let hash: BlobHash
  private let range: Range<Int64>?
  private let handler: any BytesHandler

  private var transfer: Transfer?
  private var isCanceled = false
  private var isEnded = false

  // Of the answer that is being taken.
  private var asked = BytesRules.Asked.origin
  private var address: WebAddress?
  private var step: BytesRules.Step?
  private var refusal: AnswerCollector?
  private var discarded = 0
  private var delivered: Int64 = 0
  /// Other bytes came than were promised.
  private var problem: RangeFailure?

  private var link: Link?
  private var redirects = 0
  private var hasRenewed = false
  private var hasAskedOrigin = false

  private static let mostRedirects = 3
  /// Longer ones are what is fetched ahead.
  private static let short = 256 << 10

  init(_ server: Server, _ hash: BlobHash, _ range: Range<Int64>?, _ handler: any BytesHandler) {
    self.server = server
    self.hash = hash
    self.range = range
    self.handler = handler
  }

  func begin() {
    if let range, range.isEmpty || range.lowerBound < 0 {
      return finish(.failure(.refused("a range without bytes")))
    }
    let isShort = range.map { $0.count <= ByteFetch.short } ?? false
    switch server.links.route(hash, isShort: isShort, server) {
    case .origin: askOrigin()
    case .link(let link): follow(link)
    case .renewal: renew(insteadOf: nil)
    }
  }

  func cancel() {
    guard !isEnded else { return }
    isCanceled = true
    if let transfer { transfer.cancel() } else { finish(.failure(.canceled)) }
  }

  func resume() { transfer?.resume() }

  private var rangeHeader: [(name: String, value: String)] {
    range.map { [("Range", "bytes=\($0.lowerBound)-\($0.upperBound - 1)")] } ?? []
  }

  private func send(_ request: HTTPRequest) {
    step = nil
    refusal = nil
    discarded = 0
    transfer = server.network.start(request, self)
  }

  private func askOrigin() {
    link = nil
    redirects = 0
    hasAskedOrigin = true
    asked = .origin
    let request = server.request(.get, "/blobs/\(hash)", headers: rangeHeader)
    address = WebAddress(request.url)
    send(request)
  }

  /// To a link's host: the address as it was given, no key.
  private func ask(_ address: WebAddress) {
    self.address = address
    asked = .link(isOrigins: address.leads(to: server.origin))
    send(HTTPRequest(.get, address.text, headers: rangeHeader + [("Accept-Encoding", "identity")]))
  }

  private func follow(_ link: Link) {
    self.link = link
    redirects = 0
    ask(link.address)
  }

  private func renew(insteadOf stale: Link?) {
    transfer = nil
    server.links.renew(hash, insteadOf: stale, server) { [self] result in
      guard !isEnded else { return }
      switch result {
      case .success(let link): follow(link)
      case .failure(let failure): finish(.failure(failure))
      }
    }
  }

  private func finish(_ result: Result<Void, RangeFailure>) {
    guard !isEnded else { return }
    isEnded = true
    transfer = nil
    handler.end(result)
  }

  // MARK: - One answer

  func head(_ head: HTTPHead) -> Flow {
    if case .link = asked, let address { server.links.reached(address.host) }
    let step = BytesRules.judge(head, asked, range, limits: server.limits)
    self.step = step
    switch step {
    case .deliver(let head, _): return handler.head(head)
    case .refusal:
      var collector = AnswerCollector(limits: server.limits)
      let flow = collector.take(head)
      refusal = collector
      return flow
    case .redirect, .linkRefused: return .goOn
    case .fail: return .stop
    }
  }

  func bytes(_ bytes: UnsafeRawBufferPointer) -> Flow {
    switch step {
    case .deliver(_, let promised):
      guard delivered + Int64(bytes.count) <= promised ?? .max else {
        problem = .refused("more bytes came than were promised")
        return .stop
      }
      delivered += Int64(bytes.count)
      return handler.bytes(bytes)
    case .refusal: return refusal?.take(bytes) ?? .stop
    case .redirect, .linkRefused:
      // A short body is read, so that the connection can be used again.
      discarded += bytes.count
      return discarded > server.limits.refusalBytes ? .stop : .goOn
    case .fail, nil: return .stop
    }
  }

  func end(_ result: Result<Void, NetworkFailure>) {
    transfer = nil
    if isCanceled { return finish(.failure(.canceled)) }
    switch step {
    case nil:
      if case .failure(let failure) = result {
        finish(.failure(RangeFailure(RemoteFailure(failure))))
      } else {
        finish(.failure(.unreachable("the answer had no head")))
      }
    case .deliver(_, let promised): finish(ended(result, promised))
    case .fail(let failure): finish(.failure(failure))
    case .refusal:
      guard case .failure(let failure) = refusal?.result(result) else { return finish(.failure(.refused("a refusal"))) }
      finish(.failure(RangeFailure(failure)))
    case .redirect(let location): redirect(to: location)
    case .linkRefused(let status):
      // What led on from the origin itself has no link to renew.
      guard !hasRenewed else {
        server.links.distrust(hash, server)
        // The origin itself may give the bytes, or the reason why it does not.
        if !hasAskedOrigin { return askOrigin() }
        return finish(.failure(.refused("the link's host refused a fresh link as well (\(status))")))
      }
      hasRenewed = true
      renew(insteadOf: link)
    }
  }

  private func ended(_ result: Result<Void, NetworkFailure>, _ promised: Int64?) -> Result<Void, RangeFailure> {
    if let problem { return .failure(problem) }
    switch result {
    case .success:
      guard let promised, delivered < promised else { return .success(()) }
      return .failure(.stoppedPartWay("\(delivered) of \(promised) bytes came"))
    case .failure(.canceled), .failure(.shutDown): return .failure(.canceled)
    case .failure(.timedOut(let words)): return .failure(.timedOut(words))
    case .failure(let failure):
      let count = promised.map { "\(delivered) of \($0)" } ?? "\(delivered)"
      return .failure(.stoppedPartWay("\(count) bytes came: \(failure.words)"))
    }
  }

  private func redirect(to location: String) {
    redirects += 1
    guard redirects <= ByteFetch.mostRedirects else {
      return finish(.failure(.refused("the link leads on more than \(ByteFetch.mostRedirects) times")))
    }
    guard let next = address?.resolving(location) else {
      return finish(.failure(.refused("the link leads where it can't be followed")))
    }
    ask(next)
  }
}

extension NetworkFailure {
  /// For a person.
  var words: String {
    switch self {
    case .unreachable(let words), .timedOut(let words), .dropped(let words), .tls(let words): words
    case .tooLarge: "the answer's head is too large"
    case .file(let error): error.description
    case .canceled: "cancelled"
    case .shutDown: "the network was closed"
    }
  }
}
