import Glibc

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
