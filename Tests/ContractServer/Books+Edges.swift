import MarfaEngine

extension Books {
  /// The edge with the same ends and type under another id.
  func triple(_ edge: EdgeRow) throws(ServerRefusal) -> String? {
    try database.row(
      "SELECT id FROM edges WHERE type = ?1 AND source = ?2 AND target = ?3 AND id <> ?4", .text(edge.type),
      .text(edge.source), .text(edge.target), .text(edge.id))?[0].text
  }

  /// `POST /edges`; the status is 201, or 200 for a repeat.
  func createEdge(
    _ actor: Actor, id: String, source: String, target: String, type: String, properties: JSON.Object
  ) throws(ServerRefusal) -> (edge: EdgeRow, acknowledged: Bool) {
    try transaction { () throws(ServerRefusal) in
      guard catalogue.edgeType(type) != nil else {
        throw ServerRefusal(400, "unknown_edge_type", "There is no edge type \(type).")
      }
      try needWrite(actor, edgeType: type)
      if let row = try database.row("SELECT \(EdgeRow.columns) FROM edges WHERE id = ?1", .text(id)) {
        let edge = EdgeRow(row)
        guard edge.source == source, edge.target == target, edge.type == type else {
          throw ServerRefusal(409, "id_reused", "The id \(id) is another edge's.")
        }
        return (edge, true)
      }
      let edge = EdgeRow(
        id: id, source: source, target: target, type: type, properties: properties, now: Books.now)
      try check(actor, edge)
      try keep(edge)
      try emit("edge.created", edge)
      return (edge, false)
    }
  }

  /// Whether an edge may stand: its ends, its triple, its type's rule.
  private func check(_ actor: Actor, _ edge: EdgeRow) throws(ServerRefusal) {
    let source = try active(edge.source, actor, writing: true)
    _ = try active(edge.target, actor, writing: true)
    if let other = try triple(edge) {
      throw ServerRefusal(
        400, "edge_constraint_violation", "The same edge is there as \(other).",
        ["reason": "duplicate", "edge_id": .string(other)])
    }
    guard let type = catalogue.edgeType(edge.type) else { return }
    if let needed = type.source, !catalogue.isUnder(source.type, needed) {
      throw .edge("source_type", "The source of \(edge.type) is a \(needed).")
    }
    guard type.cardinality == .oneToMany else { return }
    let others = try database.rows(
      "SELECT id FROM edges WHERE target = ?1 AND type = ?2 AND id <> ?3", .text(edge.target), .text(edge.type),
      .text(edge.id))
    guard others.isEmpty else { throw .edge("cardinality", "The target has one \(edge.type) already.") }
    // Up from the source: meeting the target would close a circle.
    var current: String? = edge.source
    while let id = current {
      guard id != edge.target else { throw .edge("cycle", "The target is above the source.") }
      current = try database.row(
        "SELECT source FROM edges WHERE target = ?1 AND type = ?2 AND id <> ?3", .text(id), .text(edge.type),
        .text(edge.id))?[0].text
    }
  }

  /// `PATCH /edges/{id}`: on the version it is at, or not at all.
  func updateEdge(
    _ actor: Actor, _ id: String, version: Int64?, properties: JSON.Object?, source: String?, target: String?
  ) throws(ServerRefusal) -> EdgeRow {
    try transaction { () throws(ServerRefusal) in
      var edge = try edge(id, actor)
      try needWrite(actor, edgeType: edge.type)
      guard version == nil || version == edge.version else {
        throw ServerRefusal(
          409, "version_conflict", "The edge is at version \(edge.version).", ["current": edge.json])
      }
      if let properties { edge.properties.merge(properties) }
      if let source { edge.source = source }
      if let target { edge.target = target }
      if source != nil || target != nil { try check(actor, edge) }
      edge.version += 1
      edge.updatedAt = Books.now
      try keep(edge)
      try emit("edge.updated", edge)
      return edge
    }
  }

  /// `DELETE /edges/{id}`.
  func deleteEdge(_ actor: Actor, _ id: String) throws(ServerRefusal) {
    try transaction { () throws(ServerRefusal) in
      let edge = try edge(id, actor)
      try needWrite(actor, edgeType: edge.type)
      try database.rows("DELETE FROM edges WHERE id = ?1", .text(id))
      try emit("edge.deleted", edge)
    }
  }
}
