/// How long things may take and how large they may be, for every request a ``Network`` makes.
public struct NetworkLimits: Sendable {
  /// Until a connection stands, TLS included.
  public var connect: Duration = .seconds(10)
  /// From the request on its way (and all of its body sent) until the answer's head is here.
  public var firstByte: Duration = .seconds(30)
  /// Without at least ``leastPerIdle`` bytes of a body, in either direction. A body as a whole may take any time.
  public var idle: Duration = .seconds(60)
  /// The bytes a body must bring within ``idle``: less is a stall, or a trickle could hold a request for ever.
  public var leastPerIdle = 1024
  /// All header lines of an answer together, in bytes.
  public var headBytes = 64 << 10
  /// Connections to one host at a time; requests over that wait for one (over HTTP/2 they share them).
  public var connectionsPerHost = 16
  /// The path of a PEM file of authorities to trust instead of the system's (for tests, or a house's own authority).
  public var authorities: String?

  /// The limits of the contract ("Requests and answers").
  public init() {}
}

/// One request, exactly as it goes out: nothing is added to its headers but what HTTP itself needs.
public struct HTTPRequest: Sendable {
  /// The methods the contract uses.
  public enum Method: String, Sendable {
    case get = "GET"
    case head = "HEAD"
    case post = "POST"
    case put = "PUT"
    case patch = "PATCH"
    case delete = "DELETE"
  }

  /// What is sent.
  public enum Body: Sendable {
    case none
    case bytes([UInt8])
    /// These bytes of a file, read while they are sent. `progress` is told how many have been handed on, on the network's
    /// thread; it can fall back when a dead connection makes them go out again.
    case file(Descriptor, Range<Int64>, progress: (@Sendable (Int64) -> Void)?)
  }

  public var method: Method
  /// Absolute, `http` or `https`, used as it is written.
  public var url: String
  /// In order. A value with a line break, or a name that is none, makes the request fail before anything is sent.
  public var headers: [(name: String, value: String)]
  public var body: Body
  /// Instead of the network's ``NetworkLimits/firstByte``.
  public var firstByte: Duration?
  /// Instead of the network's ``NetworkLimits/idle``; any byte at all counts as life then.
  public var idle: Duration?

  /// A request for `url`.
  public init(_ method: Method, _ url: String, headers: [(name: String, value: String)] = [], body: Body = .none) {
    self.method = method
    self.url = url
    self.headers = headers
    self.body = body
  }
}

/// An answer's status and headers.
public struct HTTPHead: Sendable {
  /// Of the last answer: interim ones (1xx) are passed over.
  public let status: Int
  /// Names in lower case, values trimmed, in the order they came.
  public let headers: [(name: String, value: String)]

  /// Wraps both; names are lower case.
  public init(status: Int, headers: [(name: String, value: String)]) {
    self.status = status
    self.headers = headers
  }

  /// The first value of a header; `name` in lower case.
  public subscript(name: String) -> String? { headers.first { $0.name == name }?.value }

  /// Every value of a header that may be repeated; `name` in lower case.
  public func all(_ name: String) -> [String] { headers.filter { $0.name == name }.map(\.value) }

  /// `Content-Length`, when it is one number.
  public var contentLength: Int64? {
    let values = Set(all("content-length"))
    guard values.count == 1, let text = values.first, let number = Int64(text), number >= 0 else { return nil }
    return number
  }
}

/// Why a request got no whole answer. The words are libcurl's, for a person; they name hosts, never a link or a key.
public enum NetworkFailure: Error, Equatable, Sendable {
  /// No connection could be made.
  case unreachable(String)
  /// A limit of time passed.
  case timedOut(String)
  /// The connection ended before the answer did.
  case dropped(String)
  /// The answer's head is larger than allowed.
  case tooLarge
  /// The other side's certificate is not trusted, or TLS failed otherwise.
  case tls(String)
  /// The file to be sent could not be read.
  case file(Errno)
  /// ``Transfer/cancel()`` was called, or the handler said `.stop`.
  case canceled
  /// The network was closed.
  case shutDown
}

/// What a handler wants next.
public enum Flow: Sendable {
  /// More.
  case goOn
  /// Nothing more until ``Transfer/resume()``; what was just given has been taken.
  case pause
  /// The end: ``TransferHandler/end(_:)`` follows with ``NetworkFailure/canceled``.
  case stop
}

/// Takes one answer. All calls come on the network's thread, one after the other, and must not wait for anything.
public protocol TransferHandler: AnyObject, Sendable {
  /// The head, once, before any bytes. `.pause` is not an answer to it and counts as `.goOn`.
  func head(_ head: HTTPHead) -> Flow
  /// The next bytes of the body, lent for the call.
  func bytes(_ bytes: UnsafeRawBufferPointer) -> Flow
  /// ``Transfer/resume()`` was called on a paused transfer: what was held back may be handed on before more comes.
  func resumed() -> Flow
  /// Once, whatever happened; nothing follows.
  func end(_ result: Result<Void, NetworkFailure>)
}

extension TransferHandler {
  public func resumed() -> Flow { .goOn }
}
