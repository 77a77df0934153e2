import CFuse3
import MarfaEngine

/// A reply that waits for its answer, shared by those who may give it: whoever takes it first answers.
///
///     let parked = reply.park()
///     let wait = blob.whenIn(range) { parked.take()?.file(descriptor: …) }
///     parked.whenInterrupted { parked in
///       wait.cancel()
///       parked.take()?.fail(Errno(EINTR))
///     }
///
/// One that nobody holds any more is a reply dropped: a defect, see ``Reply``.
final class ParkedReply<Answer>: Sendable, Interruptible {
  private struct State: ~Copyable {
    var reply: Reply<Answer>?
    var interrupted = false
    var handler: (@Sendable (ParkedReply<Answer>) -> Void)?
  }

  private let state: Lock<State>
  private let ticket: UInt

  /// Parks a reply, and from now on notices when its program stops waiting.
  init(_ reply: consuming Reply<Answer>) {
    let request = reply.request
    state = Lock(.leaf, State(reply: consume reply))
    ticket = Interrupts.newTicket()
    // Before anyone else can answer: the request must be alive. libfuse may call back at once, from in here.
    Interrupts.watch(request, as: ticket, for: self)
  }

  deinit { Interrupts.drop(ticket) }

  /// Takes the reply out, to answer it; `nil` once somebody has.
  func take() -> Reply<Answer>? {
    let reply = state.withLock { state in
      state.handler = nil
      return state.reply.take()
    }
    Interrupts.drop(ticket)
    return reply
  }

  /// Runs `handler` once if the asking program stops waiting (Ctrl-C, a kill) before the reply was taken: at once when
  /// it already has. A take that comes at the same moment may win: the handler then finds nothing to take.
  /// It runs on one of the session's threads, and is kept until the reply is taken; it is handed the parked reply, so
  /// that it need not hold it and keep it alive.
  func whenInterrupted(_ handler: @escaping @Sendable (ParkedReply<Answer>) -> Void) {
    let now = state.withLock { state in
      guard state.reply != nil else { return false }
      if !state.interrupted { state.handler = handler }
      return state.interrupted
    }
    if now { handler(self) }
  }

  /// The asking program stopped waiting.
  fileprivate func interrupt() {
    let handler = state.withLock { state in
      state.interrupted = true
      let handler = state.handler
      state.handler = nil
      return handler
    }
    handler?(self)
  }
}

/// What can be told that its program stopped waiting.
private protocol Interruptible: AnyObject, Sendable {
  func interrupt()
}

/// Which parked reply an interrupt is for.
///
/// libfuse hands the callback's data on without a lock that answering takes, so a pointer in it could be to an object
/// that is just being answered and freed. A number that is looked up here cannot.
private enum Interrupts {
  private struct Waiter {
    weak var reply: (any Interruptible)?
  }

  private struct Table {
    var last: UInt = 0
    var waiting: [UInt: Waiter] = [:]
  }

  private static let table = Lock<Table>(.leaf, Table())

  /// A number never used before.
  static func newTicket() -> UInt {
    table.withLock { table in
      table.last &+= 1
      return table.last
    }
  }

  /// Has the parked reply told of an interrupt of `request`.
  static func watch(_ request: fuse_req_t, as ticket: UInt, for reply: any Interruptible) {
    table.withLock { $0.waiting[ticket] = Waiter(reply: reply) }
    fuse_req_interrupt_func(
      request,
      { _, data in
        let reply = Interrupts.find(UInt(bitPattern: data))
        reply?.interrupt()
      }, UnsafeMutableRawPointer(bitPattern: ticket))
  }

  private static func find(_ ticket: UInt) -> (any Interruptible)? {
    table.withLock { $0.waiting[ticket]?.reply }
  }

  /// Forgets a parked reply.
  static func drop(_ ticket: UInt) {
    table.withLock { table in _ = table.waiting.removeValue(forKey: ticket) }
  }
}
