import Glibc
import MarfaEngine
import MarfaFS

/// `fetch`, `evict` and `trim`: bytes brought here, and let go of.
enum BytesCommands {
  static func run(_ line: CommandLineParser.Line) throws(CommandFailure) {
    switch line.command {
    case .trim: try trim(line)
    case .evict: try evict(line)
    default: try fetch(line)
    }
  }

  private static func trim(_ line: CommandLineParser.Line) throws(CommandFailure) {
    guard line.operands.count <= 1 else {
      throw CommandLineParser.usage("trim takes one store or one path in its mount")
    }
    let access = try StoreAccess.writing(try StoreTarget(line.operands.first))
    defer { access.close() }
    try say(try access.run(ControlRequest("trim")), line)
  }

  private static func evict(_ line: CommandLineParser.Line) throws(CommandFailure) {
    if line.has(.all) {
      guard line.operands.isEmpty else { throw CommandLineParser.usage("--all is everything: name nothing beside it") }
      let access = try StoreAccess.writing(try StoreTarget(line.value(.store)))
      defer { access.close() }
      return try say(try access.run(ControlRequest("evict", ["all": true])), line)
    }
    guard !line.operands.isEmpty else {
      throw CommandLineParser.usage("name the files whose bytes are to go, or --all")
    }
    var removed: Int64 = 0
    var kept: Int64 = 0
    for word in line.operands {
      let item = try ItemWord(word, store: line.value(.store), filesToo: true)
      let access = try StoreAccess.writing(item.target)
      defer { access.close() }
      let result = try access.run(ControlRequest("evict", item.arguments))
      removed += result.count("removed")
      kept += result.count("kept")
    }
    try say(["removed": .integer(removed), "kept": .integer(kept)], line)
  }

  private static func say(_ result: JSON.Object, _ line: CommandLineParser.Line) throws(CommandFailure) {
    guard !line.has(.json) else { return try Output.print(result) }
    let kept = result.count("kept")
    try Output.print(
      "let go of \(Bytes.text(result.count("removed")))"
        + (kept > 0 ? "; the bytes of \(Counted.text(kept, "file")) stay: pinned, open, or only here" : ""))
  }

  /// `fetch [ITEM...]`: without a word, every attachment that is not here.
  private static func fetch(_ line: CommandLineParser.Line) throws(CommandFailure) {
    var requests: [(target: StoreTarget, arguments: JSON.Object)] = []
    for word in line.operands {
      let item = try ItemWord(word, store: line.value(.store), filesToo: true)
      requests.append((item.target, item.arguments))
    }
    if requests.isEmpty { requests = [(try StoreTarget(line.value(.store)), [:])] }
    var done: JSON.Object = ["fetched": 0, "fetched_bytes": 0, "failed": 0, "not_kept": 0]
    var reasons = FetchReasons()
    var keep = ""
    for request in requests {
      let result = try fetch(request.target, request.arguments, &keep)
      reasons.add(result)
      for key in done.members.map(\.key) { done[key] = .integer(done.count(key) + result.count(key)) }
    }
    // Several requests may be to several stores; what is said to do is for the first.
    let store = requests[0].target.store
    let failed = done.count("failed")
    let notKept = done.count("not_kept")
    guard failed == 0 else {
      guard failed > notKept else {
        throw CommandFailure(
          .refused, "over_budget",
          "\(notKept == 1 ? "1 file does" : "\(notKept) files do") not stay on this device: the budget has no room. "
            + "Choose a larger one with \"\(CommandHint("budget", "SIZE", store: store))\", or pin the files",
          details: ["fetched": .object(done)])
      }
      throw CommandFailure(
        .environment, "not_fetched",
        "\(Counted.text(failed, "file")) could not be fetched" + reasons.text,
        details: ["fetched": .object(done), "reasons": .array(reasons.json)])
    }
    try Output.print(
      line.has(.json)
        ? JSON.object(done).text
        : summary(done, isNamed: !line.operands.isEmpty) + (line.operands.isEmpty ? scope(keep) : ""))
  }

  private static func summary(_ done: JSON.Object, isNamed: Bool) -> String {
    let fetched = done.count("fetched")
    guard fetched > 0 else { return "Everything that \(isNamed ? "was named" : "is kept") is here already" }
    return "Fetched \(Counted.text(fetched, "file")), \(Bytes.text(done.count("fetched_bytes")))"
  }

  /// What a fetch without a name is about, where that is not every attachment.
  private static func scope(_ keep: String) -> String {
    switch keep {
    case "pinned": ". This store keeps what is pinned (--keep pinned): name other files to fetch them"
    case "none": ". This store keeps no attachments (--keep none): name files to fetch them"
    default: ""
    }
  }

  /// One fetch, to its end.
  private static func fetch(
    _ target: StoreTarget, _ arguments: JSON.Object, _ keep: inout String
  ) throws(CommandFailure) -> JSON.Object {
    let access = try StoreAccess.writing(target)
    defer { access.close() }
    var arguments = arguments
    let key = JSON.string("\(getpid())")
    arguments["key"] = key
    let request = ControlRequest("fetch", arguments)
    // Ctrl-C ends this process, and so the fetch.
    guard let call = try access.begin(request) else { return try access.run(request) }
    var progress = ProgressLine()
    defer { progress.clear() }
    while true {
      if let end = try call.answer(within: 0.2) {
        keep = end["keep"]?.string ?? ""
        // One that failed alone says how.
        if end.count("files") <= 1, var failure = end["error"].flatMap({ CommandFailure($0) }) {
          if failure.code == "over_budget" {
            failure.message += ": \"\(CommandHint("budget", "SIZE", store: target.store))\""
          }
          throw failure
        }
        return end
      }
      guard let now = try? access.run(ControlRequest("fetching", ["key": key])) else { continue }
      let (bytes, all) = (now.count("fetched_bytes"), now.count("bytes"))
      progress.show(
        "\(now.count("fetched")) of \(now.count("files")) files, \(Bytes.text(bytes))"
          + (all > 0 ? " of \(Bytes.text(all))" : ""), share: all > 0 ? Double(bytes) / Double(all) : nil)
    }
  }
}

/// Why files could not be fetched, of one fetch after the other.
private struct FetchReasons {
  private var reasons: [(code: String, message: String, files: Int64)] = []

  mutating func add(_ result: JSON.Object) {
    for entry in (result["reasons"]?.array ?? []).compactMap({ $0.object }) {
      let code = entry["code"]?.string ?? ""
      if let place = reasons.firstIndex(where: { $0.code == code }) {
        reasons[place].files += entry.count("files")
      } else {
        reasons.append((code, entry["message"]?.string ?? code, entry.count("files")))
      }
    }
  }

  var json: [JSON] {
    reasons.map { ["code": .string($0.code), "message": .string($0.message), "files": .integer($0.files)] }
  }

  /// Behind how many there are. One reason needs no count of its own.
  var text: String {
    guard let first = reasons.first else { return "" }
    guard reasons.count > 1 else { return ": \(first.message)" }
    return ": " + reasons.map { "\($0.message) (\(Counted.text($0.files, "file")))" }.joined(separator: "; ")
  }
}
