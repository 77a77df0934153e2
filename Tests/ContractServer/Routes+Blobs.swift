import Glibc
import MarfaEngine

extension Instance {
  func routeBlobs(_ inquiry: Inquiry, _ target: Target, _ actor: Actor) throws(ServerRefusal) -> Answer {
    let parts = target.parts
    switch (inquiry.method, parts.count, parts.count > 2 ? parts[2] : "") {
    case ("POST", 1, _): return try upload(inquiry, actor)
    case ("GET", 2, _), ("HEAD", 2, _):
      try allow(inquiry)
      let blob = try withBooks { (books) throws(ServerRefusal) in try books.blob(actor, parts[1]) }
      return bytes(blob, inquiry)
    case ("GET", 3, "url"):
      try allow(inquiry, query: ["ttl"])
      let blob = try withBooks { (books) throws(ServerRefusal) in try books.blob(actor, parts[1]) }
      guard let asked = Int64(target["ttl"] ?? "3600"), asked > 0 else { throw .invalid("ttl is seconds.") }
      let ttl = min(asked, 604_800)
      let url = try signedLink(blob.hash, options.links, ttl: ttl)
      return .json(200, JSON.object(["url": .string(url), "expires_in": .integer(ttl)]).text)
    case ("GET", 3, "locations"):
      try allow(inquiry)
      let blob = try withBooks { (books) throws(ServerRefusal) in try books.blob(actor, parts[1]) }
      return .json(
        200,
        JSON.object([
          "hash": .string(blob.hash.description),
          "locations": [["store": "primary", "size_bytes": .integer(blob.size)]],
        ]).text)
    default: throw ServerRefusal(404, "not_found", "There is no such request.")
    }
  }

  private func upload(_ inquiry: Inquiry, _ actor: Actor) throws(ServerRefusal) -> Answer {
    try allow(inquiry)
    let exchange = inquiry.exchange
    let type = exchange.headers["content-type"] ?? "application/octet-stream"
    guard !type.lowercased().hasPrefix("multipart/form-data") else { throw .invalid("The bytes are sent as they are.") }
    guard let upload = exchange.upload else { throw .broken("the bytes have nowhere to go") }
    guard upload.count > 0 else { throw ServerRefusal(400, "empty_blob", "There are no bytes.") }
    if let failure = upload.failure { throw .broken("\(failure)") }
    let hash = upload.finish()
    noteUpload(exchange, hash.description)
    let mime = try withBooks { (books) throws(ServerRefusal) in
      try books.keepBlob(actor, hash, mime: type, size: upload.count, file: upload.path)
    }
    var name = hash.description
    for case .wrongHash in exchange.effects {
      name = "sha256:" + String(repeating: "0", count: 64)
      exchange.makesKnown = []
    }
    return .json(
      201,
      JSON.object(["hash": .string(name), "mime_type": .string(mime), "size_bytes": .integer(upload.count)]).text)
  }

  /// A blob's bytes, or the range asked for (contract "Blobs").
  private func bytes(_ blob: BlobRow, _ inquiry: Inquiry) -> Answer {
    var headers = [
      ("Content-Type", blob.mime), ("Accept-Ranges", "bytes"), ("ETag", "\"\(blob.hash)\""),
    ]
    var range = ByteRange(inquiry.exchange.headers["range"], size: blob.size)
    for case .ignoreRange in inquiry.exchange.effects { range = .whole }
    switch range {
    case .whole:
      return Answer(status: 200, headers: headers, body: .file(blob.file, offset: 0, count: blob.size))
    case .part(let first, let last):
      headers.append(("Content-Range", "bytes \(first)-\(last)/\(blob.size)"))
      return Answer(
        status: 206, headers: headers, body: .file(blob.file, offset: first, count: last - first + 1))
    case .past:
      var answer = Answer.refusal(ServerRefusal(416, "range_not_satisfiable", "The blob ends before."))
      answer.headers.append(("Content-Range", "bytes */\(blob.size)"))
      return answer
    }
  }

  // MARK: - Links

