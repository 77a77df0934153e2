import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

/// A store of its own, with a working copy open for writing.
final class ControlStore: Sendable {
  let directory: TemporaryDirectory
  let copy: WorkingCopy
  var path: String { directory.path + "/store.db" }

  init() throws {
    directory = try TemporaryDirectory()
    copy = try WorkingCopy(path: directory.path + "/store.db")
  }

  deinit { copy.close() }

  /// Makes a file with some bytes in it beside the store, and tells its path.
  func file(_ name: String, _ text: String) throws -> String {
    let path = "\(directory.path)/\(name)"
    let file = try Descriptor.open(path, O_WRONLY | O_CREAT | O_TRUNC, mode: 0o600)
    try file.write(Array(text.utf8), at: 0)
    return path
  }

  /// Makes an item that is a directory at the root.
  func note(_ title: String) throws -> ItemID {
    try copy.items.create(type: "core.note", properties: ["title": .string(title)]).item.id
  }
}

/// A store whose commands are answered through its socket, without a mount.
final class Served: Sendable {
  let store: ControlStore
  let server: ControlServer
  /// How often somebody asked for the end.
  let unmounts = Monitor(0)
  var path: String { store.path }

  /// What the mount, if there were one, would say of itself.
  static let facts = MountFacts(
    mountPoint: "/mnt/trip", pid: Int(getpid()), since: Timestamp(nanoseconds: 0),
    whyNotPassthrough: "it is not wanted", passing: 0,
    log: "/var/log/marfa.log")

  init(limits: ControlServer.Limits = ControlServer.Limits()) throws {
    store = try ControlStore()
    let unmounts = unmounts
    server = try ControlServer(
      Commands(
        store.copy, mount: Commands.Mount(facts: { Served.facts }, unmount: { unmounts.update { $0 += 1 } })),
      limits: limits)
  }

  deinit { _ = server.stop(seconds: 5) }

  /// Asks, as the command does.
  func ask(_ command: String, _ arguments: JSON.Object = [:]) throws -> JSON.Object {
    try #require(try ControlClient(ControlAddress(writerOf: path))).ask(ControlRequest(command, arguments))
  }

  /// Connects, to say whatever comes to mind.
  func connect() throws -> RawConnection {
    RawConnection(try ControlAddress(writerOf: path).connect(seconds: 5))
  }
}

/// A connection that keeps to no rules.
final class RawConnection: Sendable {
  private let socket: Descriptor

  init(_ socket: Descriptor) { self.socket = socket }

  /// Sends bytes; answers how many went before the other side hung up.
  @discardableResult
  func send(_ text: String) -> Int {
    let bytes = Array(text.utf8)
    var sent = 0
    while sent < bytes.count {
      let count = bytes.withUnsafeBytes {
        Glibc.send(socket.raw, $0.baseAddress! + sent, $0.count - sent, CInt(MSG_NOSIGNAL))
      }
      if count <= 0 { break }
      sent += count
    }
    return sent
  }

  /// Says that nothing more will be sent.
  func endSending() { shutdown(socket.raw, CInt(SHUT_WR)) }

  /// All that comes until the other side hangs up; `nil` when it does not in time.
  func receive(seconds: Int = 10) -> String? {
    var limit = timeval(tv_sec: seconds, tv_usec: 0)
    setsockopt(socket.raw, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
    var bytes: [UInt8] = []
    var block = [UInt8](repeating: 0, count: 65536)
    while true {
      let count = recv(socket.raw, &block, block.count, 0)
      if count == 0 { return String(decoding: bytes, as: UTF8.self) }
      if count < 0 { return errno == EAGAIN ? nil : String(decoding: bytes, as: UTF8.self) }
      bytes += block.prefix(count)
    }
  }

  /// The error's word in the answer.
  func failure() -> String? {
    guard let text = receive(), let json = try? JSON(reading: text) else { return nil }
    return json.object?["error"]?.object?["code"]?.string
  }
}

/// The word of the failure that `body` throws.
func failureCode(_ body: () throws -> Void) -> String? {
  do { try body() } catch { return (error as? CommandFailure)?.code ?? "\(error)" }
  return nil
}
