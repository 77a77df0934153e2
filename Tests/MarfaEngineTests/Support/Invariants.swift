import Glibc
import Testing

@testable import MarfaEngine

/// What must hold of a store at any moment that nobody is writing a file; each breach is an issue of its own.
///
/// `afterCrash`: bytes that were moved to `held/` by a transaction that never was committed may lie there unnamed.
func checkInvariants(
  _ copy: WorkingCopy, afterCrash: Bool = false, location: SourceLocation = #_sourceLocation
) throws {
  for breach in try invariantBreaches(copy, afterCrash: afterCrash) {
    Issue.record("\(breach)", sourceLocation: location)
  }
}

func invariantBreaches(_ copy: WorkingCopy, afterCrash: Bool = false) throws -> [String] {
  copy.tree.settle()
  var check = InvariantCheck(copy: copy, afterCrash: afterCrash)
  try copy.store.snapshot { (connection) throws(MarfaError) in try check.load(connection) }
  check.database()
  try check.files()
  check.tree()
  check.items()
  check.queue()
  return check.breaches
}

private struct InvariantCheck {
  let copy: WorkingCopy
  let afterCrash: Bool
  var breaches: [String] = []

  private var integrity: [String] = []
  private var nodes: [Int64: Node] = [:]
  private var entries: [(parent: Int64, name: FileName, node: Int64)] = []
  private var itemsByID: [ItemID: Item] = [:]
  private var edges: [Edge] = []
  private var blobs: [BlobHash: BlobRow] = [:]
  private var writes: [QueuedWrite] = []
  private var lasting: Set<WriteID> = []

  init(copy: WorkingCopy, afterCrash: Bool) {
    self.copy = copy
    self.afterCrash = afterCrash
  }

  mutating func load(_ connection: Connection) throws(MarfaError) {
    integrity = try connection.all("PRAGMA integrity_check", { _ in }, { $0.text(0) }).filter { $0 != "ok" }
    integrity += try connection.all("PRAGMA foreign_key_check", { _ in }, { "a dangling key in \($0.text(0))" })
    // Numbers kept twice are what they count.
    integrity += try connection.all(
      """
      SELECT name FROM counters c WHERE
        (name LIKE 'write.%' AND count <> (SELECT count(*) FROM writes WHERE 'write.' || state = c.name))
        OR (name = 'held' AND (count <> (SELECT count(*) FROM blobs WHERE held = 1)
          OR bytes <> (SELECT coalesce(sum(size), 0) FROM blobs WHERE held = 1)))
        OR (name = 'upload' AND (count <> (SELECT count(*) FROM writes WHERE kind = 'upload_blob'
          AND state IN ('queued', 'sending', 'blocked'))
          OR bytes <> (SELECT coalesce(sum(b.size), 0) FROM writes w JOIN blobs b ON b.hash = w.blob
            WHERE w.kind = 'upload_blob' AND w.state IN ('queued', 'sending', 'blocked'))))
      """, { _ in }, { "the counter \($0.text(0)) does not count what there is" })
    let counted: StaticString = """
      SELECT 'write.' || state, count(*), 0 FROM writes GROUP BY state
      UNION ALL SELECT 'upload', count(*), coalesce(sum(size), 0) FROM writes JOIN blobs ON hash = blob
        WHERE kind = 'upload_blob' AND state IN ('queued', 'sending', 'blocked')
      UNION ALL SELECT 'held', count(*), coalesce(sum(size), 0) FROM blobs WHERE held = 1
      UNION ALL SELECT 'partial', count(*), coalesce(sum(bytes), 0) FROM partials
      """
    integrity += try connection.differences(
      "SELECT name, count, bytes FROM counters WHERE count <> 0 OR bytes <> 0", counted)
    for number in try connection.all("SELECT number FROM nodes", { _ in }, { $0.int(0) }) {
      if let node = try connection.node(number) { nodes[number] = node }
    }
    entries = try connection.all(
      "SELECT parent, name, node FROM entries ORDER BY number", { _ in },
      { ($0.int(0), FileName(stored: $0.blob(1)), $0.int(2)) })
    for item in try connection.allItems() { itemsByID[item.id] = item }
    edges = try connection.allEdges()
    for hash in try connection.all("SELECT hash FROM blobs", { _ in }, { $0.hash(0) }) {
      if let hash, let row = try connection.blob(hash) { blobs[hash] = row }
    }
    writes = try connection.queue(limit: 1_000_000)
    lasting = Set(
      try connection.all("SELECT number FROM writes WHERE json_extract(body, '$.lasting') = 1", { _ in }) {
        WriteID($0.int(0))
      })
  }

