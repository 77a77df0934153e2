import Glibc

/// What a start does about what a crash left (ARCHITECTURE.md, "After a crash").
enum Recovery {
  /// Mends the tree and the staged files. Names that no writer ever closed are taken away, and their bytes kept under
  /// `recovered/`; content that was closed or synced and not sealed yet is returned, to be sealed. `titles` are of files
  /// that have no rows.
  static func run(_ tree: Tree, titles: [Int64: String] = [:]) throws(MarfaError) -> [(node: Int64, id: StagedID)] {
    let files = tree.blobs.files
    let unsealed = try tree.store.read { (connection) throws(MarfaError) in
      try connection.all(
        "SELECT number, staged FROM nodes WHERE staged IS NOT NULL", { _ in },
        { row in Bytes128(bytes: row.lentBlob(1)).map { (node: row.int(0), id: StagedID(bytes: $0)) } }
      ).compactMap { $0 }
    }
    let kept = Set(unsealed.map { files.staged($0.node, $0.id) })
    do throws(Errno) {
      for name in try Path.names(in: files.root + "/staged") {
        let path = "\(files.root)/staged/\(name)"
        guard !kept.contains(path), let status = try Path.status(path) else { continue }
        let owner = BlobFiles.parseStaged(name)
        if let owner, isSealed(owner.node, status, tree) {
          // Only the old name was left to go.
          try Path.remove(path)
          continue
        }
        let title = owner.flatMap { titles[$0.node] ?? titleOf($0.node, tree) }
        if let owner, owner.id.isNew { forget(owner.node, tree) }
        // Empty, or a copy of a file that is still where the person has it: nothing is lost with it.
        if status.st_size == 0 || owner?.node == 0 {
          try Path.remove(path)
          continue
        }
        let target = try place(title ?? name, in: files.root + "/recovered")
        try Path.move(path, to: target)
        Log.warning("a file was being written when the last process ended; what it had is kept at \(target)")
      }
    } catch {
      throw .io(error, "looking through \(files.root)/staged")
    }
    return unsealed
  }

  /// True when a staged file is, under its other name, what its node's row says, or was, and the node is gone.
  private static func isSealed(_ number: Int64, _ status: stat, _ tree: Tree) -> Bool {
    guard status.st_nlink > 1 else { return false }
    guard let node = try? tree.node(number) else { return true }
    guard case .blob(let hash) = node.content, let held = try? Path.status(tree.blobs.files.held(hash)) else {
      return false
    }
    return held.st_ino == status.st_ino
  }

  /// Removes files under `held/` that no row knows: a process ended between giving bytes their name and committing what
  /// refers to them. Looks while others work, and keeps the writer only for what it finds; ends early when `isOver` says so.
  static func sweepHeld(_ tree: Tree, isOver: () -> Bool) {
    let root = tree.blobs.files.root + "/held"
    for folder in (try? Path.names(in: root)) ?? [] where folder.utf8.count == 2 {
      for name in (try? Path.names(in: "\(root)/\(folder)")) ?? [] {
        if isOver() { return }
        // What is no hash is not ours to judge.
        guard let hash = BlobHash(folder + name), (try? tree.blobs.isHeld(hash)) == false else { continue }
        do throws(MarfaError) { try tree.blobs.removeUnknown(hash) } catch {
          Log.warning("\(root)/\(folder)/\(name) stays behind: \(error)")
        }
      }
    }
  }

  /// Partial files and their rows belong together: what stands alone goes.
  static func sweepPartial(_ tree: Tree) throws(MarfaError) {
    let files = tree.blobs.files
    do throws(Errno) {
      let names = Set(try Path.names(in: files.root + "/partial"))
      let known = Result { () throws(MarfaError) in
        try tree.store.read { (connection) throws(MarfaError) in try connection.partialHashes() }
      }
      guard case .success(let hashes) = known else { return Log.warning("partial files are not looked through") }
      for name in names.subtracting(hashes.map { $0.hex }) { try Path.remove("\(files.root)/partial/\(name)") }
      for hash in hashes where !names.contains(hash.hex) {
        _ = try? tree.store.write { (connection) throws(MarfaError) in try connection.deletePartial(hash) }
      }
    } catch {
      throw .io(error, "looking through \(files.root)/partial")
    }
  }

  /// Takes away the names of a file that was made and that no writer closed.
  private static func forget(_ node: Int64, _ tree: Tree) {
    do throws(MarfaError) { _ = try tree.abandon(node) } catch {
      Log.error("file \(node) was never closed and could not be taken away: \(error)")
    }
  }

  private static func titleOf(_ node: Int64, _ tree: Tree) -> String? {
    (try? tree.store.read { (connection) throws(MarfaError) in try connection.entries(of: node).first?.name.title })
      ?? nil
  }

  /// A free path for recovered bytes: the file's name, with the time of this start before it.
  private static func place(_ title: String, in folder: String) throws(Errno) -> String {
    try Path.makeDirectory(folder, mode: 0o700)
    let stamp = String(Timestamp.now.iso8601.prefix(19)).split(separator: ":").joined(separator: ".")
    let name = String(decoding: title.utf8.map { $0 == 0x2f || $0 < 0x20 ? 0x5f : $0 }.prefix(200), as: UTF8.self)
    var path = "\(folder)/\(stamp) \(name)"
    var number = 2
    while try Path.status(path) != nil {
      path = "\(folder)/\(stamp) (\(number)) \(name)"
      number += 1
    }
    return path
  }
}

extension Tree {
  /// Seals content that a former process closed and did not seal, unless that has been done. Answers the node as it is.
  public func sealLeftOver(_ id: StagedID, of number: Int64) throws(MarfaError) -> Node? {
    // One at a time: the start's own thread and the first to open such a file may both come.
    try leftOvers.withLock { (_) throws(MarfaError) in
      guard let node = try node(number), node.content == .staged(id) else { return try node(number) }
      let base = try store.read { (connection) throws(MarfaError) in try connection.stagedBase(number) }
      return try seal(try blobs.reopen(number, id, base: base), mtime: node.mtime)
    }
  }
}
