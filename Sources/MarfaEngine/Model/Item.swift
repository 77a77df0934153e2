/// An item: a note, a project, a trip, a song; or a file item, which names bytes (contract "Shapes").
public struct Item: Sendable, Equatable {
  /// Its identity, minted by whoever created it.
  public var id: ItemID
  /// `core.note`, `core.file.image`, ….
  public var type: String
  /// Everything it says, members nobody here knows included.
  public var properties: JSON.Object
  /// Whether it is shown, archived or in the bin.
  public var state: ItemState
  /// Which tier it belongs to.
  public var tier: Tier
  /// The version the server minted last; 0 until the server has answered its create.
  public var version: Int64
  /// Its tags, sorted.
  public var tags: [String]
  /// True when the person pinned it: its attachments stay on this device.
  public var pinned: Bool

  /// `properties.title`, empty when there is none.
  public var title: String { properties["title"]?.string ?? "" }
  /// The bytes a file item names; `nil` for any other item and for a reference that is no hash.
  public var blob: BlobHash? { properties["blob_ref"]?.string.flatMap { BlobHash($0) } }
  /// `properties.mime_type`.
  public var mimeType: String? { properties["mime_type"]?.string }
  /// True for `core.file` and what is under it.
  public var isFile: Bool { FileTypes.isFileType(type) }
}

/// The states of the contract ("Shapes"). `revoked` occurs on `system.*` items only.
public enum ItemState: String, Sendable, CaseIterable {
  case active, archived, trashed, revoked
}

/// The tiers of the contract.
public enum Tier: String, Sendable, CaseIterable {
  case library, feed
}

/// An edge between two items.
public struct Edge: Sendable, Equatable {
  /// Its identity.
  public var id: EdgeID
  /// Where it starts: the file item of an attachment, the parent of `parent-of`.
  public var source: ItemID
  /// Where it ends: the host item of an attachment, the child of `parent-of`.
  public var target: ItemID
  /// `attached-to`, `parent-of`, ….
  public var type: String
  /// What it says.
  public var properties: JSON.Object
  /// The version the server minted last; 0 until then.
  public var version: Int64

  /// File item → the item it hangs on; many to many.
  public static let attachedTo = "attached-to"
  /// Parent → child; one parent per child, no cycles.
  public static let parentOf = "parent-of"
}

/// What a type calls its fields (contract "Types", `display_hints`).
public struct ItemType: Sendable, Equatable {
  /// Its name.
  public var name: String
  /// The field that holds an item's text, when the type has one.
  public var bodyField: String?

  /// What a copy without a server knows of types: the core's own. A server's catalogue comes with hydration
  /// (``Connection/bodyField(of:)``).
  public static func known(_ name: String) -> ItemType? {
    if name == "core.note" { return ItemType(name: name, bodyField: "body") }
    if FileTypes.isFileType(name) { return ItemType(name: name, bodyField: nil) }
    return nil
  }

  /// The properties an item of this type must have beyond its title (contract "Types": a note needs a body, and an
  /// empty string is a value).
  public static func requiredProperties(of name: String) -> JSON.Object {
    name == "core.note" ? ["body": ""] : [:]
  }
}

/// The types of file items.
public enum FileTypes {
  /// True for `core.file` and its subtypes.
  public static func isFileType(_ type: String) -> Bool { type == "core.file" || type.hasPrefix("core.file.") }

  /// The type of a file by the first part of its MIME type (contract "Shapes").
  public static func type(forMIME mimeType: String) -> String {
    if mimeType.hasPrefix("image/") { return "core.file.image" }
    if mimeType.hasPrefix("audio/") { return "core.file.audio" }
    if mimeType.hasPrefix("video/") { return "core.file.video" }
    return "core.file"
  }
}
