import Glibc
import MarfaEngine

/// The instance's requests, as the contract's tables have them.
extension Instance {
  func answerInstance(_ inquiry: Inquiry) -> Answer {
    guard let target = inquiry.target else { return .words(404, "There is nothing here.") }
    do {
      return try route(inquiry, target)
    } catch {
      return .refusal(error)
    }
  }

  private func route(_ inquiry: Inquiry, _ target: Target) throws(ServerRefusal) -> Answer {
    let parts = target.parts
    if parts.isEmpty, inquiry.method == "GET" || inquiry.method == "HEAD" {
      try allow(inquiry)
      return identity()
    }
    if parts.count == 3, parts[0] == "blobs", parts[2] == "fetch" { return try fetchLink(inquiry, parts[1]) }
    guard let key = inquiry.key else {
      throw ServerRefusal(401, "unauthorized", "The key is not known.")
    }
    let actor = Actor(key)
    switch parts.first {
    case "items": return try routeItems(inquiry, target, actor)
    case "edges": return try routeEdges(inquiry, target, actor)
    case "blobs": return try routeBlobs(inquiry, target, actor)
    default: break
    }
    guard inquiry.method == "GET" else { throw ServerRefusal(404, "not_found", "There is no such request.") }
    switch parts {
    case ["types"]:
      try allow(inquiry)
      return .json(200, list(books.update { $0.catalogue.types.map(\.json.text) }))
    case ["edge-types"]:
      try allow(inquiry)
      return .json(200, list(books.update { $0.catalogue.edgeTypes.map(\.json.text) }))
    case ["keys", "current"]:
      try allow(inquiry)
      return .json(200, grants(key))
    case ["search"]: return try search(inquiry, target, actor)
    case ["events"]: return try events(inquiry, target, actor)
    default: throw ServerRefusal(404, "not_found", "There is no such request.")
    }
  }

  private func identity() -> Answer {
    .json(
      200,
      JSON.object([
        "name": "Contract server", "version": "1.0.0", "instance_id": .string(instanceID), "contract": 0,
        "features": ["events", "blobs", "search"],
      ]).text)
  }

  private func grants(_ key: APIKey) -> String {
    func object(_ grants: [String: APIKey.Grant]) -> JSON {
      var object = JSON.Object()
      for (name, grant) in grants.sorted(by: { $0.key < $1.key }) { object[name] = .string(grant.rawValue) }
      return .object(object)
    }
    return JSON.object([
      "name": .string(key.name), "type_permissions": object(key.types), "edge_permissions": object(key.edges),
    ]).text
  }

  private func events(_ inquiry: Inquiry, _ target: Target, _ actor: Actor) throws(ServerRefusal) -> Answer {
    try allow(inquiry, query: ["type"])
    var after: Int64?
    if let text = inquiry.exchange.headers["last-event-id"] {
      guard let number = Int64(text), number >= 0, String(number) == text else {
        throw .invalid("Last-Event-ID is no cursor.")
      }
      after = number
    }
    let types = try names(target, "type")
    if !types.isEmpty { ledger.violate(.narrowedStream, inquiry.exchange.number, "events of \(types) only") }
    var ending: EventStream.Ending?
    var limit: Int?
    for effect in inquiry.exchange.effects {
      switch effect {
      case .logRetired: ending = .retired
      case .cursorAhead: ending = .ahead
      case .streamIncomplete(let reason): ending = .incomplete(reason)
      case .cutStream(let count): limit = count
      default: break
      }
    }
    let stream = EventStream(self, actor: actor, after: after, types: types, ending: ending, limit: limit)
    return Answer(
      status: 200, headers: [("Content-Type", "text/event-stream"), ("Cache-Control", "no-store")],
      body: .events(stream))
  }

  // MARK: - What requests have in common

  /// Refuses a query key the request does not have.
  func allow(_ inquiry: Inquiry, query: Set<String> = []) throws(ServerRefusal) {
    for (key, value) in inquiry.target?.pairs ?? [] {
      guard query.contains(key) else {
        let isConflict = key == "conflict" && inquiry.target?.parts.first == "edges"
        ledger.violate(
          isConflict ? .edgeConflictKey : .undeclaredKey, inquiry.exchange.number,
          "\(inquiry.method) \(inquiry.exchange.target): \(key)")
        throw .invalid("The query has no \(key).", ["key": .string(key)])
      }
      if value.isEmpty, key == "type" || key == "tags" || key == "filter" { throw .invalid("\(key) is empty.") }
    }
  }

