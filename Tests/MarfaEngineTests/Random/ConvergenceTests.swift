import ContractServer
import Glibc
import Testing

@testable import MarfaEngine

@Suite("Two copies and another device at one server", .serialized)
struct ConvergenceTests {
  /// `MARFA_SEED` runs one of one's own.
  static let seeds: [UInt64] =
    getenv("MARFA_SEED").flatMap { UInt64(String(cString: $0)) }.map { [$0] }
    ?? [1, 2, 3, UInt64(bitPattern: Timestamp.now.nanoseconds)]

  private struct Dice {
    var state: UInt64
    mutating func next(_ limit: Int) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int((state >> 33) % UInt64(max(limit, 1)))
    }
    mutating func pick<T>(_ values: [T]) -> T? { values.isEmpty ? nil : values[next(values.count)] }
  }

  @Test("show the same in the end, whatever was done, broken and begun again", arguments: seeds)
  func converge(seed: UInt64) throws {
    var options = ServerOptions()
    // Two devices have two keys: the server's records tell them apart.
    options.keys.append(APIKey("second", secret: "mk_test_second"))
    let keys = options.keys.map(\.secret)
    let shared = try Shared(options)
    var dice = Dice(state: seed)
    var history: [String] = []
    func connect(_ copy: WorkingCopy, _ index: Int) throws {
      try copy.connect(try shared.options(key: keys[index]) { $0.waits = (0.01, 0.05) })
    }
    var copies = try (0..<2).map { _ in try shared.copy() }
    for (index, copy) in copies.enumerated() {
      try connect(copy, index)
      try #require(copy.waitUntilLive(seconds: 60))
    }
    for step in 0..<220 {
      let who = dice.next(3)
      if who == 2 {
        device(&dice, shared, step, &history)
      } else {
        try program(&dice, copies[who], who, step, &history)
      }
      switch dice.next(25) {
      case 0:
        let effects: [Fault.Effect] = [
          .drop, .applyAndDrop, .refuse(status: 503), .dropAfter(bytes: 20), .refuse(status: 404, contract: nil),
          .contract(["1"]), .delay(seconds: 0.05), .stallBody(afterBytes: 10, seconds: 0.2),
        ]
        let effect = effects[dice.next(effects.count)]
        let method = ["POST", "PATCH", "DELETE", "GET"][dice.next(4)]
        shared.server.faults.add(Fault(effect, method: method, skip: dice.next(3), count: 1 + dice.next(3)))
        history.append("fault \(effect) of \(method)")
      case 1:
        shared.server.cutStreams(incomplete: dice.next(2) == 0 ? "test" : nil)
        history.append("cut")
      case 2:
        let index = dice.next(2)
        copies[index] = try shared.reopened(copies[index])
        try connect(copies[index], index)
        history.append("restart \(index)")
      case 3:
        let index = dice.next(2)
        if copies[index].serverStatus?.isPaused == true {
          try copies[index].queue.resume()
        } else {
          try copies[index].queue.pause()
        }
        history.append("pause or resume \(index)")
      case 4:
        try shared.server.retireEvents(keeping: 1 + dice.next(3))
        shared.server.cutStreams()
        history.append("retire")
      default: break
      }
    }
    shared.server.faults.removeAll()
    shared.server.faults.release()
    try quiet(shared, copies)
    var problems: [String] = []
    for (index, copy) in copies.enumerated() {
      problems += try differences(copy, shared).map { "copy \(index): \($0)" }
      // One of a file's two names may have been given here, and the other have gone elsewhere.
      problems += try invariantBreaches(copy).filter { !$0.holdsText("\" is called ") }.map { "copy \(index): \($0)" }
    }
    let (first, second) = (try placed(copies[0]), try placed(copies[1]))
    problems += first.subtracting(second).map { "only copy 0 shows \($0)" }
    problems += second.subtracting(first).map { "only copy 1 shows \($0)" }
    let violations = shared.server.violations
    problems += violations.map { "\($0)" }
    if !violations.isEmpty { problems += shared.server.requests.map { told($0) } }
    let words = "seed \(seed)\n\(problems.joined(separator: "\n"))\nafter \(history.joined(separator: "; "))"
    if !problems.isEmpty { Issue.record(Comment(rawValue: words)) }
  }

  // MARK: - What is done

  private func program(
    _ dice: inout Dice, _ copy: WorkingCopy, _ who: Int, _ step: Int, _ history: inout [String]
  ) throws {
    let paths = try copy.paths()
    let folders = [""] + paths.filter { $0.hasSuffix("/") }.map { String($0.dropLast()) }
    let files = paths.filter { !$0.hasSuffix("/") }
    func inside(_ folder: String, _ name: String) -> String { folder.isEmpty ? name : "\(folder)/\(name)" }
    let folder = dice.pick(folders) ?? ""
    do {
      switch dice.next(10) {
      case 0, 1:
        history.append("\(who) mkdir \(inside(folder, "d\(step)"))")
        // In a directory whose item just went there is none of an item's.
        let (parent, name) = try copy.place(inside(folder, "d\(step)"))
        _ = try copy.tree.makeDirectory(parent, name, mode: 0o755, owner: Owner(uid: 1000, gid: 1000))
      case 2, 3:
        history.append("\(who) write \(inside(folder, "f\(step)"))")
        try copy.write(inside(folder, "f\(step)"), "text \(who) \(step)")
      case 4:
        guard let file = dice.pick(files) else { return }
        history.append("\(who) rewrite \(file)")
        try copy.write(file, "again \(who) \(step)")
      case 5:
        guard let file = dice.pick(files) else { return }
        history.append("\(who) move \(file) to \(inside(folder, "m\(step)"))")
        try copy.move(file, inside(folder, "m\(step)"))
      case 6:
        guard let moved = dice.pick(Array(folders.dropFirst())) else { return }
        history.append("\(who) move \(moved) to \(inside(folder, "e\(step)"))")
        try copy.move(moved, inside(folder, "e\(step)"))
      case 7:
        guard let file = dice.pick(files) else { return }
        history.append("\(who) unlink \(file)")
        try copy.unlink(file)
      case 8:
        guard let gone = dice.pick(Array(folders.dropFirst())) else { return }
        history.append("\(who) rmdir \(gone)")
        try copy.rmdir(gone)
      default:
        guard let path = dice.pick(paths), let item = try copy.item(at: path) else { return }
        history.append("\(who) tag or edit \(path)")
        if let tag = item.tags.first, dice.next(2) == 0 {
          try copy.items.removeTag(item.id, tag)
        } else if dice.next(2) == 0 {
          try copy.items.addTag(item.id, "t\(dice.next(4))")
        } else if !item.isFile {
          try copy.items.update(item.id, ["body": .string("body \(step)")])
        }
      }
    } catch let error as MarfaError {
      // What a program is refused is not this test's.
      history.append("(\(error))")
    }
  }

  private func device(_ dice: inout Dice, _ shared: Shared, _ step: Int, _ history: inout [String]) {
    var said = ""
    _ = try? shared.server.change { device in
      let items = try device.items().filter { $0.state == "active" }
      let folders = items.filter { $0.type == "core.note" }
      let files = items.filter { $0.type == "core.file" }
      switch dice.next(9) {
      case 0:
        said = "note n\(step)"
        let note = try device.createNote("n\(step)")
        if let parent = dice.pick(folders) { try device.createEdge("parent-of", from: parent.id, to: note) }
      case 1:
        said = "file g\(step)"
        try device.createFile(
          "g\(step)", Array("device \(step)".utf8), mime: "text/plain", attachedTo: dice.pick(folders)?.id)
      case 2:
        guard let item = dice.pick(items) else { return }
        said = "rename \(item.title ?? "")"
        _ = try device.updateItem(item.id, ["title": .string("r\(step)")])
      case 3:
        guard let file = dice.pick(files) else { return }
        said = "replace \(file.title ?? "")"
        try device.replaceBytes(file.id, Array("replaced \(step)".utf8))
      case 4:
        guard let item = dice.pick(items) else { return }
        said = "tag \(item.title ?? "")"
        try device.addTags(item.id, ["t\(dice.next(4))"])
      case 5:
        guard let item = dice.pick(items) else { return }
        said = "trash \(item.title ?? "")"
        try device.trash(item.id)
      case 6:
        guard let item = dice.pick(try device.items().filter { $0.state == "trashed" }) else { return }
        said = "restore \(item.title ?? "")"
        try device.restore(item.id)
      case 7:
        guard let edge = dice.pick(try device.edges().filter { $0.type == "parent-of" }),
          let parent = dice.pick(folders)
        else { return }
        said = "move an edge under \(parent.title ?? "")"
        try device.updateEdge(edge.id, source: parent.id)
      default:
        guard let item = dice.pick(items), dice.next(3) == 0 else { return }
        said = "purge \(item.title ?? "")"
        try device.purge(item.id)
      }
    }
    history.append("device \(said)")
  }

  // MARK: - The end

  private func told(_ request: RequestRecord) -> String {
    let status = request.status.map { "\($0)" } ?? "nothing"
    return "\(request.number) \(request.began) \(request.key ?? "") \(request.method) \(request.target): \(status)"
      + "\(request.completed ? "" : ", broken")\(request.faulty ? ", by a fault" : "") \(request.ended ?? 0)"
  }

  /// Everything is answered, what can't be is given up, and every event is applied.
  private func quiet(_ shared: Shared, _ copies: [WorkingCopy]) throws {
    for copy in copies where copy.serverStatus?.isPaused == true { try copy.queue.resume() }
    try eventually("all is quiet: \(copies.map(\.queueText))", seconds: 120) {
      for copy in copies {
        for write in try copy.queue.writes() where [.blocked, .refused, .dead].contains(write.state) {
          do { try copy.queue.discard(write.id) } catch is MarfaError {}
        }
      }
      for copy in copies {
        let owed = try copy.store.read { (connection) throws(MarfaError) in try connection.owed(limit: 1) }
        guard try copy.queue.counts().total == 0, owed.isEmpty, try copy.hydration() == .complete,
          try copy.isAt(shared.server.head)
        else { return false }
      }
      return true
    }
  }

  private func differences(_ copy: WorkingCopy, _ shared: Shared) throws -> [String] {
    var problems: [String] = []
    let (served, servedEdges) = try shared.server.change { (try $0.items(), try $0.edges()) }
    var here: [String: Item] = [:]
    var edges: [String: Edge] = [:]
    try copy.store.snapshot { (connection) throws(MarfaError) in
      for item in try connection.allItems() { here["\(item.id)"] = item }
      for edge in try connection.allEdges() { edges["\(edge.id)"] = edge }
    }
    for row in served {
      guard let item = here.removeValue(forKey: row.id) else {
        if row.state != "trashed" { problems.append("\(row.title ?? "") is missing") }
        continue
      }
      if item.state.rawValue != row.state { problems.append("\(item.title) is \(item.state), not \(row.state)") }
      if item.version != row.version { problems.append("\(item.title) has \(item.version), not \(row.version)") }
      if item.properties != row.properties { problems.append("\(item.properties) is not \(row.properties)") }
      if item.tags != row.tags.sorted() { problems.append("\(item.title) has \(item.tags), not \(row.tags)") }
    }
    problems += here.values.map { "\($0.title) is here and not there" }
    let trashed = Set(served.filter { $0.state == "trashed" }.map(\.id))
    for row in servedEdges {
      guard let edge = edges.removeValue(forKey: row.id) else {
        if !trashed.contains(row.source) { problems.append("edge \(row) is missing") }
        continue
      }
      if "\(edge.source) \(edge.target) \(edge.version)" != "\(row.source) \(row.target) \(row.version)" {
        problems.append("\(edge) is not \(row)")
      }
    }
    problems += edges.values.map { "\($0) is here and not there" }
    return problems
  }

  /// What is shown in what, by items.
  private func placed(_ copy: WorkingCopy) throws -> Set<String> {
    Set(
      try copy.store.snapshot { (connection) throws(MarfaError) in
        try connection.all(
          """
          SELECT n.item, p.item FROM entries e JOIN nodes n ON n.number = e.node JOIN nodes p ON p.number = e.parent
          WHERE n.item IS NOT NULL
          """, { _ in },
          { row in "\(row.itemID(0).map { "\($0)" } ?? "") in \(row.itemID(1).map { "\($0)" } ?? "the root")" })
      })
  }
}
