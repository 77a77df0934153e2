import Glibc
import MarfaEngine

/// One connection to a mount: a request is read, its command runs, the answer is written. A value with no thread of its
/// own; the server's one thread takes care of all of them.
struct ControlConnection {
  /// What a connection is about.
  enum Phase: Equatable {
    /// The request is not complete yet.
    case reading
    /// The command runs; a blank line now and then says so.
    case running
    /// The answer goes out.
    case writing
    /// Nothing is left to do with it.
    case ended
  }

  /// What came of a step.
  enum Step: Equatable {
    /// Nothing for anybody else to do.
    case nothing
    /// The request is complete: run it, and answer.
    case request([UInt8])
  }

  /// How much is read and how long is waited.
  struct Limits: Sendable {
    /// The longest request.
    var request = 1 << 20
    /// How many seconds a request, and each part of an answer, may take.
    var idle = 10.0
    /// How many seconds pass between two blank lines.
    var beat = 5.0
  }

  let number: Int
  let socket: Descriptor
  private(set) var phase = Phase.reading
  private(set) var deadline: Deadline
  private let limits: Limits
  private var received: [UInt8] = []
  private var outgoing: [UInt8] = []
  private var sent = 0

  init(number: Int, socket: Descriptor, limits: Limits) {
    self.number = number
    self.socket = socket
    self.limits = limits
    deadline = .after(seconds: limits.idle)
  }

  /// What poll(2) is to watch. A peer that goes away is always told.
  var events: CInt {
    switch phase {
    case .reading: POLLIN
    case .writing: POLLOUT
    case .running: outgoing.isEmpty ? 0 : POLLOUT
    case .ended: 0
    }
  }

  /// poll(2) says that something can be done.
  mutating func proceed(_ events: CInt) -> Step {
    switch phase {
    case .reading: return receive()
    case .running where events & (POLLERR | POLLHUP | POLLNVAL) != 0:
      // Nobody waits for the answer any more. The command goes on: half of it is done perhaps.
      phase = .ended
    case .running, .writing: send()
    case .ended: break
    }
    return .nothing
  }

  /// The deadline came.
  mutating func expire() {
    switch phase {
    case .reading:
      finish(.failed(CommandFailure(.usage, "too_slow", "the request did not come in \(Int(limits.idle)) seconds")))
    case .running:
      deadline = .after(seconds: limits.beat)
      // One that reads nothing gets no second one before the first is gone.
      if outgoing.isEmpty { outgoing = [0x0a] }
      send()
    case .writing, .ended: phase = .ended
    }
  }

  /// The answer: sent as soon as the peer takes it, and that is the end.
  mutating func finish(_ answer: ControlAnswer) {
    guard phase == .reading || phase == .running else { return }
    phase = .writing
    deadline = .after(seconds: limits.idle)
    outgoing += answer.line
    send()
  }

  private mutating func receive() -> Step {
    var block = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      let count = block.withUnsafeMutableBytes { recv(socket.raw, $0.baseAddress, $0.count, CInt(MSG_DONTWAIT)) }
      if count < 0 {
        if errno == EINTR { continue }
        if errno != EAGAIN { phase = .ended }
        return .nothing
      }
      let part = block.prefix(count)
      if let end = part.firstIndex(of: 0x0a) {
        received += part[..<end]
        return complete()
      }
      // The end of what is sent ends the line too.
      if count == 0 {
        if received.isEmpty { phase = .ended }
        return received.isEmpty ? .nothing : complete()
      }
      received += part
      if received.count > limits.request { return complete() }
    }
  }

  private mutating func complete() -> Step {
    guard received.count <= limits.request else {
      finish(
        .failed(
          CommandFailure(.usage, "request_too_large", "a request has at most \(Bytes.text(Int64(limits.request)))")))
      return .nothing
    }
    defer { received = [] }
    phase = .running
    deadline = .after(seconds: limits.beat)
    return .request(received)
  }

  private mutating func send() {
    while sent < outgoing.count {
      let count = outgoing.withUnsafeBytes { bytes in
        Glibc.send(
          socket.raw, bytes.baseAddress.map { $0 + sent }, bytes.count - sent,
          CInt(MSG_DONTWAIT) | CInt(MSG_NOSIGNAL))
      }
      if count < 0 {
        if errno == EINTR { continue }
        if errno != EAGAIN { phase = .ended }
        return
      }
      sent += count
      if phase == .writing { deadline = .after(seconds: limits.idle) }
    }
    outgoing = []
    sent = 0
    if phase == .writing { phase = .ended }
  }
}
