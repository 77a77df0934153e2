import Glibc

/// One value that one thread hands to others who wait for it.
final class OneShot<Value: Sendable>: @unchecked Sendable {
  // Safe: `value` is touched only while `mutex` is held; the pointers are constant.
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let changed = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var value: Value?

  init() {
    pthread_mutex_init(mutex, nil)
    pthread_cond_init(changed, nil)
  }

  deinit {
    pthread_cond_destroy(changed)
    pthread_mutex_destroy(mutex)
    changed.deallocate()
    mutex.deallocate()
  }

  /// Gives the value; a second one is a defect.
  func fulfil(_ value: Value) {
    pthread_mutex_lock(mutex)
    assert(self.value == nil, "answered twice")
    self.value = value
    pthread_cond_broadcast(changed)
    pthread_mutex_unlock(mutex)
  }

  /// Waits for the value.
  @discardableResult
  func wait() -> Value {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    while true {
      if let value { return value }
      pthread_cond_wait(changed, mutex)
    }
  }
}
