/// A row of the server that is not what the contract says. It is passed over: what is here of it stays as it is, and how
/// many there are is said (SEMANTICS.md, "What can't be understood").
public struct UnreadableRow: Error, Sendable, Equatable, CustomStringConvertible {
  /// What it was to be.
  public enum Kind: String, Sendable {
    case item, edge
  }
  public var kind: Kind
  /// Its id and type, as far as those can be read.
  public var id: String?
  public var type: String?
  /// What is wrong, by the name of the field; never a value.
  public var words: String
  /// The item itself is understood, and edges that came with it are not.
  public var isOfEdgesOnly = false

  /// A row as it came, and what was wrong with it.
  init(_ kind: Kind, _ value: JSON, _ words: String) {
    self.kind = kind
    self.words = words
    let outer = value.object
    let row = outer?[kind.rawValue]?.object ?? outer
    id = row?["id"]?.string.flatMap { ItemID($0) }.map { "\($0)" }
    type = (row?["type"] ?? row?["edge_type"])?.string.flatMap { Decode.isName($0) ? $0 : nil }
  }

  public var description: String {
    let name = "\(type ?? "an \(kind.rawValue)")\(id.map { " \($0)" } ?? " without an id that can be read")"
    return isOfEdgesOnly
      ? "edges that came with \(name) can't be understood and are passed over: \(words)"
      : "\(name) can't be understood and is passed over: \(words)"
  }
}

/// What a hydration passes over.
final class PassedOver {
  private var items: [ItemID] = []
  private var edges: [EdgeID] = []
  private(set) var count = 0
  /// Some of them can't be told from what the server has no more.
  private(set) var hidesItems = false
  private(set) var hidesEdges = false
  /// So many are logged each.
  private static let mostLogged = 50

  func add(_ rows: [UnreadableRow]) {
    for row in rows {
      count += 1
      if count <= Self.mostLogged { Log.warning("a row of the server: \(row)") }
      if count == Self.mostLogged { Log.warning("more such rows are counted, and not named") }
      switch row.kind {
      case .edge:
        if let id = row.id.flatMap({ EdgeID($0) }) { edges.append(id) } else { hidesEdges = true }
      case .item:
        hidesEdges = hidesEdges || row.isOfEdgesOnly
        guard !row.isOfEdgesOnly else { continue }
        if let id = row.id.flatMap({ ItemID($0) }) { items.append(id) } else { hidesItems = true }
      }
    }
    // An item nobody knows draws edges nobody knows.
    hidesEdges = hidesEdges || hidesItems
  }

  /// The walk met them, so to speak: what is here of them is not what the server has no more.
  func keep(in connection: Connection, _ hydration: Int64) throws(MarfaError) {
    for item in items {
      try connection.run("UPDATE items SET seen = ?2 WHERE id = ?1") {
        $0.id(1, item)
        $0.int(2, hydration)
      }
      try connection.run("UPDATE edges SET seen = ?2 WHERE source = ?1") {
        $0.id(1, item)
        $0.int(2, hydration)
      }
    }
    for edge in edges {
      try connection.run("UPDATE edges SET seen = ?2 WHERE id = ?1") {
        $0.id(1, edge)
        $0.int(2, hydration)
      }
    }
  }
}

extension Connection {
  /// How many rows of the server were passed over since the list was brought last.
  func passedOver() throws(MarfaError) -> Int { try setting("passed_over").flatMap { Int($0) } ?? 0 }

  func setPassedOver(_ count: Int) throws(MarfaError) {
    guard try passedOver() != count else { return }
    try setSetting("passed_over", count == 0 ? nil : String(count))
  }
}

extension Tree.Change {
  /// An event that can't be understood: it moves the cursor, and is counted.
  func passOver(_ row: UnreadableRow) throws(MarfaError) {
    Log.warning("an event of the server: \(row)")
    try connection.setPassedOver(try connection.passedOver() + 1)
  }
}
