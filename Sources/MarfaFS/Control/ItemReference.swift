import MarfaEngine

/// How a request says which item it means: by `item`, an id; by `node`, the inode number of its directory in the mount;
/// or by `path`, the names that lead to its directory from the root.
struct ItemReference {
  /// The arguments that name an item.
  static let keys: Set<String> = ["item", "node", "path"]

  private enum Name {
    case id(ItemID)
    case node(Int64)
    case path(String)
  }
  private let name: Name

  init(_ arguments: Arguments) throws(CommandFailure) {
    let id = try arguments.string("item")
    let node = try arguments.integer("node")
    let path = try arguments.string("path")
    switch (id, node, path) {
    case (let text?, nil, nil):
      guard let id = ItemID(text) else {
        throw CommandFailure(.usage, "bad_argument", "\"\(text)\" is no item's id")
      }
      name = .id(id)
    case (nil, let node?, nil): name = .node(node)
    case (nil, nil, let path?): name = .path(path)
    default:
      throw CommandFailure(.usage, "bad_argument", "an item is named by exactly one of: item, node, path")
    }
  }

  /// The item's id, once it is sure that a file may be attached to it; with `filesToo`, any item's.
  func resolve(in copy: WorkingCopy, filesToo: Bool = false) throws(CommandFailure) -> ItemID {
    switch name {
    case .id(let id):
      return try engine { () throws(MarfaError) in
        guard try copy.items.get(id) != nil else { throw .itemNotFound(id) }
        return id
      }
    case .node(let number):
      guard let node = try engine({ () throws(MarfaError) in try copy.tree.node(number) }) else {
        throw CommandFailure(.refused, "item_not_found", "the directory that was named is gone")
      }
      return try item(of: node, called: "it", filesToo: filesToo)
    case .path(let path):
      return try item(of: try find(path, in: copy), called: "\"\(path)\"", filesToo: filesToo)
    }
  }

  /// The node that is meant, whatever it is; the root too.
  func node(in copy: WorkingCopy) throws(CommandFailure) -> Node {
    let found: Node?
    switch name {
    case .id(let id): found = try engine { () throws(MarfaError) in try copy.tree.node(of: id) }
    case .node(let number): found = try engine { () throws(MarfaError) in try copy.tree.node(number) }
    case .path(let path):
      let isRoot = path.split(separator: "/").allSatisfy { $0 == "." }
      found = isRoot ? try engine { () throws(MarfaError) in try copy.tree.node(Node.root) } : try find(path, in: copy)
    }
    guard let found else { throw CommandFailure(.refused, "item_not_found", "what was named is not here") }
    return found
  }

  /// Walks from the root, name by name.
  private func find(_ path: String, in copy: WorkingCopy) throws(CommandFailure) -> Node {
    var number = Node.root
    var found: Node?
    for name in path.split(separator: "/") where name != "." {
      let bytes = Array(name.utf8)
      let result: Result<Node?, MarfaError> = bytes.withUnsafeBytes { bytes in
        Result { () throws(MarfaError) in try copy.tree.lookup(number, bytes) }
      }
      guard let node = try engine({ () throws(MarfaError) in try result.get() }) else {
        // From the root of the machine it would have been found in a mount.
        if path.hasPrefix("/") {
          throw CommandFailure(.refused, "item_not_found", "there is no \(path) in any mount, nor in \(copy.path)")
        }
        let place = found.map { _ in "where \"\(path)\" leads" } ?? "at the top of \(copy.path)"
        throw CommandFailure(.refused, "item_not_found", "nothing is called \"\(name)\" \(place)")
      }
      number = node.number
      found = node
    }
    guard let found else {
      throw CommandFailure(.refused, "not_an_item", "the root is no item; \"add\" adds a file that hangs on no item")
    }
    return found
  }

  private func item(of node: Node, called name: String, filesToo: Bool) throws(CommandFailure) -> ItemID {
    guard node.number != Node.root else {
      let advice = filesToo ? "name what is in it" : "\"add\" adds a file that hangs on no item"
      throw CommandFailure(.refused, "not_an_item", "the root is no item; \(advice)")
    }
    guard node.kind == .directory || filesToo else {
      throw CommandFailure(
        .refused, "not_an_item", "\(name) is a file; files are attached to an item, and an item is a directory")
    }
    guard let item = node.item else {
      throw CommandFailure(
        .refused, "not_an_item", "\(name) lives on this device only, and is no item")
    }
    return item
  }
}
