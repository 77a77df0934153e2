import CLinux
import Glibc

@testable import MarfaEngine

/// An HTTP client of the tests' own, over plain sockets: it does exactly what it is told.
final class RawClient {
  /// What came back.
  struct Response {
    var status: Int
    /// By lower-case name, in order.
    var headers: [(name: String, value: String)]
    var body: [UInt8]
    /// Whether all that was declared came.
    var isWhole: Bool

    subscript(name: String) -> String? { headers.first { $0.name == name }?.value }
    func all(_ name: String) -> [String] { headers.filter { $0.name == name }.map(\.value) }
    var text: String { String(decoding: body, as: UTF8.self) }
    var json: JSON.Object { (try? JSON(reading: body))?.object ?? JSON.Object() }
    var code: String? { json["error"]?.object?["code"]?.string }
    var details: JSON.Object { json["error"]?.object?["details"]?.object ?? JSON.Object() }
    var data: [JSON] { json["data"]?.array ?? [] }
    var item: JSON.Object { json["item"]?.object ?? JSON.Object() }
    var edge: JSON.Object { json["edge"]?.object ?? JSON.Object() }
  }

  struct Failure: Error {
    var words: String
  }

  private let host: String
  private let port: UInt16
  private var socket: Descriptor?
  private var buffer: [UInt8] = []

  /// Will speak to `origin`, `http://127.0.0.1:PORT`.
  init(_ origin: String) throws {
    let parts = origin.dropFirst("http://".count).split(separator: "/")[0].split(separator: ":")
    host = String(parts[0])
    port = try given(UInt16(parts[1]))
  }

  /// The connection; made when there is none.
  private func connected() throws -> Descriptor {
    if let socket { return socket }
    let made = Descriptor(owning: Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0))
    var name = sockaddr_in()
    name.sin_family = sa_family_t(AF_INET)
    name.sin_port = port.bigEndian
    inet_pton(AF_INET, host, &name.sin_addr)
    // No test waits for ever.
    var limit = timeval(tv_sec: 60, tv_usec: 0)
    setsockopt(made.raw, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    var yes: CInt = 1
    setsockopt(made.raw, Int32(IPPROTO_TCP), TCP_NODELAY, &yes, socklen_t(MemoryLayout<CInt>.size))
    let code = withUnsafePointer(to: &name) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        connect(made.raw, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    guard code == 0 else { throw Errno.last }
    socket = made
    buffer = []
    return made
  }

  func close() { socket = nil }

  /// Sends a request and does not wait.
  func send(_ method: String, _ target: String, _ headers: [String: String] = [:], body: [UInt8]? = nil) throws {
    let socket = try connected()
    var text = "\(method) \(target) HTTP/1.1\r\nHost: \(host):\(port)\r\n"
    for (name, value) in headers { text += "\(name): \(value)\r\n" }
    if let body { text += "Content-Length: \(body.count)\r\n" }
    let bytes = Array((text + "\r\n").utf8) + (body ?? [])
    var done = 0
    while done < bytes.count {
      let count = bytes.withUnsafeBytes {
        Glibc.send(socket.raw, $0.baseAddress! + done, bytes.count - done, Int32(MSG_NOSIGNAL))
      }
      guard count > 0 else { throw Errno.last }
      done += count
    }
  }

  /// Reads an answer; `nil` when the connection ended without one.
  func receive(to method: String = "GET") throws -> Response? {
    guard let head = try until("\r\n\r\n") else { return nil }
    let lines = head.split(separator: "\r\n").map(String.init)
    var response = Response(status: 0, headers: [], body: [], isWhole: true)
    response.status = Int(try given(lines.first).split(separator: " ")[1]) ?? 0
    for line in lines.dropFirst() {
      let halves = line.split(separator: ":", maxSplits: 1)
      let value = halves.count > 1 ? String(halves[1].drop { $0 == " " }) : ""
      response.headers.append((halves[0].lowercased(), value))
    }
    if method == "HEAD" { return response }
    if let length = response["content-length"].flatMap({ Int($0) }) {
      while buffer.count < length, try more() {}
      response.body = Array(buffer.prefix(length))
      response.isWhole = response.body.count == length
      buffer.removeFirst(response.body.count)
    }
    return response
  }

  /// Sends a request and reads its answer; `nil` when the connection ended without one.
  func ask(_ method: String, _ target: String, _ headers: [String: String] = [:], body: [UInt8]? = nil) throws
    -> Response?
  {
    try send(method, target, headers, body: body)
    let response = try receive(to: method)
    if response == nil || response?.isWhole == false { socket = nil }
    return response
  }

  /// The next of an event stream's frames, without the transfer's own marks; `nil` at its end.
  func frame() throws -> String? {
    while true {
      guard let size = try until("\r\n"), let count = Int(size, radix: 16) else { return nil }
      if count == 0 { return nil }
      while buffer.count < count + 2 { guard try more() else { return nil } }
      frames += String(decoding: buffer.prefix(count), as: UTF8.self)
      buffer.removeFirst(count + 2)
      if let frame = nextFrame() { return frame }
    }
  }

  private var frames = ""

  /// The next frame of a stream as its fields.
  func event() throws -> (id: String?, name: String, data: JSON.Object)? {
    while true {
      guard let frame = try nextFrame() ?? frame() else { return nil }
      var fields: [String: String] = [:]
      for line in frame.split(separator: "\n") where !line.hasPrefix(":") {
        let halves = line.split(separator: ":", maxSplits: 1)
        fields[String(halves[0])] = String(halves[1].drop { $0 == " " })
      }
      guard let name = fields["event"] else { continue }
      return (fields["id"], name, try JSON(reading: fields["data"] ?? "").object ?? JSON.Object())
    }
  }

  private func nextFrame() -> String? {
    let lines = frames.split(separator: "\n", omittingEmptySubsequences: false)
    guard let end = lines.firstIndex(of: ""), end + 1 < lines.count else { return nil }
    let frame = lines[..<end].joined(separator: "\n")
    frames = lines[(end + 1)...].joined(separator: "\n")
    return frame
  }

  /// Text up to and without `mark`, which is taken too.
  private func until(_ mark: String) throws -> String? {
    let mark = Array(mark.utf8)
    var from = 0
    while true {
      if buffer.count >= mark.count {
        for index in from...(buffer.count - mark.count) where buffer[index..<index + mark.count].elementsEqual(mark) {
          let text = String(decoding: buffer[..<index], as: UTF8.self)
          buffer.removeFirst(index + mark.count)
          return text
        }
        from = buffer.count - mark.count + 1
      }
      guard try more() else { return nil }
    }
  }

  private func more() throws -> Bool {
    guard let socket else { return false }
    var block = [UInt8](repeating: 0, count: 64 << 10)
    let count = recv(socket.raw, &block, block.count, 0)
    if count < 0, errno == EAGAIN || errno == EINTR { throw Failure(words: "nothing came for a minute") }
    guard count > 0 else { return false }
    buffer += block.prefix(count)
    return true
  }
}

/// A value that has to be there.
private func given<T>(_ value: T?) throws -> T {
  guard let value else { throw RawClient.Failure(words: "something is missing") }
  return value
}
