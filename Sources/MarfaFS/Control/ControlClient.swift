import Glibc
import MarfaEngine

/// Asks the process that has a store mounted.
public struct ControlClient {
  private let socket: Descriptor
  /// The process that listens, as the kernel vouches for it.
  public let pid: Int

  /// How long one who is asked may be silent: a mount at work says so more often.
  private static let patience = 30
  /// The longest answer.
  private static let limit = 64 << 20

  /// Connects to an address; `nil` when nobody listens there. Fails when somebody does who can't be asked.
  public init?(_ address: ControlAddress) throws(CommandFailure) {
    do throws(Errno) {
      let socket = try address.connect(seconds: 10)
      let peer = try Peer(of: socket)
      // Root may ask anybody.
      guard peer.isTrusted || geteuid() == 0 else {
        throw .notPermitted
      }
      self.socket = socket
      pid = Int(peer.pid)
    } catch {
      switch error.code {
      case ENOENT, ENOTDIR, ECONNREFUSED: return nil
      // What stands there is no socket.
      case ENOTSOCK, EPROTOTYPE, ELOOP: return nil
      case EACCES, EPERM:
        throw CommandFailure(
          .refused, "not_yours",
          "\(address.path) is served by somebody else's process, which answers only them and root")
      case EAGAIN:
        throw CommandFailure(.environment, "no_answer", "the process behind \(address.path) takes no requests")
      default:
        throw CommandFailure(.environment, "no_answer", "\(address.path) can't be reached: \(error)")
      }
    }
  }

  /// Asks, and waits for the answer later: until then, whoever is asked knows that somebody does.
  public consuming func begin(_ request: ControlRequest) -> ControlCall {
    setTimeout(SO_SNDTIMEO, seconds: Self.patience)
    send(request.line)
    return ControlCall(socket, pid)
  }

  /// Asks, and waits for the answer. One request a connection.
  public func ask(_ request: ControlRequest) throws(CommandFailure) -> JSON.Object {
    setTimeout(SO_RCVTIMEO, seconds: Self.patience)
    setTimeout(SO_SNDTIMEO, seconds: Self.patience)
    send(request.line)
    guard let answer = ControlAnswer(line: try receive()) else {
      throw CommandFailure(.environment, "no_answer", "process \(pid) answered something that is no answer")
    }
    switch answer {
    case .done(let result): return result
    case .failed(let failure): throw failure
    }
  }

  private func setTimeout(_ option: CInt, seconds: Int) {
    var limit = timeval(tv_sec: seconds, tv_usec: 0)
    setsockopt(socket.raw, SOL_SOCKET, option, &limit, socklen_t(MemoryLayout<timeval>.size))
  }

  /// Sends what the other side takes. When it takes no more, its answer says why.
  private func send(_ bytes: [UInt8]) {
    var sent = 0
    while sent < bytes.count {
      let count = bytes.withUnsafeBytes { bytes in
        Glibc.send(
          socket.raw, bytes.baseAddress.map { $0 + sent }, bytes.count - sent, CInt(MSG_NOSIGNAL))
      }
      if count < 0 {
        if errno == EINTR { continue }
        return
      }
      sent += count
    }
  }

  /// The first line that is not blank.
  private func receive() throws(CommandFailure) -> [UInt8] {
    var line: [UInt8] = []
    var block = [UInt8](repeating: 0, count: 64 << 10)
    while line.count <= Self.limit {
      let count = block.withUnsafeMutableBytes { recv(socket.raw, $0.baseAddress, $0.count, 0) }
      if count < 0 && errno == EINTR { continue }
      guard count > 0 else {
        let words =
          count < 0 && errno == EAGAIN
          ? "process \(pid) has not answered for \(Self.patience) seconds"
          : "process \(pid) ended before it answered; what it had queued is safe"
        throw CommandFailure(.environment, "no_answer", words)
      }
      for byte in block.prefix(count) {
        if byte != 0x0a {
          line.append(byte)
        } else if !line.isEmpty {
          return line
        }
      }
    }
    throw CommandFailure(.environment, "no_answer", "process \(pid) answered more than can be read")
  }
}

/// A request whose answer has not come yet. It is withdrawn when this goes, or this process ends, whatever ends it.
public final class ControlCall {
  private let socket: Descriptor
  private let pid: Int
  private var line: [UInt8] = []

  fileprivate init(_ socket: Descriptor, _ pid: Int) {
    self.socket = socket
    self.pid = pid
  }

  /// The answer, when it comes within so many seconds.
  public func answer(within seconds: Double) throws(CommandFailure) -> JSON.Object? {
    let deadline = Deadline.after(seconds: seconds)
    var block = [UInt8](repeating: 0, count: 64 << 10)
    while true {
      var set = pollfd(fd: socket.raw, events: Int16(POLLIN), revents: 0)
      guard poll(&set, 1, 50) > 0 else {
        if deadline.hasPassed { return nil }
        continue
      }
      let count = block.withUnsafeMutableBytes { recv(socket.raw, $0.baseAddress, $0.count, CInt(MSG_DONTWAIT)) }
      if count < 0 && (errno == EINTR || errno == EAGAIN) { continue }
      guard count > 0 else {
        throw CommandFailure(.environment, "no_answer", "process \(pid) ended before it answered")
      }
      for byte in block.prefix(count) {
        // A blank line says that it is at work.
        if byte != 0x0a {
          line.append(byte)
        } else if !line.isEmpty {
          guard let answer = ControlAnswer(line: line) else {
            throw CommandFailure(.environment, "no_answer", "process \(pid) answered something that is no answer")
          }
          switch answer {
          case .done(let result): return result
          case .failed(let failure): throw failure
          }
        }
      }
    }
  }
}
