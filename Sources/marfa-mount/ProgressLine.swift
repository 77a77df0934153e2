import Glibc

/// One line on a terminal that says how far something is, over and over; nothing where there is no terminal.
struct ProgressLine {
  private let isShown: Bool
  private var last = ""

  init() {
    let terminal = getenv("TERM").map { String(cString: $0) } ?? "dumb"
    isShown = isatty(2) == 1 && terminal != "dumb"
  }

  /// Shows a line in place of the last one. `share` is from 0 to 1, when it is known.
  mutating func show(_ words: String, share: Double? = nil) {
    guard isShown else { return }
    let line = (share.map { ProgressLine.bar($0) + " " } ?? "") + Output.safe(words)
    guard line != last else { return }
    last = line
    // Back to the start, and away with what the longer line before left. A line longer than the terminal would scroll.
    put("\r" + ProgressLine.cut(line, to: width) + "\u{1b}[K")
  }

  /// What fits a line of the terminal; where it does not say, what its shell says, or the usual.
  private var width: Int {
    var size = winsize()
    if ioctl(2, UInt(TIOCGWINSZ), &size) == 0, size.ws_col > 1 { return Int(size.ws_col) - 1 }
    let columns = getenv("COLUMNS").flatMap { Int(String(cString: $0)) } ?? 80
    return max(columns, 2) - 1
  }

  /// As much of a line as fits, cut between words.
  private static func cut(_ line: String, to width: Int) -> String {
    guard line.count > width else { return line }
    let start = line.prefix(width - 1)
    let end = start.lastIndex(of: " ") ?? start.endIndex
    return start[..<end] + "…"
  }

  /// Takes the line away.
  mutating func clear() {
    guard isShown, !last.isEmpty else { return }
    last = ""
    put("\r\u{1b}[K")
  }

  /// `[#####     ]  48 %`
  static func bar(_ share: Double) -> String {
    let share = min(max(share, 0), 1)
    let width = 24
    let full = Int(share * Double(width))
    let percent = Int(share * 100)
    return "[" + String(repeating: "#", count: full) + String(repeating: " ", count: width - full) + "] "
      + String(repeating: " ", count: percent < 10 ? 2 : percent < 100 ? 1 : 0) + "\(percent) %"
  }

  private func put(_ text: String) {
    let bytes = Array(text.utf8)
    _ = bytes.withUnsafeBytes { write(2, $0.baseAddress, $0.count) }
  }
}
