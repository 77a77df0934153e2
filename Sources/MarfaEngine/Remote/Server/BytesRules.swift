/// What an answer's head means to who asked for bytes (contract "Blobs"). A pure function of the head: a table test.
enum BytesRules {
  /// Who was asked.
  enum Asked: Equatable {
    /// The bound origin, with the key.
    case origin
    /// A link's host, or where it led on to, without; `isOrigins` when that is the bound origin's own host.
    case link(isOrigins: Bool)
  }

  /// What follows from a head.
  enum Step: Equatable {
    /// The body is what was asked for: so many bytes of it, when that is known.
    case deliver(BytesHead, promised: Int64?)
    /// The bytes are elsewhere.
    case redirect(String)
    /// The link's host does not take the link.
    case linkRefused(Int)
    /// The origin's own refusal: its body says why.
    case refusal
    case fail(RangeFailure)
  }

  static func judge(_ head: HTTPHead, _ asked: Asked, _ range: Range<Int64>?, limits: ServerLimits) -> Step {
    switch asked {
    case .origin:
      switch Contract.judge(head) {
      case .success: return body(head, range)
      case .redirect: return redirect(head)
      case .refusal where head.status == 416: return .fail(.pastEnd(size: sizeOf416(head)))
      case .refusal: return .refusal
      case .mismatch(let named): return .fail(.mismatch(named: named.map { String($0.prefix(64)) }))
      case .notTheServers:
        let seconds = head.retryAfter(atMost: limits.longestRetryAfter)
        return .fail(RangeFailure(.notTheServers(status: head.status, retryAfter: seconds)))
      }
    case .link(let isOrigins):
      let named = Contract.named(by: head)
      // An object store names none; who names one must name ours.
      guard named.isEmpty || named == [Contract.version] else {
        return .fail(.mismatch(named: named.map { String($0.prefix(64)) }))
      }
      switch head.status {
      case 200..<300: return body(head, range)
      case 300..<400: return redirect(head)
      case 401, 403: return .linkRefused(head.status)
      case 404 where isOrigins && !named.isEmpty: return .fail(.absent)
      case 416: return .fail(.pastEnd(size: sizeOf416(head)))
      case 429: return .fail(.rateLimited(seconds: head.retryAfter(atMost: limits.longestRetryAfter)))
      case 408, 425, 500...: return .fail(.unreachable("the link's host can't answer now (\(head.status))"))
      default: return .fail(.refused("the link's host answered \(head.status)"))
      }
    }
  }

  private static func redirect(_ head: HTTPHead) -> Step {
    guard [301, 302, 303, 307, 308].contains(head.status), let location = head["location"] else {
      return .fail(.refused("an answer (\(head.status)) that leads nowhere"))
    }
    return .redirect(location)
  }

  private static func body(_ head: HTTPHead, _ range: Range<Int64>?) -> Step {
    if let encoding = head["content-encoding"], encoding.lowercased() != "identity" {
      return .fail(.refused("the bytes come compressed, which was not asked for"))
    }
    switch head.status {
    case 200:
      let size = head.contentLength
      return .deliver(BytesHead(total: size, offset: 0, ignoresRange: range != nil), promised: size)
    case 206:
      guard let range else { return .fail(.refused("a part came where the whole was asked for")) }
      guard let text = head["content-range"], let part = ContentRange(text), let first = part.bytes else {
        return .fail(.refused("a part came that does not say which"))
      }
      let count = first.upperBound - first.lowerBound
      // To the end of what was asked for, or of the blob.
      let end = min(range.upperBound, part.size ?? range.upperBound)
      guard first.lowerBound == range.lowerBound, first.upperBound == end, head.contentLength ?? count == count else {
        return .fail(.refused("another part came than was asked for"))
      }
      return .deliver(BytesHead(total: part.size, offset: first.lowerBound, ignoresRange: false), promised: count)
    default: return .fail(.refused("an answer (\(head.status)) without the bytes"))
    }
  }

  private static func sizeOf416(_ head: HTTPHead) -> Int64? {
    guard let text = head["content-range"], let range = ContentRange(text), range.bytes == nil else { return nil }
    return range.size
  }
}

/// `Content-Range: bytes 0-9/100`, `bytes 0-9/*` or `bytes */100` (RFC 9110, 14.4).
struct ContentRange: Equatable {
  /// Which bytes; `nil` for `*`.
  var bytes: Range<Int64>?
  /// The whole's size; `nil` for `*`.
  var size: Int64?

  init?(_ text: String) {
    guard text.prefix(6).lowercased() == "bytes " else { return nil }
    let parts = text.dropFirst(6).split(separator: "/", omittingEmptySubsequences: false)
    guard parts.count == 2 else { return nil }
    if parts[1] != "*" {
      guard let size = ContentRange.number(parts[1]) else { return nil }
      self.size = size
    }
    if parts[0] == "*" {
      guard size != nil else { return nil }
      return
    }
    let ends = parts[0].split(separator: "-", omittingEmptySubsequences: false)
    guard ends.count == 2, let first = ContentRange.number(ends[0]), let last = ContentRange.number(ends[1]),
      first <= last, last < size ?? .max
    else { return nil }
    bytes = first..<last + 1
  }

  private static func number(_ text: Substring) -> Int64? {
    guard !text.isEmpty, text.utf8.allSatisfy({ (0x30...0x39).contains($0) }) else { return nil }
    return Int64(text)
  }
}
