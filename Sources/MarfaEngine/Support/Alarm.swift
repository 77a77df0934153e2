import Glibc

/// Does things later, on a thread of its own that is there while something waits. What it does must not take long.
final class Alarm: @unchecked Sendable {
  // Safe: `jobs`, `isRunning` and `isClosed` are touched only while `mutex` is held.
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let changed = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private var jobs: [(at: Int64, job: @Sendable () -> Void)] = []
  private var isRunning = false
  private var isClosed = false

  init() {
    pthread_mutex_init(mutex, nil)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(changed, &attributes)
  }

  deinit {
    pthread_cond_destroy(changed)
    pthread_mutex_destroy(mutex)
    changed.deallocate()
    mutex.deallocate()
  }

  /// Does `job` at the moment `at` of ``Monotonic``, or soon after. Never, once it is closed.
  func at(_ at: Int64, _ job: @escaping @Sendable () -> Void) {
    pthread_mutex_lock(mutex)
    defer { pthread_mutex_unlock(mutex) }
    guard !isClosed else { return }
    let index = jobs.firstIndex { $0.at < at } ?? jobs.count
    jobs.insert((at, job), at: index)
    if isRunning {
      pthread_cond_broadcast(changed)
    } else {
      isRunning = true
      startThread(named: "marfa-alarm") { self.run() }
    }
  }

  /// Drops what waits, and returns when what is under way is done.
  func close() {
    pthread_mutex_lock(mutex)
    isClosed = true
    jobs = []
    pthread_cond_broadcast(changed)
    while isRunning { pthread_cond_wait(changed, mutex) }
    pthread_mutex_unlock(mutex)
  }

  private func run() {
    pthread_mutex_lock(mutex)
    // The next is the last: jobs stand in reverse order.
    while let next = jobs.last {
      if next.at > Monotonic.now {
        var deadline = timespec(tv_sec: Int(next.at / 1_000_000_000), tv_nsec: Int(next.at % 1_000_000_000))
        pthread_cond_timedwait(changed, mutex, &deadline)
        continue
      }
      jobs.removeLast()
      pthread_mutex_unlock(mutex)
      next.job()
      pthread_mutex_lock(mutex)
    }
    isRunning = false
    pthread_cond_broadcast(changed)
    pthread_mutex_unlock(mutex)
  }
}
