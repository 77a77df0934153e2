import Glibc

/// What happened, one line each, on the process's standard error (a mount in the background has its log file there).
/// Never a key, a signed link or a file's content.
public enum Log {
  /// How much a line matters.
  public enum Level: Int, Sendable, Comparable {
    case error, warning, notice, debug
    public static func < (a: Level, b: Level) -> Bool { a.rawValue < b.rawValue }
    var word: StaticString {
      switch self {
      case .error: "error"
      case .warning: "warning"
      case .notice: "notice"
      case .debug: "debug"
      }
    }
  }

  private static let threshold = Lock<Level>(.leaf, .notice)

  /// Lines above this level are not written.
  public static func setLevel(_ level: Level) { threshold.withLock { $0 = level } }

  /// Something failed and a person may have to act.
  public static func error(_ words: @autoclosure () -> String) { write(.error, words) }
  /// Something is not as it should be, and work goes on.
  public static func warning(_ words: @autoclosure () -> String) { write(.warning, words) }
  /// Something a person may want to know.
  public static func notice(_ words: @autoclosure () -> String) { write(.notice, words) }
  /// Something only a developer wants to know.
  public static func debug(_ words: @autoclosure () -> String) { write(.debug, words) }

  private static func write(_ level: Level, _ words: () -> String) {
    guard level <= threshold.withLock({ $0 }) else { return }
    // Control characters of a hostile title must not write lines of their own.
    var line = "\(Timestamp.now.iso8601) \(level.word): "
    for scalar in words().unicodeScalars {
      if scalar.value < 0x20 || scalar.value == 0x7f {
        line += "\\x" + String(scalar.value, radix: 16)
      } else {
        line.unicodeScalars.append(scalar)
      }
    }
    line += "\n"
    line.withUTF8 { bytes in _ = Glibc.write(2, bytes.baseAddress, bytes.count) }
  }
}
