import CFuse3
import CLinux
import Glibc
import MarfaEngine
import Synchronization

/// The threads that take requests from the kernel and carry them to the filesystem.
///
/// There is always one that waits for the next request, until there are `Limits.most`: when the last idle one takes a
/// request, it starts another first. So a call that takes its time holds its own thread and stops nobody.
///
/// Not libfuse's own loop, which cannot be ended while a handler is stuck, and ends its threads by cancellation, of which
/// Swift knows nothing.
final class Workers: Sendable {
  /// How many threads there are.
  struct Limits: Sendable {
    /// To begin with.
    var first = 2
    /// At most.
    var most = 64
    /// Idle ones that are kept when there is nothing to do.
    var kept = 8
  }

  /// The signal that gets a thread out of waiting for a request. Nothing happens to a process that ignores it, which is
  /// what one does by default.
  private static let wake = SIGURG

  private enum Threads {
    /// One thread.
    final class Worker: Sendable {
      let thread = pthread_self()
      /// It waits for a request, and may be woken without harm.
      let isReceiving = Atomic<Bool>(false)
    }
    /// Those that run, and those that ended and are to be joined.
    struct All {
      var running: [ObjectIdentifier: Worker] = [:]
      var starting = 0
      var ended: [pthread_t] = []
      /// The session has ended for at least one of them, and so for all.
      var isOver = false
      /// Nobody waits for those that run any more: what ends now joins nobody.
      var areLeft = false
    }
  }

  private let session: SessionHandle
  private let driver: Driver
  private let limits: Limits
  private let idle = Atomic<Int>(0)
  private let threads = Monitor(Threads.All())

  /// Makes the threads' keeper; `start` makes the threads.
  init(_ session: SessionHandle, _ driver: Driver, limits: Limits = Limits()) {
    self.session = session
    self.driver = driver
    self.limits = limits
  }

  /// Starts the first threads. At least one can be had, or this throws.
  func start() throws(Errno) {
    // A handler that does nothing, and no SA_RESTART: the interrupted read returns.
    var action = sigaction()
    action.__sigaction_handler.sa_handler = { _ in }
    sigaction(Self.wake, &action, nil)
    for count in 0..<limits.first {
      if let error = spawn(), count == 0 { throw error }
    }
  }

  /// How many threads there are.
  var count: Int { threads.read { $0.running.count + $0.starting } }

  /// Waits until the session has ended for one of them: the mount is gone, or something is wrong with the device.
  func waitUntilOver(by deadline: Deadline? = nil) -> Bool {
    threads.wait(until: deadline) { $0.isOver ? true : nil } ?? false
  }

  /// As if the session had ended: whoever waits for that goes on.
  func setOver() { threads.update { $0.isOver = true } }

  /// Gets every thread to end, and waits until all have: `false` when one is stuck past the deadline, and is left to
  /// itself. The session is to have exited.
  func stop(by deadline: Deadline) -> Bool {
    while true {
      // Again and again: a thread may have looked whether to end just before it began to wait.
      for worker in threads.read({ Array($0.running.values) }) { wakeUp(worker) }
      let round = Deadline.earlier(deadline, .after(seconds: 0.01))
      let isEmpty = threads.wait(until: round) { $0.running.isEmpty && $0.starting == 0 ? true : nil }
      joinEnded()
      if isEmpty != nil { return true }
      if deadline.hasPassed {
        threads.update { $0.areLeft = true }
        return false
      }
    }
  }

  private func wakeUp(_ worker: Threads.Worker) {
    threads.read { threads in
      // Under the lock: one that runs cannot end meanwhile, so its thread is there.
      guard threads.running[ObjectIdentifier(worker)] != nil else { return }
      if worker.isReceiving.load(ordering: .acquiring) { pthread_kill(worker.thread, Self.wake) }
    }
  }

  private func joinEnded() {
    let ended = threads.update { threads in
      let ended = threads.ended
      threads.ended = []
      return ended
    }
    // They have nothing left to do but to give back what libfuse keeps for each thread.
    for thread in ended { pthread_join(thread, nil) }
  }

  // MARK: One thread

  /// Starts one more thread. It counts as idle from now on.
  private func spawn() -> Errno? {
    let mayStart = threads.update { threads in
      guard threads.running.count + threads.starting < limits.most, !threads.isOver else { return false }
      threads.starting += 1
      return true
    }
    guard mayStart else { return nil }
    idle.wrappingAdd(1, ordering: .relaxed)
    joinEnded()
    let code = Self.startJoinable { self.run() }
    guard code != 0 else { return nil }
    idle.wrappingSubtract(1, ordering: .relaxed)
    threads.update { $0.starting -= 1 }
    return Errno(code)
  }

  private func run() {
    let worker = Threads.Worker()
    threads.update { threads in
      threads.starting -= 1
      threads.running[ObjectIdentifier(worker)] = worker
    }
    var signals = sigset_t()
    sigemptyset(&signals)
    sigaddset(&signals, Self.wake)
    pthread_sigmask(SIG_UNBLOCK, &signals, nil)
    var buffer = fuse_buf()
    work(worker, &buffer)
    free(buffer.mem)
    threads.update { threads in
      threads.running[ObjectIdentifier(worker)] = nil
      if threads.areLeft { pthread_detach(worker.thread) } else { threads.ended.append(worker.thread) }
      if session.hasExited { threads.isOver = true }
    }
  }

  /// Takes and carries requests until the session ends, or there are more idle threads than are kept.
  private func work(_ worker: Threads.Worker, _ buffer: inout fuse_buf) {
    while !session.hasExited {
      worker.isReceiving.store(true, ordering: .releasing)
      let size = fuse_session_receive_buf(session.raw, &buffer)
      worker.isReceiving.store(false, ordering: .releasing)
      if size == -EINTR || size == -EAGAIN { continue }
      if size <= 0 {
        if size < 0 { Log.error("requests can no longer be taken from the kernel: \(Errno(-size))") }
        session.exit()
        return
      }
      let left = idle.wrappingSubtract(1, ordering: .relaxed).newValue
      if left <= 0 { _ = spawn() }
      fuse_session_process_buf(session.raw, &buffer)
      driver.processed()
      let waiting = idle.wrappingAdd(1, ordering: .relaxed).newValue
      if waiting > limits.kept {
        idle.wrappingSubtract(1, ordering: .relaxed)
        return
      }
    }
  }

  /// A thread that is joined at its end, so that what libfuse keeps for it is given back before the session is. All
  /// signals are blocked in it. Returns 0, or why it cannot be had.
  private static func startJoinable(_ body: @escaping @Sendable () -> Void) -> CInt {
    final class Box {
      let body: @Sendable () -> Void
      init(_ body: @escaping @Sendable () -> Void) { self.body = body }
    }
    var attributes = pthread_attr_t()
    pthread_attr_init(&attributes)
    defer { pthread_attr_destroy(&attributes) }
    pthread_attr_setstacksize(&attributes, 1 << 20)
    var all = sigset_t()
    var before = sigset_t()
    sigfillset(&all)
    pthread_sigmask(SIG_BLOCK, &all, &before)
    defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
    var thread = pthread_t()
    let box = Unmanaged.passRetained(Box(body))
    let code = pthread_create(
      &thread, &attributes,
      { context in
        guard let context else { return nil }
        // Safe: this is the one reference `passRetained` made, taken exactly once, here.
        let box = Unmanaged<Box>.fromOpaque(context).takeRetainedValue()
        _ = pthread_setname_np(pthread_self(), "marfa-fuse")
        box.body()
        return nil
      }, box.toOpaque())
    if code != 0 { box.release() }
    return code
  }
}
