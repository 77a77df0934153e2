import Glibc
import Testing

@testable import MarfaEngine

/// A working copy in a folder of its own, seen as a shell sees a mount of it: by paths.
final class Scratch {
  let folder: TemporaryFolder
  private(set) var copy: WorkingCopy
  private let options: WorkingCopy.Options
  /// What the queue is applied to when a test says that the server answered.
  let server = ModelServer()
  var names = QueueNames()

  init(_ options: WorkingCopy.Options = WorkingCopy.Options()) throws {
    folder = try TemporaryFolder()
    self.options = options
    copy = try WorkingCopy(path: folder.path + "/store.db", options: options)
  }

  var tree: Tree { copy.tree }
  var owner: Owner { Owner(uid: 1000, gid: 1000) }

  /// Closes the store, as a process that ends, and opens it again.
  func reopen() throws {
    copy.close()
    copy = try WorkingCopy(path: folder.path + "/store.db", options: options)
  }

  /// As after a process that was killed: nothing was ended, and the store is opened again.
  func crash() throws {
    // What was let go may go: a start sweeps what does not, in its own time.
    copy.tree.settle()
    copy.store.close()
    copy = try WorkingCopy(path: folder.path + "/store.db", options: options)
  }

  // MARK: - What a person sees

  func node(_ path: String) throws -> Node? {
    var node = try tree.node(Node.root)
    for part in path.split(separator: "/") {
      guard let directory = node, directory.kind == .directory else { return nil }
      node = try child(directory.number, Array(part.utf8))
    }
    return node
  }

  func child(_ parent: Int64, _ name: [UInt8]) throws -> Node? {
    try name.withUnsafeBytes { try tree.lookup(parent, $0) }
  }

  /// The item behind a path.
  func item(_ path: String) throws -> Item? {
    guard let id = try node(path)?.item else { return nil }
    return try copy.items.get(id)
  }

  /// The names in a directory, in the order of a listing.
  func list(_ path: String = "") throws -> [String] {
    var names: [String] = []
    try tree.list(try existing(path).number, after: 0) { entry in
      names.append(entry.name.title)
      return true
    }
    return names
  }

  func read(_ path: String) throws -> String? {
    guard let node = try node(path), node.kind == .file else { return nil }
    return String(decoding: try bytes(of: node), as: UTF8.self)
  }

  func bytes(of node: Node) throws -> [UInt8] {
    switch node.content {
    case .empty: []
    case .blob(let hash): try tree.open(hash, size: node.size).prefix(Int(node.size ?? 0))
    case .staged(let id): try contents(copy.blobStore.files.staged(node.number, id))
    }
  }

  // MARK: - What a program does

  @discardableResult
  func mkdir(_ path: String) throws -> Node {
    let (parent, name) = try place(path)
    return try tree.makeDirectory(parent, name, mode: 0o755, owner: owner)
  }

  /// Opens a file for writing, making it or cutting it to nothing, and has not closed it yet.
  func open(_ path: String) throws -> StagedFile {
    if let node = try node(path) { return try tree.stage(for: node.number) }
    let (parent, name) = try place(path)
    return try #require(
      try tree.createFile(parent, name, mode: 0o644, owner: owner, writing: true).staged)
  }

  @discardableResult
  func close(_ staged: StagedFile, mtime: Timestamp = .now) throws -> Node? {
    try tree.seal(staged, mtime: mtime)
  }

  /// `printf TEXT > path`.
  @discardableResult
  func write(_ path: String, _ text: String) throws -> Node { try write(path, Array(text.utf8)) }

  @discardableResult
  func write(_ path: String, _ bytes: [UInt8]) throws -> Node {
    let staged = try open(path)
    try staged.append(bytes)
    return try #require(try close(staged))
  }

  func move(_ path: String, _ newPath: String, _ mode: Tree.RenameMode = .replacing) throws {
    let (parent, name) = try place(path)
    let (newParent, newName) = try place(newPath)
    _ = try tree.rename(parent, name, to: newParent, newName, mode: mode)
  }

  func link(_ path: String, _ newPath: String) throws {
    let (parent, name) = try place(newPath)
    _ = try tree.link(try existing(path).number, to: parent, name)
  }

  func symlink(_ path: String, to target: String) throws {
    let (parent, name) = try place(path)
    _ = try tree.makeSymlink(parent, name, target: Array(target.utf8), owner: owner)
  }

  func unlink(_ path: String) throws {
    let (parent, name) = try place(path)
    _ = try tree.unlink(parent, name)
  }

  func rmdir(_ path: String) throws {
    let (parent, name) = try place(path)
    _ = try tree.removeDirectory(parent, name)
  }

  func existing(_ path: String) throws -> Node {
    guard let node = try node(path) else { throw MarfaError.file(.notFound) }
    return node
  }

  func place(_ path: String) throws -> (parent: Int64, name: FileName) {
    let name = try FileName(checking: Path.lastComponent(path).utf8)
    return (try existing(path.contains("/") ? Path.parent(path) : "").number, name)
  }

  // MARK: - What the server does

  /// Everything queued goes out and is answered, in order, by a server that keeps the contract.
  func answer() throws {
    try names.note(copy)
    try server.drain(copy)
  }

  /// Everything queued has been sent, and no answer came yet.
  func sendOut() throws {
    try names.note(copy)
    try copy.store.write { (connection) throws(MarfaError) in
      _ = try connection.run("UPDATE writes SET gone_out = 1, state = 'sending'")
    }
  }

  /// The queue, a line a write (see ``QueueNames``).
  func queue() throws -> [String] {
    try names.note(copy)
    return try names.lines(copy)
  }

  func writes() throws -> [QueuedWrite] { try copy.queue.writes() }
}

extension Node {
  /// Its sealed bytes.
  var blob: BlobHash? { if case .blob(let hash) = content { hash } else { nil } }
}

/// True once `condition` holds; false when it does not within ten seconds. For what another thread does in its own time.
func eventually(_ condition: () throws -> Bool) -> Bool {
  let began = Timestamp.now.nanoseconds
  while Timestamp.now.nanoseconds - began < 10_000_000_000 {
    if (try? condition()) == true { return true }
    sched_yield()
  }
  return false
}

extension StagedFile {
  /// Writes at the end, as a program does.
  func append(_ bytes: [UInt8]) throws { try write(bytes, at: size) }

  func write(_ bytes: [UInt8], at offset: Int64) throws {
    try descriptor.write(bytes, at: offset)
    wrote(at: offset, count: bytes.count)
  }
}

/// Runs a scenario in a fresh working copy; afterwards the store must keep its invariants.
func withScratch(
  _ options: WorkingCopy.Options = WorkingCopy.Options(), location: SourceLocation = #_sourceLocation,
  _ body: (Scratch) throws -> Void
) throws {
  let scratch = try Scratch(options)
  defer { scratch.copy.close() }
  try body(scratch)
  try checkInvariants(scratch.copy, location: location)
}

func withAsyncScratch(
  _ options: WorkingCopy.Options = WorkingCopy.Options(), location: SourceLocation = #_sourceLocation,
  _ body: (Scratch) async throws -> Void
) async throws {
  let scratch = try Scratch(options)
  defer { scratch.copy.close() }
  try await body(scratch)
  try checkInvariants(scratch.copy, location: location)
}
