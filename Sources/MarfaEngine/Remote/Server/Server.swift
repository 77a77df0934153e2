/// A Marfa server over HTTP (contract in full). Its blocking calls are for threads that may wait: never the network's own,
/// never one that answers the kernel. It holds no state but links; any number of threads may use it.
public final class Server: Sendable {
  public let origin: Origin
  public let limits: ServerLimits
  let network: Network
  let links: Links
  private let credential: Credential?

  /// A server at an origin. Without a credential every request goes without one, and the server answers what it answers.
  public init(origin: Origin, credential: Credential?, network: Network, limits: ServerLimits = ServerLimits()) {
    self.origin = origin
    self.credential = credential
    self.network = network
    self.limits = limits
    links = Links()
  }

  /// A request to the bound origin. **The only place where the key enters a request**: nothing that leads elsewhere (a
  /// signed link, a redirect) passes through here.
  func request(
    _ method: HTTPRequest.Method, _ path: String, query: String? = nil, headers: [(name: String, value: String)] = [],
    body: HTTPRequest.Body = .none, authorized: Bool = true
  ) -> HTTPRequest {
    var all = headers
    if authorized, let credential { all.append(("Authorization", "Bearer \(credential.key)")) }
    all.append(("Accept-Encoding", "identity"))
    return HTTPRequest(
      method, origin.description + path + (query.map { "?" + $0 } ?? ""), headers: all, body: body)
  }

  /// A path segment or query value with everything encoded that is not plainly a letter, a digit or one of `-._~`.
  public static func encoded(_ text: String) -> String {
    var out: [UInt8] = []
    for byte in text.utf8 {
      switch byte {
      case 0x30...0x39, 0x41...0x5a, 0x61...0x7a, 0x2d, 0x2e, 0x5f, 0x7e: out.append(byte)
      default:
        let digits = Array("0123456789ABCDEF".utf8)
        out += [UInt8(ascii: "%"), digits[Int(byte >> 4)], digits[Int(byte & 15)]]
      }
    }
    return String(decoding: out, as: UTF8.self)
  }
}

/// How much a server's answers may be.
public struct ServerLimits: Sendable {
  /// A JSON answer, in bytes.
  public var answerBytes = 64 << 20
  /// The values of a JSON answer: each takes many times its text in memory.
  public var answerValues = 2_000_000
  /// A refusal's body, in bytes.
  public var refusalBytes = 64 << 10
  /// One event of the stream, in bytes.
  public var eventBytes = 8 << 20
  /// How long the stream of events may say nothing at all, not even that it lives.
  public var eventSilence: Duration = .seconds(75)
  /// No wait that is asked for is taken for longer, in seconds.
  public var longestRetryAfter = 3600

  public init() {}
}
