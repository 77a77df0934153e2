/// A queued write as it goes on the wire (contract, "The queue"). It is made of what the row says and of nothing else, so
/// that every retry is the same bytes under the same key.
extension QueuedWrite {
  /// The request; `nil` for an upload, whose body is the bytes, and for a row that says too little to be one.
  var request: WriteRequest? {
    switch kind {
    case .uploadBlob: return nil
    case .createItem, .updateItem, .deleteItem, .restoreItem, .transitionItem: return itemRequest
    case .createEdge, .updateEdge, .deleteEdge: return edgeRequest
    case .replaceMetadata, .mergeMetadata, .addTag, .removeTag, .writeExtension, .deleteExtension:
      return metadataRequest
    }
  }

  private var itemRequest: WriteRequest? {
    guard let item else { return nil }
    switch kind {
    case .createItem:
      var body: JSON.Object = ["id": .string("\(item)")]
      for (key, value) in self.body.members { body[key] = value }
      return write(.post, "/items", body)
    case .updateItem:
      guard let baseVersion else { return nil }
      var body: JSON.Object = ["version": .integer(baseVersion)]
      for (key, value) in self.body.members { body[key] = value }
      return write(.patch, "/items/\(item)", query: "conflict=auto", body)
    case .deleteItem: return write(.delete, "/items/\(item)", nil)
    case .restoreItem: return write(.post, "/items/\(item)/restore", nil)
    case .transitionItem: return write(.post, "/items/\(item)/transition", body)
    default: return nil
    }
  }

  private var edgeRequest: WriteRequest? {
    guard let edge else { return nil }
    switch kind {
    case .createEdge:
      var body: JSON.Object = ["id": .string("\(edge)")]
      for (key, value) in self.body.members where key != "properties" || value.object?.isEmpty != true {
        body[key] = value
      }
      return write(.post, "/edges", body)
    case .updateEdge:
      guard let baseVersion else { return nil }
      var body: JSON.Object = ["version": .integer(baseVersion)]
      for (key, value) in self.body.members { body[key] = value }
      return write(.patch, "/edges/\(edge)", body)
    case .deleteEdge: return write(.delete, "/edges/\(edge)", nil)
    default: return nil
    }
  }

  private var metadataRequest: WriteRequest? {
    guard let item else { return nil }
    switch kind {
    case .addTag: return write(.post, "/items/\(item)/tags", body)
    case .removeTag:
      guard let tag = body["tag"]?.string else { return nil }
      return write(.delete, "/items/\(item)/tags/\(Server.encoded(tag))", nil)
    case .replaceMetadata: return write(.put, "/items/\(item)/metadata", body)
    case .mergeMetadata: return write(.patch, "/items/\(item)/metadata", body)
    case .writeExtension:
      guard let namespace = body["namespace"]?.string, let value = body["value"]?.object else { return nil }
      return write(.put, "/items/\(item)/extensions/\(Server.encoded(namespace))", value)
    case .deleteExtension:
      guard let namespace = body["namespace"]?.string else { return nil }
      return write(.delete, "/items/\(item)/extensions/\(Server.encoded(namespace))", nil)
    default: return nil
    }
  }

  private func write(
    _ method: HTTPRequest.Method, _ path: String, query: String? = nil, _ body: JSON.Object?
  ) -> WriteRequest {
    WriteRequest(
      method, path, query: query, idempotencyKey: idempotencyKey, body: body.map { Array(JSON.object($0).text.utf8) })
  }
}
