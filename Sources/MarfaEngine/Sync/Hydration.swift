/// Brings the whole of a slice here (contract, "Hydration").
///
/// A reader never sees part of one: what a first hydration brings hangs where no path leads until all of it is here, and
/// a later one changes the rows one by one, as events do. So nothing is cleared before; what the walk did not meet goes
/// at the end, which leaves the same rows.
struct Hydration {
  let copy: WorkingCopy
  let server: Server
  let cancellation: Cancellation
  private let passedOver = PassedOver()
  /// Told now and then how far it is.
  var progress: @Sendable (HydrationProgress) -> Void = { _ in }
  /// Told when the server has shown that it is one, and the store is bound to it.
  var bound: @Sendable () -> Void = {}

  /// Edge types of which every edge is held, whatever its ends are.
  static let wholeEdgeTypes = [Edge.attachedTo, Edge.parentOf]

  /// Runs one. `types` `nil`: those declared before, else every type the server has but its own (`system.*`). Throws
  /// ``MarfaError/invalid(_:)`` for an empty list or `*`, before anything is read.
  func run(types wanted: [String]?, tier wantedTier: TierFilter?) throws(MarfaError) {
    if let wanted, wanted.isEmpty || wanted.contains("*") || wanted.contains("") {
      throw .invalid("a copy declares the types it holds, by name; neither none nor \"*\" is a choice")
    }
    let isFirst = try !copy.wasHydrated()
    let cursor = try remote { (server) throws(RemoteFailure) in try StreamCursor.take(server, cancellation) }
    let (before, known, state) = try (declared(), copy.cursor(), copy.hydration())
    let catalogue = try remote { (server) throws(RemoteFailure) in try server.types(cancellation) }
    let (types, tier) = try declare(wanted, wantedTier, catalogue)
    let number = try begin(types, tier, catalogue)
    bound()
    let slice = try copy.store.read { (connection) throws(MarfaError) in try connection.slice() }
    var walk = Walk(number: number, slice: slice, top: isFirst ? Node.incoming : Node.root)
    walk.hasToldAll =
      state == .complete && known == cursor && Set(before.types) == Set(slice.types) && before.tier == slice.tier
    var unreadable: [String] = []
    for type in types {
      try readable(type, &unreadable, isOptional: wanted == nil) { () throws(MarfaError) in
        try pages({ (server, cursor) throws(RemoteFailure) in
          try server.items(type: type, tier: tier, cursor: cursor, cancellation)
        }) { (rows) throws(MarfaError) in try keep(rows, &walk) }
      }
    }
    guard unreadable.count < types.count else {
      throw .invalid("the key reads none of the server's types")
    }
    for type in Hydration.wholeEdgeTypes {
      try readable(type, &unreadable, isOptional: true) { () throws(MarfaError) in
        try pages({ (server, cursor) throws(RemoteFailure) in
          try server.edges(type: type, cursor: cursor, cancellation)
        }) { (rows) throws(MarfaError) in try keep(rows, &walk) }
      }
    }
    if !unreadable.isEmpty { walk.hasToldAll = false }
    try copy.store.write { (connection) throws(MarfaError) in try passedOver.keep(in: connection, walk.number) }
    try dropUnseen(walk)
    try finish(cursor, walk)
  }

  private struct Walk {
    let number: Int64
    let slice: Slice
    let top: Int64
    /// All that the server told of what was declared was applied before: what its list does not have, it has not removed.
    var hasToldAll = false
    var progress = HydrationProgress()
  }

  // MARK: - Steps

  private func declared() throws(MarfaError) -> Slice {
    try copy.store.read { (connection) throws(MarfaError) in try connection.slice() }
  }

