import CCurl
import Glibc

/// A success of the contract, its body whole.
struct Answer {
  var head: HTTPHead
  var body: [UInt8]
}

/// Takes one answer of the bound server, judges it by its head and keeps its body within bounds. Holds nothing but values;
/// whoever owns it guards it.
struct AnswerCollector {
  private let limits: ServerLimits
  /// The answer to a `HEAD`: the length it states is of a body that does not come.
  private let isBodiless: Bool
  private var head: HTTPHead?
  private var judgement: Contract.Judgement?
  private var body: [UInt8] = []
  /// A success that can't be used.
  private var problem: String?
  /// A refusal whose body is too long to be one: its head is all that counts.
  private var bodyIsDropped = false

  init(limits: ServerLimits, isBodiless: Bool = false) {
    self.limits = limits
    self.isBodiless = isBodiless
  }

  mutating func take(_ head: HTTPHead) -> Flow {
    self.head = head
    let judgement = Contract.judge(head)
    self.judgement = judgement
    switch judgement {
    case .mismatch, .notTheServers: return .stop
    case .redirect:
      problem = "it leads elsewhere (\(head.status)), where nothing of this contract does"
      return .stop
    case .success:
      if let encoding = head["content-encoding"], encoding.lowercased() != "identity" {
        problem = "it is compressed, which was not asked for"
        return .stop
      }
      return holds(promised(by: head))
    case .refusal: return holds(promised(by: head))
    }
  }

  mutating func take(_ bytes: UnsafeRawBufferPointer) -> Flow {
    guard case .goOn = holds(Int64(body.count + bytes.count)) else { return .stop }
    body.append(contentsOf: bytes)
    return .goOn
  }

  private func promised(by head: HTTPHead) -> Int64 { isBodiless ? 0 : head.contentLength ?? 0 }

  private mutating func holds(_ size: Int64) -> Flow {
    if judgement == .success {
      guard size <= limits.answerBytes else {
        problem = "it is larger than \(Bytes.text(Int64(limits.answerBytes)))"
        return .stop
      }
    } else if size > limits.refusalBytes {
      bodyIsDropped = true
      body = []
      return .stop
    }
    return .goOn
  }

  /// What it came to.
  func result(_ end: Result<Void, NetworkFailure>) -> Result<Answer, RemoteFailure> {
    guard let head, let judgement else {
      if case .failure(let failure) = end { return .failure(RemoteFailure(failure)) }
      return .failure(.unreachable("the answer had no head"))
    }
    switch judgement {
    case .mismatch(let named): return .failure(.contractMismatch(named: named.map { String($0.prefix(64)) }))
    case .notTheServers:
      return .failure(
        .notTheServers(status: head.status, retryAfter: head.retryAfter(atMost: limits.longestRetryAfter)))
    case .redirect: return .failure(.unreadable(problem ?? ""))
    case .success:
      if let problem { return .failure(.unreadable(problem)) }
      if case .failure(let failure) = end { return .failure(RemoteFailure(failure)) }
      return .success(Answer(head: head, body: body))
    case .refusal:
      if case .failure(.canceled) = end, !bodyIsDropped { return .failure(.canceled) }
      return .failure(refusal(head, end))
    }
  }

  private func refusal(_ head: HTTPHead, _ end: Result<Void, NetworkFailure>) -> RemoteFailure {
    let isWhole = if case .success = end { !bodyIsDropped } else { false }
    let error = isWhole ? (try? JSON(reading: body))?.object?["error"]?.object : nil
    let code = (error?["code"]?.string ?? head["x-error-code"]).map { String($0.prefix(128)) }
    let message = String((error?["message"]?.string ?? "").prefix(2000))
    switch head.status {
    case 408, 425, 429, 500...:
      return .busy(
        status: head.status, retryAfter: head.retryAfter(atMost: limits.longestRetryAfter),
        words: message.isEmpty ? code ?? "" : message)
    default:
      guard let code, !code.isEmpty else {
        if case .failure(let failure) = end, !bodyIsDropped { return RemoteFailure(failure) }
        return .namelessRefusal(head.status)
      }
      return .refused(
        RemoteRefusal(
          status: head.status, code: code, message: message, details: error?["details"]?.object ?? [:],
          requestID: head.requestID))
    }
  }
}

extension HTTPHead {
  /// `X-Request-ID`, cut to what a log line holds.
  var requestID: String? { self["x-request-id"].map { String($0.prefix(128)) } }

  /// `Retry-After` in seconds from now, no more than `limit`: a number of seconds, or the date that proxies like to give.
  func retryAfter(atMost limit: Int) -> Int? {
    guard let text = self["retry-after"], !text.isEmpty else { return nil }
    if text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) { return min(Int(text) ?? limit, limit) }
    guard text.utf8.count < 64, text.utf8.contains(UInt8(ascii: ",")) else { return nil }
    let moment = curl_getdate(text, nil)
    guard moment >= 0 else { return nil }
    return min(max(0, moment - time(nil)), limit)
  }
}

extension RemoteFailure {
  /// A refusal of the contract without its envelope and without `X-Error-Code`.
  static func namelessRefusal(_ status: Int) -> RemoteFailure {
    .unreadable("a refusal (\(status)) that names no reason")
  }

  /// What the network's failure is to who asked a server.
  init(_ failure: NetworkFailure) {
    switch failure {
    case .unreachable(let words), .tls(let words): self = .notConnected(words)
    case .dropped(let words): self = .unreachable(words)
    case .timedOut(let words): self = .timedOut(words)
    case .tooLarge: self = .unreadable("its head is too large")
    case .file(let error): self = .file(error)
    case .canceled, .shutDown: self = .canceled
    }
  }
}
