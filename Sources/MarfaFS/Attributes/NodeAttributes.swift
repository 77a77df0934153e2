import MarfaEngine

/// What the extended attributes of a node say, in the order they are listed (SEMANTICS.md, "Extended attributes"). Only
/// what has a value is there.
struct NodeAttributes {
  private(set) var values: [(name: String, value: String)] = []

  subscript(name: String) -> String? { values.first { $0.name == name }?.value }

  private mutating func add(_ name: String, _ value: String?) {
    if let value { values.append((name, value)) }
  }

  private mutating func add(_ desktop: AttributeName.Desktop, _ value: String?) {
    if let value, !value.isEmpty { values.append((desktop.rawValue, value)) }
  }

  private mutating func addMarfa(_ name: String, _ value: String?) { add("user.marfa." + name, value) }

  // MARK: - Files

  init(file facts: FileFacts, isBeingWritten: Bool, isOpen: Bool, size: Int64) {
    let item = facts.item
    addMarfa("id", item.map { "\($0.id)" })
    addMarfa("edge", facts.edges.isEmpty ? nil : facts.edges.map { "\($0.id)" }.joined(separator: ","))
    addMarfa("type", item?.type)
    addMarfa("tier", item?.tier.rawValue)
    addMarfa("version", item.map { String($0.version) })
    addMarfa("hash", facts.blob.map { "\($0)" })
    addMarfa("size", String(size))
    addMarfa("embed", facts.embed)
    let isHeld = facts.blob == nil || facts.isHeld
    addMarfa("held", isHeld ? "yes" : facts.partialBytes > 0 ? "partial" : "no")
    addMarfa("held_bytes", String(isHeld ? size : facts.partialBytes))
    if !isHeld {
      addMarfa("not_held_reason", facts.notHeld?.reason.rawValue)
      addMarfa("not_held_detail", facts.notHeld?.detail)
    }
    addMarfa("kept", NodeAttributes.kept(facts, isOpen: isOpen))
    let upload = NodeAttributes.upload(facts, isBeingWritten: isBeingWritten)
    addMarfa("upload", upload.state)
    addMarfa("upload_progress", upload.progress)
    addMarfa("upload_detail", upload.detail)
    addMarfa("queue_position", upload.position.map { String($0) })
    addMarfa("pin", item.map { $0.pinned ? "yes" : "no" })
    addDesktop(item)
  }

  /// Why the budget may not take the bytes.
  private static func kept(_ facts: FileFacts, isOpen: Bool) -> String {
    if facts.isPinned { return "pinned" }
    if facts.isKeptAsAttachment { return "attached" }
    if facts.upload != nil { return "queued" }
    if isOpen { return "open" }
    // What the server does not have can't be fetched again.
    return facts.blob == nil || facts.isStored ? "no" : "queued"
  }

  private static func upload(_ facts: FileFacts, isBeingWritten: Bool) -> (
    state: String, progress: String?, detail: String?, position: Int?
  ) {
    if isBeingWritten { return ("writing", nil, "a program has it open for writing", nil) }
    if facts.node.kind == .symlink {
      return ("local", nil, "a symbolic link stays on this device", nil)
    }
    if case .staged = facts.node.content { return ("writing", nil, "it is sealed when its last writer closes it", nil) }
    if facts.node.content == .empty {
      return ("local", nil, "an empty file stays on this device: the server holds no empty bytes", nil)
    }
    guard facts.item != nil else {
      return ("local", nil, "its name, or its folder's, says that it is a program's own: it stays on this device", nil)
    }
    guard
      let (write, position) = facts.upload.map({ ($0, facts.uploadPosition) })
        ?? facts.waiting.map({ ($0.write, $0.position) })
    else { return ("stored", nil, nil, nil) }
    let progress = write.kind == .uploadBlob ? "0/\(facts.node.size ?? 0)" : nil
    switch write.state {
    case .queued: return ("queued", progress, "waits for a server", position)
    case .sending: return ("sending", progress, nil, position)
    case .dead:
      if case .dead(let words) = write.verdict { return ("dead", progress, words, position) }
      return ("dead", progress, nil, position)
    case .blocked:
      if case .blocked(let why) = write.verdict { return ("blocked:\(why.word)", progress, nil, position) }
      return ("blocked", progress, nil, position)
    case .refused:
      if case .refused(let why) = write.verdict { return ("refused:\(why.code)", progress, why.message, position) }
      return ("refused", progress, nil, position)
    }
  }

