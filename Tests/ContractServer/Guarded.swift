import Glibc

/// A value with a lock around it, and threads that wait for it to change.
///
/// The engine's `Lock` is for the engine's threads, whose order it checks; the server's own are no part of that order.
final class Guarded<Value>: @unchecked Sendable {
  // Safe: `value` is touched only between lock and unlock of `mutex`; neither address ever moves.
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let changed = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var value: Value

  init(_ value: Value) {
    self.value = value
    mutex.initialize(to: pthread_mutex_t())
    pthread_mutex_init(mutex, nil)
    changed.initialize(to: pthread_cond_t())
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(changed, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  deinit {
    pthread_cond_destroy(changed)
    pthread_mutex_destroy(mutex)
    changed.deallocate()
    mutex.deallocate()
  }

  /// Runs `body` with the value, alone, and has everyone who waits look again.
  func withLock<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
    pthread_mutex_lock(mutex)
    defer {
      pthread_cond_broadcast(changed)
      pthread_mutex_unlock(mutex)
    }
    return try body(&value)
  }

  /// Waits until `body` returns something, at most until `deadline` on the monotonic clock.
  func wait<R>(until deadline: Double, for body: (inout Value) -> R?) -> R? {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while true {
      if let result = body(&value) { return result }
      if Clock.now >= deadline { return nil }
      var time = Clock.timespec(deadline)
      pthread_cond_timedwait(changed, mutex, &time)
    }
  }
}

/// The clock nobody sets, in seconds.
enum Clock {
  static var now: Double {
    var time = Glibc.timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
  }

  static func timespec(_ seconds: Double) -> Glibc.timespec {
    let whole = seconds.rounded(.down)
    return Glibc.timespec(tv_sec: Int(whole), tv_nsec: Int((seconds - whole) * 1e9))
  }

  /// Waits until the clock shows `moment`.
  static func sleep(until moment: Double) {
    var time = timespec(moment)
    while clock_nanosleep(CLOCK_MONOTONIC, Int32(TIMER_ABSTIME), &time, nil) == EINTR {}
  }
}
