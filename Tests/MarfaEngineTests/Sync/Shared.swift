import ContractServer
import Glibc
import Testing

@testable import MarfaEngine

/// A server, and copies of it in folders of their own.
final class Shared {
  let folder: TemporaryFolder
  let server: ContractServer
  private var copies: [WorkingCopy] = []
  private var number = 0

  init(_ options: ServerOptions = ServerOptions()) throws {
    folder = try TemporaryFolder()
    server = try ContractServer(folder: folder.path + "/server", options)
  }

  deinit {
    for copy in copies { copy.close() }
    server.stop()
  }

  /// How a copy meets the server: quick to try again.
  func options(key: String? = nil, _ change: (inout RemoteOptions) -> Void = { _ in }) throws -> RemoteOptions {
    var options = RemoteOptions(try Origin(server.url), credential: try Credential(key ?? server.key))
    options.waits = (shortest: 0.05, longest: 0.4)
    change(&options)
    return options
  }

  /// A new copy, not connected yet. Writes may go out at once.
  func copy(settling: Int64 = 0) throws -> WorkingCopy {
    number += 1
    var options = WorkingCopy.Options()
    options.tree.settling = settling
    let copy = try WorkingCopy(path: folder.path + "/copy\(number).db", options: options)
    copies.append(copy)
    return copy
  }

  /// A new copy that has caught up.
  func connected(settling: Int64 = 0, _ change: (inout RemoteOptions) -> Void = { _ in }) throws -> WorkingCopy {
    let copy = try copy(settling: settling)
    try copy.connect(try options(change))
    guard copy.waitUntilLive(seconds: 60) else {
      throw Late("\(String(describing: copy.serverStatus))")
    }
    return copy
  }

  /// Opens a copy's store anew, as the next process.
  func reopened(_ copy: WorkingCopy) throws -> WorkingCopy {
    copy.close()
    copies.removeAll { $0 === copy }
    let next = try WorkingCopy(path: copy.path)
    copies.append(next)
    return next
  }

  /// What the server has of an item.
  func item(_ id: ItemID) throws -> ServerItem? { try server.item("\(id)") }

  /// Nothing that a client must never do was done.
  func expectNoViolations(_ location: SourceLocation = #_sourceLocation) {
    #expect(server.violations.isEmpty, "\(server.violations)", sourceLocation: location)
  }
}

struct Late: Error, CustomStringConvertible {
  var description: String
  init(_ words: String) { description = words }
}

/// Waits until something is so; fails after a while that no machine takes.
func eventually(
  _ words: String, seconds: Double = 60, _ location: SourceLocation = #_sourceLocation,
  _ condition: () throws -> Bool
) throws {
  let end = Deadline.after(seconds: seconds)
  while try !condition() {
    if end.hasPassed {
      Issue.record("not in time: \(words)", sourceLocation: location)
      return
    }
    usleep(5_000)
  }
}

extension WorkingCopy {
  /// Waits until nothing waits to be sent.
  func drained(_ location: SourceLocation = #_sourceLocation) throws {
    try eventually("the queue is empty: \(queueText)", seconds: 60, location) { try queue.counts().waiting == 0 }
  }

  var queueText: String {
    guard let writes = try? queue.writes(limit: 20) else { return "unreadable" }
    return writes.map { "\($0.id) \($0.kind) \($0.state) \($0.verdict.map { "\($0)" } ?? "")" }.joined(separator: "; ")
  }

  /// The names in a directory of the tree, sorted.
  func names(_ path: String = "") throws -> [String] {
    var directory = Node.root
    for part in path.split(separator: "/") {
      guard let node = try Array(part.utf8).withUnsafeBytes({ try tree.lookup(directory, $0) }) else { return [] }
      directory = node.number
    }
    var names: [String] = []
    try tree.list(directory, after: 0) { entry in
      names.append(entry.name.title)
      return true
    }
    return names.sorted()
  }
}
