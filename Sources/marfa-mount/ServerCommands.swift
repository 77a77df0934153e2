import Glibc
import MarfaEngine
import MarfaFS

/// `hydrate`, `retry`, `pause`, `resume`, and `queue --wait`: what a person has a live mount do with its server.
enum ServerCommands {
  /// Microseconds between two questions of one who waits.
  private static let pause: UInt32 = 250_000

  static func run(_ line: CommandLineParser.Line) throws(CommandFailure) {
    var words = line.operands
    let target = try StoreTarget(words.popLast())
    guard words.isEmpty else {
      throw CommandLineParser.usage("\(line.command.rawValue) takes one store or one path in its mount")
    }
    let access = try StoreAccess.writing(target)
    defer { access.close() }
    switch line.command {
    case .hydrate: try hydrate(access, line)
    case .queue: try waitForQueue(access, target.store, line)
    default:
      let result = try access.run(ControlRequest(line.command.rawValue))
      try Output.print(line.has(.json) ? JSON.object(result).text : ServerText.done(line.command, result, target.store))
    }
  }

  // MARK: - hydrate

  /// Brings the whole list again, and waits until it is here.
  private static func hydrate(_ access: StoreAccess, _ line: CommandLineParser.Line) throws(CommandFailure) {
    let begun = try access.run(ControlRequest("hydrate"))
    var progress = ProgressLine()
    defer { progress.clear() }
    while true {
      let now = try access.run(ControlRequest("progress"))
      if now.count("hydrations") > begun.count("hydrations") {
        progress.clear()
        try Output.print(
          line.has(.json)
            ? JSON.object(now).text : "Everything is here that \(Output.safe(now["server"]?.string ?? "")) has")
        return
      }
      try refuseLostKey(now)
      if now["hydrated_items"] == nil, let trouble = now["trouble"]?.string {
        throw CommandFailure(.environment, "offline", "\(trouble). The list is brought as soon as it can be")
      }
      progress.show(
        "\(Counted.text(now.count("hydrated_items"), "item")), \(Counted.text(now.count("hydrated_edges"), "edge")) brought from "
          + (now["server"]?.string ?? ""))
      usleep(pause)
    }
  }

  // MARK: - queue --wait

  /// Waits until nothing waits to be sent any more; fails when what is left can't be sent as things are.
  private static func waitForQueue(
    _ access: StoreAccess, _ store: String, _ line: CommandLineParser.Line
  ) throws(CommandFailure) {
    var progress = ProgressLine()
    defer { progress.clear() }
    var said: String?
    var most: Int64 = 0
    var mostBytes: Int64 = 0
    while true {
      let now = try access.run(ControlRequest("progress"))
      let moving = now.count("moving")
      guard moving > 0 else {
        progress.clear()
        return try finish(now, store, line)
      }
      try refuseStandstill(now, store)
      let bytes = max(0, now.count("bytes") - now.count("bytes_sent"))
      most = max(most, moving)
      mostBytes = max(mostBytes, bytes)
      let share =
        mostBytes > 1 << 20
        ? 1 - Double(bytes) / Double(mostBytes) : 1 - Double(moving) / Double(max(most, 1))
      let what = Counted.text(moving, "write") + (bytes > 0 ? ", \(Bytes.text(bytes))" : "") + " to send"
      // Said once, and again when it is another: whoever waits, on a terminal or not, is to know for what.
      let why = now["queue_trouble"]?.string ?? now["trouble"]?.string
      if why != said {
        progress.clear()
        Output.say(why.map { "\(what): \($0)" } ?? "\(what): it goes on")
        said = why
      }
      progress.show(what, share: share)
      usleep(pause)
    }
  }

  private static func finish(
    _ queue: JSON.Object, _ store: String, _ line: CommandLineParser.Line
  ) throws(CommandFailure) {
    guard queue.count("total") > 0 else {
      return try Output.print(line.has(.json) ? JSON.object(queue).text : "Everything is sent")
    }
    // What it refused stands first in its chain, and all else waits behind it.
    try refuseLostKey(queue)
    throw CommandFailure(
      .store, "not_sent",
      "not everything could be sent: \(QueueText.summary(queue)). "
        + "\"\(CommandHint("queue", store: store))\" shows each, and what to do",
      details: ["queue": .object(queue)])
  }

  /// Nothing will go out, however long one waits.
  private static func refuseStandstill(_ now: JSON.Object, _ store: String) throws(CommandFailure) {
    let count = now.count("moving")
    let waiting = count == 1 ? "1 write waits" : "\(count) writes wait"
    guard let server = now["server"]?.string else {
      throw CommandFailure(
        .store, "no_server", "\(waiting), and the store has no server; mount it with one: --server URL --key-file FILE")
    }
    guard now["connected"]?.bool == true else {
      let advice = now["advice"]?.string ?? "there is no key for \(server)"
      throw CommandFailure(.credential, "not_connected", "\(waiting): \(advice)")
    }
    try refuseLostKey(now)
    if now["paused"]?.bool == true {
      throw CommandFailure(
        .store, "paused", "\(waiting), and sending is paused; \"\(CommandHint("resume", store: store))\" goes on")
    }
  }

  private static func refuseLostKey(_ now: JSON.Object) throws(CommandFailure) {
    guard now["key_refused"]?.bool == true else { return }
    throw CommandFailure(
      .credential, "key_refused",
      "\(now["server"]?.string ?? "the server") does not accept the key; mount again with another: --key-file FILE, or "
        + "MARFA_API_KEY")
  }
}

