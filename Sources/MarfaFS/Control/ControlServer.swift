import CLinux
import Glibc
import MarfaEngine

/// Answers those who ask a mount something: one thread does all reading and writing and never waits for any of them;
/// each command runs on a thread of its own.
public final class ControlServer: Sendable {
  /// How much is taken on at once.
  struct Limits: Sendable {
    /// For each connection.
    var connection = ControlConnection.Limits()
    /// Connections that are being read or written. One more, and the oldest goes.
    var connections = 64
    /// Commands that run. One more waits for one of them to end.
    var commands = 32
  }

  private struct State {
    var isStopping = false
    var hasEnded = false
    var running = 0
    /// Answers the thread has not taken over yet, by the number of their connection.
    var finished: [(Int, ControlAnswer)] = []
  }

  private let listener: ControlAddress.Listener
  private let commands: Commands
  private let limits: Limits
  private let state = Monitor(State())
  /// A byte written here gets the thread out of its poll.
  private let wakeEnd: Descriptor
  private let wokenEnd: Descriptor

  /// Serves a working copy's commands beside its store, until ``stop(seconds:)``.
  public convenience init(_ commands: Commands) throws(Errno) { try self.init(commands, limits: Limits()) }

  init(_ commands: Commands, limits: Limits) throws(Errno) {
    self.commands = commands
    self.limits = limits
    var ends: [CInt] = [-1, -1]
    guard pipe(&ends) == 0 else { throw Errno.last }
    wokenEnd = Descriptor(owning: ends[0])
    wakeEnd = Descriptor(owning: ends[1])
    for end in ends {
      _ = fcntl(end, F_SETFD, FD_CLOEXEC)
      _ = fcntl(end, F_SETFL, O_NONBLOCK)
    }
    let copy = commands.copy
    if copy.isReader {
      Self.sweep(beside: copy.path)
      listener = try ControlAddress(readerOf: copy.path, pid: getpid()).listen()
    } else {
      listener = try ControlAddress(writerOf: copy.path).listen()
    }
    startThread(named: "marfa-control") { self.serve() }
  }

  /// Takes no more requests, and waits until those taken are answered: `false` when that took longer than `seconds`.
  public func stop(seconds: Double) -> Bool {
    let deadline = Deadline.after(seconds: seconds)
    listener.remove()
    state.update { $0.isStopping = true }
    wake()
    return state.wait(until: deadline) { $0.hasEnded && $0.running == 0 ? true : nil } ?? false
  }

  /// Takes away the sockets of readers that died.
  private static func sweep(beside store: String) {
    for address in ControlAddress.all(of: store).dropFirst() {
      do throws(Errno) { _ = try address.connect(seconds: 1) } catch {
        if error.code == ECONNREFUSED { _ = try? Path.remove(address.path) }
      }
    }
  }

  // MARK: The thread

  private func serve() {
    var connections: [ControlConnection] = []
    var waiting: [(number: Int, request: ControlRequest)] = []
    // Of the commands that run, to tell them that nobody waits for them any more.
    var hangUps: [Int: Cancellation] = [:]
    var next = 0
    while true {
      for (number, answer) in takeFinished() {
        hangUps[number] = nil
        guard let index = connections.firstIndex(where: { $0.number == number }) else { continue }
        connections[index].finish(answer)
      }
      connections.removeAll { $0.phase == .ended }
      // Whoever hung up while its turn had not come wants nothing any more.
      waiting.removeAll { command in !connections.contains { $0.number == command.number } }
      startCommands(&waiting, &hangUps)
      let isStopping = state.read { $0.isStopping }
      for (number, hangUp) in hangUps where isStopping || !connections.contains(where: { $0.number == number }) {
        hangUp.cancel()
      }
      // What is not asked yet will not be; what was asked is answered.
      if isStopping { connections.removeAll { $0.phase == .reading } }
      if isStopping && connections.isEmpty { break }

      let ready = wait(connections, isStopping: isStopping)
      for index in connections.indices {
        if ready.connections[index] != 0, case .request(let line) = connections[index].proceed(ready.connections[index])
        {
          if let request = parse(line, &connections[index]) { waiting.append((connections[index].number, request)) }
        }
        if connections[index].deadline.hasPassed { connections[index].expire() }
      }
      if ready.woken { drainWakes() }
      if ready.listener { accept(&connections, &next) }
    }
    state.update { $0.hasEnded = true }
  }