  // MARK: - Directories

  init(directory facts: DirectoryFacts) {
    let item = facts.item
    addMarfa("id", item.map { "\($0.id)" })
    addMarfa("type", item?.type)
    addMarfa("tier", item?.tier.rawValue)
    addMarfa("version", item.map { String($0.version) })
    addMarfa("attachments", NodeAttributes.text(facts.attachments))
    addMarfa("held", NodeAttributes.text(facts.held))
    addMarfa("not_held", NodeAttributes.text(facts.notHeld))
    addMarfa("queued", NodeAttributes.text(facts.queued))
    addMarfa("pin", item.map { $0.pinned ? "yes" : "no" })
    if item == nil && facts.node.number != Node.root { addMarfa("upload", "local") }
    addDesktop(item)
  }

  /// A count and its bytes: `12 345678`.
  private static func text(_ tally: DirectoryFacts.Tally) -> String { "\(tally.count) \(tally.bytes)" }

  private mutating func addDesktop(_ item: Item?) {
    guard let item else { return }
    add(.mimeType, item.mimeType)
    add(.tags, item.tags.joined(separator: ","))
    for desktop in AttributeName.Desktop.allCases {
      if let property = desktop.property { add(desktop, item.properties[property]?.string) }
    }
  }

  // MARK: - The root

  init(root status: WorkingCopy.Status) {
    addMarfa("store", status.path)
    addMarfa("server", status.server)
    addMarfa("budget_setting", status.cache.setting.text)
    addMarfa("budget", status.cache.budget.map { String($0) } ?? "unlimited")
    addMarfa("cache_held", status.cache.held.map { String($0) })
    if let kept = status.cache.attachments {
      addMarfa("kept_held", "\(kept.held) \(kept.heldBytes)")
      addMarfa("kept_not_held", "\(kept.notHeld) \(kept.notHeldBytes)")
      for entry in kept.notHeldByReason {
        addMarfa("not_held.\(entry.reason.rawValue)", "\(entry.attachments) \(entry.bytes)")
      }
    }
    addMarfa("queue", "\(status.queue.total) \(status.queue.bytes)")
  }
}

extension FileBudget {
  /// As it is chosen on the command line.
  public var text: String {
    switch self {
    case .default: "default"
    case .keepAll: "keep-all"
    case .bytes(let bytes): String(bytes)
    }
  }
}

/// The attributes asked for last: a program that lists a file's attributes asks for each of its values next, and the
/// store would be read anew for each.
final class FactsCache: Sendable {
  private struct Entry {
    var node: UInt64
    var at: Int64
    var commits: Int
    var isBeingWritten: Bool
    var attributes: NodeAttributes
  }
  private let entry = Lock<Entry?>(.leaf, nil)

  /// What was found for a node, when nothing was committed since and it is a moment old.
  func find(_ node: UInt64, commits: Int, isBeingWritten: Bool) -> NodeAttributes? {
    entry.withLock { entry in
      guard let found = entry, found.node == node, found.commits == commits, found.isBeingWritten == isBeingWritten,
        FactsCache.now - found.at < 1
      else { return nil }
      return found.attributes
    }
  }

  func keep(_ attributes: NodeAttributes, of node: UInt64, commits: Int, isBeingWritten: Bool) {
    entry.withLock {
      $0 = Entry(
        node: node, at: FactsCache.now, commits: commits, isBeingWritten: isBeingWritten, attributes: attributes)
    }
  }

  private static var now: Int64 { Timestamp.now.milliseconds / 1000 }
}