  private func declare(
    _ wanted: [String]?, _ wantedTier: TierFilter?, _ catalogue: [ItemTypeRow]
  ) throws(MarfaError) -> ([String], TierFilter) {
    let before = try declared()
    let tier = wantedTier ?? (before.types.isEmpty ? .library : before.tier)
    if let wanted { return (wanted, tier) }
    if !before.types.isEmpty { return (before.types, tier) }
    let names = Set(catalogue.map(\.id))
    // A type whose parent is held, by declaration or by name, comes with it.
    let roots = catalogue.filter { row in
      guard !row.id.hasPrefix("system."), row.id != "system" else { return false }
      if let parent = row.parent, names.contains(parent) { return false }
      return !names.contains { row.id.hasPrefix($0 + ".") }
    }.map(\.id)
    guard !roots.isEmpty else { throw .invalid("the server has no types this key reads; declare some with --type") }
    return (roots, tier)
  }

  private func begin(_ types: [String], _ tier: TierFilter, _ catalogue: [ItemTypeRow]) throws(MarfaError) -> Int64 {
    try copy.store.write { (connection) throws(MarfaError) in
      let number = (try connection.setting("hydrations").flatMap { Int64($0) } ?? 0) + 1
      try connection.setSetting("hydrations", String(number))
      try connection.setSetting("hydration", HydrationState.inProgress.rawValue)
      try connection.overtakeAll()
      try connection.setSetting("origin", server.origin.description)
      try connection.setTypes(catalogue)
      try connection.setSlice(types: types, tier: tier)
      return number
    }
  }

  private func keep(_ rows: [ItemRow], _ walk: inout Walk) throws(MarfaError) {
    try change(walk) { (change) throws(MarfaError) in
      for row in rows {
        try change.receive(row, slice: walk.slice, seen: walk.number)
        for block in row.edges {
          for edge in block.edges { try change.receive(edge, seen: walk.number) }
        }
      }
    }
    walk.progress.items += rows.count
    // The edges a row had no room for. Those of the types held whole come by their own listing.
    for row in rows {
      for block in row.edges where !Hydration.wholeEdgeTypes.contains(block.type) {
        guard let next = block.nextCursor else { continue }
        try pages(
          from: next,
          { (server, cursor) throws(RemoteFailure) in
            try server.edges(of: row.id, type: block.type, cursor: cursor, cancellation)
          }, { (edges) throws(MarfaError) in try keep(edges, &walk) })
      }
    }
    progress(walk.progress)
  }

  private func keep(_ rows: [EdgeRow], _ walk: inout Walk) throws(MarfaError) {
    try change(walk) { (change) throws(MarfaError) in
      for row in rows { try change.receive(row, seen: walk.number) }
    }
    walk.progress.edges += rows.count
    progress(walk.progress)
  }

  /// What the server had once and has no more, or what the slice no longer holds, goes; what is pinned or waits stays.
  private func dropUnseen(_ walk: Walk) throws(MarfaError) {
    try leaveUnseenBehind(walk)
    var last: Int64 = 0
    while !passedOver.hidesEdges {
      let piece = try copy.store.read { (connection) throws(MarfaError) in try connection.unseenEdges(walk.number, last)
      }
      guard let end = piece.last else { break }
      last = end.number
      try change(walk) { (change) throws(MarfaError) in
        for row in piece { try change.forget(row.id) }
      }
    }
    last = 0
    while !passedOver.hidesItems {
      let piece = try copy.store.read { (connection) throws(MarfaError) in try connection.unseenItems(walk.number, last)
      }
      guard let end = piece.last else { break }
      last = end.number
      try change(walk) { (change) throws(MarfaError) in
        for row in piece {
          // A pinned one outside the slice stays, and whether the server still has it is asked.
          if row.isPinned {
            try change.connection.owe(row.id, isTold: true)
          } else {
            try change.forget(row.id, purged: false)
          }
        }
      }
    }
  }

