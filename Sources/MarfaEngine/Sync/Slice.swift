/// What a copy declared to hold: types with everything under them, and a tier (contract, "Hydration").
struct Slice: Sendable, Equatable {
  /// The types as they were declared; never empty, never `*`.
  var types: [String]
  var tier: TierFilter
  /// Each type the server's catalogue has under one of them, itself among them.
  private var held: Set<String>

  /// A copy that never was bound to a server holds whatever it made.
  static let everything = Slice(types: [], tier: .all, catalogue: [])

  init(types: [String], tier: TierFilter, catalogue: [(name: String, parent: String?)]) {
    self.types = types
    self.tier = tier
    held = Set(types)
    // A catalogue is short, and a subtype may stand before its parent.
    var grew = true
    while grew {
      grew = false
      for row in catalogue where !held.contains(row.name) {
        if let parent = row.parent, held.contains(parent) {
          held.insert(row.name)
          grew = true
        }
      }
    }
  }

  /// True for a row that belongs into the copy.
  func holds(type: String, tier rowTier: Tier) -> Bool {
    guard !types.isEmpty else { return true }
    guard tier == .all || tier.rawValue == rowTier.rawValue else { return false }
    return holds(type: type)
  }

  /// True for a declared type, and for one under it by its name or by its declared parent.
  func holds(type: String) -> Bool {
    types.isEmpty || held.contains(type) || held.contains { type.hasPrefix($0 + ".") }
  }
}

extension Connection {
  /// The slice that was declared with the last hydration begun.
  func slice() throws(MarfaError) -> Slice {
    guard let text = try setting("slice"), let object = (try? JSON(reading: text))?.object,
      let types = object["types"]?.array?.compactMap({ $0.string }), !types.isEmpty
    else { return .everything }
    return Slice(
      types: types, tier: object["tier"]?.string.flatMap { TierFilter(rawValue: $0) } ?? .library,
      catalogue: try all("SELECT name, parent FROM types", { _ in }, { ($0.text(0), $0.optionalText(1)) }))
  }

  func setSlice(types: [String], tier: TierFilter) throws(MarfaError) {
    let object: JSON.Object = ["types": .array(types.map { .string($0) }), "tier": .string(tier.rawValue)]
    try setSetting("slice", JSON.object(object).text)
  }

  /// Keeps the server's catalogue of types.
  func setTypes(_ rows: [ItemTypeRow]) throws(MarfaError) {
    try run("DELETE FROM types")
    for row in rows {
      try run("INSERT OR REPLACE INTO types(name, parent, body_field, row) VALUES (?1, ?2, ?3, ?4)") {
        $0.text(1, row.id)
        $0.text(2, row.parent)
        $0.text(3, row.bodyField)
        $0.text(4, JSON.object(row.raw).text)
      }
    }
  }

  /// The field that holds the text of items of a type, as the server's catalogue says, or as is known without one.
  func bodyField(of type: String) throws(MarfaError) -> String? {
    let listed = try first("SELECT body_field FROM types WHERE name = ?1", { $0.text(1, type) }, { $0.optionalText(0) })
    if let listed { return listed }
    return ItemType.known(type)?.bodyField
  }
}