  private func wait(_ connections: [ControlConnection], isStopping: Bool) -> (
    listener: Bool, woken: Bool, connections: [CInt]
  ) {
    var set = [
      pollfd(fd: isStopping ? -1 : listener.socket.raw, events: Int16(POLLIN), revents: 0),
      pollfd(fd: wokenEnd.raw, events: Int16(POLLIN), revents: 0),
    ]
    set += connections.map { pollfd(fd: $0.socket.raw, events: Int16($0.events), revents: 0) }
    // As long as somebody is connected, deadlines are looked at ten times a second.
    guard poll(&set, nfds_t(set.count), connections.isEmpty ? -1 : 100) > 0 else {
      return (false, false, connections.map { _ in 0 })
    }
    return (set[0].revents != 0, set[1].revents != 0, set.dropFirst(2).map { CInt($0.revents) })
  }

  private func accept(_ connections: inout [ControlConnection], _ next: inout Int) {
    while true {
      let raw = Glibc.accept(listener.socket.raw, nil, nil)
      guard raw >= 0 else {
        if errno == EINTR || errno == ECONNABORTED { continue }
        if errno != EAGAIN {
          // No descriptor to be had: whoever has waited longest makes room.
          Log.warning("a connection could not be taken: \(Errno.last)")
          if connections.isEmpty { usleep(100_000) } else { connections.removeFirst() }
        }
        return
      }
      let socket = Descriptor(owning: raw)
      _ = fcntl(raw, F_SETFD, FD_CLOEXEC)
      guard let peer = try? Peer(of: socket), peer.isTrusted else {
        Log.warning("somebody else's process asked, and got no answer")
        continue
      }
      if connections.count >= limits.connections {
        let oldest = connections.firstIndex { $0.phase != .running } ?? connections.startIndex
        connections.remove(at: oldest)
      }
      connections.append(ControlConnection(number: next, socket: socket, limits: limits.connection))
      next += 1
    }
  }

  // MARK: Commands

  /// The request of a line; `nil` when it is none, and was answered so.
  private func parse(_ line: [UInt8], _ connection: inout ControlConnection) -> ControlRequest? {
    do throws(CommandFailure) { return try ControlRequest(line: line) } catch {
      connection.finish(.failed(error))
      return nil
    }
  }

  /// Starts the commands that wait, in order, as many as may run.
  private func startCommands(
    _ waiting: inout [(number: Int, request: ControlRequest)], _ hangUps: inout [Int: Cancellation]
  ) {
    guard !waiting.isEmpty else { return }
    let count = state.update { state in
      let count = min(waiting.count, limits.commands - state.running)
      state.running += count
      return count
    }
    for (number, request) in waiting.prefix(count) {
      let hangUp = Cancellation()
      hangUps[number] = hangUp
      startThread(named: "marfa-command") { [self] in
        let answer = commands.answer(request, hangUp: hangUp)
        state.update { state in
          state.finished.append((number, answer))
          state.running -= 1
        }
        wake()
      }
    }
    waiting.removeFirst(count)
  }

  private func takeFinished() -> [(Int, ControlAnswer)] {
    state.update { state in
      defer { state.finished = [] }
      return state.finished
    }
  }

  // MARK: Waking

  private func wake() {
    var byte: UInt8 = 0
    // A full pipe wakes as well.
    _ = write(wakeEnd.raw, &byte, 1)
  }

  private func drainWakes() {
    var block = [UInt8](repeating: 0, count: 256)
    while read(wokenEnd.raw, &block, block.count) > 0 {}
  }
}
