/// The header rules of the contract ("Requests and answers"): whose an answer is, judged by its head alone.
enum Contract {
  /// The contract this program speaks.
  static let version = "0"
  static let header = "x-marfa-contract"

  /// Whose an answer is.
  enum Judgement: Equatable {
    /// A success of this contract: its body may be read.
    case success
    /// A 4xx or 5xx of this contract.
    case refusal
    /// A redirect of this contract, which no request but one for bytes expects.
    case redirect
    /// Nothing of it may be used.
    case mismatch(named: [String])
    /// A refusal or a redirect by something between here and the server.
    case notTheServers
  }

  /// Judges a head.
  static func judge(_ head: HTTPHead) -> Judgement {
    let named = named(by: head)
    if named.isEmpty { return (200..<300).contains(head.status) ? .mismatch(named: []) : .notTheServers }
    guard named == [version] else { return .mismatch(named: named) }
    switch head.status {
    case 200..<300: return .success
    case 300..<400: return .redirect
    case 400..<600: return .refusal
    default: return .notTheServers
    }
  }

  /// Every contract a head names, each once; what came with commas is several.
  static func named(by head: HTTPHead) -> [String] {
    var named: [String] = []
    for value in head.all(header) {
      for part in value.split(separator: ",", omittingEmptySubsequences: false) {
        let name = part.trimmingSpaces
        if !named.contains(name) { named.append(name) }
      }
    }
    return named
  }
}

extension StringProtocol {
  /// Without the spaces and tabs at both ends.
  var trimmingSpaces: String {
    let space: (UInt8) -> Bool = { $0 == 0x20 || $0 == 0x09 }
    let kept = utf8.drop(while: space).reversed().drop(while: space).reversed()
    return String(decoding: Array(kept), as: UTF8.self)
  }
}