  /// A new link to a blob, good for so many seconds. Its text holds what a careless client would encode anew.
  func signedLink(_ hash: BlobHash, _ place: LinkPlace, ttl: Int64) throws(ServerRefusal) -> String {
    let token = ItemID.mint().description
    var random = SystemRandomNumberGenerator()
    let signature = String(random.next() as UInt64, radix: 36) + "%2B~+%2f" + String(random.next() as UInt64, radix: 36)
    let expires = Int64(time(nil)) + ttl
    let target =
      place == .instance
      ? "\(options.prefix)/blobs/sha256%3A\(hash.hex)/fetch?expires=\(expires)&token=\(token)&sig=\(signature)%3D"
      : "/bucket/objects/\(hash.hex)?X-Token=\(token)&X-Expires=\(expires)&X-Signature=\(signature)%3d&x-id"
    try withBooks { (books) throws(ServerRefusal) in
      try books.keepLink(token: token, target: target, hash: hash, place: place, expires: expires)
    }
    let origin = place == .instance ? String(url.dropLast(options.prefix.utf8.count)) : storeURL
    return origin + target
  }

  /// What a link request comes to.
  private enum Linked {
    case bytes(BlobRow)
    case expired, altered, gone
  }

  private func linked(_ inquiry: Inquiry, _ place: LinkPlace) -> Linked {
    let exchange = inquiry.exchange
    let token = inquiry.target?[place == .instance ? "token" : "X-Token"] ?? ""
    let link = books.update { books in try? books.link(token: token, place: place) }
    guard let link else {
      // A link from before a restored backup, or one nobody gave.
      ledger.violate(.linkAltered, exchange.number, "no such link: \(exchange.target)")
      return .altered
    }
    guard link.target == exchange.target else {
      ledger.violate(.linkAltered, exchange.number, "\(exchange.target) was given as \(link.target)")
      return .altered
    }
    for case .expireLink in exchange.effects { return .expired }
    guard link.expires > Int64(time(nil)) else { return .expired }
    guard let blob = books.update({ books in try? books.blob(link.hash) }) else { return .gone }
    return .bytes(blob)
  }

  /// The blob a link request is about, as far as it can be told.
  func linkedHash(_ inquiry: Inquiry) -> BlobHash? {
    guard let target = inquiry.target else { return nil }
    let place: LinkPlace = inquiry.exchange.origin == .store ? .store : .instance
    guard let token = target[place == .instance ? "token" : "X-Token"] else { return nil }
    return books.update { books in try? books.link(token: token, place: place)?.hash }
  }

  /// `GET` or `HEAD /blobs/{hash}/fetch`: no credential, names the contract.
  func fetchLink(_ inquiry: Inquiry, _ name: String) throws(ServerRefusal) -> Answer {
    guard inquiry.method == "GET" || inquiry.method == "HEAD" else {
      throw ServerRefusal(404, "not_found", "There is no such request.")
    }
    switch linked(inquiry, .instance) {
    case .bytes(let blob): return bytes(blob, inquiry)
    case .expired: throw ServerRefusal(401, "link_expired", "The link is over.")
    case .altered: throw ServerRefusal(401, "link_invalid", "The link is not as it was given.")
    case .gone: throw .noBlob(name)
    }
  }

  /// The object store's own host: no contract, no `HEAD`, answers in its own words.
  func answerStore(_ inquiry: Inquiry) -> Answer {
    func refusal(_ status: Int, _ code: String) -> Answer {
      .words(status, "<?xml version=\"1.0\"?><Error><Code>\(code)</Code></Error>", type: "application/xml")
    }
    if inquiry.target?.parts.first == "elsewhere" { return .words(200, "elsewhere") }
    guard inquiry.method == "GET" else { return refusal(403, "SignatureDoesNotMatch") }
    switch linked(inquiry, .store) {
    case .bytes(let blob):
      var answer = bytes(blob, inquiry)
      answer.contract = []
      if answer.status == 416 {
        let range = answer.headers.filter { $0.name == "Content-Range" }
        answer = refusal(416, "InvalidRange")
        answer.headers += range
      }
      return answer
    case .expired: return refusal(403, "AccessDenied")
    case .altered: return refusal(403, "SignatureDoesNotMatch")
    case .gone: return refusal(404, "NoSuchKey")
    }
  }
}

/// What a `Range` header asks of so many bytes.
enum ByteRange: Equatable {
  /// All of it: no range, a suffix, several, another unit.
  case whole
  /// From the first to the last byte, both counted.
  case part(first: Int64, last: Int64)
  /// It starts past the end.
  case past

  init(_ header: String?, size: Int64) {
    self = .whole
    guard let header, header.hasPrefix("bytes=") else { return }
    let ends = header.dropFirst(6).split(separator: "-", omittingEmptySubsequences: false)
    guard ends.count == 2, let first = Int64(ends[0]), first >= 0 else { return }
    let last = ends[1].isEmpty ? Int64.max : Int64(ends[1])
    guard let last, last >= first else { return }
    self = first >= size ? .past : .part(first: first, last: min(last, size - 1))
  }
}