  /// A server that was set back has not removed what it knows no more.
  private func leaveUnseenBehind(_ walk: Walk) throws(MarfaError) {
    guard !passedOver.hidesItems else { return }
    let isBehind = try copy.store.read { (connection) throws(MarfaError) in
      if try connection.isServerBehind() { return true }
      guard walk.hasToldAll else { return false }
      return try connection.unseenItems(walk.number, 0).contains { !$0.isPinned }
    }
    guard isBehind else { return }
    try copy.store.write { (connection) throws(MarfaError) in try connection.setSetting("behind", "yes") }
    var directories: [Int64] = []
    var last: Int64 = 0
    while true {
      let piece = try copy.store.read { (connection) throws(MarfaError) in try connection.unseenItems(walk.number, last)
      }
      guard let end = piece.last else { break }
      last = end.number
      var lost: [ItemID] = []
      for row in piece {
        // A pinned one may be outside the slice: it is asked for.
        let isLost = row.isPinned ? try isUnknown(row.id) : true
        if isLost { lost.append(row.id) }
      }
      try change(walk) { (change) throws(MarfaError) in
        for id in lost {
          if let number = try change.leaveBehind(id) { directories.append(number) }
        }
      }
    }
    for number in directories {
      try change(walk) { (change) throws(MarfaError) in try change.clear(leftBehind: number) }
    }
    let count = try copy.store.read { (connection) throws(MarfaError) in try connection.leftBehind() }
    guard count > 0 else { return }
    Log.warning(
      "the server was set back to before it took what it had: "
        + (count == 1
          ? "a file or folder that it knows no more stays" : "\(count) files and folders that it knows no more stay")
        + ", on this device only")
  }

  /// The server says that it has no such item.
  private func isUnknown(_ id: ItemID) throws(MarfaError) -> Bool {
    do throws(MarfaError) {
      return try remote { (server) throws(RemoteFailure) in try server.item(id, cancellation) } == nil
    } catch {
      // Not this key's to read: nothing was said of it.
      if case .remote(.refused) = error { return false }
      throw error
    }
  }

  private func finish(_ cursor: String, _ walk: Walk) throws(MarfaError) {
    try change(walk) { (change) throws(MarfaError) in
      try change.unveil()
      try change.connection.setSetting("cursor", cursor)
      try change.connection.setSetting("hydration", HydrationState.complete.rawValue)
      try change.connection.setSetting("hydrated", "yes")
      if try change.connection.isServerBehind() { try change.forgetStored() }
      try change.connection.setSetting("behind", nil)
      try change.connection.noteAllTold(walk.number)
      try change.connection.setPassedOver(passedOver.count)
    }
  }

  // MARK: - Ways

  /// Reads a listing that the key may not be allowed to read: nothing of it is held then.
  private func readable(
    _ type: String, _ unreadable: inout [String], isOptional: Bool, _ body: () throws(MarfaError) -> Void
  ) throws(MarfaError) {
    do throws(MarfaError) { try body() } catch {
      guard isOptional, case .remote(.refused(let refusal)) = error, refusal.status == 403 else { throw error }
      Log.notice("the key does not read \(type): the copy holds none of it")
      unreadable.append(type)
    }
  }

  private func remote<T>(_ body: (Server) throws(RemoteFailure) -> T) throws(MarfaError) -> T {
    do throws(RemoteFailure) { return try body(server) } catch {
      throw error == .canceled ? .canceled : .remote(error)
    }
  }

  private func pages<Row: Sendable>(
    from start: String? = nil, _ fetch: (Server, String?) throws(RemoteFailure) -> Page<Row>,
    _ keep: ([Row]) throws(MarfaError) -> Void
  ) throws(MarfaError) {
    var cursor = start
    var seen: Set<Int> = []
    repeat {
      if let cursor, !seen.insert(cursor.hashValue).inserted {
        throw .remote(.unreadable("a page's cursor repeats"))
      }
      let page = try remote { (server) throws(RemoteFailure) in try fetch(server, cursor) }
      try keep(page.rows)
      passedOver.add(page.unreadable)
      cursor = page.nextCursor
    } while cursor != nil
  }

  private func change(_ walk: Walk, _ body: (Tree.Change) throws(MarfaError) -> Void) throws(MarfaError) {
    try copy.change { (change) throws(MarfaError) in
      var change = change
      change.top = walk.top
      try body(change)
    }
  }
}

/// How far a hydration is.
public struct HydrationProgress: Sendable, Equatable {
  public var items = 0
  public var edges = 0
}

