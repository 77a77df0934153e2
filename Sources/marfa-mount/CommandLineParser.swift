import MarfaFS

/// What the program can do. The first word of a command line is one of these, or the line means `mount`.
enum Command: String, CaseIterable {
  case mount, unmount, status, queue, hydrate, retry, pause, resume, release, withdraw, discard, pin, unpin
  case fetch, evict, trim, cache, budget, attach, embed, add, help

  /// The options it takes, beside `--help`.
  var options: [CommandOption] {
    switch self {
    case .mount:
      [
        .server, .keyFile, .type, .tier, .reader, .foreground, .fuseOptions, .budget, .keep, .localNames,
        .directoryType, .settle, .passthrough, .log, .json, .readyDescriptor, .keyDescriptor,
      ]
    case .unmount: [.force, .json]
    case .status, .cache, .hydrate, .retry, .pause, .resume: [.json]
    case .queue: [.limit, .wait, .json]
    case .release, .withdraw, .discard, .pin, .unpin, .fetch: [.store, .json]
    case .evict: [.all, .store, .json]
    case .trim: [.json]
    case .budget: [.store, .json]
    case .attach, .embed: [.store, .title, .mime, .type, .tier, .json]
    case .add: [.store, .tag, .title, .mime, .type, .tier, .json]
    case .help: []
    }
  }
}

/// An option of some command.
enum CommandOption: String, CaseIterable {
  case all, budget, force, foreground, help, json, keep, limit, log, mime, reader, server, settle, store, tag, tier,
    title
  case type, version, wait
  case directoryType = "directory-type"
  case keyFile = "key-file"
  case localNames = "local-names"
  case passthrough
  /// `-o`, which has no long name, as with any mount.
  case fuseOptions = "o"
  /// Between the command and the process it starts; nobody else gives it.
  case readyDescriptor = "ready-descriptor"
  /// The same: where the key is to be read from.
  case keyDescriptor = "key-descriptor"

  /// The letter it is called by too.
  var letter: Character? {
    switch self {
    case .foreground: "f"
    case .fuseOptions: "o"
    case .help: "h"
    case .version: "V"
    default: nil
    }
  }

  /// What its value is called; `nil` when it takes none.
  var value: String? {
    switch self {
    case .all, .force, .foreground, .help, .json, .passthrough, .reader, .version, .wait: nil
    case .budget: "default|keep-all|SIZE"
    case .directoryType, .type: "TYPE"
    case .fuseOptions: "OPTIONS"
    case .keep: "attached|pinned|none"
    case .limit, .readyDescriptor, .keyDescriptor: "NUMBER"
    case .localNames: "LIST"
    case .keyFile, .log: "FILE"
    case .mime: "TYPE/SUBTYPE"
    case .server: "URL"
    case .settle: "SECONDS"
    case .store: "STORE"
    case .tag: "TAG"
    case .tier: "library|feed|all"
    case .title: "TITLE"
    }
  }

  /// As it is written.
  var spelling: String { self == .fuseOptions ? "-o" : "--\(rawValue)" }
  /// Whether people are told of it.
  var isPublic: Bool { self != .readyDescriptor && self != .keyDescriptor }
}

/// Reads a command line. `--option value` and `--option=value` are one, letters can be joined (`-fo ro`), and after `--`
/// nothing is an option.
enum CommandLineParser {
  /// What a command line says.
  struct Line {
    var command: Command
    /// False when no command was named, and `mount` was meant.
    var isCommandNamed: Bool
    var operands: [String] = []
    fileprivate var values: [CommandOption: [String]] = [:]

    /// Whether an option is there.
    func has(_ option: CommandOption) -> Bool { values[option] != nil }
    /// An option's value: the last one given.
    func value(_ option: CommandOption) -> String? { values[option]?.last }
    /// All values of an option that may be given again and again.
    func values(_ option: CommandOption) -> [String] { values[option] ?? [] }
  }

  /// Reads the words behind the program's name.
  static func parse(_ words: [String]) throws(CommandFailure) -> Line {
    guard let first = words.first else {
      throw usage("what is to be done? For example: marfa-mount STORE FOLDER mounts a store at a folder")
    }
    let named = Command(rawValue: first)
    var line = Line(command: named ?? .mount, isCommandNamed: named != nil)
    var rest = words[(named == nil ? 0 : 1)...]
    while let word = rest.popFirst() {
      if word == "--" {
        line.operands += rest
        break
      }
      if word.hasPrefix("--") {
        try readLong(word, &line, &rest)
      } else if word.hasPrefix("-"), word != "-" {
        try readLetters(word, &line, &rest)
      } else {
        line.operands.append(word)
      }
    }
    return line
  }

