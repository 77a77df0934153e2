import Glibc
import MarfaEngine

/// A request on its way through the server: what came, what it does to the records, what goes back.
extension Instance: Service {
  func connected() -> Int {
    ledger.update { state in
      state.stats.connections += 1
      return state.stats.connections
    }
  }

  func head(_ exchange: Exchange) {
    let target = Target(exchange.target, prefix: exchange.origin == .instance ? options.prefix : "")
    let path = target?.path ?? exchange.target
    exchange.kind =
      exchange.method + " " + (exchange.origin == .store ? "store" : target.map(\.kind) ?? "elsewhere")
    exchange.effects = faults.take(
      origin: exchange.origin, method: exchange.method, path: path, target: exchange.target)
    var headers = exchange.headers
    let owner = credential(exchange)
    if headers["authorization"] != nil { headers["authorization"] = "Bearer " + (owner?.name ?? "unknown") }
    exchange.number = ledger.begin { number in
      var record = RequestRecord(
        number: number, origin: exchange.origin, connection: exchange.wire.number, method: exchange.method,
        target: exchange.target, headers: headers, key: owner?.name, began: exchange.began)
      record.faulty = !exchange.effects.isEmpty
      return record
    }
    ledger.count(exchange.kind) { $0.requests += 1 }
    noteCredential(exchange, path: path)
    noteHaste(exchange)
    if exchange.origin == .instance, exchange.method == "POST", path == "/blobs" {
      let folder = books.update { $0.folder }
      let number = signals.update { signals in
        signals.uploads += 1
        return signals.uploads
      }
      exchange.upload = try? Upload(path: "\(folder)/blobs/.upload-\(number)")
    }
  }

  func received(_ exchange: Exchange, _ bytes: UnsafeRawBufferPointer) -> Bool {
    ledger.count(exchange.kind) { $0.received += Int64(bytes.count) }
    ledger.record(exchange.number) { $0.received = exchange.received }
    if let upload = exchange.upload {
      upload.add(bytes)
    } else if exchange.body.count < 16 << 20 {
      exchange.body += bytes
    }
    for effect in exchange.effects {
      switch effect {
      case .dropRequest(let after) where exchange.received >= after: return false
      case .slow(let rate): Clock.sleep(until: Clock.now + Double(bytes.count) / rate)
      default: break
      }
    }
    line.pass(bytes.count, out: false)
    return true
  }

  func sent(_ exchange: Exchange, _ count: Int) {
    ledger.count(exchange.kind) { $0.sent += Int64(count) }
    ledger.record(exchange.number) { $0.sent += Int64(count) }
  }

  func pause(_ exchange: Exchange, seconds: Double?) -> Bool {
    let releases = faults.releases
    let end = seconds.map { Clock.now + $0 } ?? .infinity
    while Clock.now < end {
      if isStopping || exchange.isAbandoned { return false }
      if faults.releases != releases { return true }
      Clock.sleep(until: min(end, Clock.now + 0.02))
    }
    return true
  }

  func ended(_ exchange: Exchange, completed: Bool) {
    if !completed { unknow(exchange) }
    ledger.record(exchange.number) { record in
      record.ended = Clock.now
      record.completed = completed
    }
  }

  func answer(_ exchange: Exchange) -> (Answer, Delivery)? {
    if exchange.upload == nil, let digest = try? SHA256() {
      exchange.body.withUnsafeBytes { digest.update($0) }
      let hash = digest.finish()
      ledger.record(exchange.number) { $0.bodyHash = hash }
    }
    let parsed = Target(exchange.target, prefix: exchange.origin == .instance ? options.prefix : "")
    let inquiry = Inquiry(exchange, parsed, credential(exchange))
    beginWrite(inquiry)
    defer { endWrite(inquiry) }

    var delivery = Delivery()
    guard delay(exchange) else { return nil }
    for effect in exchange.effects {
      switch effect {
      case .drop: return nil
      case .neverAnswer:
        while pause(exchange, seconds: nil) {}
        return nil
      case .refuse(let status, let code, let contract, let details, let retryAfter):
        return finish(inquiry, refused(status, code, contract, details, retryAfter), delivery)
      case .redirect(let url): return finish(inquiry, redirect(inquiry, to: url), delivery)
      case .stall(let seconds): guard pause(exchange, seconds: seconds) else { return nil }
      case .dropAfter(let bytes): delivery.end = bytes
      case .stallBody(let bytes, let seconds): delivery.pause = (bytes, seconds)
      case .slow(let rate): delivery.rate = rate
      case .alter(let place): delivery.altered = place
      default: break
      }
    }

    var answer = exchange.origin == .store ? answerStore(inquiry) : answerInstance(inquiry)
    // A place in a blob is a place in this body when the body holds it.
    if let place = delivery.altered, case .file(_, let offset, _) = answer.body { delivery.altered = place - offset }
    for effect in exchange.effects {
      switch effect {
      case .applyAndDrop: return nil
      case .contract(let values): answer.contract = values
      case .body(let text) where answer.status < 300:
        answer.body = .bytes(Array(text.utf8))
      default: break
      }
    }
    return finish(inquiry, answer, delivery)
  }

