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

  init(file facts: FileFacts, _ now: FileNow) {
    let item = facts.item
    addMarfa("id", item.map { "\($0.id)" })
    addMarfa("edge", facts.edges.isEmpty ? nil : facts.edges.map { "\($0.id)" }.joined(separator: ","))
    addMarfa("type", item?.type)
    addMarfa("tier", item?.tier.rawValue)
    addMarfa("version", item.map { String($0.version) })
    addMarfa("hash", facts.blob.map { "\($0)" })
    addMarfa("size", String(now.size))
    addMarfa("embed", facts.embed)
    let isHeld = facts.blob == nil || facts.isHeld
    addMarfa("held", isHeld ? "yes" : facts.partialBytes > 0 ? "partial" : "no")
    addMarfa("held_bytes", String(isHeld ? now.size : facts.partialBytes))
    if !isHeld {
      addMarfa("not_held_reason", facts.notHeld?.reason.rawValue)
      addMarfa("not_held_detail", facts.notHeld?.detail)
    }
    addMarfa("kept", NodeAttributes.kept(facts, isOpen: now.isOpen))
    let upload = UploadState(facts, now)
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

  // MARK: - Directories

  /// `store` is the path of the store, for what is told to do.
  init(directory facts: DirectoryFacts, store: String) {
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
    if item == nil && facts.node.number != Node.root {
      let refused =
        facts.refusal.map { UploadState(refused: $0, store: store) } ?? (facts.isLeftBehind ? .leftBehind : nil)
      addMarfa("upload", refused?.state ?? "local")
      addMarfa("upload_detail", refused?.detail)
    }
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

  init(root status: WorkingCopy.Status, server: ServerStatus?) {
    addMarfa("store", status.path)
    addMarfa("server", status.server)
    if status.server != nil {
      addMarfa("online", server?.isOnline ?? false ? "yes" : "no")
      addMarfa("hydration", status.hydration.rawValue)
      addMarfa("hydration_progress", server?.hydrationProgress.map { "\($0.items) \($0.edges)" })
      addMarfa("server_detail", server?.trouble)
      addMarfa("queue_detail", server?.queueTrouble)
    }
    addMarfa("budget_setting", status.fileCache.setting.text)
    addMarfa("budget", status.fileCache.budget.map { String($0) } ?? "unlimited")
    addMarfa("cache_held", status.fileCache.held.map { String($0) })
    if let kept = status.fileCache.attachments {
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
