/// What a local read shows: the server's row with every waiting write laid over it (contract, "The queue"). A write that
/// is blocked or dead is still the person's; a refused one is not shown any more.
extension Connection {
  /// An item as its waiting writes make it of what the server has (`nil`: nothing). `nil`: there is no such item.
  func overlaid(_ id: ItemID, over served: FullItem?) throws(MarfaError) -> FullItem? {
    var shown = served
    for write in try queue(about: id) where write.state != .refused { write.lay(over: &shown) }
    return shown
  }

  /// An edge, in the same way.
  func overlaid(_ id: EdgeID, over served: FullEdge?) throws(MarfaError) -> FullEdge? {
    var shown = served
    for write in try queue(about: id) where write.state != .refused { write.lay(over: &shown) }
    return shown
  }
}

extension QueuedWrite {
  fileprivate func lay(over shown: inout FullItem?) {
    if kind == .createItem {
      // The server's own row of it, when that came before the answer, says as much.
      if shown == nil { shown = created }
      return
    }
    guard var full = shown else { return }
    switch kind {
    case .updateItem:
      let changes = body["properties"]?.object ?? [:]
      if body["properties_mode"]?.string == "replace" {
        full.item.properties = changes
      } else {
        full.item.properties.merge(changes)
      }
    case .deleteItem: full.item.state = .trashed
    case .restoreItem: full.item.state = .active
    case .transitionItem:
      full.item.state = body["state"]?.string.flatMap { ItemState(rawValue: $0) } ?? full.item.state
    case .addTag, .mergeMetadata: full.item.tags = Set(full.item.tags).union(tags).sorted()
    case .removeTag: full.item.tags.removeAll { $0 == body["tag"]?.string }
    case .replaceMetadata: full.item.tags = Set(tags).sorted()
    case .writeExtension:
      if let namespace = body["namespace"]?.string { full.extensions[namespace] = body["value"] }
    case .deleteExtension:
      if let namespace = body["namespace"]?.string { full.extensions[namespace] = nil }
    case .createItem, .createEdge, .updateEdge, .deleteEdge, .uploadBlob: break
    }
    shown = full
  }

  fileprivate func lay(over shown: inout FullEdge?) {
    switch kind {
    case .createEdge: if shown == nil { shown = createdEdge }
    case .updateEdge:
      guard var full = shown else { return }
      if let source = id("source_id") { full.edge.source = source }
      if let target = id("target_id") { full.edge.target = target }
      if let properties = body["properties"]?.object { full.edge.properties.merge(properties) }
      shown = full
    case .deleteEdge: shown = nil
    default: break
    }
  }

  private var created: FullItem? {
    guard let item else { return nil }
    return FullItem(
      Item(
        id: item, type: body["type"]?.string ?? "", properties: body["properties"]?.object ?? [:], state: .active,
        tier: body["tier"]?.string.flatMap { Tier(rawValue: $0) } ?? .library, version: 0, tags: [], pinned: false))
  }

  private var createdEdge: FullEdge? {
    guard let edge, let source = id("source_id"), let target = id("target_id"), let type = body["edge_type"]?.string
    else { return nil }
    return FullEdge(
      edge: Edge(
        id: edge, source: source, target: target, type: type, properties: body["properties"]?.object ?? [:], version: 0)
    )
  }

  private var tags: [String] { body["tags"]?.array?.compactMap { $0.string } ?? [] }

  private func id(_ key: String) -> ItemID? { body[key]?.string.flatMap { ItemID($0) } }
}
