import Glibc
import Testing

@testable import MarfaEngine

/// What programs do in a mount of a copy, by paths.
extension WorkingCopy {
  private var person: Owner { Owner(uid: 1000, gid: 1000) }

  func node(at path: String) throws -> Node? {
    var node = try tree.node(Node.root)
    for part in path.split(separator: "/") {
      guard let directory = node, directory.kind == .directory else { return nil }
      node = try Array(part.utf8).withUnsafeBytes { try tree.lookup(directory.number, $0) }
    }
    return node
  }

  func place(_ path: String) throws -> (parent: Int64, name: FileName) {
    guard let parent = try node(at: path.contains("/") ? Path.parent(path) : "") else {
      throw MarfaError.file(.notFound)
    }
    return (parent.number, try FileName(checking: Path.lastComponent(path).utf8))
  }

  func item(at path: String) throws -> Item? { try node(at: path)?.item.flatMap { try items.get($0) } }

  func id(at path: String) throws -> ItemID { try #require(try node(at: path)?.item) }

  @discardableResult
  func mkdir(_ path: String) throws -> ItemID {
    let (parent, name) = try place(path)
    return try #require(try tree.makeDirectory(parent, name, mode: 0o755, owner: person).item)
  }

  /// Opens a file for writing, making it or replacing what it has.
  func open(_ path: String) throws -> StagedFile {
    if let node = try node(at: path) { return try tree.stage(for: node.number) }
    let (parent, name) = try place(path)
    return try #require(try tree.createFile(parent, name, mode: 0o644, owner: person, writing: true).staged)
  }

  @discardableResult
  func close(_ staged: StagedFile) throws -> Node? { try tree.seal(staged, mtime: .now) }

  /// `printf TEXT > path`.
  @discardableResult
  func write(_ path: String, _ text: String) throws -> Node {
    // As a mount says it, before anything is staged: what is written here outlives its item.
    let old = try node(at: path)?.number
    if let old { tree.setBeingWritten(old, true) }
    defer { if let old { tree.setBeingWritten(old, false) } }
    let staged = try open(path)
    try staged.append(Array(text.utf8))
    // It was just being removed elsewhere when it was opened: as a file that is unlinked while it is open.
    guard let node = try close(staged) else { throw MarfaError.file(.notFound) }
    return node
  }

  func move(_ path: String, _ newPath: String) throws {
    let (parent, name) = try place(path)
    let (newParent, newName) = try place(newPath)
    _ = try tree.rename(parent, name, to: newParent, newName, mode: .replacing)
  }

  func unlink(_ path: String) throws {
    let (parent, name) = try place(path)
    _ = try tree.unlink(parent, name)
  }

  func rmdir(_ path: String) throws {
    let (parent, name) = try place(path)
    _ = try tree.removeDirectory(parent, name)
  }

  /// A file's bytes as text, when they are here.
  func text(_ path: String) throws -> String? {
    guard let node = try node(at: path), case .blob(let hash) = node.content, try blobStore.isHeld(hash) else {
      return nil
    }
    return String(decoding: try contents(blobStore.files.held(hash)), as: UTF8.self)
  }

  /// Every path, directories with a slash at the end.
  func paths(under path: String = "") throws -> [String] {
    var found: [String] = []
    for name in try names(path) {
      let whole = path.isEmpty ? name : "\(path)/\(name)"
      if try node(at: whole)?.kind == .directory {
        found.append(whole + "/")
        found += try paths(under: whole)
      } else {
        found.append(whole)
      }
    }
    return found
  }

  /// What an event said has been applied up to the server's head.
  func isAt(_ head: Int64) throws -> Bool { try cursor().flatMap { Int64($0) } ?? -1 >= head }
}
