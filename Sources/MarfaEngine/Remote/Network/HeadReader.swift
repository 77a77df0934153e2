/// Puts an answer's head together from its lines, as libcurl hands them over: a status line, headers, an empty line; interim
/// answers (1xx) before the real one, trailers after it.
struct HeadReader {
  /// What a line led to.
  enum Step {
    case more
    case head(HTTPHead)
    case tooLarge
  }

  private let limit: Int
  private var size = 0
  private var status = 0
  private var headers: [(name: String, value: String)] = []
  private var isDone = false

  init(limit: Int) { self.limit = limit }

  mutating func take(_ line: UnsafeRawBufferPointer) -> Step {
    size += line.count
    guard size <= limit else { return .tooLarge }
    guard !isDone else { return .more }
    let text = String(decoding: line, as: UTF8.self)
    let line = text.utf8.prefix { $0 != 0x0d && $0 != 0x0a }
    if line.isEmpty {
      guard status >= 200 else { return .more }
      isDone = true
      return .head(HTTPHead(status: status, headers: headers))
    }
    if text.hasPrefix("HTTP/") {
      let digits = line.drop { $0 != 0x20 }.dropFirst().prefix(3)
      status = Int(String(decoding: Array(digits), as: UTF8.self)) ?? 0
      headers = []
      return .more
    }
    if line.first == 0x20 || line.first == 0x09 {
      // A continued line, as old servers fold theirs.
      if let last = headers.indices.last {
        headers[last].value += " " + String(decoding: Array(line), as: UTF8.self).trimmingSpaces
      }
      return .more
    }
    guard let colon = line.firstIndex(of: UInt8(ascii: ":")) else { return .more }
    let name = String(decoding: Array(line[..<colon]), as: UTF8.self).lowercased()
    let value = String(decoding: Array(line[line.index(after: colon)...]), as: UTF8.self).trimmingSpaces
    headers.append((name, value))
    return .more
  }
}
