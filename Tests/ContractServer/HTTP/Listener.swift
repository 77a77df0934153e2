import CLinux
import CMicroHTTPD
import Glibc
import MarfaEngine

/// What a listener serves.
protocol Service: AnyObject, Sendable {
  /// The line bodies go over.
  var line: Line { get }
  /// A connection was made: its number.
  func connected() -> Int
  /// A request's head is in.
  func head(_ exchange: Exchange)
  /// Bytes of its body came; false ends the connection.
  func received(_ exchange: Exchange, _ bytes: UnsafeRawBufferPointer) -> Bool
  /// All of it is in: what it is answered; `nil` ends the connection without an answer.
  func answer(_ exchange: Exchange) -> (Answer, Delivery)?
  /// Bytes of the answer's body go out.
  func sent(_ exchange: Exchange, _ count: Int)
  /// Waits; false when there is nobody left to wait for.
  func pause(_ exchange: Exchange, seconds: Double?) -> Bool
  /// It is over.
  func ended(_ exchange: Exchange, completed: Bool)
}

/// A listening socket with a thread for each connection.
final class Listener: @unchecked Sendable {
  // Safe: everything is constant but `daemon`, which only start and stop touch, in the server's lock.
  let origin: Fault.Origin
  let address: String
  private(set) var port: UInt16
  private let service: any Service
  private var daemon: OpaquePointer?

  /// Listens on `address` (IPv4) and `port`; 0 takes a free one, which stays this listener's.
  init(_ origin: Fault.Origin, address: String, port: UInt16, service: any Service) {
    self.origin = origin
    self.address = address
    self.port = port
    self.service = service
  }

  func start() throws(ServerRefusal) {
    let socket = try port == 0 ? freeSocket() : bound(to: port).get()
    daemon = marfa_http_start(
      socket, Unmanaged.passUnretained(self).toOpaque(),
      { context, connection, _, method, _, data, size, slot in
        guard let context, let method, let size, let pointer = slot?.pointee else { return marfa_http_no }
        return Listener.at(context).handle(
          Unmanaged<Exchange>.fromOpaque(pointer).takeUnretainedValue(), method, data, size)
      },
      { context, target, connection in
        guard let context, let target, let connection, let wire = marfa_http_context(connection) else { return nil }
        let exchange = Exchange(
          origin: Listener.at(context).origin, target: String(cString: target), connection: connection,
          wire: Unmanaged<Wire>.fromOpaque(wire).takeUnretainedValue())
        return Unmanaged.passRetained(exchange).toOpaque()
      },
      { context, _, slot, why in
        guard let context, let slot, let pointer = slot.pointee else { return }
        slot.pointee = nil
        let exchange = Unmanaged<Exchange>.fromOpaque(pointer).takeRetainedValue()
        guard exchange.hasHead else { return }
        Listener.at(context).service.ended(exchange, completed: why == marfa_http_completed)
      },
      { context, _, slot, what in
        guard let context, let slot else { return }
        if what == marfa_http_connection_started {
          let wire = Wire(number: Listener.at(context).service.connected())
          slot.pointee = Unmanaged.passRetained(wire).toOpaque()
        } else if let wire = slot.pointee {
          Unmanaged<Wire>.fromOpaque(wire).release()
          slot.pointee = nil
        }
      })
    guard daemon != nil else {
      close(socket)
      throw .broken("libmicrohttpd does not start")
    }
  }

  /// A socket on a port of our choice. Not one of the system's own choosing: while this server is down, another test's
  /// connection could be given it.
  private func freeSocket() throws(ServerRefusal) -> CInt {
    for _ in 0..<200 {
      let port = UInt16.random(in: 15_000..<32_000)
      guard case .success(let socket) = bound(to: port) else { continue }
      self.port = port
      return socket
    }
    return try bound(to: 0).get()
  }