  private mutating func expect(_ condition: Bool, _ words: @autoclosure () -> String) {
    if !condition { breaches.append(words()) }
  }

  mutating func database() {
    for problem in integrity { breaches.append(problem) }
  }

  // MARK: - Bytes

  mutating func files() throws {
    let files = copy.blobStore.files
    var held: Set<BlobHash> = []
    for folder in try Path.names(in: files.root + "/held") {
      for name in try Path.names(in: "\(files.root)/held/\(folder)") {
        guard let hash = BlobHash(folder + name) else {
          breaches.append("held/\(folder)/\(name) is no name of bytes")
          continue
        }
        held.insert(hash)
        let named = blobs[hash]?.held == true || afterCrash || copy.blobStore.isPinned(hash)
        expect(named, "held/\(hash.hex) is named by no row")
      }
    }
    for (hash, row) in blobs where row.held {
      expect(held.contains(hash), "\(hash) is said to be held, and is not")
      guard held.contains(hash) else { continue }
      let bytes = try contents(files.held(hash))
      let sha = try SHA256()
      bytes.withUnsafeBytes { sha.update($0) }
      expect(sha.finish() == hash, "the bytes under held/\(hash.hex) do not hash to their name")
      expect(Int64(bytes.count) == row.size, "\(hash) has \(bytes.count) bytes and is said to have \(row.size ?? -1)")
    }
    let partial = Set(try Path.names(in: files.root + "/partial"))
    for hash in try copy.store.read({ (connection) throws(MarfaError) in try connection.partialHashes() }) {
      expect(blobs[hash]?.held == false, "\(hash) is said to be here in part, and is held, or unknown")
      expect(partial.contains(hash.hex), "\(hash) is said to be here in part, and nothing is")
    }
    let staged = Set(try Path.names(in: files.root + "/staged"))
    var wanted: Set<String> = []
    for node in nodes.values {
      if case .staged(let id) = node.content { wanted.insert(Path.lastComponent(files.staged(node.number, id))) }
    }
    expect(staged == wanted, "staged/ has \(staged) where \(wanted) are wanted")
  }

  // MARK: - Nodes and entries

  mutating func tree() {
    var links: [Int64: Int64] = [:]
    var children: [Int64: [Int64]] = [:]
    for entry in entries {
      links[entry.node, default: 0] += 1
      children[entry.parent, default: []].append(entry.node)
      expect(nodes[entry.parent]?.kind == .directory, "\(entry.name.title) is in what is no directory")
      expect((try? FileName(checking: entry.name.bytes)) != nil, "\(entry.name.bytes) is no name")
    }
    var reached: Set<Int64> = []
    var next = [Node.root]
    while let number = next.popLast() {
      guard reached.insert(number).inserted else {
        expect(nodes[number]?.kind != .directory, "directory \(number) stands in two places")
        continue
      }
      next += children[number] ?? []
    }
    for (number, node) in nodes where number != Node.root && number != Node.incoming {
      expect(node.links == links[number] ?? 0, "node \(number) counts \(node.links) links of \(links[number] ?? 0)")
      expect(node.links > 0, "node \(number) has no name")
      expect(reached.contains(number), "node \(number) can't be reached from the root")
      if node.kind != .file { expect(node.content == .empty, "node \(number) has bytes and is no file") }
      if node.kind == .special { expect(node.item == nil, "a link, pipe, socket or device shows an item") }
      if node.content == .empty && node.kind == .file { expect(node.size == 0, "an empty node \(number) has a size") }
      if case .blob(let hash) = node.content {
        expect(blobs[hash] != nil, "node \(number) has bytes nobody knows")
        if node.item == nil { expect(blobs[hash]?.held == true, "the only bytes of node \(number) are not here") }
        if let row = blobs[hash] { expect(row.size == node.size, "node \(number) has another size than its bytes") }
      }
      if node.local {
        expect(node.item == nil, "node \(number) is on this device only, and shows an item")
      } else if node.kind == .directory {
        expect(node.item != nil, "directory \(number) shows no item")
      }
      if node.kind == .file, !node.local, case .blob = node.content {
        expect(node.item != nil, "file \(number) has bytes and shows no item")
      }
    }
    for entry in entries where nodes[entry.parent]?.local == true {
      guard let node = nodes[entry.node] else { continue }
      // What is an item there for its bytes' sake only.
      let isHere = if case .blob(let hash) = node.content { blobs[hash]?.held == true } else { true }
      expect(node.local || node.links > 1 || !isHere, "\(entry.name.title) is queued, and its directory is not")
    }
  }

