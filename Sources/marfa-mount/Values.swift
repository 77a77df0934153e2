import MarfaEngine
import MarfaFS

/// Values of options, read from what a person wrote.
enum Values {
  /// A budget: `default`, `keep-all`, or a size.
  static func budget(_ text: String) throws(CommandFailure) -> FileBudget {
    switch text {
    case "default": return .default
    case "keep-all": return .keepAll
    default:
      guard let bytes = size(text) else {
        throw CommandLineParser.usage(
          "\"\(text)\" is no budget. It is \"default\", \"keep-all\", or a size such as 500M or 2GiB")
      }
      return .bytes(bytes)
    }
  }

  /// A size: digits, perhaps with a decimal point, and a unit. `K`, `M`, `G`, `T`, `P` and `KiB`, … count in 1024s, `KB`, …
  /// in 1000s, as with coreutils.
  static func size(_ text: String) -> Int64? {
    let digits = text.prefix { $0.isASCII && ($0.isNumber || $0 == ".") }
    guard let first = digits.first, first != ".", let value = Double(digits) else { return nil }
    let unit = text.dropFirst(digits.count).drop { $0 == " " }.lowercased()
    let powers: [Character: Int] = ["k": 1, "m": 2, "g": 3, "t": 4, "p": 5]
    let factor: Double
    switch (unit, unit.first.flatMap { powers[$0] }, unit.dropFirst()) {
    case ("", _, _), ("b", _, _): factor = 1
    case (_, let power?, ""), (_, let power?, "ib"): factor = repeated(1024, power)
    case (_, let power?, "b"): factor = repeated(1000, power)
    default: return nil
    }
    // What is too large for a number of bytes is no size.
    return Int64(exactly: (value * factor).rounded())
  }

  private static func repeated(_ base: Double, _ power: Int) -> Double {
    (0..<power).reduce(1) { value, _ in value * base }
  }

  /// Which attachments the budget leaves alone.
  static func keep(_ text: String) throws(CommandFailure) -> KeepSetting {
    guard let keep = KeepSetting(rawValue: text) else {
      throw CommandLineParser.usage("--keep is attached, pinned or none, not \"\(text)\"")
    }
    return keep
  }

  /// A server's address.
  static func server(_ text: String) throws(CommandFailure) -> Origin {
    do throws(OriginProblem) { return try Origin(text) } catch {
      throw CommandLineParser.usage("--server: \(error)")
    }
  }

  /// The types a copy declares, by name.
  static func types(_ names: [String]) throws(CommandFailure) -> [String] {
    for name in names {
      guard isTypeName(name) else {
        throw CommandLineParser.usage(
          name == "*"
            ? "--type names one type, such as core.note; without it, every type comes"
            : "--type is the name of a type, such as core.note, not \"\(name)\"")
      }
    }
    return names
  }

  /// True for what may be the name of one type: it has no blanks, and is not the sign for all types.
  static func isTypeName(_ name: String) -> Bool {
    !name.isEmpty && name != "*" && name.utf8.allSatisfy { $0 > 0x20 && $0 != 0x7f }
  }

  /// The tier a copy declares.
  static func tier(_ text: String) throws(CommandFailure) -> TierFilter {
    guard let tier = TierFilter(rawValue: text) else {
      throw CommandLineParser.usage("--tier is library, feed or all, not \"\(text)\"")
    }
    return tier
  }

  /// Patterns with commas between them. With `+` before the first, they come on top of the usual ones.
  static func localNames(_ text: String) throws(CommandFailure) -> LocalNames {
    let adds = text.hasPrefix("+")
    let patterns = text.dropFirst(adds ? 1 : 0).split(separator: ",").map { String($0) }
    for pattern in patterns where pattern.contains("/") || pattern == "*" {
      throw CommandLineParser.usage(
        pattern == "*"
          ? "--local-names with the pattern * would keep every file on this device; nothing would be sent"
          : "--local-names has the pattern \"\(pattern)\", but a name has no \"/\" in it")
    }
    return LocalNames((adds ? LocalNames.standard.patterns : []) + patterns)
  }

  /// Seconds, as nanoseconds: up to an hour.
  static func settling(_ text: String) throws(CommandFailure) -> Int64 {
    guard let seconds = Double(text), seconds >= 0, seconds <= 3600 else {
      throw CommandLineParser.usage("--settle is a number of seconds from 0 to 3600, not \"\(text)\"")
    }
    return Int64(seconds * 1e9)
  }

  /// Options for libfuse and the kernel, with commas between them; `\,` is a comma in a value.
  static func fuseOptions(_ lists: [String]) throws(CommandFailure) -> [String] {
    var options: [String] = []
    for list in lists {
      var option = ""
      var isEscaped = false
      for scalar in list.unicodeScalars {
        if scalar == "," && !isEscaped {
          options.append(option)
          option = ""
        } else {
          option.unicodeScalars.append(scalar)
        }
        isEscaped = scalar == "\\" && !isEscaped
      }
      options.append(option)
    }
    for option in options {
      let name = option.prefix { $0 != "=" }
      guard !["fsname", "subtype", "nonempty"].contains(name) else {
        throw CommandLineParser.usage("-o \(name) can't be set: a mount is found again by what marfa-mount sets there")
      }
    }
    return options.filter { !$0.isEmpty }
  }
}
