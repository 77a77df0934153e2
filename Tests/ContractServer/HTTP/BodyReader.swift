import CMicroHTTPD
import Glibc
import MarfaEngine

/// Gives out an answer's body, with what goes wrong on the way. Its connection's thread alone uses it.
final class BodyReader {
  private let body: Answer.Body
  private let delivery: Delivery
  private let exchange: Exchange
  private let service: any Service
  private var hasPaused = false
  private var pending: [UInt8] = []
  private var free = 0.0

  init(_ body: Answer.Body, _ delivery: Delivery, _ exchange: Exchange, _ service: any Service) {
    self.body = body
    self.delivery = delivery
    self.exchange = exchange
    self.service = service
  }

  /// The next bytes: how many, or one of libmicrohttpd's two ends.
  func read(at position: Int64, into buffer: UnsafeMutableRawBufferPointer) -> Int {
    var limit = min(buffer.count, service.line.block)
    if let rate = delivery.rate { limit = min(limit, max(256, Int(rate / 50))) }
    if let end = delivery.end {
      guard position < end else { return marfa_http_broken }
      limit = min(limit, Int(clamping: end - position))
    }
    if let pause = delivery.pause, !hasPaused {
      if position >= pause.at {
        hasPaused = true
        guard service.pause(exchange, seconds: pause.seconds) else { return marfa_http_broken }
      } else {
        limit = min(limit, Int(clamping: pause.at - position))
      }
    }
    let count = take(at: position, into: UnsafeMutableRawBufferPointer(rebasing: buffer.prefix(limit)))
    guard count > 0 else { return count }
    if let altered = delivery.altered, altered >= position, altered < position + Int64(count) {
      buffer[Int(altered - position)] ^= 0x55
    }
    if let rate = delivery.rate {
      free = max(Clock.now, free) + Double(count) / rate
      Clock.sleep(until: free)
    }
    service.line.pass(count, out: true)
    service.sent(exchange, count)
    return count
  }

  private func take(at position: Int64, into buffer: UnsafeMutableRawBufferPointer) -> Int {
    switch body {
    case .bytes(let bytes):
      let count = min(buffer.count, bytes.count - Int(position))
      buffer.copyBytes(from: bytes[Int(position)..<Int(position) + count])
      return count
    case .file(let file, let offset, let length):
      let wanted = min(buffer.count, Int(clamping: length - position))
      guard let count = try? file.read(into: .init(rebasing: buffer.prefix(wanted)), at: offset + position), count > 0
      else { return marfa_http_broken }
      return count
    case .events(let stream):
      if pending.isEmpty {
        guard let bytes = stream.next(exchange) else { return marfa_http_ended }
        pending = bytes
      }
      let count = min(buffer.count, pending.count)
      buffer.copyBytes(from: pending[..<count])
      pending.removeFirst(count)
      return count
    }
  }
}
