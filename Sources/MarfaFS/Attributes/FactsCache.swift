import MarfaEngine

/// What the store says of a node.
enum KnownFacts {
  /// And the server the store knows, which says what an upload waits for.
  case file(FileFacts, origin: String?)
  case directory(DirectoryFacts)
  case root(WorkingCopy.Status)
}

/// The facts asked for last: a program that lists a file's attributes asks for each of its values next, and the store
/// would be read anew for each. What is not in the store (how far an upload is, whether the server is there) is none of
/// them.
final class FactsCache: Sendable {
  private struct Entry {
    var node: Int64
    var at: Int64
    var commits: Int
    var facts: KnownFacts
  }
  private let entry = Lock<Entry?>(.leaf, nil)

  /// What was found for a node, when nothing was committed since and it is a moment old.
  func find(_ node: Int64, commits: Int) -> KnownFacts? {
    entry.withLock { entry in
      guard let found = entry, found.node == node, found.commits == commits, FactsCache.now - found.at < 1 else {
        return nil
      }
      return found.facts
    }
  }

  func keep(_ facts: KnownFacts, of node: Int64, commits: Int) {
    entry.withLock { $0 = Entry(node: node, at: FactsCache.now, commits: commits, facts: facts) }
  }

  private static var now: Int64 { Timestamp.now.milliseconds / 1000 }
}