  /// What every answer has, and what it makes known to whoever reads it.
  private func finish(_ inquiry: Inquiry, _ answer: Answer, _ delivery: Delivery) -> (Answer, Delivery) {
    var answer = answer
    let exchange = inquiry.exchange
    if exchange.origin == .instance { answer.headers.append(("X-Request-ID", "req-\(exchange.number)")) }
    ledger.record(exchange.number) { $0.status = answer.status }
    // A result that is no longer kept was one all the same.
    let isDone = answer.status < 300 || answer.headers.contains { $0.value == "idempotency_result_not_retained" }
    let isReadable = !exchange.effects.contains { if case .body = $0 { true } else { false } }
    if isDone, isReadable, delivery.end == nil, answer.contract == ["0"] { know(exchange) }
    if let wait = answer.headers.first(where: { $0.name == "Retry-After" }).flatMap({ Double($0.value) }) {
      ledger.update { $0.notBefore[exchange.haste] = Clock.now + wait }
    }
    return (answer, delivery)
  }

  /// The line's round trip and the delays asked for; false when nobody waits any more.
  private func delay(_ exchange: Exchange) -> Bool {
    // A connection is made with a round trip of its own.
    var seconds = line.link.roundTrip * (exchange.wire.requests == 1 ? 2 : 1)
    for case .delay(let more) in exchange.effects { seconds += more }
    guard seconds > 0.5 else {
      if seconds > 0 { Clock.sleep(until: Clock.now + seconds) }
      return true
    }
    return pause(exchange, seconds: seconds)
  }

  private func refused(
    _ status: Int, _ code: String, _ contract: String?, _ details: JSON.Object?, _ retryAfter: Int?
  ) -> Answer {
    var answer =
      contract == nil
      ? Answer.words(status, "<html><body>\(status)</body></html>", type: "text/html")
      : Answer.refusal(ServerRefusal(status, code, "On demand.", details))
    if let contract { answer.contract = [contract] }
    if let retryAfter { answer.headers.append(("Retry-After", String(retryAfter))) }
    return answer
  }

  private func redirect(_ inquiry: Inquiry, to url: String?) -> Answer {
    var answer = Answer.words(302, "")
    var place = url ?? elsewhereURL
    // A link's redirect leads to the bytes, or nothing could be read through it.
    if url == nil, let hash = linkedHash(inquiry), let link = try? signedLink(hash, .store, ttl: 3600) { place = link }
    answer.headers.append(("Location", place))
    return answer
  }
}

/// A request with its parts, as the routes see it. Its connection's thread alone uses it.
final class Inquiry {
  let exchange: Exchange
  /// `nil` for a target outside the prefix or badly encoded.
  let target: Target?
  let key: APIKey?
  /// The body, when it is a JSON object.
  let json: JSON.Object?

  init(_ exchange: Exchange, _ target: Target?, _ key: APIKey?) {
    self.exchange = exchange
    self.target = target
    self.key = key
    json = exchange.body.isEmpty ? nil : (try? JSON(reading: exchange.body))?.object
  }

  var method: String { exchange.method }
  var isWrite: Bool { method == "POST" || method == "PATCH" || method == "PUT" || method == "DELETE" }
  var idempotencyKey: String? { exchange.headers["idempotency-key"] }
}

extension Exchange {
  /// What a `Retry-After` is about: the same request of the same key.
  var haste: String { "\(method) \(target) \(headers["authorization"] ?? "") \(headers["idempotency-key"] ?? "")" }
}
