import Glibc

/// A moment: nanoseconds since 1970 in UTC, before it negative. The wire carries milliseconds of it, a file's times all.
public struct Timestamp: Hashable, Comparable, Sendable {
  /// Nanoseconds since the epoch.
  public var nanoseconds: Int64

  /// Wraps nanoseconds since the epoch.
  public init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }

  /// The kernel's pair; times beyond the years 1677 to 2262 are held to those.
  public init(_ time: Glibc.timespec) {
    let (whole, overflow) = Int64(time.tv_sec).multipliedReportingOverflow(by: 1_000_000_000)
    let (sum, over) = whole.addingReportingOverflow(Int64(time.tv_nsec))
    nanoseconds = overflow || over ? (time.tv_sec < 0 ? .min : .max) : sum
  }

  /// Now, by the system's clock.
  public static var now: Timestamp {
    var time = Glibc.timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Timestamp(time)
  }

  /// Whole milliseconds since the epoch, rounded down.
  public var milliseconds: Int64 {
    let (quotient, remainder) = nanoseconds.quotientAndRemainder(dividingBy: 1_000_000)
    return remainder < 0 ? quotient - 1 : quotient
  }

  /// The kernel's pair: seconds rounded down and the nanoseconds past them.
  public var timespec: Glibc.timespec {
    let (quotient, remainder) = nanoseconds.quotientAndRemainder(dividingBy: 1_000_000_000)
    return remainder < 0
      ? Glibc.timespec(tv_sec: Int(quotient - 1), tv_nsec: Int(remainder + 1_000_000_000))
      : Glibc.timespec(tv_sec: Int(quotient), tv_nsec: Int(remainder))
  }

  public static func < (a: Timestamp, b: Timestamp) -> Bool { a.nanoseconds < b.nanoseconds }

  /// ISO 8601 with milliseconds, `2026-11-30T09:15:00.250Z`, as the contract's times are written.
  public var iso8601: String {
    var parts = tm()
    var seconds = timespec.tv_sec
    gmtime_r(&seconds, &parts)
    func padded(_ value: Int, _ width: Int) -> String {
      let digits = String(value)
      return String(repeating: "0", count: max(0, width - digits.utf8.count)) + digits
    }
    let day =
      "\(padded(Int(parts.tm_year) + 1900, 4))-\(padded(Int(parts.tm_mon) + 1, 2))-\(padded(Int(parts.tm_mday), 2))"
    let time = "\(padded(Int(parts.tm_hour), 2)):\(padded(Int(parts.tm_min), 2)):\(padded(Int(parts.tm_sec), 2))"
    return "\(day)T\(time).\(padded(timespec.tv_nsec / 1_000_000, 3))Z"
  }
}