  private static func readLong(
    _ word: String, _ line: inout Line, _ rest: inout ArraySlice<String>
  ) throws(CommandFailure) {
    let parts = word.dropFirst(2).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
    let name = String(parts.first ?? "")
    guard let option = allowed(in: line).first(where: { $0.rawValue == name && $0 != .fuseOptions }) else {
      throw unknown("--" + name, line)
    }
    let joined = parts.count == 2 ? String(parts[1]) : nil
    guard option.value != nil else {
      guard joined == nil else { throw usage("\(option.spelling) takes no value") }
      line.values[option, default: []].append("")
      return
    }
    let value = if let joined { joined } else { try value(of: option, &rest) }
    line.values[option, default: []].append(value)
  }

  private static func readLetters(
    _ word: String, _ line: inout Line, _ rest: inout ArraySlice<String>
  ) throws(CommandFailure) {
    var letters = word.dropFirst()
    while let letter = letters.popFirst() {
      guard let option = allowed(in: line).first(where: { $0.letter == letter }) else {
        throw unknown("-\(letter)", line)
      }
      guard option.value != nil else {
        line.values[option, default: []].append("")
        continue
      }
      line.values[option, default: []].append(try letters.isEmpty ? value(of: option, &rest) : String(letters))
      return
    }
  }

  private static func value(
    of option: CommandOption, _ rest: inout ArraySlice<String>
  ) throws(CommandFailure) -> String {
    guard let value = rest.popFirst() else {
      throw usage("\(option.spelling) needs a value: \(option.spelling) \(option.value ?? "")")
    }
    return value
  }

  private static func allowed(in line: Line) -> [CommandOption] {
    line.command.options + (line.isCommandNamed ? [.help] : [.help, .version])
  }

  /// An option that is of no command, or of another one.
  private static func unknown(_ spelling: String, _ line: Line) -> CommandFailure {
    let name = spelling.drop { $0 == "-" }
    let others = Command.allCases.filter { command in
      command.options.contains { $0.isPublic && ($0.spelling == spelling || $0.letter.map { "-\($0)" } == spelling) }
    }
    // What was to be its value is a secret, and is not said again.
    if ["key", "api-key", "apikey", "token", "secret", "password"].contains(name) {
      return usage(
        "there is no option \(spelling), for a key is never an argument: others could read it in the list of processes. "
          + "Put it into a file that only you can read, and name that: --key-file FILE")
    }
    let known = allowed(in: line).filter { $0.isPublic && $0 != .fuseOptions }.map { $0.rawValue }
    if !others.isEmpty {
      let words = others.map { $0.rawValue }.joined(separator: ", ")
      return usage("\(spelling) is an option of \(words), not of \(line.command.rawValue)")
    }
    if let near = Spelling.nearest(to: String(name), among: known) {
      return usage("\"\(line.command.rawValue)\" has no option \(spelling). Did you mean --\(near)?")
    }
    return usage("\"\(line.command.rawValue)\" has no option \(spelling)")
  }

  /// A failure of the command line.
  static func usage(_ words: String) -> CommandFailure { CommandFailure(.usage, "usage", words) }
}

/// Finds what somebody may have meant.
enum Spelling {
  /// What other programs call our commands.
  static let otherWords = ["umount": "unmount", "eject": "unmount", "version": "--version", "sync": "queue --wait"]

  /// The word that differs least, when that is little.
  static func nearest(to word: String, among words: [String]) -> String? {
    let limit = word.count <= 3 ? 1 : 2
    let near = words.map { (word: $0, distance: distance(word, $0)) }.min { $0.distance < $1.distance }
    guard let near, near.distance <= limit else { return nil }
    return near.word
  }

  /// How many letters are to be put in, left out or changed (Levenshtein's).
  private static func distance(_ a: String, _ b: String) -> Int {
    let (a, b) = (Array(a.utf8), Array(b.utf8))
    var row = Array(0...b.count)
    for (i, x) in a.enumerated() {
      var diagonal = row[0]
      row[0] = i + 1
      for (j, y) in b.enumerated() {
        let next = min(row[j] + 1, row[j + 1] + 1, diagonal + (x == y ? 0 : 1))
        diagonal = row[j + 1]
        row[j + 1] = next
      }
    }
    return row[b.count]
  }
}
