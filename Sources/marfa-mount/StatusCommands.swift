import MarfaEngine
import MarfaFS

/// `status`, `queue`, `cache` and `budget`: how a store stands.
enum StatusCommands {
  static func run(_ line: CommandLineParser.Line) throws(CommandFailure) {
    var words = line.operands
    if line.command == .budget {
      try budget(line)
      return
    }
    let target = try StoreTarget(words.popLast())
    guard words.isEmpty else {
      throw CommandLineParser.usage("\(line.command.rawValue) takes one store or one path in its mount")
    }
    var request = ControlRequest(line.command.rawValue)
    if let text = line.value(.limit) {
      guard let limit = Int(text), (0...10_000).contains(limit) else {
        throw CommandLineParser.usage("--limit is a number from 0 to 10000, not \"\(text)\"")
      }
      request.arguments["limit"] = .integer(limit)
    }
    let result = try ask(target, request)
    guard !line.has(.json) else { return try Output.print(result) }
    switch line.command {
    case .status: try Output.print(StatusText.status(result))
    case .queue: try Output.print(QueueText.queue(result))
    default: try Output.print(StatusText.cache(result))
    }
  }

  /// Asks the mount that was named, or whoever has the store.
  private static func ask(_ target: StoreTarget, _ request: ControlRequest) throws(CommandFailure) -> JSON.Object {
    guard let mount = target.mount else {
      let result = try look(target, request)
      // No writer has it mounted; but a reader may, or what a process left that died.
      guard request.command == "status", result["mount"]?.object == nil,
        let mount = ((try? MarfaMounts.of(store: target.store)) ?? []).last
      else { return result }
      return try ask(StoreTarget(mount), request)
    }
    if !Unmounting.isDead(mount), let process = try MountProcess.of(mount) { return try process.ask(request) }
    var result = try look(target, request)
    guard request.command == "status" else { return result }
    // Nobody speaks for this mount: what the kernel knows is said.
    result["mode"] = .null
    result["mount"] = [
      "mount_point": .string(mount.mountPoint), "pid": .null, "dead": .bool(Unmounting.isDead(mount)),
    ]
    return result
  }

  private static func look(_ target: StoreTarget, _ request: ControlRequest) throws(CommandFailure) -> JSON.Object {
    let access = try StoreAccess.reading(target)
    defer { access.close() }
    return try access.run(request)
  }

  /// `budget [default|keep-all|SIZE]`: shows the budget, or chooses it.
  private static func budget(_ line: CommandLineParser.Line) throws(CommandFailure) {
    guard line.operands.count <= 1 else {
      throw CommandLineParser.usage("budget takes one value: default, keep-all, or a size such as 500M")
    }
    let target = try StoreTarget(line.value(.store))
    var request = ControlRequest("budget")
    if let text = line.operands.first {
      // It is a value for this command, where most others take a store.
      let isValue = ["default", "keep-all"].contains(text) || Values.size(text) != nil
      let isPath = text.contains("/") || text.hasSuffix(".db") || ((try? Path.status(text)) ?? nil) != nil
      guard isValue || !isPath else {
        throw CommandLineParser.usage("\"\(text)\" is no budget. A store is named with --store: budget --store \(text)")
      }
      request.arguments["set"] = .string(try Values.budget(text).word)
    }
    let access = try line.operands.isEmpty ? StoreAccess.reading(target) : StoreAccess.writing(target)
    defer { access.close() }
    let result = try access.run(request)
    try Output.print(line.has(.json) ? JSON.object(result).text : StatusText.budget(result))
  }
}

/// Status and cache in words.
enum StatusText {
  /// Everything at a glance.
  static func status(_ status: JSON.Object) -> String {
    var lines = Labelled()
    lines.add("Store", status["store"]?.string ?? "")
    addMount(status, &lines)
    let server = ServerText.server(status)
    lines.add("Server", server.first ?? "")
    for line in server.dropFirst() { lines.add(line) }
    lines.add("Items", "\(status.count("items"))")
    let local = status.count("local_files")
    lines.add("Files", "\(status.count("files"))" + (local == 0 ? "" : ", \(local) of them on this device only"))
    lines.add("Queue", QueueText.summary(status["queue"]?.object ?? [:]))
    addCache(status, &lines)
    let recovered = status["recovered"]?.array?.compactMap { $0.string } ?? []
    if !recovered.isEmpty {
      lines.add(
        "Recovered",
        recovered.count == 1
          ? "a file that was being written when a process ended:"
          : "\(recovered.count) files that were being written when a process ended:")
      for path in recovered { lines.add("  \(path)") }
      lines.add("Look through what is there, copy what you need into the mount, and remove the rest.")
    }
    return lines.text
  }

