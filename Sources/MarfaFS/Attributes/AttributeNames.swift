/// The names of our extended attributes (SEMANTICS.md, "Extended attributes").
enum AttributeName {
  /// Before every name of ours.
  static let prefix = Array("user.marfa.".utf8)

  /// The desktop's own names that say something of the item.
  enum Desktop: String, CaseIterable {
    case mimeType = "user.mime_type"
    case tags = "user.xdg.tags"
    case comment = "user.xdg.comment"
    case url = "user.xdg.origin.url"

    /// The item's property, for those that are one.
    var property: String? {
      switch self {
      case .comment: "description"
      case .url: "source_url"
      case .mimeType, .tags: nil
      }
    }
  }

  /// What kind of name a program asked about.
  enum Kind {
    /// `user.marfa.` and this.
    case marfa(String)
    case desktop(Desktop)
    /// Any other `user.` name: kept on this device.
    case device
    /// `security.`, `system.`, `trusted.`: there are none here.
    case foreign
  }

  static func kind(of name: [UInt8]) -> Kind {
    if name.starts(with: prefix) { return .marfa(String(decoding: name.dropFirst(prefix.count), as: UTF8.self)) }
    if let desktop = Desktop(rawValue: String(decoding: name, as: UTF8.self)) { return .desktop(desktop) }
    return name.starts(with: "user.".utf8) && name.count > 5 ? .device : .foreign
  }
}
