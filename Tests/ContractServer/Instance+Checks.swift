import Glibc
import MarfaEngine

/// What clients must never do, noticed.
extension Instance {
  /// The key a request names.
  func credential(_ exchange: Exchange) -> APIKey? {
    guard let text = exchange.headers["authorization"], text.hasPrefix("Bearer ") else { return nil }
    return key(String(text.dropFirst(7)))
  }

  /// A credential goes to the instance's own requests and nowhere else.
  func noteCredential(_ exchange: Exchange, path: String) {
    let isLink = exchange.origin == .store || path.hasSuffix("/fetch")
    if isLink, exchange.headers["authorization"] != nil || exchange.headers["cookie"] != nil {
      ledger.violate(.credentialElsewhere, exchange.number, "a credential came to \(exchange.origin) \(path)")
    }
    let known = options.keys.contains { exchange.target.holds($0.secret) }
    if known { ledger.violate(.credentialElsewhere, exchange.number, "a key in a target") }
  }

  func noteHaste(_ exchange: Exchange) {
    let haste = exchange.haste
    let early: Double? = ledger.update { state in
      guard let moment = state.notBefore.removeValue(forKey: haste) else { return nil }
      return moment > exchange.began ? moment - exchange.began : nil
    }
    if let early { ledger.violate(.tooEarly, exchange.number, "\(early) s before the wait was over") }
  }

  /// A request to write: which rows, on what it stands, under which key.
  func beginWrite(_ inquiry: Inquiry) {
    let exchange = inquiry.exchange
    guard exchange.origin == .instance, inquiry.isWrite, let target = inquiry.target, let key = inquiry.key else {
      return
    }
    let parts = target.parts
    if parts == ["blobs"] {
      if inquiry.idempotencyKey != nil { ledger.violate(.keyOnUpload, exchange.number, "POST /blobs has a key") }
      return
    }
    guard parts.first == "items" || parts.first == "edges" else { return }
    noteKey(inquiry, key)
    let creates = parts.count == 1 && inquiry.method == "POST"
    let id = creates ? inquiry.json?["id"]?.string : parts.count > 1 ? parts[1] : nil
    let row = id.map { "\(parts[0]) \($0)" }
    if let row {
      exchange.rows = [row]
      ledger.update { $0.twins[row] = nil }
      noteConcurrence(inquiry, row, key)
    }
    noteGround(inquiry, parts, creates ? nil : row)
    if creates, let row, let id { noteCreate(inquiry, parts[0], row, id) }
  }

  /// It is answered: its rows are free, its key too.
  func endWrite(_ inquiry: Inquiry) {
    let exchange = inquiry.exchange
    ledger.update { state in
      for row in exchange.rows { state.writing[row]?.removeAll { $0.request == exchange.number } }
      if let key = exchange.claimedKey { state.claimedKeys.remove(key) }
    }
  }

  private func noteKey(_ inquiry: Inquiry, _ owner: APIKey) {
    let exchange = inquiry.exchange
    guard let key = inquiry.idempotencyKey else {
      ledger.violate(.writeWithoutKey, exchange.number, "\(exchange.method) \(exchange.target) has no key")
      return
    }
    let name = "\(owner.name) \(key)"
    let request = inquiry.fingerprint
    let other: String? = ledger.update { state in
      if state.claimedKeys.insert(name).inserted { exchange.claimedKey = name }
      return state.keys.updateValue(request, forKey: name)
    }
    if let other, other != request {
      ledger.violate(.keyReused, exchange.number, "the key of \(other) came with \(request)")
    }
  }

  private func noteConcurrence(_ inquiry: Inquiry, _ row: String, _ key: APIKey) {
    let exchange = inquiry.exchange
    let others = ledger.update { state in
      let others = state.writing[row] ?? []
      state.writing[row] = others + [(exchange.number, key.name, exchange.socket)]
      return others
    }
    // Whoever hung up does not wait for that write any more: this is its retry.
    if let other = others.first(where: { $0.key == key.name && !Exchange.isHungUp($0.socket) }) {
      ledger.violate(.concurrentWrites, exchange.number, "\(row) is being written by request \(other.request)")
    }
  }

