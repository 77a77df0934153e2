import CCurl
import Glibc

/// The network, as one thread that owns libcurl: everyone else posts to it. Requests to one host share its connections.
///
/// Dropping the last reference closes it without waiting.
public final class Network: Sendable {
  /// What its requests are held to.
  public let limits: NetworkLimits
  private let inbox: NetworkInbox
  private let ended = OneShot<Void>()

  /// Starts the thread.
  public init(limits: NetworkLimits = NetworkLimits()) {
    let inbox = NetworkInbox()
    let ended = ended
    self.limits = limits
    self.inbox = inbox
    startThread(named: "marfa-network") {
      NetworkThread(inbox, limits).run()
      ended.fulfil(())
    }
  }

  deinit { inbox.stop() }

  /// Sends a request. `handler` is held until its end. On a closed network the end comes at once, on this thread.
  @discardableResult
  public func start(_ request: HTTPRequest, _ handler: any TransferHandler) -> Transfer {
    let inbox = inbox
    let id = inbox.nextID()
    if !inbox.post(.start(id, request, handler)) { handler.end(.failure(.shutDown)) }
    return Transfer(cancel: { inbox.post(.cancel(id)) }, resume: { inbox.post(.resume(id)) })
  }

  /// Runs `work` on the network's thread, after what was posted before; it must not wait for anything. Answers false, and
  /// does not run it, on a closed network.
  @discardableResult
  public func perform(_ work: @escaping @Sendable () -> Void) -> Bool { inbox.post(.work(work)) }

  /// Ends every transfer as ``NetworkFailure/shutDown`` and returns once the thread is gone. On the network's own thread it
  /// does not wait.
  public func close() {
    inbox.stop()
    if !isOwnThread { ended.wait() }
  }

  /// Whether the caller runs on the network's thread, where nothing may wait for it.
  var isOwnThread: Bool { inbox.isOwnThread }
}

/// What is posted to the network's thread.
enum NetworkCommand: Sendable {
  case start(UInt64, HTTPRequest, any TransferHandler)
  case cancel(UInt64)
  case resume(UInt64)
  case work(@Sendable () -> Void)
}

/// Where commands wait for the network's thread.
final class NetworkInbox: @unchecked Sendable {
  // Safe: `multi` is constant; of its functions only `curl_multi_wakeup` is called off the network's thread, which libcurl
  // allows, and only under the lock while `isOpen`, after which the thread may free it.
  let multi: UnsafeMutableRawPointer?

  private struct State {
    var isOpen = true
    var isStopping = false
    var commands: [NetworkCommand] = []
    var lastID: UInt64 = 0
    var thread: pthread_t?
  }
  private let state = Lock<State>(.leaf, State())

  private static let isReady: Bool = marfa_curl_global_init() == CURLE_OK

  init() { multi = NetworkInbox.isReady ? curl_multi_init() : nil }

  func nextID() -> UInt64 {
    state.withLock { state in
      state.lastID += 1
      return state.lastID
    }
  }

  /// False once the network is closed.
  @discardableResult
  func post(_ command: NetworkCommand) -> Bool {
    state.withLock { state in
      guard state.isOpen else { return false }
      state.commands.append(command)
      if state.commands.count == 1 { curl_multi_wakeup(multi) }
      return true
    }
  }

  func stop() {
    state.withLock { state in
      state.isStopping = true
      if state.isOpen { curl_multi_wakeup(multi) }
    }
  }

  var isOwnThread: Bool {
    let thread = state.withLock { $0.thread }
    return thread.map { pthread_equal($0, pthread_self()) != 0 } ?? false
  }

  /// The network's thread says that it is the one.
  func begin() { state.withLock { $0.thread = pthread_self() } }

  /// What was posted since; `nil` once to be stopped.
  func take() -> [NetworkCommand]? {
    state.withLock { state in
      guard !state.isStopping else { return nil }
      defer { state.commands = [] }
      return state.commands
    }
  }

  /// Nothing can be posted from here on; what was, is answered by the caller.
  func shut() -> [NetworkCommand] {
    state.withLock { state in
      state.isOpen = false
      defer { state.commands = [] }
      return state.commands
    }
  }
}
