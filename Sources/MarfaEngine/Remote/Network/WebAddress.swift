/// An absolute `http` or `https` address, taken apart as far as needed to follow a link; the text itself is never rebuilt.
struct WebAddress: Equatable {
  let scheme: Origin.Scheme
  /// Host and port as written.
  let authority: String
  /// Path, query and fragment as written.
  let rest: String
  /// As it was given.
  let text: String

  /// `nil` for what is no such address, holds a name or password, or a character that no address holds.
  init?(_ text: String) {
    guard text.utf8.count <= WebAddress.longest, text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { return nil }
    let lower = text.prefix(8).lowercased()
    let start: Int
    if lower.hasPrefix("https://") {
      (scheme, start) = (.https, 8)
    } else if lower.hasPrefix("http://") {
      (scheme, start) = (.http, 7)
    } else {
      return nil
    }
    let after = text.dropFirst(start)
    let end = after.firstIndex { $0 == "/" || $0 == "?" || $0 == "#" || $0 == "\\" } ?? after.endIndex
    authority = String(after[..<end])
    rest = String(after[end...])
    self.text = text
    guard !authority.isEmpty, !authority.contains("@"), !rest.hasPrefix("\\") else { return nil }
  }

  /// Longer addresses are refused.
  static let longest = 16 << 10

  /// Where a `Location` or a relative link leads from here (RFC 3986, 5.2, without its dot segments, which the host may
  /// resolve). `nil` for what can't be followed, which includes leaving `https` for `http`.
  func resolving(_ reference: String) -> WebAddress? {
    let next: WebAddress?
    if reference.hasPrefix("//") {
      next = WebAddress(scheme.rawValue + ":" + reference)
    } else if reference.hasPrefix("/") {
      next = WebAddress("\(scheme.rawValue)://\(authority)\(reference)")
    } else if reference.hasPrefix("?") {
      next = WebAddress("\(scheme.rawValue)://\(authority)\(path)\(reference)")
    } else if let absolute = WebAddress(reference) {
      next = absolute
    } else if reference.isEmpty || reference.prefix(while: { $0 != "/" && $0 != "?" }).contains(":") {
      next = nil
    } else {
      let folder = path.lastIndex(of: "/").map { path[...$0] } ?? "/"
      next = WebAddress("\(scheme.rawValue)://\(authority)\(folder)\(reference)")
    }
    guard let next, !(scheme == .https && next.scheme == .http) else { return nil }
    return next
  }

  /// Whether it leads to this origin's host, by the same scheme and port.
  func leads(to origin: Origin) -> Bool {
    guard let other = try? Origin("\(scheme.rawValue)://\(authority)") else { return false }
    return other.authority == origin.authority
  }

  /// Who is asked there: one connection serves all that have this in common.
  var host: String { "\(scheme.rawValue)://\(authority.lowercased())" }

  /// True for this machine itself.
  var isLoopback: Bool { (try? Origin("\(scheme.rawValue)://\(authority)"))?.isLoopback ?? false }

  private var path: String {
    let path = String(rest.prefix { $0 != "?" && $0 != "#" })
    return path.isEmpty ? "/" : path
  }
}
