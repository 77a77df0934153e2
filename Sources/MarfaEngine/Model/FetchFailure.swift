/// Why bytes could not be fetched, as the program that wants them is told (SEMANTICS.md, "What a failure is called").
public enum FetchFailure: Error, Sendable, Equatable, CustomStringConvertible {
  /// The server, or the link it gave, can't be reached; nothing was waited for when that was known already.
  case unreachable(String)
  /// No byte came for as long as a read waits.
  case timedOut(String)
  /// The server asks for a longer wait than this makes; the seconds, where it says them.
  case rateLimited(seconds: Int?)
  /// The server holds no bytes by that hash.
  case absent
  /// The key is not accepted, or may not read these bytes.
  case credentialRefused(String)
  /// What came does not hash to its name.
  case wrongBytes
  /// Anything else, in words.
  case failed(String)

  /// The reason that is kept in the store.
  public var reason: NotHeldReason {
    switch self {
    case .unreachable, .timedOut: .unreachable
    case .rateLimited: .rateLimited
    case .absent: .absent
    case .credentialRefused, .wrongBytes, .failed: .failed
    }
  }

  public var description: String {
    switch self {
    case .unreachable(let words): "the server can't be reached: \(words)"
    case .timedOut(let words): "the server sends nothing: \(words)"
    case .rateLimited(let seconds?): "the server asks for a wait of \(seconds) seconds"
    case .rateLimited(nil): "the server asks for a wait"
    case .absent: "the server holds no such bytes"
    case .credentialRefused(let words): "the server refuses the key: \(words)"
    case .wrongBytes: "the bytes that came do not hash to their name and were thrown away"
    case .failed(let words): words
    }
  }
}