/// `release`, `withdraw` and `discard`: what a person does with writes of the queue, by their numbers.
enum WriteCommands {
  static func run(_ line: CommandLineParser.Line) throws(CommandFailure) {
    let target = try StoreTarget(line.value(.store))
    let hint = CommandHint("queue", store: target.store)
    guard !line.operands.isEmpty else {
      throw CommandLineParser.usage("name the write by its number, as \"\(hint)\" shows it")
    }
    var numbers: [Int64] = []
    for word in line.operands {
      guard let number = Int64(word), number > 0 else {
        throw CommandLineParser.usage("\"\(word)\" is no write's number; \"\(hint)\" shows them")
      }
      numbers.append(number)
    }
    let access = try StoreAccess.writing(target)
    defer { access.close() }
    var results: [JSON] = []
    // Named, and gone with one that was named before.
    var along: Set<Int64> = []
    for number in numbers where !along.contains(number) {
      do throws(CommandFailure) {
        let result = try access.run(ControlRequest(line.command.rawValue, ["write": .integer(number)]))
        results.append(.object(result))
        along.formUnion(result["along"]?.array?.compactMap(\.integer) ?? [])
        if !line.has(.json) { try Output.print(ServerText.done(line.command, result, target.store)) }
      } catch {
        var failure = error
        if numbers.count > 1 { failure.details["done"] = .array(results) }
        throw failure
      }
    }
    if line.has(.json) { try Output.print(["writes": .array(results)]) }
  }
}

/// `pin` and `unpin`.
enum PinCommands {
  static func run(_ line: CommandLineParser.Line) throws(CommandFailure) {
    guard !line.operands.isEmpty else { throw CommandLineParser.usage("name the item to \(line.command.rawValue)") }
    var results: [JSON] = []
    for word in line.operands {
      let item = try ItemWord(word, store: line.value(.store), filesToo: true)
      let access = try StoreAccess.writing(item.target)
      defer { access.close() }
      let result = try access.run(ControlRequest(line.command.rawValue, item.arguments))
      results.append(.object(result))
      if !line.has(.json) {
        let title = Output.safe(result["title"]?.string ?? word)
        let note =
          result["attachments_kept"]?.bool == false
          ? ". What is attached to it is not kept: this store keeps no attachments (--keep none). Pin the files" : ""
        try Output.print(
          line.command == .pin ? "Pinned \(title)\(note)" : "Let \(title) go: it is not pinned any more")
      }
    }
    if line.has(.json) { try Output.print(["items": .array(results)]) }
  }
}

/// What was done, in words.
enum ServerText {
  static func done(_ command: Command, _ result: JSON.Object, _ store: String) -> String {
    let number = result.count("write")
    return switch command {
    case .retry: "Trying \(Output.safe(result["server"]?.string ?? "the server")) now"
    case .pause:
      "Sending is paused until \"\(Output.safe("\(CommandHint("resume", store: store))"))\", or until the mount ends. "
        + "Queue: \(QueueText.summary(result))"
    case .resume: "Sending goes on. Queue: \(QueueText.summary(result))"
    case .release: "Write \(number) goes again"
    case .withdraw: "Write \(number) is taken back\(along(result))"
    case .discard: "Write \(number) is given up\(along(result))"
    default: ""
    }
  }

  private static func along(_ result: JSON.Object) -> String {
    let writes = result["along"]?.array?.compactMap(\.integer) ?? []
    guard !writes.isEmpty else { return "" }
    return writes.count > 10
      ? ", and with it \(writes.count) that waited for it"
      : ", and with it what waited for it: \(writes.map { "\($0)" }.joined(separator: ", "))"
  }

  /// How the store stands with its server, for `status`.
  static func server(_ status: JSON.Object) -> [String] {
    guard let server = status["server"]?.string else { return ["none: this store is complete in itself"] }
    var lines: [String] = []
    let isFirst = status["first_hydration"]?.bool == true
    if status["connected"]?.bool == true {
      let isRefused = status["key_refused"]?.bool == true
      lines.append(
        server + (isRefused ? ": the key is refused" : status["online"]?.bool == true ? ": online" : ": not online"))
    } else {
      lines.append(server + ": not asked")
    }
    if status["hydrated_items"] != nil {
      lines.append(
        "bringing the list of what is there: \(Counted.text(status.count("hydrated_items"), "item")) and "
          + "\(Counted.text(status.count("hydrated_edges"), "edge")) so far"
          + (isFirst ? "; the folder shows it once all of it is here" : ""))
    } else {
      switch status["hydration"]?.string {
      case HydrationState.complete.rawValue: break
      case HydrationState.expired.rawValue: lines.append("the list here is old, and is to be brought again")
      default: lines.append("the list of what is there has not been brought yet")
      }
    }
    let copies = status.count("conflicted_copies")
    if copies > 0 {
      lines.append(
        "\(copies == 1 ? "1 copy" : "\(copies) copies") made where two devices changed the same: beside the original, with the "
          + "tag \"conflicted-copy\" (getfattr -n user.xdg.tags)")
    }
    let left = status.count("left_behind")
    if left > 0 {
      lines.append(
        "it was set back to an earlier state: \(left == 1 ? "1 file or folder" : "\(left) files and folders") that it knows "
          + "no more \(left == 1 ? "stays" : "stay") on this device only; rename the topmost, and they are sent anew")
    }
    let odd = status.count("not_understood")
    if odd > 0 {
      lines.append(
        "\(odd == 1 ? "1 row" : "\(odd) rows") of the server could not be understood: what was here of them stays; the log "
          + "names them")
    }
    for key in ["trouble", "queue_trouble", "advice"] {
      if let words = status[key]?.string, !lines.contains(words) { lines.append(words) }
    }
    return lines
  }
}
