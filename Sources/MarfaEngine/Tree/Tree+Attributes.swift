import Glibc

/// What chmod, chown, utimens and truncate change of a node; unset stays.
public struct NodeChanges: Sendable, Equatable {
  public var mode: mode_t?
  public var uid: uid_t?
  public var gid: gid_t?
  public var atime: Timestamp?
  public var mtime: Timestamp?
  /// Nothing yet.
  public init() {}
}

extension Tree {
  /// Changes a node's mode, owner or times. They are kept here and go nowhere else. Answers the node.
  public func setAttributes(_ number: Int64, _ changes: NodeChanges) throws(MarfaError) -> Node? {
    if let node = lateRows?.setAttributes(number, changes) { return node }
    return try change { (change) throws(MarfaError) in
      guard var node = try change.connection.node(number) else { return nil }
      node.apply(changes, at: change.now)
      try change.connection.updateNode(node)
      return node
    }
  }

  // MARK: - Attributes of this device

  /// The value of an extended attribute kept on this device.
  public func attribute(_ number: Int64, _ name: [UInt8]) throws(MarfaError) -> [UInt8]? {
    if lateRows?.node(number) != nil { return nil }
    return try store.read { (connection) throws(MarfaError) in try connection.attribute(number, name) }
  }

  /// The names of the extended attributes kept on this device.
  public func attributeNames(_ number: Int64) throws(MarfaError) -> [[UInt8]] {
    try store.read { (connection) throws(MarfaError) in
      try connection.all(
        "SELECT name FROM attributes WHERE node = ?1 ORDER BY name", { $0.int(1, number) }, { $0.blob(0) })
    }
  }

  /// How setxattr(2) treats an attribute that is there, or is not.
  public enum AttributeMode: Sendable {
    case either
    case create
    case replace
  }

  /// Keeps an extended attribute on this device. `EEXIST` or `ENODATA` as the mode says.
  public func setAttribute(_ number: Int64, _ name: [UInt8], _ value: [UInt8], mode: AttributeMode) throws(MarfaError) {
    try change { (change) throws(MarfaError) in
      guard try change.connection.node(number) != nil else { throw .file(.notFound) }
      let present = try change.connection.attribute(number, name) != nil
      if mode == .create && present { throw .file(.exists) }
      if mode == .replace && !present { throw .file(.noData) }
      try change.connection.setAttribute(number, name, value)
    }
  }

  /// Removes one. `ENODATA` when there is none.
  public func removeAttribute(_ number: Int64, _ name: [UInt8]) throws(MarfaError) {
    try change { (change) throws(MarfaError) in
      let removed = try change.connection.run("DELETE FROM attributes WHERE node = ?1 AND name = ?2") {
        $0.int(1, number)
        $0.blob(2, name)
      }
      if removed == 0 { throw .file(.noData) }
    }
  }

  // MARK: - What the item says

  /// Sets the tags of the item a node shows: a write for each that comes or goes.
  public func setTags(_ number: Int64, _ tags: [String]) throws(MarfaError) {
    try change { (change) throws(MarfaError) in
      guard let item = try change.connection.node(number)?.item else { throw .file(.notFound) }
      try change.setTags(of: item, tags)
    }
  }

  /// The same from the text of `user.xdg.tags`.
  public func setTags(_ number: Int64, commaSeparated value: [UInt8]) throws(MarfaError) {
    try setTags(number, PendingAttribute.tags(in: value))
  }

  /// Sets or clears a text property of the item a node shows.
  public func setProperty(_ number: Int64, _ key: String, _ value: String) throws(MarfaError) {
    try change { (change) throws(MarfaError) in
      guard let item = try change.connection.node(number)?.item else { throw .file(.notFound) }
      guard try change.connection.item(item)?.properties[key]?.string != value else { return }
      try change.outbox.updateItem(item, [key: .string(value)], folding: true)
    }
  }

  /// Pins the item a node shows, or lets it go.
  public func setPinned(_ number: Int64, _ pinned: Bool) throws(MarfaError) {
    try change { (change) throws(MarfaError) in
      guard let item = try change.connection.node(number)?.item else { throw .file(.notFound) }
      try change.connection.setItem(item, pinned: pinned)
    }
  }
}

