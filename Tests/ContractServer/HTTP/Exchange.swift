import CLinux
import CMicroHTTPD
import Glibc
import MarfaEngine

/// A connection's own facts. Its thread alone touches them.
final class Wire {
  let number: Int
  var requests = 0
  init(number: Int) { self.number = number }
}

/// One request and its answer. Its connection's thread alone touches it.
final class Exchange {
  let origin: Fault.Origin
  /// Path and query exactly as sent.
  let target: String
  let connection: OpaquePointer
  let socket: CInt
  let wire: Wire
  var method = ""
  var headers: [String: String] = [:]
  /// Its number among all; 0 until its head was read.
  var number = 0
  var began = 0.0
  /// The head was handed on.
  var hasHead = false
  /// What goes wrong with it.
  var effects: [Fault.Effect] = []
  /// The body, when it is no upload.
  var body: [UInt8] = []
  /// How much of the body came.
  var received: Int64 = 0
  /// Where an upload's bytes go.
  var upload: Upload?
  /// Its place in the statistics.
  var kind = ""
  /// The rows it writes, while it does, and what its answer makes known.
  var rows: [String] = []
  var makesKnown: [String] = []
  /// Those of them that were not known before.
  var madeKnown: [String] = []
  var creates: (fingerprint: String, id: String)?
  var claimedKey: String?

  init(origin: Fault.Origin, target: String, connection: OpaquePointer, wire: Wire) {
    self.origin = origin
    self.target = target
    self.connection = connection
    self.wire = wire
    socket = marfa_http_socket(connection)
  }

  /// Reads method and headers.
  func readHead(method: String) {
    self.method = method
    began = Clock.now
    wire.requests += 1
    MHD_get_connection_values(
      connection, marfa_http_headers,
      { context, _, name, value in
        guard let context, let name else { return marfa_http_yes }
        let exchange = Unmanaged<Exchange>.fromOpaque(context).takeUnretainedValue()
        let key = String(cString: name).lowercased()
        let text = value.map { String(cString: $0) } ?? ""
        exchange.headers[key] = exchange.headers[key].map { $0 + ", " + text } ?? text
        return marfa_http_yes
      }, Unmanaged.passUnretained(self).toOpaque())
  }

  /// Whether whoever asked has hung up.
  var isAbandoned: Bool { Exchange.isHungUp(socket) }

  static func isHungUp(_ socket: CInt) -> Bool {
    // POLLRDHUP is Linux's own, and not declared without _GNU_SOURCE.
    var entry = pollfd(fd: socket, events: Int16(0x2000), revents: 0)
    return poll(&entry, 1, 0) > 0 && entry.revents & (Int16(0x2000) | Int16(POLLHUP) | Int16(POLLERR)) != 0
  }
}

/// An upload's bytes on their way to the disk, hashed as they come.
final class Upload {
  let path: String
  let file: Descriptor
  private let digest: SHA256
  private(set) var count: Int64 = 0
  private(set) var failure: Errno?

  init(path: String) throws(ServerRefusal) {
    self.path = path
    do {
      file = try Descriptor.open(path, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
      digest = try SHA256()
    } catch { throw .broken("\(path): \(error)") }
  }

  deinit { unlink(path) }

  func add(_ bytes: UnsafeRawBufferPointer) {
    digest.update(bytes)
    do throws(Errno) { try file.write(bytes, at: count) } catch { failure = error }
    count += Int64(bytes.count)
  }

  func finish() -> BlobHash { digest.finish() }
}
