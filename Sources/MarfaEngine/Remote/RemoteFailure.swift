/// Why a server did not do what it was asked. What is to be done with it is the caller's (contract "Verdicts").
public enum RemoteFailure: Error, Equatable, Sendable, CustomStringConvertible {
  /// No connection was made: nothing was sent.
  case notConnected(String)
  /// The connection ended before the answer did.
  case unreachable(String)
  /// A limit of time passed.
  case timedOut(String)
  /// An answer that names no contract and is no success: something between here and the server gave it. It says nothing of
  /// the row, the bytes or the key, whatever its status.
  case notTheServers(status: Int, retryAfter: Int?)
  /// The server can't now: 408, 425, 429 or any 5xx of the contract. `retryAfter` is in seconds, as the server asked.
  case busy(status: Int, retryAfter: Int?, words: String)
  /// The server's own refusal: a 4xx of the contract.
  case refused(RemoteRefusal)
  /// A success that names no contract, or any answer that names another (or two). Nothing of its body was read.
  case contractMismatch(named: [String])
  /// A success of the contract whose body is not what the contract says: the reason.
  case unreadable(String)
  /// The file to be sent could not be read.
  case file(Errno)
  /// The call was cancelled, or the network closed.
  case canceled

  /// What libcurl says of a server that is spoken to with TLS and has none, or the other way round.
  private static func otherScheme(_ words: String) -> String {
    func says(_ part: String) -> Bool {
      let (all, part) = (Array(words.utf8), Array(part.utf8))
      return all.indices.contains { all[$0...].starts(with: part) }
    }
    // The last: it closed in the middle of the greeting, as one that does not understand it may.
    let plain = ["wrong version number", "packet length too long", "SSL_connect: SSL_ERROR_SYSCALL"]
    if plain.contains(where: says) { return "; is its address http://?" }
    return says("HTTP/0.9") ? "; is its address https://?" : ""
  }

  /// The failure without what differs from one request to the next: for saying a thing once.
  var kind: RemoteFailure {
    guard case .refused(var refusal) = self else { return self }
    refusal.requestID = nil
    return .refused(refusal)
  }

  /// The contract's "environmental": it passes by itself and is tried again without limit.
  public var isEnvironmental: Bool {
    switch self {
    case .notConnected, .unreachable, .timedOut, .notTheServers, .busy: true
    case .refused, .contractMismatch, .unreadable, .file, .canceled: false
    }
  }

  /// True when the server has no room for more bytes (507; RFC 4918, 11.5).
  var isNoRoom: Bool { if case .busy(507, _, _) = self { true } else { false } }

  /// The seconds the server asked to wait, when it did.
  public var retryAfter: Int? {
    switch self {
    case .busy(_, let seconds, _), .notTheServers(_, let seconds): seconds
    case .notConnected, .unreachable, .timedOut, .refused, .contractMismatch, .unreadable, .file, .canceled: nil
    }
  }

  public var description: String {
    switch self {
    case .notConnected(let words), .unreachable(let words):
      "the server can't be reached (\(words)\(Self.otherScheme(words))); it is tried again by itself"
    case .timedOut(let words): "the server did not answer in time (\(words)); it is tried again by itself"
    case .notTheServers(let status, _):
      (300..<400).contains(status)
        ? "the address leads elsewhere (\(status)) and nothing follows it with the key; give the server's own address"
        : "something on the way answered \(status) in the server's place"
          // What a server that wants TLS says to one who speaks without.
          + (status == 400 ? " (is its address https://?)" : "") + "; it is tried again by itself"
    case .busy(let status, let seconds, let words):
      (isNoRoom ? "the server has no room for more" : "the server can't do this now")
        + " (\(status)\(words.isEmpty ? "" : ": " + words))"
        + (seconds.map { "; it asks to wait \($0) seconds" } ?? "; it is tried again by itself")
    case .refused(let refusal):
      // The contract's code for a path that is no request's, and for nothing else.
      refusal.description + (refusal.status == 404 && refusal.code == "not_found" ? "; check the server's address" : "")
    case .contractMismatch(let named):
      named.isEmpty
        ? "what answers there is no Marfa server this program knows (it names no contract); check the address"
        : "the server speaks contract \(named.joined(separator: ", ")) and this program contract \(Contract.version); "
          + "update whichever is older"
    case .unreadable(let words): "the server's answer can't be used: \(words)"
    case .file(let error): "the file to send can't be read: \(error)"
    case .canceled: "cancelled"
    }
  }
}

/// A refusal as the server gave it (contract "Requests and answers").
public struct RemoteRefusal: Equatable, Sendable, CustomStringConvertible {
  /// A 4xx.
  public var status: Int
  /// `error.code`, or `X-Error-Code` where there is no body.
  public var code: String
  /// `error.message`, for a person.
  public var message: String
  /// `error.details`, empty when there are none.
  public var details: JSON.Object
  /// `X-Request-ID`: what the server's own log calls this request.
  public var requestID: String?

  public init(
    status: Int, code: String, message: String = "", details: JSON.Object = JSON.Object(), requestID: String? = nil
  ) {
    self.status = status
    self.code = code
    self.message = message
    self.details = details
    self.requestID = requestID
  }

  public var description: String {
    "the server refused: \(message.isEmpty ? code : message) (\(status) \(code)\(requestID.map { ", request \($0)" } ?? ""))"
  }
}
