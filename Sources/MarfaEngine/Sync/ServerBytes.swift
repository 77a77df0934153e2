/// A server as the place where bytes come from.
final class ServerBytes: ByteSource {
  private let server: Server
  /// Sizes are asked for by calls that wait.
  private let asking = WorkQueue(name: "marfa-sizes", threads: 8)
  private let cancellation = Cancellation()
  private let answered = Lock<(@Sendable () -> Void)?>(.leaf, nil)

  init(_ server: Server) { self.server = server }

  /// Has `body` called whenever the server, or a link's host, answered; on the network's thread or one of its own.
  func onAnswer(_ body: @escaping @Sendable () -> Void) { answered.withLock { $0 = body } }

  private func noteAnswer() { answered.withLock({ $0 })?() }

  func bytes(
    of hash: BlobHash, range: Range<Int64>?, _ handler: @escaping @Sendable (BytesEvent) -> BytesFlow
  ) -> any BytesTransfer {
    Moving(server.bytes(of: hash, range: range, Taker(handler, noteAnswer)))
  }

  func size(of hash: BlobHash, _ then: @escaping @Sendable (Result<Int64, BytesFailure>) -> Void) {
    asking.post { [self] in
      let found: Result<Int64?, RemoteFailure> = Result { () throws(RemoteFailure) in
        try server.size(of: hash, cancellation)
      }
      switch found {
      case .success(let size?):
        noteAnswer()
        then(.success(size))
      case .success(nil): then(.failure(.absent))
      case .failure(let failure): then(.failure(BytesFailure(failure)))
      }
    }
  }

  /// Ends what is asked. Call once.
  func close() {
    cancellation.cancel()
    asking.close()
  }

  private final class Moving: BytesTransfer {
    private let transfer: Transfer
    init(_ transfer: Transfer) { self.transfer = transfer }
    func cancel() { transfer.cancel() }
    func resume() { transfer.resume() }
  }

  private final class Taker: BytesHandler {
    private let handler: @Sendable (BytesEvent) -> BytesFlow
    private let answered: @Sendable () -> Void
    init(_ handler: @escaping @Sendable (BytesEvent) -> BytesFlow, _ answered: @escaping @Sendable () -> Void) {
      self.handler = handler
      self.answered = answered
    }

    func head(_ head: BytesHead) -> Flow {
      answered()
      return Flow(handler(.head(total: head.total, offset: head.offset, ignoresRange: head.ignoresRange)))
    }
    func bytes(_ bytes: UnsafeRawBufferPointer) -> Flow { Flow(handler(.bytes(bytes))) }
    func end(_ result: Result<Void, RangeFailure>) { _ = handler(.end(result.mapError { BytesFailure($0) })) }
  }
}

extension Flow {
  fileprivate init(_ flow: BytesFlow) {
    switch flow {
    case .goOn: self = .goOn
    case .pause: self = .pause
    case .stop: self = .stop
    }
  }
}

extension BytesFailure {
  fileprivate init(_ failure: RangeFailure) {
    switch failure {
    case .unreachable(let words): self = .unreachable(words)
    case .timedOut(let words): self = .timedOut(words)
    case .stoppedPartWay(let words): self = .stopped(words)
    case .rateLimited(let seconds): self = .rateLimited(seconds: seconds)
    case .absent: self = .absent
    case .pastEnd(let size):
      self = .failed("the bytes end before what was asked for\(size.map { ", at \($0)" } ?? "")")
    case .refused(let words): self = .failed(words)
    case .credentialRefused: self = .credentialRefused("the server does not give this key these bytes")
    case .mismatch(let named): self = .failed("\(RemoteFailure.contractMismatch(named: named))")
    case .canceled: self = .canceled
    }
  }

  fileprivate init(_ failure: RemoteFailure) {
    switch failure {
    case .busy(let status, let seconds, _) where status == 429: self = .rateLimited(seconds: seconds)
    case .timedOut(let words): self = .timedOut(words)
    case .notConnected, .unreachable, .notTheServers, .busy: self = .unreachable("\(failure)")
    case .refused(let refusal) where refusal.status == 401 || refusal.status == 403:
      self = .credentialRefused(refusal.message)
    case .refused(let refusal) where refusal.status == 404: self = .absent
    case .refused, .contractMismatch, .unreadable, .file: self = .failed("\(failure)")
    case .canceled: self = .canceled
    }
  }
}
