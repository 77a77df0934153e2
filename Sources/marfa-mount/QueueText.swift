import MarfaEngine
import MarfaFS

/// The queue in words.
enum QueueText {
  /// Writes and how many more there are.
  static func queue(_ queue: JSON.Object) -> String {
    let rows = (queue["writes"]?.array ?? []).compactMap { $0.object }
    var text = (standing(queue).map { "\($0)\n" } ?? "") + summary(queue).capitalizedFirst + "\n"
    guard !rows.isEmpty else { return text }
    let columns = rows.map { row in
      [row["write"]?.integer.map { String($0) } ?? "", kind(row), state(row), subject(row)].map { Output.safe($0) }
    }
    let widths = (0..<3).map { index in columns.map { $0[index].count }.max() ?? 0 }
    text += "\n"
    for column in columns {
      let number = String(repeating: " ", count: widths[0] - column[0].count) + column[0]
      let padded = (1..<3).map { column[$0] + String(repeating: " ", count: widths[$0] - column[$0].count) }
      text += "  \(number)  \(padded.joined(separator: "  "))  \(column[3])\n"
    }
    if queue["more"]?.bool ?? false {
      text += "\n  … and more. \"--limit NUMBER\" shows as many as you say.\n"
    }
    return text
  }

  /// What all that waits waits for; `nil` when it goes out by itself.
  private static func standing(_ queue: JSON.Object) -> String? {
    guard queue.count("total") > 0 else { return nil }
    guard let server = queue["server"]?.string.map({ Output.safe($0) }) else {
      return
        "What is queued waits for a server: the store has none yet. Mount it with one: --server URL --key-file FILE"
    }
    func words(_ keys: String...) -> String {
      Output.safe(keys.compactMap { queue[$0]?.string }.first ?? "")
    }
    if queue["key_refused"]?.bool == true {
      return "\(server) does not accept the key, and what is queued waits: \(words("advice"))"
    }
    if queue["connected"]?.bool == false {
      return "\(server) is not asked, and what is queued waits: \(words("advice"))"
    }
    if queue["paused"]?.bool == true { return "What is queued waits: \(words("advice"))" }
    if queue["queue_trouble"] != nil || queue["online"]?.bool == false && queue["trouble"] != nil {
      return "What is queued waits for \(server): \(words("queue_trouble", "trouble"))"
    }
    if queue["online"]?.bool == false { return "What is queued waits for \(server), which has not answered yet" }
    return nil
  }

  /// How many writes stand where.
  static func summary(_ queue: JSON.Object) -> String {
    let total = queue.count("total")
    guard total > 0 else { return "empty" }
    let states = WriteState.allCases.compactMap { state -> String? in
      let count = queue.count(state.rawValue)
      return count > 0 ? "\(count) \(state.rawValue)" : nil
    }
    let bytes = queue.count("bytes")
    return (total == 1 ? "1 write" : "\(total) writes") + (bytes > 0 ? ", \(Bytes.text(bytes)) to send" : "")
      + ": \(states.joined(separator: ", "))"
  }

  private static func kind(_ row: JSON.Object) -> String {
    (row["kind"]?.string ?? "").split(separator: "_").joined(separator: " ")
  }

  private static func state(_ row: JSON.Object) -> String {
    let state = row["state"]?.string ?? ""
    if state == "sending", let sent = row["sent"]?.integer, let size = row["size"]?.integer, size > 0 {
      return "\(state) \(sent * 100 / size) %"
    }
    guard let reason = row["reason"]?.string, reason != state else { return state }
    return "\(state): \(reason)"
  }

  private static func subject(_ row: JSON.Object) -> String {
    var words: [String] = []
    if let item = row["item"]?.string {
      let title = row["title"]?.string ?? ""
      let stands = state(row).hasPrefix("queued") || state(row).hasPrefix("sending")
      // What needs a person is to be found by them.
      words.append((stands ? nil : row["path"]?.string) ?? (title.isEmpty ? row["path"]?.string ?? item : title))
    } else if let hash = row["hash"]?.string {
      words.append(row["path"]?.string ?? "\(hash.prefix(19))…")
      words.append(row["size"]?.integer.map { "(\(Bytes.text($0)))" } ?? "")
    }
    if let type = row["edge_type"]?.string {
      let source = row["source_title"]?.string ?? row["source"]?.string ?? ""
      let target = row["target_title"]?.string ?? row["target"]?.string ?? ""
      words.append("\(source) \(type) \(target)")
    } else if let edge = row["edge"]?.string {
      words.append(edge)
    }
    if let tag = row["tag"]?.string { words.append("#\(tag)") }
    words += (row["tags"]?.array ?? []).compactMap { $0.string }.map { "#\($0)" }
    if let namespace = row["namespace"]?.string { words.append(namespace) }
    if let detail = row["advice"]?.string ?? row["detail"]?.string, !detail.isEmpty { words.append("(\(detail))") }
    return words.filter { !$0.isEmpty }.joined(separator: " ")
  }
}

extension String {
  /// The text with its first letter in upper case.
  fileprivate var capitalizedFirst: String { prefix(1).uppercased() + dropFirst() }
}
