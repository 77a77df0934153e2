import Glibc
import MarfaEngine
import MarfaFS

/// What the program says: results on standard output, everything else on standard error.
enum Output {
  /// Writes a result, with the end of its last line.
  static func print(_ text: String) throws(CommandFailure) {
    if let error = write(text.hasSuffix("\n") ? text : text + "\n", to: 1) {
      throw CommandFailure(.environment, "output", "the result could not be written: \(error)")
    }
  }

  /// Writes a result as one line of JSON.
  static func print(_ object: JSON.Object) throws(CommandFailure) { try print(JSON.object(object).text) }

  /// Says something that is no result.
  static func say(_ text: String) { _ = write("marfa-mount: \(safe(text))\n", to: 2) }

  /// Says why a command failed, and tells the exit status.
  static func report(_ failure: CommandFailure, command: Command?, asJSON: Bool) -> CInt {
    if asJSON {
      let answer: JSON.Object = ["error": failure.json]
      _ = write(JSON.object(answer).text + "\n", to: 2)
    } else {
      say(failure.message)
      if failure.kind == .usage {
        _ = write("Try: marfa-mount \(command.map { "\($0.rawValue) " } ?? "")--help\n", to: 2)
      }
    }
    return failure.kind.exitStatus
  }

  /// A title as it can be shown: a control character in it would be a terminal's order.
  static func safe(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      // Beside the control characters, those that turn the direction of what follows.
      let isControl = scalar.value < 0x20 || (0x7f...0x9f).contains(scalar.value)
      let turns = (0x202a...0x202e).contains(scalar.value) || (0x2066...0x2069).contains(scalar.value)
      if isControl || turns {
        result += "\\u{\(String(scalar.value, radix: 16))}"
      } else {
        result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  private static func write(_ text: String, to descriptor: CInt) -> Errno? {
    let bytes = Array(text.utf8)
    var done = 0
    while done < bytes.count {
      let count = bytes.withUnsafeBytes { Glibc.write(descriptor, $0.baseAddress.map { $0 + done }, $0.count - done) }
      if count >= 0 { done += count } else if errno != EINTR { return .last }
    }
    return nil
  }
}

extension CommandFailure.Kind {
  /// The program's exit status; 0 is for what was done.
  var exitStatus: CInt {
    switch self {
    case .refused: 1
    case .usage: 2
    case .environment: 3
    case .store: 4
    case .credential: 5
    }
  }
}

/// Lines with their labels in a column of their own.
struct Labelled {
  private var lines: [(label: String, text: String)] = []

  /// Adds a line.
  mutating func add(_ label: String, _ text: String) { lines.append((label, text)) }

  /// Adds a line under the one before.
  mutating func add(_ text: String) { lines.append(("", text)) }

  /// All of them.
  var text: String {
    let width = lines.map { $0.label.count }.max() ?? 0
    return lines.map { line in
      let space = String(repeating: " ", count: width + 2 - line.label.count)
      return Output.safe(line.label) + space + Output.safe(line.text) + "\n"
    }.joined()
  }
}

/// A number of things in words.
enum Counted {
  /// `1 file`, `2 files`.
  static func text(_ count: Int64, _ noun: String) -> String { count == 1 ? "1 \(noun)" : "\(count) \(noun)s" }
}
