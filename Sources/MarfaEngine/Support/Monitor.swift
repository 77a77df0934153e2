import Glibc

/// A moment to wait until at most, on a clock that nobody sets.
public struct Deadline: Sendable {
  private let nanoseconds: Int64

  /// So many seconds from now.
  public static func after(seconds: Double) -> Deadline {
    Deadline(nanoseconds: Monotonic.now + Int64(min(max(seconds, 0), 1e9) * 1e9))
  }

  /// Whether it is past.
  public var hasPassed: Bool { Monotonic.now >= nanoseconds }

  /// Seconds until then, negative when it is past.
  public var secondsLeft: Double { Double(nanoseconds - Monotonic.now) / 1e9 }

  /// The earlier of two.
  public static func earlier(_ a: Deadline, _ b: Deadline) -> Deadline { a.nanoseconds < b.nanoseconds ? a : b }

  fileprivate var timespec: Glibc.timespec {
    Glibc.timespec(tv_sec: Int(nanoseconds / 1_000_000_000), tv_nsec: Int(nanoseconds % 1_000_000_000))
  }
}

/// The clock that nobody sets.
enum Monotonic {
  /// Nanoseconds since some moment.
  static var now: Int64 {
    var time = Glibc.timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
  }
}

/// A value with a lock around it, and threads that wait for it to change.
///
/// For threads that may wait; what answers the kernel and waits for the network parks its reply instead.
public final class Monitor<Value>: @unchecked Sendable {
  // Safe: `value` is touched only between lock and unlock of `mutex`; neither address ever moves.
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let changed = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var value: Value

  /// Makes a monitor of `value`.
  public init(_ value: Value) {
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
  public func update<R, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
    pthread_mutex_lock(mutex)
    defer {
      pthread_cond_broadcast(changed)
      pthread_mutex_unlock(mutex)
    }
    return try body(&value)
  }

  /// Runs `body` with the value, alone.
  public func read<R>(_ body: (Value) -> R) -> R {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    return body(value)
  }

  /// Waits until `body` returns something, and returns that; `nil` when the deadline comes first. `body` runs once at
  /// least, and after each update.
  public func wait<R>(until deadline: Deadline? = nil, for body: (inout Value) -> R?) -> R? {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while true {
      if let result = body(&value) { return result }
      if let deadline {
        if deadline.hasPassed { return nil }
        var time = deadline.timespec
        pthread_cond_timedwait(changed, mutex, &time)
      } else {
        pthread_cond_wait(changed, mutex)
      }
    }
  }
}
