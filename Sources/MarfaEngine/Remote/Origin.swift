import CLinux
import Glibc

/// Which server: scheme, host, port and path prefix (contract "Requests and answers"). A store is bound to one. Equal
/// origins are written alike, whatever case or default port they were given with.
///
/// `http` is taken for any host: a server in the house, or behind a tunnel, has no certificate. The key is then readable by
/// whoever can read the network between.
public struct Origin: Hashable, Sendable, CustomStringConvertible {
  /// How the server is spoken to.
  public enum Scheme: String, Sendable {
    case http, https
    var defaultPort: Int { self == .http ? 80 : 443 }
  }

  public let scheme: Scheme
  /// Lower case; an IPv6 address without its brackets.
  public let host: String
  public let port: Int
  /// Empty, or a path that starts with `/` and doesn't end with one.
  public let prefix: String

  /// `https://example.org`, `http://[::1]:8080/marfa`: the default port is left out.
  public var description: String { authority + prefix }

  /// Scheme, host and port.
  var authority: String {
    let name = host.utf8.contains(UInt8(ascii: ":")) ? "[\(host)]" : host
    return "\(scheme.rawValue)://\(name)" + (port == scheme.defaultPort ? "" : ":\(port)")
  }

  /// True for this machine itself, which no proxy stands before.
  var isLoopback: Bool { host == "localhost" || host == "::1" || host.hasPrefix("127.") }

  /// True where what is sent, the key too, can be read on the way.
  public var isReadableOnTheWay: Bool { scheme == .http && !isLoopback }

  /// Reads an address as a person gives it.
  public init(_ text: String) throws(OriginProblem) {
    guard !text.isEmpty else { throw .empty }
    guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }), text.utf8.count <= 2048 else { throw .characters }
    guard let colon = text.range(of: "://") else { throw .noScheme(text) }
    guard let scheme = Scheme(rawValue: text[..<colon.lowerBound].lowercased()) else {
      throw .scheme(String(text[..<colon.lowerBound]))
    }
    let rest = text[colon.upperBound...]
    guard !rest.contains(where: { $0 == "?" || $0 == "#" }) else { throw .queryOrFragment }
    let slash = rest.firstIndex(of: "/") ?? rest.endIndex
    let authority = rest[..<slash]
    guard !authority.contains("@") else { throw .userInfo }
    let (host, port) = try Origin.hostAndPort(authority, scheme)
    self.scheme = scheme
    self.host = host
    self.port = port
    prefix = try Origin.prefix(rest[slash...])
  }

  private static func hostAndPort(
    _ authority: Substring, _ scheme: Scheme
  ) throws(OriginProblem) -> (String, Int) {
    var name = authority
    var digits: Substring?
    var host: String
    if authority.hasPrefix("[") {
      guard let end = authority.firstIndex(of: "]") else { throw .host(String(authority)) }
      name = authority[authority.index(after: authority.startIndex)..<end]
      let after = authority[authority.index(after: end)...]
      guard after.isEmpty || after.hasPrefix(":") else { throw .host(String(authority)) }
      if !after.isEmpty { digits = after.dropFirst() }
      guard let address = normalised6(name) else { throw .host(String(authority)) }
      host = address
    } else {
      if let colon = authority.firstIndex(of: ":") {
        name = authority[..<colon]
        digits = authority[authority.index(after: colon)...]
      }
      host = name.lowercased()
      if host.hasSuffix(".") { host.removeLast() }
      guard !host.isEmpty else { throw .noHost }
      guard isName(host) else { throw .host(String(name)) }
    }
    guard let digits, !digits.isEmpty else { return (host, scheme.defaultPort) }
    guard digits.utf8.allSatisfy({ (0x30...0x39).contains($0) }), let port = Int(digits), (1...65535).contains(port)
    else { throw .port(String(digits)) }
    return (host, port)
  }

  /// Labels of letters, digits, `-` and `_` with dots between; what a name of the DNS or an IPv4 address looks like.
  private static func isName(_ host: String) -> Bool {
    host.utf8.count <= 253
      && host.split(separator: ".", omittingEmptySubsequences: false).allSatisfy { label in
        !label.isEmpty && label.utf8.count <= 63
          && label.utf8.allSatisfy {
            (0x30...0x39).contains($0) || (0x61...0x7a).contains($0) || $0 == UInt8(ascii: "-")
              || $0 == UInt8(ascii: "_")
          }
      }
  }

  /// An IPv6 address in its one canonical writing; `nil` for what is none.
  private static func normalised6(_ text: Substring) -> String? {
    var address = in6_addr()
    guard inet_pton(AF_INET6, String(text), &address) == 1 else { return nil }
    return withUnsafeTemporaryAllocation(of: CChar.self, capacity: Int(INET6_ADDRSTRLEN)) { buffer -> String? in
      guard let start = buffer.baseAddress, inet_ntop(AF_INET6, &address, start, socklen_t(buffer.count)) != nil else {
        return nil
      }
      return String(cString: start)
    }
  }

  private static func prefix(_ path: Substring) throws(OriginProblem) -> String {
    var path = path
    while path.hasSuffix("/") { path.removeLast() }
    guard !path.isEmpty else { return "" }
    for segment in path.dropFirst().split(separator: "/", omittingEmptySubsequences: false) {
      guard !segment.isEmpty, segment != ".", segment != "..", !segment.contains("\\") else {
        throw .path(String(path))
      }
    }
    return String(path)
  }
}

/// Why an address can't be a server's.
public enum OriginProblem: Error, Equatable, Sendable, CustomStringConvertible {
  case empty
  /// A space, a control character or one outside ASCII; or far too long.
  case characters
  case noScheme(String)
  case scheme(String)
  /// A user or a password in the address.
  case userInfo
  case noHost
  case host(String)
  case port(String)
  case path(String)
  case queryOrFragment

  public var description: String {
    switch self {
    case .empty: "the server's address is empty; give one such as https://marfa.example.org"
    case .characters:
      "the server's address has a space or a character that no address holds; write an international name as xn--…"
    case .noScheme(let text): "\"\(text)\" does not say how the server is spoken to; write https://\(text)"
    case .scheme(let scheme): "\"\(scheme)\" is no way to speak to a server; write https:// or http://"
    case .userInfo: "the server's address holds a user or a password; leave it out, the key is given separately"
    case .noHost: "the server's address names no host"
    case .host(let host): "\"\(host)\" is no name or address of a host"
    case .port(let port): "\"\(port)\" is no port; it is a number from 1 to 65535"
    case .path(let path): "\"\(path)\" can't stand before a server's paths: it has an empty, \".\" or \"..\" part"
    case .queryOrFragment: "the server's address has a \"?\" or \"#\"; give it without"
    }
  }
}

extension StringProtocol {
  /// Where `text` first stands. (The standard library has no such search without its regular expressions.)
  fileprivate func range(of text: String) -> Range<Index>? {
    var start = startIndex
    while start < endIndex {
      let rest = self[start...]
      if rest.hasPrefix(text) { return start..<index(start, offsetBy: text.count) }
      start = index(after: start)
    }
    return nil
  }
}
