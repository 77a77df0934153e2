import MarfaEngine

extension Instance {
  func routeEdges(_ inquiry: Inquiry, _ target: Target, _ actor: Actor) throws(ServerRefusal) -> Answer {
    switch (inquiry.method, target.parts.count) {
    case ("GET", 1): return try listEdges(inquiry, target, actor)
    case ("POST", 1): return try createEdge(inquiry, actor)
    case ("PATCH", 2): return try patchEdge(inquiry, actor, target.parts[1])
    case ("DELETE", 2):
      try allow(inquiry)
      return try recorded(inquiry, actor) { (books) throws(ServerRefusal) in
        try books.deleteEdge(actor, target.parts[1])
        return (200, "{\"ok\":true}")
      }
    default: throw ServerRefusal(404, "not_found", "There is no such request.")
    }
  }

  private func listEdges(_ inquiry: Inquiry, _ target: Target, _ actor: Actor) throws(ServerRefusal) -> Answer {
    try allow(inquiry, query: ["edge_type", "limit", "cursor"])
    guard let type = target["edge_type"], !type.isEmpty else { throw .invalid("edge_type is needed.") }
    let (limit, cursor) = (try limit(target), try cursor(target))
    let text = try withBooks { (books) throws(ServerRefusal) in
      try books.edgePage("", nil, type: type, after: cursor, limit: limit, actor)
    }
    return .json(200, text)
  }

  private func createEdge(_ inquiry: Inquiry, _ actor: Actor) throws(ServerRefusal) -> Answer {
    try allow(inquiry)
    let json = try body(
      inquiry, ["id", "source_id", "target_id", "edge_type", "properties"],
      required: ["source_id", "target_id", "edge_type"])
    let id = try text(json, "id") ?? EdgeID.mint().description
    guard EdgeID(id) != nil, id.utf8.dropFirst(14).first == UInt8(ascii: "7") else {
      throw .invalid("id is no lowercase UUIDv7.")
    }
    let (source, target) = (try text(json, "source_id") ?? "", try text(json, "target_id") ?? "")
    let (type, properties) = (try text(json, "edge_type") ?? "", try object(json, "properties") ?? JSON.Object())
    return try recorded(inquiry, actor) { (books) throws(ServerRefusal) in
      do throws(ServerRefusal) {
        let (edge, acknowledged) = try books.createEdge(
          actor, id: id, source: source, target: target, type: type, properties: properties)
        return acknowledged
          ? (200, "{\"edge\":\(edge.edge),\"acknowledged\":true}") : (201, "{\"edge\":\(edge.edge)}")
      } catch {
        if error.code == "id_reused" { ledger.violate(.idReused, inquiry.exchange.number, error.message) }
        throw error
      }
    }
  }

  private func patchEdge(_ inquiry: Inquiry, _ actor: Actor, _ id: String) throws(ServerRefusal) -> Answer {
    try allow(inquiry)
    let json = try body(inquiry, ["version", "properties", "source_id", "target_id"])
    guard let version = json["version"]?.integer, version >= 1 else {
      ledger.violate(.updateWithoutVersion, inquiry.exchange.number, "PATCH \(inquiry.exchange.target)")
      throw .invalid("The body needs version.", ["key": "version"])
    }
    let (source, target) = (try text(json, "source_id"), try text(json, "target_id"))
    let properties = try object(json, "properties")
    return try recorded(inquiry, actor) { (books) throws(ServerRefusal) in
      let edge = try books.updateEdge(
        actor, id, version: version, properties: properties, source: source, target: target)
      return (200, "{\"edge\":\(edge.edge)}")
    }
  }
}