  /// The body: an object with these keys and no others.
  func body(_ inquiry: Inquiry, _ keys: Set<String>?, required: [String] = []) throws(ServerRefusal) -> JSON.Object {
    let exchange = inquiry.exchange
    if exchange.body.isEmpty, required.isEmpty, keys?.isEmpty ?? false { return JSON.Object() }
    let type = exchange.headers["content-type"] ?? ""
    guard type == "application/json" || type.hasPrefix("application/json;") else {
      ledger.violate(.notJSON, exchange.number, "\(inquiry.method) \(exchange.target) is \(type)")
      throw .invalid("The body is not sent as JSON.")
    }
    guard let json = inquiry.json else { throw .invalid("The body is no JSON object.") }
    if let keys {
      for (key, _) in json.members where !keys.contains(key) {
        ledger.violate(.undeclaredKey, exchange.number, "\(inquiry.method) \(exchange.target) body: \(key)")
        throw .invalid("The body has no \(key).", ["key": .string(key)])
      }
    }
    for key in required where json[key] == nil || json[key] == .null {
      throw .invalid("The body needs \(key).", ["key": .string(key)])
    }
    return json
  }

  /// Comma-separated names of a query key.
  func names(_ target: Target, _ key: String) throws(ServerRefusal) -> [String] {
    (target[key] ?? "").split(separator: ",").map(String.init)
  }

  /// `limit`: 1 to 200.
  func limit(_ target: Target) throws(ServerRefusal) -> Int {
    guard let text = target["limit"] else { return 50 }
    guard let limit = Int(text), (1...200).contains(limit) else { throw .invalid("limit is 1 to 200.") }
    return limit
  }

  /// `cursor`, as a page gave it: where the page before ended.
  func cursor(_ target: Target) throws(ServerRefusal) -> Int64 {
    guard let text = target["cursor"] else { return 0 }
    guard text.hasPrefix("n~"), let number = Int64(text.dropFirst(2)), number >= 0 else {
      throw .invalid("The cursor is none of ours.")
    }
    return number
  }

  /// `{"data":[…],"next_cursor":…}`
  static func page(_ rows: [String], next: Int64?) -> String {
    "{\"data\":[\(rows.joined(separator: ","))],\"next_cursor\":\(next.map { "\"n~\($0)\"" } ?? "null")}"
  }

  private func list(_ rows: [String]) -> String { Instance.page(rows, next: nil) }

  /// A field of a body that is a text.
  func text(_ json: JSON.Object, _ key: String) throws(ServerRefusal) -> String? {
    guard let value = json[key], value != .null else { return nil }
    guard let text = value.string else { throw .invalid("\(key) is no text.", ["key": .string(key)]) }
    return text
  }

  /// A field of a body that is an object.
  func object(_ json: JSON.Object, _ key: String) throws(ServerRefusal) -> JSON.Object? {
    guard let value = json[key], value != .null else { return nil }
    guard let object = value.object else { throw .invalid("\(key) is no object.", ["key": .string(key)]) }
    return object
  }

  /// A write with a record: what it was answered is what a repeat under its key is answered (contract "Requests and
  /// answers").
  func recorded(
    _ inquiry: Inquiry, _ actor: Actor, _ write: (Books) throws(ServerRefusal) -> (status: Int, text: String)
  ) throws(ServerRefusal) -> Answer {
    guard let key = inquiry.idempotencyKey else {
      let result = try withBooks(write)
      return .json(result.status, result.text)
    }
    guard inquiry.exchange.claimedKey != nil else {
      throw ServerRefusal(409, "idempotency_key_in_flight", "The same key is being answered.")
    }
    return try withBooks { (books) throws(ServerRefusal) in
      let request = inquiry.fingerprint
      if let row = try books.database.row(
        "SELECT request, status, body FROM replies WHERE owner = ?1 AND key = ?2", .text(actor.name), .text(key))
      {
        guard row[0].text == request else {
          throw ServerRefusal(422, "idempotency_key_reused", "The key was used for another request.")
        }
        guard let body = row[2].optionalText else {
          know(inquiry.exchange)
          throw ServerRefusal(422, "idempotency_result_not_retained", "The write was done; its result is not kept.")
        }
        var answer = Answer.json(Int(row[1].int), body)
        answer.headers.append(("Idempotency-Replayed", "true"))
        if let code = ItemRow.object(body)["error"]?.object?["code"]?.string {
          answer.headers.append(("X-Error-Code", code))
        }
        return answer
      }
      var answer: Answer
      var kept: (status: Int, text: String)
      do throws(ServerRefusal) {
        kept = try write(books)
        answer = .json(kept.status, kept.text)
      } catch {
        guard error.status < 500, error.status != 401, error.status != 403 else { throw error }
        answer = .refusal(error)
        kept = (error.status, error.text)
      }
      try books.database.rows(
        "INSERT INTO replies VALUES (?1, ?2, ?3, ?4, ?5)", .text(actor.name), .text(key), .text(request),
        Value(Int64(kept.status)), .text(kept.text))
      return answer
    }
  }
}