  /// What the write stands on was answered before it was sent.
  private func noteGround(_ inquiry: Inquiry, _ parts: [String], _ row: String?) {
    let exchange = inquiry.exchange
    var ends: [String] = []
    if parts[0] == "edges" {
      ends = ["source_id", "target_id"].compactMap { inquiry.json?[$0]?.string }
    }
    let rows = ends.map { "items \($0)" } + (row.map { [$0] } ?? [])
    let blob = parts[0] == "items" ? inquiry.json?["properties"]?.object?["blob_ref"]?.string : nil
    let key = credential(exchange)?.name
    let (unanswered, lost) = ledger.update { state in (state.unanswered.filter { $0.value == key }.keys, state.lost) }
    for row in rows where unanswered.contains(row) {
      // Its answer broke on the way, which the last byte may have done with the client having it all. One who has it
      // never asks again; one who does had it not.
      if lost.contains(row) {
        ledger.update { state in state.suspects[row] = exchange.number }
        continue
      }
      ledger.violate(.beforeItsCreate, exchange.number, "the create of \(row) was not answered yet")
    }
    let missing = books.update { books in
      ends.filter { id in
        (try? books.database.row("SELECT 1 FROM items WHERE id = ?1", .text(id))) == nil
          && (try? books.database.row("SELECT 1 FROM gone WHERE id = ?1", .text(id))) == nil
      }
    }
    for id in missing where !unanswered.contains("items \(id)") {
      ledger.violate(.beforeItsCreate, exchange.number, "item \(id) was never created")
    }
    guard let blob else { return }
    let isKnown = books.update { books in
      (try? books.database.row("SELECT 1 FROM blobs WHERE hash = ?1", .text(blob))) != nil
    }
    let upload = "blobs \(blob)"
    if isKnown, lost.contains(upload), unanswered.contains(upload) {
      ledger.update { state in state.suspects[upload] = exchange.number }
    } else if !isKnown || unanswered.contains(upload) {
      ledger.violate(.beforeItsUpload, exchange.number, "the upload of \(blob) was not answered yet")
    }
  }

  private func noteCreate(_ inquiry: Inquiry, _ kind: String, _ row: String, _ id: String) {
    let exchange = inquiry.exchange
    var said = inquiry.json ?? JSON.Object()
    said["id"] = nil
    let fingerprint = kind + JSON.object(said).text
    let key = credential(exchange)?.name ?? ""
    var suspected: Int?
    let twin: String? = ledger.update { state in
      if !state.answered.contains(row) { state.unanswered[row] = key }
      if let number = state.suspects.removeValue(forKey: row) {
        suspected = number
      }
      let first = options.flagsEqualCreates ? state.creates[fingerprint] : state.lostCreates[fingerprint]
      if state.creates[fingerprint] == nil { state.creates[fingerprint] = id }
      return first == id ? nil : first
    }
    if let suspected {
      ledger.violate(.beforeItsCreate, suspected, "the create of \(row) was not answered yet")
    }
    exchange.makesKnown.append(row)
    exchange.creates = (fingerprint, id)
    guard let twin else { return }
    let violation = Violation(
      kind: .createdTwice, request: exchange.number, words: "\(kind) \(id) says what \(twin) said")
    if options.flagsEqualCreates {
      ledger.update { $0.violations.append(violation) }
    } else {
      ledger.update { $0.twins["\(kind) \(twin)"] = violation }
    }
  }

  /// An upload came in whole: what it makes known.
  func noteUpload(_ exchange: Exchange, _ hash: String) {
    let row = "blobs \(hash)"
    let key = credential(exchange)?.name ?? ""
    let suspected = ledger.update { state in
      if !state.answered.contains(row) { state.unanswered[row] = key }
      return state.suspects.removeValue(forKey: row)
    }
    if let suspected {
      ledger.violate(.beforeItsUpload, suspected, "the upload of \(hash) was not answered yet")
    }
    exchange.makesKnown.append(row)
  }

  /// The answer goes out whole: from now on the client may build on it.
  func know(_ exchange: Exchange) {
    guard !exchange.makesKnown.isEmpty else { return }
    ledger.update { state in
      for row in exchange.makesKnown {
        state.unanswered[row] = nil
        state.lost.remove(row)
        if state.answered.insert(row).inserted { exchange.madeKnown.append(row) }
      }
      if let (fingerprint, _) = exchange.creates { state.lostCreates[fingerprint] = nil }
    }
  }

  /// The answer was lost: the client cannot know.
  func unknow(_ exchange: Exchange) {
    guard !exchange.makesKnown.isEmpty else { return }
    let key = credential(exchange)?.name ?? ""
    ledger.update { state in
      // It was on its way and did not arrive whole.
      for row in exchange.madeKnown {
        state.answered.remove(row)
        state.unanswered[row] = key
        state.lost.insert(row)
      }
      // An earlier answer to the same create stands.
      if let (fingerprint, id) = exchange.creates,
        exchange.makesKnown.contains(where: { !state.answered.contains($0) })
      {
        state.lostCreates[fingerprint] = id
      }
    }
  }
}

extension Inquiry {
  /// What an idempotency key stands for: method, path, query as written, body bytes.
  var fingerprint: String {
    let digest = try? SHA256()
    exchange.body.withUnsafeBytes { digest?.update($0) }
    return "\(method) \(exchange.target) \(digest?.finish().hex ?? "")"
  }
}
