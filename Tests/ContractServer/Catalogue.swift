import MarfaEngine

/// An item type as `GET /types` lists it (contract "Shapes", "Types").
public struct TypeRow: Sendable {
  /// Its name, `core.note`.
  public var id: String
  /// The type it stands under by declaration, besides what its name says.
  public var parent: String?
  /// The fields it declares: name → `{"type", "required"?}`.
  public var fields: JSON.Object
  /// The field that holds the text, when there is one.
  public var bodyField: String?
  /// What becomes of a field two devices changed: `keep_both_copies` or `last_writer_wins`.
  public var merge: [String: String]
  /// The same for every other field.
  public var mergeDefault: String

  /// A type of your own.
  public init(
    _ id: String, parent: String? = nil, fields: JSON.Object = ["title": ["type": "text"]], bodyField: String? = nil,
    merge: [String: String] = [:], mergeDefault: String = "last_writer_wins"
  ) {
    self.id = id
    self.parent = parent
    self.fields = fields
    self.bodyField = bodyField
    self.merge = merge
    self.mergeDefault = mergeDefault
  }

  /// The policy for a field.
  func policy(_ field: String) -> String { merge[field] ?? mergeDefault }

  var json: JSON {
    var row: JSON.Object = ["id": .string(id)]
    if let parent { row["parent"] = .string(parent) }
    row["label"] = .string(id.split(separator: ".").last.map { $0.prefix(1).uppercased() + $0.dropFirst() } ?? id)
    row["fields"] = .object(fields)
    var hints: JSON.Object = ["title_field": "title"]
    if let bodyField { hints["body_field"] = .string(bodyField) }
    row["display_hints"] = .object(hints)
    var policies = JSON.Object()
    for (field, policy) in merge.sorted(by: { $0.key < $1.key }) { policies[field] = .string(policy) }
    row["merge_policy"] = ["fields": .object(policies), "default": .string(mergeDefault)]
    return .object(row)
  }
}

/// An edge type as `GET /edge-types` lists it.
public struct EdgeTypeRow: Sendable {
  /// How many edges of the type an item may have.
  public enum Cardinality: String, Sendable {
    /// Any number at both ends.
    case manyToMany = "many_to_many"
    /// A target has one source; no cycles.
    case oneToMany = "one_to_many"
  }

  /// Its name, `attached-to`.
  public var id: String
  /// How many.
  public var cardinality: Cardinality
  /// What it is called from the target.
  public var reverseName: String?
  /// The type its source must be of.
  public var source: String?

  /// An edge type of your own.
  public init(_ id: String, _ cardinality: Cardinality = .manyToMany, reverse: String? = nil, source: String? = nil) {
    self.id = id
    self.cardinality = cardinality
    reverseName = reverse
    self.source = source
  }

  var json: JSON {
    var row: JSON.Object = ["id": .string(id), "cardinality": .string(cardinality.rawValue)]
    if let reverseName { row["reverse_name"] = .string(reverseName) }
    row["written_at"] = "source"
    return .object(row)
  }
}

/// The types a server has.
public struct Catalogue: Sendable {
  /// Item types.
  public var types: [TypeRow]
  /// Edge types.
  public var edgeTypes: [EdgeTypeRow]

  /// These types.
  public init(types: [TypeRow], edgeTypes: [EdgeTypeRow]) {
    self.types = types
    self.edgeTypes = edgeTypes
  }

  private static let text: JSON = ["type": "text"]
  private static let required: JSON = ["type": "text", "required": true]
  private static let file: JSON.Object = [
    "blob_ref": ["type": "blob", "required": true], "mime_type": required, "title": text, "description": text,
    "source_url": text, "author": text, "language": text, "notes": text,
  ]
  private static func fileType(_ id: String, parent: String? = nil) -> TypeRow {
    TypeRow(
      id, parent: parent, fields: file,
      merge: ["blob_ref": "keep_both_copies", "mime_type": "keep_both_copies", "title": "last_writer_wins"])
  }

  /// The core's types, and two nobody knows: `acme.scan`, a file by declaration only, and `acme.place`, without a body.
  public static let standard = Catalogue(
    types: [
      TypeRow(
        "core.note", fields: ["title": text, "body": required], bodyField: "body",
        merge: ["body": "keep_both_copies", "title": "last_writer_wins"]),
      TypeRow("core.task", fields: ["title": text, "body": text, "due": text], bodyField: "body"),
      TypeRow("core.project", fields: ["title": text, "body": text], bodyField: "body"),
      TypeRow("core.bookmark", fields: ["title": text, "url": text]),
      fileType("core.file"), fileType("core.file.image"), fileType("core.file.audio"), fileType("core.file.video"),
      fileType("acme.scan", parent: "core.file"),
      TypeRow("acme.place", fields: ["title": text, "where": text], mergeDefault: "keep_both_copies"),
      TypeRow("system.device", fields: ["title": text]),
    ],
    edgeTypes: [
      EdgeTypeRow("attached-to", reverse: "attachments", source: "core.file"),
      EdgeTypeRow("parent-of", .oneToMany, reverse: "child-of"),
      EdgeTypeRow("derived-from", reverse: "derivatives"),
      EdgeTypeRow("references", reverse: "referenced-by"),
      EdgeTypeRow("depends-on"),
    ])

  func type(_ id: String) -> TypeRow? { types.first { $0.id == id } }
  func edgeType(_ id: String) -> EdgeTypeRow? { edgeTypes.first { $0.id == id } }

  /// Whether `type` is `root` or under it, by name or by declaration.
  func isUnder(_ type: String, _ root: String) -> Bool {
    var current: String? = type
    // A catalogue is a person's: a parent that names its own child must not hang the server.
    for _ in 0...types.count {
      guard let name = current else { return false }
      if name == root || name.hasPrefix(root + ".") { return true }
      current = self.type(name)?.parent
    }
    return false
  }

  /// `root` and every type under it.
  func subtree(_ root: String) -> [String] { types.map(\.id).filter { isUnder($0, root) } }
}
