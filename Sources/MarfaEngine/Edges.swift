/// The edges of a working copy.
public struct Edges: Sendable {
  let copy: WorkingCopy

  /// An edge, `nil` when the copy has none of this id.
  public func get(_ id: EdgeID) throws(MarfaError) -> Edge? {
    try copy.store.read { (connection) throws(MarfaError) in try connection.edge(id) }
  }

  /// The edges that start at an item.
  public func from(_ source: ItemID, type: String) throws(MarfaError) -> [Edge] {
    try copy.store.read { (connection) throws(MarfaError) in try connection.edges(from: source, type: type) }
  }

  /// The edges that end at an item.
  public func to(_ target: ItemID, type: String) throws(MarfaError) -> [Edge] {
    try copy.store.read { (connection) throws(MarfaError) in try connection.edges(to: target, type: type) }
  }

  /// Draws an edge and queues its create. One parent per child and no cycles, as the contract has it.
  public func create(from source: ItemID, to target: ItemID, type: String, properties: JSON.Object = [:])
    throws(MarfaError) -> (edge: Edge, write: WriteID)
  {
    guard !type.isEmpty else { throw .invalid("an edge needs a type") }
    let edge = Edge(id: .mint(), source: source, target: target, type: type, properties: properties, version: 0)
    return try copy.change { (change) throws(MarfaError) in
      for end in [source, target] where try change.connection.item(end) == nil { throw .itemNotFound(end) }
      guard try change.connection.edge(from: source, to: target, type: type) == nil else {
        throw .invalid("\(source) already has an edge \(type) to \(target)")
      }
      if type == Edge.parentOf { try refuseTangle(parent: source, child: target, change.connection) }
      let write = try change.outbox.createEdge(edge)
      try change.show(edge)
      return (edge, write)
    }
  }

  /// Changes an edge's properties and queues the update.
  @discardableResult
  public func update(_ id: EdgeID, properties: JSON.Object) throws(MarfaError) -> WriteID {
    try copy.change { (change) throws(MarfaError) in
      try change.outbox.updateEdge(id, properties: properties, folding: false)
    }
  }

  /// Gives a child another parent: the same edge with a new source (contract "Shapes").
  @discardableResult
  public func move(_ id: EdgeID, toParent parent: ItemID) throws(MarfaError) -> WriteID {
    try copy.change { (change) throws(MarfaError) in
      guard let edge = try change.connection.edge(id) else { throw .edgeNotFound(id) }
      guard edge.type == Edge.parentOf else { throw .invalid("only a parent-of edge is moved") }
      guard try change.connection.item(parent) != nil else { throw .itemNotFound(parent) }
      try refuseLoop(parent: parent, child: edge.target, change.connection)
      try change.hide(edge)
      let write = try change.outbox.updateEdge(id, source: parent, folding: false)
      if let moved = try change.connection.edge(id) { try change.show(moved) }
      return write
    }
  }

  /// Takes an edge away and queues that. `nil`: nobody else knew of it.
  @discardableResult
  public func delete(_ id: EdgeID) throws(MarfaError) -> WriteID? {
    try copy.change { (change) throws(MarfaError) in
      guard let edge = try change.connection.edge(id) else { throw .edgeNotFound(id) }
      try change.hide(edge)
      return try change.outbox.deleteEdge(id)
    }
  }

  private func refuseTangle(parent: ItemID, child: ItemID, _ connection: Connection) throws(MarfaError) {
    if try !connection.edges(to: child, type: Edge.parentOf).isEmpty {
      throw .invalid("\(child) has a parent; move its edge instead")
    }
    try refuseLoop(parent: parent, child: child, connection)
  }

  private func refuseLoop(parent: ItemID, child: ItemID, _ connection: Connection) throws(MarfaError) {
    var ancestor: ItemID? = parent
    var seen: Set<ItemID> = []
    while let current = ancestor, seen.insert(current).inserted {
      if current == child { throw .invalid("\(child) can't be its own ancestor") }
      ancestor = try connection.edges(to: current, type: Edge.parentOf).first?.source
    }
  }
}