  // MARK: - Items and edges

  mutating func items() {
    var nodeOf: [ItemID: Node] = [:]
    for node in nodes.values {
      guard let id = node.item else { continue }
      nodeOf[id] = node
      guard let item = itemsByID[id] else {
        breaches.append("node \(node.number) shows an item that is not there")
        continue
      }
      expect(item.state != .trashed, "node \(node.number) shows \"\(item.title)\", which is in the bin")
      expect(item.isFile == (node.kind == .file), "node \(node.number) shows a \(item.type)")
      if case .blob(let hash) = node.content {
        expect(item.blob == hash, "\"\(item.title)\" names other bytes than its node")
      }
      // Its oldest name gives the title; what rows from elsewhere are called follows their title.
      let places = entries.filter { $0.node == node.number }
      if places.count == 1, let name = places.first?.name {
        let shown = FileName.showing(title: item.title, type: item.type, id: id)
        let isItsOwn =
          name.title == item.title || name == shown || (2...10_000).contains { shown.numbered($0) == name }
        expect(isItsOwn, "\"\(item.title)\" is called \(name.title)")
      }
    }
    for item in itemsByID.values where item.state != .trashed {
      expect(nodeOf[item.id] != nil, "\"\(item.title)\" is shown nowhere")
    }
    let known = Set(edges.map { "\($0.source) \($0.type) \($0.target)" })
    expect(known.count == edges.count, "an edge is drawn twice")
    // What the tree shows is what the edges say.
    var shown: Set<String> = []
    for entry in entries {
      guard let held = nodes[entry.node]?.item, let holder = nodes[entry.parent]?.item else { continue }
      shown.insert(
        nodes[entry.node]?.kind == .file ? "\(held) attached-to \(holder)" : "\(holder) parent-of \(held)")
    }
    for words in shown.subtracting(known) { breaches.append("no edge stands for \(words)") }
    for edge in edges where edge.type == Edge.parentOf || edge.type == Edge.attachedTo {
      guard let source = nodeOf[edge.source], let target = nodeOf[edge.target] else { continue }
      let (holder, held) = edge.type == Edge.parentOf ? (source, target) : (target, source)
      guard holder.kind == .directory, (held.kind == .file) == (edge.type == Edge.attachedTo) else { continue }
      expect(shown.contains("\(edge.source) \(edge.type) \(edge.target)"), "\(edge) is shown nowhere")
    }
  }

  // MARK: - The queue

