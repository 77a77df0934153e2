import Glibc
import MarfaEngine

/// The server's own requests, on a port of their own, for when it runs by itself.
///
///     GET    /-/stats  /-/violations  /-/requests  /-/state
///     POST   /-/faults   {"effect":"drop","method"?,"path"?,"holding"?,"origin"?,"skip"?,"count"?,…}
///     DELETE /-/faults
///     POST   /-/release  /-/forget  /-/forget-results  /-/expire-links  /-/snapshot  /-/restore
///     POST   /-/cut      {"reason"?}
///     POST   /-/retire   {"keeping"}
///     POST   /-/seed     {"notes","files_each"?}
///     POST   /-/link     {"round_trip"?,"bytes_per_second"?}
final class AdminService: Service {
  let line = Line(Link())
  private let server: Instance

  init(_ server: Instance) { self.server = server }

  func connected() -> Int { 0 }
  func head(_ exchange: Exchange) {}
  func received(_ exchange: Exchange, _ bytes: UnsafeRawBufferPointer) -> Bool {
    exchange.body += bytes
    return exchange.body.count < 1 << 20
  }
  func sent(_ exchange: Exchange, _ count: Int) {}
  func pause(_ exchange: Exchange, seconds: Double?) -> Bool { true }
  func ended(_ exchange: Exchange, completed: Bool) {}

  func answer(_ exchange: Exchange) -> (Answer, Delivery)? {
    do {
      return (.json(200, try text(exchange)), Delivery())
    } catch {
      return (.refusal(error), Delivery())
    }
  }

  private func text(_ exchange: Exchange) throws(ServerRefusal) -> String {
    let json = (try? JSON(reading: exchange.body))?.object ?? JSON.Object()
    switch "\(exchange.method) \(exchange.target)" {
    case "GET /-/stats": return stats().text
    case "GET /-/violations":
      return JSON.array(
        server.violations.map {
          ["kind": .string($0.kind.rawValue), "request": .integer($0.request), "words": .string($0.words)]
        }
      ).text
    case "GET /-/requests": return JSON.array(server.requests.map(AdminService.request)).text
    case "GET /-/state": return try state().text
    case "POST /-/faults": return JSON.object(["id": .integer(server.faults.add(try Fault(json)))]).text
    case "DELETE /-/faults": server.faults.removeAll()
    case "POST /-/release": server.faults.release()
    case "POST /-/forget": server.forgetRecords()
    case "POST /-/forget-results": try server.forgetResults()
    case "POST /-/expire-links": try server.expireLinks()
    case "POST /-/snapshot": try server.takeSnapshot("")
    case "POST /-/restore": try server.restoreSnapshot("")
    case "POST /-/cut": server.cutStreams(incomplete: json["reason"]?.string)
    case "POST /-/retire": try server.retireEvents(keeping: Int(json["keeping"]?.integer ?? 0))
    case "POST /-/seed":
      do {
        try server.change {
          try $0.seed(notes: Int(json["notes"]?.integer ?? 0), filesEach: Int(json["files_each"]?.integer ?? 0))
        }
      } catch {
        throw .broken("\(error)")
      }
    case "POST /-/link":
      server.link = Link(roundTrip: json["round_trip"]?.double ?? 0, bytesPerSecond: json["bytes_per_second"]?.double)
    default: throw ServerRefusal(404, "not_found", "There is no such request.")
    }
    return "{\"ok\":true}"
  }

  private func stats() -> JSON {
    let stats = server.stats
    var kinds = JSON.Object()
    for (name, kind) in stats.kinds.sorted(by: { $0.key < $1.key }) {
      kinds[name] = [
        "requests": .integer(kind.requests), "received": .integer(kind.received), "sent": .integer(kind.sent),
      ]
    }
    return [
      "requests": .integer(stats.requests), "connections": .integer(stats.connections),
      "received": .integer(stats.received), "sent": .integer(stats.sent),
      "blob_bytes_sent": .integer(stats.blobBytesSent), "kinds": .object(kinds),
    ]
  }