  private static func addMount(_ status: JSON.Object, _ lines: inout Labelled) {
    guard let mount = status["mount"]?.object else { return lines.add("Mounted", "no") }
    let point = mount["mount_point"]?.string ?? ""
    guard let pid = mount["pid"]?.integer else {
      let isDead = mount["dead"]?.bool ?? false
      return lines.add(
        "Mounted",
        isDead
          ? "at \(point), but its process has ended; mount there again, or: \(CommandHint(unmounting: point))"
          : "at \(point), by a process that can't be asked")
    }
    lines.add("Mounted", "at \(point)")
    lines.add("Process", "\(pid), since \(mount["since"]?.string ?? "")")
    let isReader = status["mode"]?.string == "reader"
    lines.add("Mode", isReader ? "reader: nothing can be written" : "writer")
    let passes = mount["passthrough"]?.string == "passthrough"
    let why = mount["passthrough_detail"]?.string.map { ": \($0)" } ?? ""
    lines.add("Reads", passes ? "passthrough: held files at the disk's own speed" : "ordinary\(why)")
    lines.add("Log", mount["log"]?.string ?? "on the terminal it was started from")
  }

  /// The cache alone.
  static func cache(_ cache: JSON.Object) -> String {
    var lines = Labelled()
    lines.add("Store", cache["store"]?.string ?? "")
    addCache(cache, &lines)
    return lines.text
  }

  /// The budget alone.
  static func budget(_ budget: JSON.Object) -> String {
    var text = "Files held: \(held(budget))"
    if let removed = budget["removed"]?.integer, removed > 0 { text += "; let go of \(Bytes.text(removed))" }
    return text + "\n"
  }

  private static func held(_ cache: JSON.Object) -> String {
    let held = cache["cache_held"]?.integer.map { Bytes.text($0) } ?? "an unknown amount"
    let setting = cache["budget_setting"]?.string ?? ""
    guard let budget = cache["budget"]?.integer else { return "\(held), and every file fetched stays" }
    let unreadable = cache["volume_unreadable"]?.bool ?? false
    return "\(held) of a budget of \(Bytes.text(budget))" + (setting == "default" ? " (the default)" : "")
      + (Int64(setting).map { $0 > budget } ?? false ? ", all the room there is of \(size(setting)) chosen" : "")
      + (unreadable ? "; the volume's size could not be read" : "")
  }

  private static func size(_ digits: String) -> String { Int64(digits).map { Bytes.text($0) } ?? digits }

  private static func addCache(_ cache: JSON.Object, _ lines: inout Labelled) {
    lines.add("Files held", held(cache))
    if let words = cache["held_unreadable"]?.string { lines.add("The files held could not be counted: \(words)") }
    guard cache["kept_held"] != nil else { return lines.add("Attachments", "can't be counted now") }
    var words = "\(cache.count("kept_held")) held (\(Bytes.text(cache.count("kept_held_bytes"))))"
    let missing = cache.count("kept_not_held")
    if missing > 0 { words += ", \(missing) not held (\(Bytes.text(cache.count("kept_not_held_bytes"))))" }
    lines.add("Attachments", words)
    for (reason, value) in cache["not_held"]?.object?.members ?? [] {
      let entry = value.object ?? [:]
      let unstated = entry.count("unstated")
      lines.add(
        "\(entry.count("attachments")) \(explained(reason)), \(Bytes.text(entry.count("bytes")))"
          + (unstated > 0 ? " and \(unstated) of unknown size" : ""))
    }
    switch cache["keep"]?.string {
    case "pinned": lines.add("Kept", "outside the budget: attachments of pinned items")
    case "none": lines.add("Kept", "outside the budget: no attachments")
    default: lines.add("Kept", "outside the budget: attachments of every item here")
    }
  }

  /// Why attachments are not held, for a person.
  private static func explained(_ reason: String) -> String {
    guard let reason = NotHeldReason(rawValue: reason) else { return reason }
    return switch reason {
    case .notFetched: "not fetched yet"
    case .noRoom: "for which there is no room"
    case .unreachable: "whose server could not be reached"
    case .rateLimited: "which the server asked to wait for"
    case .absent: "which the server does not have"
    case .failed: "whose fetch failed"
    case .notInCopy: "of which only the edge is here"
    }
  }
}

extension JSON.Object {
  /// A number, 0 when it is not there.
  func count(_ key: String) -> Int64 { self[key]?.integer ?? 0 }
}
