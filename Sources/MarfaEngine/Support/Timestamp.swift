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

  /// Reads such a time, with any number of fractional digits; `nil` for anything else, another zone than `Z` among it.
  public init?(iso8601 text: String) {
    let bytes = Array(text.utf8)
    guard bytes.count >= 20, bytes.count <= 30, bytes.last == UInt8(ascii: "Z") else { return nil }
    func number(_ range: Range<Int>) -> Int? {
      var value = 0
      for byte in bytes[range] {
        guard (0x30...0x39).contains(byte) else { return nil }
        value = value * 10 + Int(byte - 0x30)
      }
      return value
    }
    let marks: [(Int, Character)] = [(4, "-"), (7, "-"), (10, "T"), (13, ":"), (16, ":")]
    guard marks.allSatisfy({ bytes[$0.0] == $0.1.asciiValue }), let year = number(0..<4), let month = number(5..<7),
      let day = number(8..<10), let hour = number(11..<13), let minute = number(14..<16), let second = number(17..<19),
      (1...12).contains(month), (1...31).contains(day), hour < 24, minute < 60, second < 61
    else { return nil }
    var parts = tm()
    parts.tm_year = Int32(year - 1900)
    parts.tm_mon = Int32(month - 1)
    parts.tm_mday = Int32(day)
    parts.tm_hour = Int32(hour)
    parts.tm_min = Int32(minute)
    parts.tm_sec = Int32(second)
    var fraction: Int64 = 0
    if bytes.count > 20 {
      guard bytes[19] == UInt8(ascii: "."), bytes.count > 21, let digits = number(20..<bytes.count - 1) else {
        return nil
      }
      fraction = Int64(digits)
      for _ in 0..<(9 - (bytes.count - 21)) { fraction *= 10 }
    }
    let (whole, overflow) = Int64(timegm(&parts)).multipliedReportingOverflow(by: 1_000_000_000)
    guard !overflow else { return nil }
    nanoseconds = whole + fraction
  }
}
