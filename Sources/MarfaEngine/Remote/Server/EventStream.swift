/// One frame of a stream of server-sent events.
struct EventFrame: Equatable {
  /// Its own `id:` line; `nil` without one.
  var id: String?
  /// Its `event:` line; `message` without one.
  var name: String
  /// Its `data:` lines, joined by line breaks.
  var data: [UInt8]
}

/// Takes a stream of server-sent events apart, wherever its pieces are cut. Comments are life, and nothing else; a frame
/// without data is none (HTML Standard, "Interpreting an event stream").
struct EventStreamParser {
  /// One event is larger than allowed.
  struct TooLarge: Error, Equatable {}

  private let limit: Int
  private var line: [UInt8] = []
  private var id: String?
  private var name: String?
  private var data: [UInt8]?
  private var size = 0
  /// The last byte was a carriage return: a line feed right after it is of the same line's end.
  private var skipsLineFeed = false
  private var isFirstLine = true

  /// `limit` is for one frame, in bytes.
  init(limit: Int) { self.limit = limit }

  /// Adds bytes; answers the frames they complete.
  mutating func take(_ bytes: UnsafeRawBufferPointer) throws(TooLarge) -> [EventFrame] {
    var frames: [EventFrame] = []
    var start = 0
    var index = 0
    while index < bytes.count {
      let byte = bytes[index]
      if skipsLineFeed {
        skipsLineFeed = false
        if byte == 0x0a {
          index += 1
          start = index
          continue
        }
      }
      if byte == 0x0a || byte == 0x0d {
        try add(UnsafeRawBufferPointer(rebasing: bytes[start..<index]))
        if let frame = endLine() { frames.append(frame) }
        skipsLineFeed = byte == 0x0d
        start = index + 1
      }
      index += 1
    }
    try add(UnsafeRawBufferPointer(rebasing: bytes[start...]))
    return frames
  }

  private mutating func add(_ bytes: UnsafeRawBufferPointer) throws(TooLarge) {
    size += bytes.count
    guard size <= limit else { throw TooLarge() }
    line.append(contentsOf: bytes)
  }

  private mutating func endLine() -> EventFrame? {
    defer { line.removeAll(keepingCapacity: line.count < 64 << 10) }
    if isFirstLine {
      isFirstLine = false
      if line.starts(with: [0xef, 0xbb, 0xbf]) { line.removeFirst(3) }
    }
    if line.isEmpty { return endFrame() }
    let colon = line.firstIndex(of: UInt8(ascii: ":")) ?? line.endIndex
    // A comment counts for nothing, so that a stream of them can go on for ever.
    guard colon != line.startIndex else {
      size -= line.count
      return nil
    }
    var value = line[min(colon + 1, line.endIndex)...]
    if value.first == 0x20 { value = value.dropFirst() }
    switch String(decoding: line[..<colon], as: UTF8.self) {
    case "data":
      if data == nil {
        data = Array(value)
      } else {
        data?.append(0x0a)
        data?.append(contentsOf: value)
      }
    case "event": name = String(decoding: value, as: UTF8.self)
    case "id": if !value.contains(0) { id = String(decoding: value, as: UTF8.self) }
    default: break
    }
    return nil
  }

  private mutating func endFrame() -> EventFrame? {
    defer {
      id = nil
      name = nil
      data = nil
      size = 0
    }
    guard let data else { return nil }
    return EventFrame(id: id, name: name.flatMap { $0.isEmpty ? nil : $0 } ?? "message", data: data)
  }
}