/// Whether a copy of a server has all it declared (contract, "Hydration").
public enum HydrationState: String, Sendable, CaseIterable {
  case never
  /// One runs, or was interrupted: it is run again, never resumed.
  case inProgress = "in_progress"
  case complete
  /// The server's log has moved past the cursor.
  case expired
}

extension WorkingCopy {
  /// Whether the copy has all it declared.
  public func hydration() throws(MarfaError) -> HydrationState {
    try store.read { (connection) throws(MarfaError) in try connection.hydrationState() }
  }

  /// Whether all of it was here once: before that, nothing of it shows.
  public func wasHydrated() throws(MarfaError) -> Bool {
    try store.read { (connection) throws(MarfaError) in try connection.setting("hydrated") != nil }
  }
}

/// Where the server's log stands now.
enum StreamCursor {
  private final class Handler: EventHandler {
    let result = Monitor<Result<String, RemoteFailure>?>(nil)

    func event(_ event: ServerEvent) -> Flow {
      guard case .streamCursor(let cursor) = event.content else { return .goOn }
      result.update { $0 = .success(cursor) }
      return .stop
    }

    func end(_ end: Result<Void, RemoteFailure>) {
      let failure: RemoteFailure =
        switch end {
        case .success: .unreadable("the stream of events ended before it said where it stands")
        case .failure(let failure): failure
        }
      result.update { $0 = $0 ?? .failure(failure) }
    }
  }

  /// Opens the stream, takes what its first event says, and lets it go.
  static func take(_ server: Server, _ cancellation: Cancellation) throws(RemoteFailure) -> String {
    let handler = Handler()
    let transfer = server.events(after: nil, handler)
    let token = cancellation.onCancel { transfer.cancel() }
    defer { cancellation.remove(token) }
    guard let result = handler.result.wait(for: { $0 }) else { throw .canceled }
    return try result.get()
  }
}

extension Tree.Change {
  /// A first hydration is whole: what it brought stands in the root from now on.
  fileprivate func unveil() throws(MarfaError) {
    while true {
      let piece = try connection.all(
        "SELECT name, node FROM entries WHERE parent = -1 ORDER BY number LIMIT 1000", { _ in },
        { (FileName(stored: $0.blob(0)), $0.int(1)) })
      guard !piece.isEmpty else { break }
      var changes: [TreeChange] = []
      for (name, node) in piece {
        try connection.deleteEntry(Node.incoming, name)
        // The older keeps its name, and what is in the root is.
        let free = try connection.freeName(Node.root, name)
        try connection.insertEntry(Node.root, free, node: node)
        changes.append(.entry(parent: Node.root, name: free))
      }
      tree.notify(changes, in: self)
    }
    try connection.touch(Node.root, at: now)
    tree.notify([.node(Node.root)], in: self)
  }
}

extension Connection {
  /// Whether the copy has all it declared.
  func hydrationState() throws(MarfaError) -> HydrationState {
    try setting("hydration").flatMap { HydrationState(rawValue: $0) } ?? .never
  }

  fileprivate func unseenItems(_ number: Int64, _ last: Int64) throws(MarfaError) -> [(
    number: Int64, id: ItemID, isPinned: Bool
  )] {
    try all(
      """
      SELECT number, id, pinned FROM items WHERE seen <> ?1 AND version > 0 AND number > ?2
      ORDER BY number LIMIT 500
      """,
      {
        $0.int(1, number)
        $0.int(2, last)
      }, { row in row.itemID(1).map { (row.int(0), $0, row.bool(2)) } }
    ).compactMap { $0 }
  }

  fileprivate func unseenEdges(_ number: Int64, _ last: Int64) throws(MarfaError) -> [(number: Int64, id: EdgeID)] {
    try all(
      "SELECT number, id FROM edges WHERE seen <> ?1 AND version > 0 AND number > ?2 ORDER BY number LIMIT 500",
      {
        $0.int(1, number)
        $0.int(2, last)
      }, { row in row.edgeID(1).map { (row.int(0), $0) } }
    ).compactMap { $0 }
  }
}
