import Glibc
import MarfaEngine

/// Bytes brought here, and let go of.
extension Commands {
  /// `fetch`: fetches what was named, a file or all files in a directory, or without a name everything that is kept and not
  /// here, and answers when that is over. Whoever hangs up before ends it. `key` is a word of the asker's own, by which
  /// `fetching` tells how far it is.
  func fetch(_ arguments: JSON.Object, _ hangUp: Cancellation) throws(CommandFailure) -> JSON.Object {
    let isNamed = arguments.members.contains { $0.key != "key" }
    let arguments = try Arguments(arguments, allowed: ItemReference.keys.union(["key"]))
    let key = try arguments.string("key")
    _ = try link()
    let job: FetchJob
    if isNamed {
      let files = try files(at: try ItemReference(arguments).node(in: copy)).filter { $0.partialBytes != nil }
      job = FetchJob(
        files.compactMap { node in
          guard case .blob(let hash) = node.content else { return nil }
          return FetchJob.File(hash: hash, size: node.size)
        }, copy.blobs)
    } else {
      job = FetchJob(keptOf: copy.blobs)
    }
    jobs.set(key, job)
    defer { jobs.set(key, nil) }
    let token = hangUp.onCancel { job.cancel() }
    defer { hangUp.remove(token) }
    job.wait()
    var result = job.json
    result["keep"] = .string(try engine { () throws(MarfaError) in try copy.blobs.keep() }.rawValue)
    return result
  }

  /// `fetching`: how far a `fetch` is.
  func fetching(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    let arguments = try Arguments(arguments, allowed: ["key"])
    guard let key = try arguments.string("key"), let job = jobs.find(key) else {
      throw CommandFailure(.refused, "no_such_job", "no such fetch is under way")
    }
    return job.json
  }

  /// `evict`: lets the bytes of a file go, or of all files in a directory, where they can be fetched again; with `all`,
  /// every file fetched but the attachments kept.
  func evict(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    if arguments["all"]?.bool == true {
      _ = try Arguments(arguments, allowed: ["all"])
      let removed = try engine { () throws(MarfaError) in try copy.blobs.removeFetchedFiles() }
      return ["removed": .integer(removed), "kept": 0]
    }
    let arguments = try Arguments(arguments, allowed: ItemReference.keys)
    let node = try ItemReference(arguments).node(in: copy)
    var removed: Int64 = 0
    var kept = 0
    for file in try files(at: node) {
      guard case .blob(let hash) = file.content else {
        kept += 1
        continue
      }
      do throws(MarfaError) { removed += try copy.blobs.letGo(hash) } catch {
        // Of many, those that may not go are passed over; one that was named is told why.
        guard node.kind == .directory, case .file = error else { throw Self.explained(error) }
        kept += 1
      }
    }
    return ["removed": .integer(removed), "kept": .integer(kept)]
  }

  /// `trim`: lets go of what is over the budget.
  func trim(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    _ = try Arguments(arguments, allowed: [])
    let removed = try engine { () throws(MarfaError) in try copy.blobs.trim() }
    return ["removed": .integer(removed)]
  }

  private static func explained(_ error: MarfaError) -> CommandFailure {
    switch error {
    case .file(.notPermitted):
      CommandFailure(.refused, "only_here", "its bytes stay: it is pinned, or only this device has them")
    case .file(let code) where code.code == EBUSY: CommandFailure(.refused, "open", "a program has it open")
    default: CommandFailure(error)
    }
  }

  /// The files at a node: itself, or all in a directory and those under it.
  private func files(at node: Node) throws(CommandFailure) -> [Node] {
    guard node.kind == .directory else { return node.kind == .file ? [node] : [] }
    return try engine { () throws(MarfaError) in
      var files: [Node] = []
      var seen: Set<Int64> = []
      // No recursion: a tree may be deeper than a stack.
      var directories = [node.number]
      while let directory = directories.popLast() {
        try copy.tree.list(directory, after: 0) { entry in
          guard seen.insert(entry.node.number).inserted else { return true }
          switch entry.node.kind {
          case .directory: directories.append(entry.node.number)
          case .file: files.append(entry.node)
          case .special: break
          }
          return true
        }
      }
      return files
    }
  }
}