extension Node {
  /// Applies what was asked, as chmod(2), chown(2) and utimensat(2) say.
  public mutating func apply(_ changes: NodeChanges, at now: Timestamp) {
    if let mode = changes.mode { self.mode = self.mode & S_IFMT | mode & 0o7777 }
    if let uid = changes.uid { self.uid = uid }
    if let gid = changes.gid { self.gid = gid }
    if let atime = changes.atime { self.atime = atime }
    if let mtime = changes.mtime { self.mtime = mtime }
    ctime = now
  }
}

/// Names of attributes that become the item's own as soon as there is one.
enum PendingAttribute {
  static let tags = Array("user.xdg.tags".utf8)
  static let comment = Array("user.xdg.comment".utf8)
  static let url = Array("user.xdg.origin.url".utf8)

  /// The comma-separated text of tags.
  static func tags(in value: [UInt8]) -> [String] {
    FileName.text(of: value).split(separator: ",").map { part in
      String(part.drop { $0 == " " }.reversed().drop { $0 == " " }.reversed())
    }.filter { !$0.isEmpty }
  }
}

extension Tree.Change {
  func setTags(of item: ItemID, _ tags: [String]) throws(MarfaError) {
    let before = try connection.tags(of: item)
    for tag in before where !tags.contains(tag) { try outbox.removeTag(item, tag) }
    var added = Set(before)
    for tag in tags where added.insert(tag).inserted { try outbox.addTag(item, tag) }
  }

  /// A node got an item: what was set on it before becomes the item's.
  func applyPending(_ node: Node, to item: ItemID) throws(MarfaError) {
    if let value = try take(PendingAttribute.tags, of: node) { try setTags(of: item, PendingAttribute.tags(in: value)) }
    var properties: JSON.Object = [:]
    if let value = try take(PendingAttribute.comment, of: node) {
      properties["description"] = .string(FileName.text(of: value))
    }
    if let value = try take(PendingAttribute.url, of: node) {
      properties["source_url"] = .string(FileName.text(of: value))
    }
    if !properties.isEmpty { try outbox.updateItem(item, properties, folding: true) }
  }

  /// A node loses an item that nobody else knows of: what it said stays on the node.
  func keepPending(of item: ItemID, on node: Node) throws(MarfaError) {
    guard let item = try connection.item(item) else { return }
    if !item.tags.isEmpty {
      try connection.setAttribute(node.number, PendingAttribute.tags, Array(item.tags.joined(separator: ",").utf8))
    }
    if let text = item.properties["description"]?.string {
      try connection.setAttribute(node.number, PendingAttribute.comment, Array(text.utf8))
    }
    if let text = item.properties["source_url"]?.string {
      try connection.setAttribute(node.number, PendingAttribute.url, Array(text.utf8))
    }
  }

  /// A node has its item again, which says those itself.
  func dropPending(on node: Node) throws(MarfaError) {
    for name in [PendingAttribute.tags, PendingAttribute.comment, PendingAttribute.url] { _ = try take(name, of: node) }
  }

  private func take(_ name: [UInt8], of node: Node) throws(MarfaError) -> [UInt8]? {
    guard let value = try connection.attribute(node.number, name) else { return nil }
    try connection.run("DELETE FROM attributes WHERE node = ?1 AND name = ?2") {
      $0.int(1, node.number)
      $0.blob(2, name)
    }
    return value
  }
}

extension Connection {
  func attribute(_ node: Int64, _ name: [UInt8]) throws(MarfaError) -> [UInt8]? {
    try first(
      "SELECT value FROM attributes WHERE node = ?1 AND name = ?2",
      {
        $0.int(1, node)
        $0.blob(2, name)
      },
      { $0.blob(0) })
  }

  func setAttribute(_ node: Int64, _ name: [UInt8], _ value: [UInt8]) throws(MarfaError) {
    try run("INSERT OR REPLACE INTO attributes(node, name, value) VALUES (?1, ?2, ?3)") {
      $0.int(1, node)
      $0.blob(2, name)
      $0.blob(3, value)
    }
  }
}
