import MarfaEngine

/// What goes back.
struct Answer {
  /// Where its body comes from.
  enum Body {
    case bytes([UInt8])
    /// A part of a blob.
    case file(Descriptor, offset: Int64, count: Int64)
    /// Server-sent events, until the stream ends.
    case events(EventStream)

    /// How long it is; `nil` for as long as it lasts.
    var count: Int64? {
      switch self {
      case .bytes(let bytes): Int64(bytes.count)
      case .file(_, _, let count): count
      case .events: nil
      }
    }
  }

  var status: Int
  var headers: [(name: String, value: String)] = []
  /// The values of `X-Marfa-Contract`, a header each.
  var contract = ["0"]
  var body: Body

  /// JSON.
  static func json(_ status: Int, _ text: String) -> Answer {
    Answer(status: status, headers: [("Content-Type", "application/json")], body: .bytes(Array(text.utf8)))
  }

  /// A refusal.
  static func refusal(_ refusal: ServerRefusal) -> Answer {
    var answer = json(refusal.status, refusal.text)
    answer.headers.append(("X-Error-Code", refusal.code))
    return answer
  }

  /// Words that are no application's.
  static func words(_ status: Int, _ text: String, type: String = "text/plain") -> Answer {
    Answer(
      status: status, headers: [("Content-Type", type)], contract: [], body: .bytes(Array(text.utf8)))
  }
}

/// How an answer goes out.
struct Delivery {
  /// The connection ends after so many bytes of the body.
  var end: Int64?
  /// The body pauses at this byte, for so many seconds or until released.
  var pause: (at: Int64, seconds: Double?)?
  /// A byte that is changed, counted in the body.
  var altered: Int64?
  /// Bytes a second for this one.
  var rate: Double?
  /// The events after which a stream is cut.
  var events: Int?
}
