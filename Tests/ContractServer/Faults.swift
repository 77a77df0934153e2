import MarfaEngine

/// Something that goes wrong, for the requests it matches.
///
/// All rules that match a request apply to it together (a delay and a drop, say); of two that answer in the server's
/// place the first stands.
public struct Fault: Sendable {
  /// Which of the server's origins.
  public enum Origin: String, Sendable {
    case instance, store
  }

  /// What goes wrong.
  public enum Effect: Sendable {
    /// The connection ends without an answer, and nothing was done.
    case drop
    /// What was asked is done, and the connection ends without an answer.
    case applyAndDrop
    /// The connection ends after so many bytes of the answer's body (a short body: less than was declared).
    case dropAfter(bytes: Int64)
    /// The connection ends after so many bytes of the request's body.
    case dropRequest(afterBytes: Int64)
    /// Nothing for so many seconds before the head; `nil` until ``Faults/release()``.
    case stall(seconds: Double?)
    /// Nothing for so many seconds after so many bytes of the body; `nil` until ``Faults/release()``.
    case stallBody(afterBytes: Int64, seconds: Double?)
    /// The bodies go at so many bytes a second, both ways.
    case slow(bytesPerSecond: Double)
    /// So many seconds more before the answer.
    case delay(seconds: Double)
    /// The byte of the body at this place is another. The place counts within the blob for a blob's bytes.
    case alter(at: Int64)
    /// Blobs: the whole for whatever range.
    case ignoreRange
    /// A refusal in place of the answer; nothing is done. `contract` nil for one that is not the server's (a proxy's).
    case refuse(
      status: Int, code: String = "unavailable", contract: String? = "0", details: JSON.Object? = nil,
      retryAfter: Int? = nil)
    /// What was asked is done, and answered with these `X-Marfa-Contract` headers (none, another, two …).
    case contract([String])
    /// The link is over, whatever it says.
    case expireLink
    /// 302 to `url`; `nil` for the place that only notes who comes (``ContractServer/elsewhereURL``), or, for a link,
    /// to another link to the same bytes.
    case redirect(to: String?)
    /// `POST /blobs` names another hash.
    case wrongHash
    /// What was asked is done, and answered with its success status and this text for a body.
    case body(String)
    /// Taken, and never answered, nor done.
    case neverAnswer
    /// The event stream ends after so many events (those about the stream itself not counted).
    case cutStream(afterEvents: Int)
    /// The event stream answers `catchup_too_old`.
    case logRetired
    /// The event stream answers `cursor_ahead`.
    case cursorAhead
    /// The event stream ends with `stream_incomplete` after its replay.
    case streamIncomplete(reason: String)
  }

  /// Only requests to this origin; `nil` for both.
  public var origin: Origin?
  /// Only this method.
  public var method: String?
  /// Only paths that begin so (as sent, without the server's prefix).
  public var path: String?
  /// Only targets that hold this text (path and query, as sent).
  public var holding: String?
  /// So many matching requests go through first.
  public var skip: Int
  /// So many are hit; `nil` for all.
  public var count: Int?
  /// What happens.
  public var effect: Effect

  /// A rule; once, unless `count` says otherwise.
  public init(
    _ effect: Effect, method: String? = nil, path: String? = nil, holding: String? = nil, origin: Origin? = nil,
    skip: Int = 0, count: Int? = 1
  ) {
    self.effect = effect
    self.method = method
    self.path = path
    self.holding = holding
    self.origin = origin
    self.skip = skip
    self.count = count
  }

  func matches(origin: Origin, method: String, path: String, target: String) -> Bool {
    (self.origin ?? origin) == origin && (self.method ?? method) == method && path.hasPrefix(self.path ?? "")
      && (holding.map { target.holds($0) } ?? true)
  }
}

extension String {
  /// Whether it holds a text (Foundation's `contains` is not here).
  func holds(_ text: String) -> Bool {
    let (whole, part) = (Array(utf8), Array(text.utf8))
    guard !part.isEmpty, part.count <= whole.count else { return part.isEmpty }
    return (0...whole.count - part.count).contains { whole[$0..<$0 + part.count].elementsEqual(part) }
  }
}

/// The rules in force. Any thread.
public final class Faults: Sendable {
  struct State {
    var rules: [(id: Int, fault: Fault)] = []
    var last = 0
    /// Raised by each release: whoever stalls waits for it to change.
    var releases = 0
  }

  private let state = Monitor(State())

  init() {}

  /// Puts a rule in force; answers its number.
  @discardableResult
  public func add(_ fault: Fault) -> Int {
    state.update { state in
      state.last += 1
      state.rules.append((state.last, fault))
      return state.last
    }
  }

  /// Takes a rule away.
  public func remove(_ id: Int) { state.update { state in state.rules.removeAll { $0.id == id } } }

  /// Takes every rule away. Those who stall go on stalling until ``release()``.
  public func removeAll() { state.update { $0.rules.removeAll() } }

  /// How many rules still have somebody to hit.
  public var waiting: Int { state.update { $0.rules.count } }

  /// Lets everybody go who stalls until released.
  public func release() { state.update { $0.releases += 1 } }

  /// What hits this request.
  func take(origin: Fault.Origin, method: String, path: String, target: String) -> [Fault.Effect] {
    state.update { state in
      var effects: [Fault.Effect] = []
      for index in state.rules.indices
      where state.rules[index].fault.matches(origin: origin, method: method, path: path, target: target) {
        if state.rules[index].fault.skip > 0 {
          state.rules[index].fault.skip -= 1
          continue
        }
        if let count = state.rules[index].fault.count { state.rules[index].fault.count = count - 1 }
        effects.append(state.rules[index].fault.effect)
      }
      state.rules.removeAll { $0.fault.count.map { $0 <= 0 } ?? false }
      return effects
    }
  }

  var releases: Int { state.update { $0.releases } }
}
