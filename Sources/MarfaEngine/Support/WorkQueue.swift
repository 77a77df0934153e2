import Glibc

/// Work done in order by threads of its own, started when there is work and ended when there is none for a while.
public final class WorkQueue: @unchecked Sendable {
  // Safe: `jobs`, `first`, `threads`, `idle`, `busy` and `closed` are touched only while `mutex` is held; the rest is constant.
  private let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
  private let changed = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
  private let name: StaticString
  private let limit: Int
  private var jobs: [@Sendable () -> Void] = []
  private var first = 0
  private var threads = 0
  private var idle = 0
  private var busy = 0
  private var closed = false

  /// A queue of at most `threads` threads at a time.
  public init(name: StaticString, threads: Int) {
    self.name = name
    limit = threads
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

  /// Adds a job. After ``close()`` it is dropped: answers false.
  @discardableResult
  public func post(_ job: @escaping @Sendable () -> Void) -> Bool {
    pthread_mutex_lock(mutex)
    guard !closed else {
      pthread_mutex_unlock(mutex)
      return false
    }
    jobs.append(job)
    let starts = idle == 0 && threads < limit
    if starts { threads += 1 }
    // Everybody: whoever waits for the queue to be empty waits here too, and could take a signal meant for a worker.
    pthread_cond_broadcast(changed)
    pthread_mutex_unlock(mutex)
    if starts { startThread(named: name) { self.work() } }
    return true
  }

  /// Takes no more jobs and returns once those it had are done; with `dropping`, once those under way are.
  public func close(dropping: Bool = false) {
    pthread_mutex_lock(mutex)
    closed = true
    if dropping {
      jobs.removeAll()
      first = 0
    }
    pthread_cond_broadcast(changed)
    while threads > 0 { pthread_cond_wait(changed, mutex) }
    pthread_mutex_unlock(mutex)
  }

  /// Returns once every job it has by now is done.
  public func wait() {
    pthread_mutex_lock(mutex)
    while first < jobs.count || busy > 0 { pthread_cond_wait(changed, mutex) }
    pthread_mutex_unlock(mutex)
  }

  private func work() {
    pthread_mutex_lock(mutex)
    while true {
      if first < jobs.count {
        let job = jobs[first]
        first += 1
        if first == jobs.count {
          jobs.removeAll(keepingCapacity: jobs.capacity < 1024)
          first = 0
        }
        busy += 1
        pthread_mutex_unlock(mutex)
        job()
        pthread_mutex_lock(mutex)
        busy -= 1
        if busy == 0 && first >= jobs.count { pthread_cond_broadcast(changed) }
        continue
      }
      if closed { break }
      idle += 1
      var deadline = timespec()
      clock_gettime(CLOCK_MONOTONIC, &deadline)
      deadline.tv_sec += 10
      let code = pthread_cond_timedwait(changed, mutex, &deadline)
      idle -= 1
      if code == ETIMEDOUT && first >= jobs.count { break }
    }
    threads -= 1
    pthread_cond_broadcast(changed)
    pthread_mutex_unlock(mutex)
  }
}
