import CLinux
import Glibc

@testable import MarfaEngine

/// A server of a test's own: real sockets, and each answer's bytes exactly as the test writes them.
final class RawServer: Sendable {
  /// A request as it came.
  struct Request: Sendable {
    var method: String
    /// Path and query as written.
    var target: String
    /// Names in lower case.
    var headers: [(name: String, value: String)]
    var body: [UInt8]

    subscript(name: String) -> String? { headers.first { $0.name == name }?.value }
  }

  private struct State {
    var requests: [Request] = []
    var open: Set<CInt> = []
    var connections = 0
    var isStopped = false
  }

  let port: Int
  private let listener: CInt
  private let state = Lock<State>(.leaf, State())

  /// Listens at once; `answer` is called for each request on a thread of its connection. Returning goes on with the next
  /// request of the connection, unless it was closed.
  init(_ answer: @escaping @Sendable (Request, Connection) -> Void) throws {
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | 0o2000000, 0)
    guard listener >= 0 else { throw Errno.last }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isReady = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(listener, $0, size) == 0 && listen(listener, 512) == 0 && getsockname(listener, $0, &size) == 0
      }
    }
    guard isReady else { throw Errno.last }
    self.listener = listener
    port = Int(UInt16(bigEndian: address.sin_port))
    startThread(named: "test-server") { [state] in
      while true {
        let raw = accept(listener, nil, nil)
        guard raw >= 0 else {
          if errno == EINTR || errno == ECONNABORTED { continue }
          return
        }
        let isWanted = state.withLock { state in
          guard !state.isStopped else { return false }
          state.open.insert(raw)
          state.connections += 1
          return true
        }
        guard isWanted else {
          _ = close(raw)
          return
        }
        startThread(named: "test-connection") {
          let connection = Connection(raw)
          while let request = connection.read() {
            state.withLock { $0.requests.append(request) }
            answer(request, connection)
            if connection.isClosed { break }
          }
          state.withLock { _ = $0.open.remove(raw) }
          close(raw)
        }
      }
    }
  }

  deinit {
    state.withLock { state in
      state.isStopped = true
      for raw in state.open { shutdown(raw, Int32(SHUT_RDWR)) }
    }
    shutdown(listener, Int32(SHUT_RDWR))
    close(listener)
  }

  var url: String { "http://127.0.0.1:\(port)" }
  /// Those that came so far, in order.
  var requests: [Request] { state.withLock { $0.requests } }
  var connections: Int { state.withLock { $0.connections } }

  /// One connection, on its thread.
  final class Connection {
    private let raw: CInt
    private var buffer: [UInt8] = []
    private(set) var isClosed = false

    fileprivate init(_ raw: CInt) { self.raw = raw }

    /// No more requests are read; what was written still arrives.
    func close() { isClosed = true }

    /// Drops the connection without a word: the other side sees a reset.
    func reset() {
      var linger = linger(l_onoff: 1, l_linger: 0)
      setsockopt(raw, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger)))
      isClosed = true
    }

    /// False once the other side is gone.
    @discardableResult
    func write(_ bytes: [UInt8]) -> Bool {
      var done = 0
      while done < bytes.count {
        let count = bytes.withUnsafeBytes {
          send(raw, $0.baseAddress! + done, bytes.count - done, Int32(MSG_NOSIGNAL))
        }
        if count <= 0 {
          isClosed = true
          return false
        }
        done += count
      }
      return true
    }

    @discardableResult
    func write(_ text: String) -> Bool { write(Array(text.utf8)) }

    /// An answer with its length.
    func reply(_ status: Int, _ headers: [String] = [], _ body: [UInt8] = []) {
      let lines = ["HTTP/1.1 \(status) Words"] + headers + ["Content-Length: \(body.count)"]
      write(Array((lines.joined(separator: "\r\n") + "\r\n\r\n").utf8) + body)
    }

    /// An answer of the contract.
    func contract(_ status: Int, _ json: String = "{}", _ headers: [String] = []) {
      reply(
        status, ["X-Marfa-Contract: 0", "X-Request-ID: r-1", "Content-Type: application/json"] + headers,
        Array(json.utf8))
    }

    /// Returns once the other side has gone.
    func waitForEnd() {
      var byte: UInt8 = 0
      while recv(raw, &byte, 1, 0) > 0 {}
      isClosed = true
    }

    fileprivate func read() -> Request? {
      guard let head = upToBlankLine() else { return nil }
      var lines = String(decoding: head, as: UTF8.self).split(separator: "\r\n").map(String.init)
      let first = lines.removeFirst().split(separator: " ").map(String.init)
      var request = Request(method: first[0], target: first[1], headers: [], body: [])
      for line in lines {
        let parts = line.split(separator: ":", maxSplits: 1).map(String.init)
        request.headers.append((parts[0].lowercased(), parts.count > 1 ? parts[1].trimmingSpaces : ""))
      }
      let length = request["content-length"].flatMap { Int($0) } ?? 0
      while buffer.count < length { guard fill() else { return nil } }
      request.body = Array(buffer.prefix(length))
      buffer.removeFirst(length)
      return request
    }

    private func upToBlankLine() -> [UInt8]? {
      var searched = 0
      while true {
        var index = max(0, searched - 3)
        while index + 4 <= buffer.count {
          if buffer[index] == 13, buffer[index + 1] == 10, buffer[index + 2] == 13, buffer[index + 3] == 10 {
            let head = Array(buffer[..<index])
            buffer.removeFirst(index + 4)
            return head
          }
          index += 1
        }
        searched = buffer.count
        guard fill() else { return nil }
      }
    }

    private func fill() -> Bool {
      var block = [UInt8](repeating: 0, count: 256 << 10)
      let count = recv(raw, &block, block.count, 0)
      guard count > 0 else { return false }
      buffer += block.prefix(count)
      return true
    }
  }
}

/// Whether a condition comes to hold, within a generous limit.
func comesTrue(seconds: Int = 30, _ holds: () -> Bool) -> Bool {
  let limit = Monotonic.now + Int64(seconds) * 1_000_000_000
  while !holds() {
    guard Monotonic.now < limit else { return false }
    usleep(1000)
  }
  return true
}

/// What a slow server does between its pieces.
func sleepMilliseconds(_ count: UInt32) { usleep(count * 1000) }
