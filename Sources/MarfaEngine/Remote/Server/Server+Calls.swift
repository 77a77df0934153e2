/// One answer, awaited by a thread or handed to a function on the network's thread.
final class Exchange: TransferHandler {
  private let collector: Lock<AnswerCollector>
  private let whenDone: @Sendable (Result<Answer, RemoteFailure>) -> Void

  init(
    _ limits: ServerLimits, isBodiless: Bool = false,
    _ whenDone: @escaping @Sendable (Result<Answer, RemoteFailure>) -> Void
  ) {
    collector = Lock(.leaf, AnswerCollector(limits: limits, isBodiless: isBodiless))
    self.whenDone = whenDone
  }

  func head(_ head: HTTPHead) -> Flow { collector.withLock { $0.take(head) } }
  func bytes(_ bytes: UnsafeRawBufferPointer) -> Flow { collector.withLock { $0.take(bytes) } }
  func end(_ result: Result<Void, NetworkFailure>) { whenDone(collector.withLock { $0.result(result) }) }
}

extension Server {
  /// Sends a request of this server's and waits for the answer.
  func call(_ request: HTTPRequest, _ cancellation: Cancellation) throws(RemoteFailure) -> Answer {
    assert(!network.isOwnThread, "a blocking call on the network's thread waits for itself")
    guard !cancellation.isCanceled else { throw .canceled }
    let done = OneShot<Result<Answer, RemoteFailure>>()
    let transfer = network.start(request, Exchange(limits, isBodiless: request.method == .head) { done.fulfil($0) })
    let token = cancellation.onCancel { transfer.cancel() }
    let result = done.wait()
    cancellation.remove(token)
    // A path of the contract names ids and hashes; the query may name a search, and stays out.
    let path = request.url.dropFirst(origin.description.utf8.count).prefix { $0 != "?" }
    switch result {
    case .success(let answer):
      Log.debug(
        "\(request.method.rawValue) \(path): \(answer.head.status), request \(answer.head.requestID ?? "unnamed")")
    case .failure(let failure): Log.debug("\(request.method.rawValue) \(path): \(failure.inLog)")
    }
    return try result.get()
  }

  /// The JSON of an answer.
  func json(_ answer: Answer) throws(RemoteFailure) -> JSON {
    try JSON(answer: answer.body, values: limits.answerValues)
  }

  /// The JSON object of an answer.
  func object(_ answer: Answer) throws(RemoteFailure) -> JSON.Object {
    guard let object = try json(answer).object else { throw .unreadable("its body is no JSON object") }
    return object
  }

  /// A `GET` and its JSON.
  func get(
    _ path: String, _ query: [(String, String?)], authorized: Bool = true, _ cancellation: Cancellation
  ) throws(RemoteFailure) -> JSON {
    let parts = query.compactMap { name, value in value.map { "\(name)=\(Server.encoded($0))" } }
    let request = request(
      .get, path, query: parts.isEmpty ? nil : parts.joined(separator: "&"), authorized: authorized)
    return try json(try call(request, cancellation))
  }
}

extension RemoteFailure {
  /// Without a word of the answer's body.
  fileprivate var inLog: String {
    switch self {
    case .refused(let refusal): "refused (\(refusal.status) \(refusal.code)), request \(refusal.requestID ?? "unnamed")"
    case .busy(let status, _, _): "busy (\(status))"
    case .notConnected, .unreachable, .timedOut, .notTheServers, .contractMismatch, .unreadable, .file, .canceled:
      description
    }
  }
}

extension JSON {
  /// Reads what a server answered, no more than `limit` values of it: a short text can hold millions, and each takes many
  /// times its length in memory.
  init(answer bytes: [UInt8], values limit: Int) throws(RemoteFailure) {
    guard JSON.values(in: bytes) <= limit else { throw .unreadable("it holds more than \(limit) values") }
    do {
      self = try JSON(reading: bytes)
    } catch {
      switch error {
      case .malformed(let offset): throw .unreadable("its body is no JSON (byte \(offset) of \(bytes.count))")
      case .tooDeep: throw .unreadable("its body nests deeper than \(JSON.maximumDepth)")
      }
    }
  }

  /// About how many values a text holds, by the marks between them.
  private static func values(in bytes: [UInt8]) -> Int {
    var count = 1
    var isText = false
    var isEscaped = false
    for byte in bytes {
      if isText {
        if isEscaped {
          isEscaped = false
        } else if byte == UInt8(ascii: "\\") {
          isEscaped = true
        } else if byte == UInt8(ascii: "\"") {
          isText = false
        }
        continue
      }
      switch byte {
      case UInt8(ascii: "\""): isText = true
      case UInt8(ascii: ","), UInt8(ascii: "["), UInt8(ascii: "{"): count += 1
      default: break
      }
    }
    return count
  }
}