  mutating func queue() {
    let ids = Set(writes.map(\.id))
    var ahead: [String: QueuedWrite] = [:]
    for write in writes {
      if let item = write.item {
        expect(itemsByID[item] != nil, "\(write.kind) \(write.id) is about an item that is not there")
      }
      if let edge = write.edge, write.kind != .deleteEdge {
        let isThere = edges.contains { $0.id == edge } || writes.contains { $0.edge == edge && $0.kind == .deleteEdge }
        expect(isThere, "\(write.kind) \(write.id) is about an edge that is not there")
      }
      if write.kind == .uploadBlob, let blob = write.blob {
        expect(blobs[blob]?.held == true, "upload \(write.id) is of bytes that are not here")
        let isWanted = writes.contains { $0.dependsOn.contains(write.id) } || lasting.contains(write.id)
        expect(isWanted || write.hasGoneOut, "upload \(write.id) is waited for by nothing")
      }
      for other in write.dependsOn { expect(ids.contains(other), "\(write.id) waits on \(other), which is gone") }
      // The chain of one row's writes has no gap while one ahead waits: else they could overtake each other.
      if let row = write.item.map({ "\($0)" }) ?? write.edge.map({ "\($0)" }) {
        expect(
          write.follows == ahead[row]?.id || ahead[row] == nil,
          "\(write.kind) \(write.id) can overtake \(ahead[row]?.id ?? write.id)")
        ahead[row] = write
      }
      if write.kind == .createItem || write.kind == .updateItem,
        let hash = (write.body["properties"]?.object?["blob_ref"]?.string).flatMap({ BlobHash($0) }),
        blobs[hash]?.stored != true
      {
        let waits = write.dependsOn.contains { id in
          writes.contains { $0.id == id && $0.blob == hash && $0.kind == .uploadBlob }
        }
        expect(waits, "\(write.kind) \(write.id) names bytes and does not wait for their upload")
      }
    }
    expect(!hasCycle(), "writes wait on each other in a ring")
    let creates = Set(writes.filter { $0.kind == .createItem }.compactMap(\.item))
    for item in itemsByID.values {
      expect(
        (item.version == 0) == creates.contains(item.id), "\"\(item.title)\" v\(item.version) and its create disagree")
      var properties: JSON.Object?
      // What is in the bin has lost the changes that had not gone out; the server's answer says what it is.
      if item.state == .trashed { continue }
      for write in writes where write.item == item.id {
        guard let changes = write.body["properties"]?.object else { continue }
        if write.kind == .createItem {
          properties = changes
        } else if write.kind == .updateItem {
          properties?.merge(changes)
          for (key, _) in changes.members
          where !writes.contains(where: {
            $0.id > write.id && $0.item == item.id && $0.body["properties"]?.object?[key] != nil
          }) {
            expect(item.properties[key] == changes[key], "\"\(item.title)\" does not show \(key) as it will be sent")
          }
        }
      }
      if let properties { expect(properties == item.properties, "\"\(item.title)\" is not what its writes make of it") }
    }
    let drawn = Set(writes.filter { $0.kind == .createEdge }.compactMap(\.edge))
    for edge in edges { expect((edge.version == 0) == drawn.contains(edge.id), "\(edge) and its create disagree") }
  }

  private func hasCycle() -> Bool {
    var waiting = Dictionary(
      uniqueKeysWithValues: writes.map { ($0.id, Set($0.dependsOn + [$0.follows].compactMap { $0 })) })
    while true {
      let ready = waiting.filter { $0.value.allSatisfy { waiting[$0] == nil } }.map(\.key)
      if ready.isEmpty { return !waiting.isEmpty }
      for id in ready { waiting[id] = nil }
    }
  }
}

extension Connection {
  /// Rows of one query that the other has not, in words. A count of nothing is no row.
  fileprivate func differences(_ kept: StaticString, _ counted: StaticString) throws(MarfaError) -> [String] {
    func rows(_ sql: StaticString) throws(MarfaError) -> Set<String> {
      Set(
        try all(sql, { _ in }, { ($0.text(0), $0.int(1), $0.int(2)) }).filter { $0.1 != 0 || $0.2 != 0 }.map {
          "\($0.0) \($0.1) \($0.2)"
        })
    }
    return try rows(kept).symmetricDifference(try rows(counted)).map { "counted wrongly: \($0)" }
  }
}