  private func bound(to port: UInt16) -> Result<CInt, ServerRefusal> {
    let socket = socket(AF_INET, Int32(SOCK_STREAM.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0)
    guard socket >= 0 else { return .failure(.broken("socket: \(Errno.last)")) }
    // Connections of this server's last life may still be ending.
    var yes: CInt = 1
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<CInt>.size))
    var name = sockaddr_in()
    name.sin_family = sa_family_t(AF_INET)
    name.sin_port = port.bigEndian
    inet_pton(AF_INET, address, &name.sin_addr)
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let code = withUnsafeMutablePointer(to: &name) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { name in
        bind(socket, name, length) == 0 && listen(socket, 512) == 0 && getsockname(socket, name, &length) == 0
          ? 0 : errno
      }
    }
    guard code == 0 else {
      close(socket)
      return .failure(.broken("\(address):\(port): \(Errno(code))"))
    }
    self.port = UInt16(bigEndian: name.sin_port)
    return .success(socket)
  }

  /// Ends every connection; returns once their threads are gone.
  func stop() {
    if let daemon { MHD_stop_daemon(daemon) }
    daemon = nil
  }

  /// The listener a callback is for. The daemon is stopped before its listener goes.
  private static func at(_ context: UnsafeMutableRawPointer) -> Listener {
    Unmanaged<Listener>.fromOpaque(context).takeUnretainedValue()
  }

  /// A request's head, then its body in pieces, then its end.
  private func handle(
    _ exchange: Exchange, _ method: UnsafePointer<CChar>, _ data: UnsafePointer<CChar>?,
    _ size: UnsafeMutablePointer<Int>
  ) -> MHD_Result {
    if !exchange.hasHead {
      exchange.hasHead = true
      exchange.readHead(method: String(cString: method))
      service.head(exchange)
      return marfa_http_yes
    }
    if size.pointee > 0 {
      let bytes = UnsafeRawBufferPointer(start: data, count: size.pointee)
      exchange.received += Int64(bytes.count)
      size.pointee = 0
      return service.received(exchange, bytes) ? marfa_http_yes : marfa_http_no
    }
    guard let (answer, delivery) = service.answer(exchange) else { return marfa_http_no }
    return Listener.queue(answer, delivery, exchange, service)
  }

  /// Hands an answer to libmicrohttpd.
  private static func queue(_ answer: Answer, _ delivery: Delivery, _ exchange: Exchange, _ service: any Service)
    -> MHD_Result
  {
    var response: OpaquePointer?
    let isHead = exchange.method == "HEAD"
    // A short body goes out with its head, at once.
    if case .bytes(var bytes) = answer.body, delivery.end == nil, delivery.pause == nil, delivery.rate == nil {
      if let altered = delivery.altered, bytes.indices.contains(Int(altered)) { bytes[Int(altered)] ^= 0x55 }
      let count = bytes.count
      if !isHead {
        service.line.pass(count, out: true)
        service.sent(exchange, count)
      }
      response = bytes.withUnsafeMutableBytes {
        MHD_create_response_from_buffer(count, $0.baseAddress, marfa_http_copied)
      }
    } else {
      let reader = BodyReader(answer.body, delivery, exchange, service)
      response = MHD_create_response_from_callback(
        answer.body.count.map { UInt64($0) } ?? marfa_http_unknown_size, 1 << 18,
        { context, position, buffer, size in
          guard let context, let buffer else { return marfa_http_broken }
          return Unmanaged<BodyReader>.fromOpaque(context).takeUnretainedValue().read(
            at: Int64(position), into: UnsafeMutableRawBufferPointer(start: buffer, count: size))
        }, Unmanaged.passRetained(reader).toOpaque(),
        { context in if let context { Unmanaged<BodyReader>.fromOpaque(context).release() } })
    }
    guard let response else { return marfa_http_no }
    defer { MHD_destroy_response(response) }
    for (name, value) in answer.headers { MHD_add_response_header(response, name, value) }
    for value in answer.contract { MHD_add_response_header(response, "X-Marfa-Contract", value) }
    return MHD_queue_response(exchange.connection, UInt32(answer.status), response)
  }
}