  private func state() throws(ServerRefusal) -> JSON {
    try server.withBooks { (books) throws(ServerRefusal) in
      func count(_ table: String) throws(ServerRefusal) -> JSON {
        .integer(try books.database.row("SELECT count(*) FROM \(table)")?[0].int ?? 0)
      }
      return [
        "items": try count("items"), "edges": try count("edges"), "blobs": try count("blobs"),
        "head": .integer(books.head),
      ]
    }
  }

  private static func request(_ record: RequestRecord) -> JSON {
    [
      "number": .integer(record.number), "origin": .string(record.origin.rawValue),
      "connection": .integer(record.connection), "method": .string(record.method), "target": .string(record.target),
      "key": .optional(record.key), "status": record.status.map { .integer($0) } ?? .null,
      "received": .integer(record.received), "sent": .integer(record.sent), "completed": .bool(record.completed),
      "faulty": .bool(record.faulty), "began": .number(String(record.began)),
      "seconds": record.ended.map { .number(String($0 - record.began)) } ?? .null,
      "range": .optional(record.headers["range"]), "idempotency_key": .optional(record.headers["idempotency-key"]),
    ]
  }
}

extension JSON {
  /// The number, whole or not.
  var double: Double? { if case .number(let text) = self { Double(text) } else { nil } }
}

extension Fault {
  /// A rule as `POST /-/faults` has it.
  init(_ json: JSON.Object) throws(ServerRefusal) {
    func number(_ key: String, _ standard: Int64? = nil) throws(ServerRefusal) -> Int64 {
      guard let number = json[key]?.integer ?? standard else { throw .invalid("The rule needs \(key).") }
      return number
    }
    let seconds = json["seconds"]?.double
    let effect: Effect
    switch json["effect"]?.string {
    case "drop": effect = .drop
    case "apply_and_drop": effect = .applyAndDrop
    case "drop_after": effect = .dropAfter(bytes: try number("bytes"))
    case "drop_request": effect = .dropRequest(afterBytes: try number("bytes"))
    case "stall": effect = .stall(seconds: seconds)
    case "stall_body": effect = .stallBody(afterBytes: try number("bytes"), seconds: seconds)
    case "slow": effect = .slow(bytesPerSecond: json["bytes_per_second"]?.double ?? 1024)
    case "delay": effect = .delay(seconds: seconds ?? 1)
    case "alter": effect = .alter(at: try number("at", 0))
    case "ignore_range": effect = .ignoreRange
    case "refuse":
      let contract: String? = json["contract"] == .null ? nil : json["contract"]?.string ?? "0"
      effect = .refuse(
        status: Int(try number("status")), code: json["code"]?.string ?? "unavailable", contract: contract,
        details: json["details"]?.object, retryAfter: json["retry_after"]?.integer.map { Int($0) })
    case "contract": effect = .contract((json["values"]?.array ?? []).compactMap(\.string))
    case "expire_link": effect = .expireLink
    case "redirect": effect = .redirect(to: json["url"]?.string)
    case "wrong_hash": effect = .wrongHash
    case "body": effect = .body(json["body"]?.string ?? "")
    case "never_answer": effect = .neverAnswer
    case "cut_stream": effect = .cutStream(afterEvents: Int(try number("events", 1)))
    case "log_retired": effect = .logRetired
    case "cursor_ahead": effect = .cursorAhead
    case "stream_incomplete": effect = .streamIncomplete(reason: json["reason"]?.string ?? "on demand")
    default: throw .invalid("There is no such effect.")
    }
    self.init(
      effect, method: json["method"]?.string, path: json["path"]?.string, holding: json["holding"]?.string,
      origin: json["origin"]?.string.flatMap { Origin(rawValue: $0) }, skip: Int(try number("skip", 0)),
      count: json["count"] == .null ? nil : Int(try number("count", 1)))
  }
}
