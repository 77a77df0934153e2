import Glibc

/// Fetches bytes that are not here, and keeps what it fetched: the blobs that are open or being fetched, and what they share
/// (ARCHITECTURE.md, "How bytes come").
final class Fetcher: Sendable {
  /// Times in nanoseconds.
  struct Settings: Sendable {
    /// How long a read waits without a byte coming.
    var patience: Int64 = 30_000_000_000
    /// The same for a fetch of the attachments, and the longest wait of a server's that it waits out.
    var keptPatience: Int64 = 60_000_000_000
    /// What came is on the disk and recorded after this at the latest.
    var flushDelay: Int64 = 2_000_000_000
    /// Before a request that brought nothing is made again; the next time four times as long.
    var retryDelay: Int64 = 200_000_000
    /// How long a refusal is taken for an answer.
    var refusalHolds: Int64 = 2_000_000_000
    /// How long bytes are served without being kept before room is looked for again.
    var roomRetry: Int64 = 5_000_000_000
    /// How long nothing is tried after the server could not be reached, at first and at last.
    var offlineFirst: Int64 = 1_000_000_000
    var offlineLast: Int64 = 30_000_000_000
    /// A second of the server's, when it asks for a wait.
    var second: Int64 = 1_000_000_000
    /// Reasons and sizes are written together after this.
    var noteDelay: Int64 = 200_000_000
    /// Times of reading are written together after this.
    var readDelay: Int64 = 10_000_000_000
  }

  let store: Store
  let blobs: BlobStore
  let files: BlobFiles
  let settings: Settings
  let alarm = Alarm()
  /// Syncing, hashing, keeping.
  let queue = WorkQueue(name: "marfa-blobs", threads: 2)
  /// Walks through what states no size.
  let walker = WorkQueue(name: "marfa-sizes", threads: 1)
  let room: RoomKeeper
  let link: LinkState
  /// Told of nodes whose size, or whose bytes here, changed.
  let changed: @Sendable ([TreeChange]) -> Void

  private let connected = Lock<(any ByteSource)?>(.leaf, nil)
  /// Held while it is decided what is open: between what the store says and what the table says.
  private let opening = Lock<Void>(.recovery, ())
  private let table = Lock<[BlobHash: BlobFetch]>(.fetches, [:])
  let pending = Lock<Pending>(.leaf, Pending())
  let flushing = Lock<Void>(.recovery, ())
  let sizes = Lock<SizeAsks>(.leaf, SizeAsks())
  private let trimming = Lock<Trimming>(.leaf, Trimming())

  private struct Trimming {
    var isPosted = false
    var nextAt: Int64 = 0
    var roomAt: Int64 = .min
  }

  init(blobs: BlobStore, store: Store, settings: Settings, changed: @escaping @Sendable ([TreeChange]) -> Void) {
    self.blobs = blobs
    self.store = store
    self.settings = settings
    self.changed = changed
    files = blobs.files
    link = LinkState(first: settings.offlineFirst, last: settings.offlineLast)
    room = RoomKeeper(folder: blobs.files.root) {
      (try? store.read { (connection) throws(MarfaError) in try blobs.allowance(in: connection) }) ?? nil
    }
  }

  /// Where bytes come from; `nil` for a copy that fetches nothing.
  var source: (any ByteSource)? { connected.withLock { $0 } }

  /// From now on bytes come from there.
  func connect(_ source: (any ByteSource)?) { connected.withLock { $0 = source } }

  /// Ends everything: nobody who waits is kept waiting, what is here is recorded.
  func close() {
    connect(nil)
    alarm.close()
    for fetch in table.withLock({ Array($0.values) }) { fetch.close() }
    walker.close(dropping: true)
    queue.close()
    closeSizes()
    flushPending()
    table.withLock { $0 = [:] }
  }

  // MARK: - Opening

  /// Opens bytes for reading, here or not.
  func open(_ hash: BlobHash) throws(MarfaError) -> RangeReader {
    blobs.pin(hash)
    let unpin: @Sendable () -> Void = { [blobs] in blobs.unpin(hash) }
    do throws(MarfaError) {
      let row = try store.read { (connection) throws(MarfaError) in try connection.blob(hash) }
      if let row, row.held {
        let file = try blobs.openWhole(hash, size: row.size)
        noteRead(hash)
        return RangeReader(hash, held: file, size: row.size ?? 0, whenClosed: unpin)
      }
      guard source != nil else { throw .bytesAbsent(hash) }
      noteRead(hash)
      return try with(hash) { RangeReader($0, whenClosed: unpin) }
    } catch {
      unpin()
      throw error
    }
  }

  /// Hands the blob's fetch to `body`, which makes itself a reader of it or wants the whole: until then it may be retired.
  private func with<T>(_ hash: BlobHash, _ body: (BlobFetch) -> T) throws(MarfaError) -> T {
    if let found = table.withLock({ $0[hash].map(body) }) { return found }
    return try opening.withLock { (_) throws(MarfaError) in
      if let found = table.withLock({ $0[hash].map(body) }) { return found }
      let fetch = try make(hash)
      let result = table.withLock { table in
        table[hash] = fetch
        return body(fetch)
      }
      fetch.update { state, after in
        // All of it came, and the last process ended before it was made sure of.
        if let size = state.size, state.blocks.contains(Block.covering(0..<size)) { fetch.complete(&state, &after) }
      }
      return result
    }
  }

  private func make(_ hash: BlobHash) throws(MarfaError) -> BlobFetch {
    let (row, partial, isKept) = try store.read { (connection) throws(MarfaError) in
      (try connection.blob(hash), try connection.partial(hash), try connection.isOutsideBudget(hash))
    }
    var found: (file: Descriptor, row: PartialRow)?
    if let partial, row?.size == nil || row?.size == partial.size,
      let file = try? Descriptor.open(files.partial(hash), O_RDWR),
      let status = try? file.status(), Int64(status.st_size) == partial.size
    {
      found = (file, partial)
    } else {
      try forgetPartial(hash)
    }
    if row == nil {
      try store.write { (connection) throws(MarfaError) in try connection.know(hash, mimeType: nil, stored: true) }
    }
    room.refresh()
    blobs.pin(hash)
    return BlobFetch(hash, fetcher: self, size: row?.size, partial: found, isKept: isKept)
  }

  /// A partial file that can't be gone on with goes. Its row first, and for good: power coming back must not find the row
  /// beside another file of the name.
  private func forgetPartial(_ hash: BlobHash) throws(MarfaError) {
    let path = files.partial(hash)
    let isThere = ((try? Path.status(path)) ?? nil) != nil
    let hasRow = try store.read { (connection) throws(MarfaError) in try connection.partialBytes(hash) } != nil
    guard isThere || hasRow else { return }
    try store.write { (connection) throws(MarfaError) in try connection.deletePartial(hash) }
    try store.synchronize()
    do throws(Errno) { try Path.remove(path) } catch { throw .io(error, path) }
  }

  /// Forgets a blob that nobody reads or fetches any more. Not under a lock.
  func retire(_ fetch: BlobFetch) {
    guard fetch.state.withLock({ $0.isIdle && !$0.isRetired }) else { return }
    let hash = fetch.hash
    let retired = opening.withLock { _ in
      table.withLock { table -> (counted: Int64, isLast: Bool)? in
        let counted = fetch.state.withLock { state -> Int64? in
          guard state.isIdle, !state.isRetired else { return nil }
          state.isRetired = true
          return state.counted
        }
        guard let counted else { return nil }
        if table[hash] === fetch { table[hash] = nil }
        return (counted, blobs.dropPin(hash))
      }
    }
    guard let retired else { return }
    room.count(-retired.counted)
    if retired.isLast { queue.post { [blobs] in blobs.removeLetGo(hash) } }
    trimSoon()
  }

  /// What is here of a blob that is open or being fetched; `nil` for any other.
  func bytesHere(_ hash: BlobHash) -> Int64? { table.withLock { $0[hash] }?.bytesHere }

  /// How many blobs are open or being fetched.
  var openCount: Int { table.withLock { $0.count } }

  // MARK: - Keeping

  /// The whole came and is right: it is held from now on. On the queue's threads.
  func keep(_ fetch: BlobFetch, _ file: Descriptor, size: Int64) throws(MarfaError) {
    let hash = fetch.hash
    let path = files.partial(hash)
    // The file is as long as the whole from the beginning: a power loss must not leave a hole under a held name.
    do throws(Errno) { try file.synchronize() } catch { throw .io(error, path) }
    let now = Timestamp.now
    let nodes = try store.write { (connection) throws(MarfaError) -> [Int64] in
      store.afterCommit { try? Path.remove(path) }
      // Nobody refers to it any more: those who have it open read on.
      guard let row = try connection.blob(hash) else { return [] }
      if row.held {
        try connection.deletePartial(hash)
        return []
      }
      do throws(Errno) { try files.hold(path, as: hash) } catch { throw .io(error, files.held(hash)) }
      _ = try connection.setSize(hash, size)
      try connection.setFetched(hash, size: size, at: now)
      return try connection.nodes(showing: hash)
    }
    changed(nodes.map { .attributes($0) })
  }

  /// It is held: whoever opens it now opens the held file.
  func finished(_ fetch: BlobFetch) {
    noteRead(fetch.hash)
    trimSoon()
    retire(fetch)
  }

  /// Wrong bytes go, with all that is said of them.
  func throwAway(_ fetch: BlobFetch) {
    do throws(MarfaError) { try forgetPartial(fetch.hash) } catch {
      Log.error("the wrong bytes of \(fetch.hash) could not be removed yet: \(error)")
    }
  }

  /// Who opens it now begins anew. The kernel forgets what it was served; until it has, an opening gets another node id,
  /// whose page cache is empty. Before any reader is told: it may look again at once.
  func spoilt(_ fetch: BlobFetch) {
    table.withLock { if $0[fetch.hash] === fetch { $0[fetch.hash] = nil } }
    let changes = try? store.read { (connection) throws(MarfaError) in
      var changes: [TreeChange] = []
      for node in try connection.nodes(showing: fetch.hash) {
        let places = try connection.entries(of: node).map { TreeChange.Place(parent: $0.parent, name: $0.name) }
        changes += [.node(node), .bytes(node, places)]
      }
      return changes
    }
    changed(changes ?? [])
  }

  // MARK: - The whole

  /// Has the whole fetched, verified and held. `then` is called exactly once, on any thread.
  @discardableResult
  func whole(
    _ hash: BlobHash, patience: Int64? = nil, progress: (@Sendable (Int64) -> Void)? = nil,
    then: @escaping @Sendable (Result<Void, MarfaError>) -> Void
  ) -> WholeFetch {
    let ticket = WholeFetch()
    let patience = patience ?? settings.patience
    let isPosted = queue.post { [self] in
      do throws(MarfaError) {
        guard !ticket.isCanceled else { throw .canceled }
        if try blobs.isHeld(hash) { return then(.success(())) }
        guard source != nil else { throw .bytesAbsent(hash) }
        let (fetch, reader) = try with(hash) { ($0, $0.addReader()) }
        defer { fetch.removeReader(reader) }
        try prepareRoom(fetch)
        if let id = fetch.fetchWhole(patience: patience, progress: progress, then: then) { ticket.began(fetch, id) }
      } catch {
        then(.failure(error))
      }
    }
    if !isPosted { then(.failure(.canceled)) }
    return ticket
  }

  /// Lets go of what may go when the volume has no room for the rest of a blob. Throws `noRoom` when that is not enough.
  private func prepareRoom(_ fetch: BlobFetch) throws(MarfaError) {
    let missing = fetch.state.withLock { state in state.size.map { ($0, $0 - state.blocks.bytes(of: $0)) } }
    guard let (size, missing) = missing, room.left < missing else { return }
    let wanted = missing - room.left
    _ = try store.write { (connection) throws(MarfaError) in try blobs.letGo(of: wanted, in: connection) }
    blobs.reaper.settle()
    guard room.left >= missing else {
      let error = MarfaError.noRoom(size: size, left: room.left)
      note(fetch.hash, .noRoom, error.description)
      throw error
    }
  }

  // MARK: - The budget

  /// Trims to the budget, in its own time, when there is more than it allows. Looking may take long where much is held:
  /// it is done a twentieth of the time at most.
  func trimSoon() {
    let now = Monotonic.now
    let moment = trimming.withLock { state -> Int64? in
      guard !state.isPosted else { return nil }
      state.isPosted = true
      return max(now, state.nextAt)
    }
    guard let moment else { return }
    if moment > now {
      alarm.at(moment) { [self] in queue.post { self.trim() } }
    } else {
      queue.post { self.trim() }
    }
  }

  private func trim() {
    trimming.withLock { $0.isPosted = false }
    let began = Monotonic.now
    do throws(MarfaError) {
      let isOver = try store.read { (connection) throws(MarfaError) in
        guard let allowance = try blobs.allowance(in: connection), try connection.cachedBytes() > allowance else {
          return false
        }
        return try connection.evictable().reduce(0) { $0 + $1.size } > allowance
      }
      if isOver {
        try store.write { (connection) throws(MarfaError) in
          _ = try blobs.trim(to: try blobs.allowance(in: connection), in: connection)
        }
      }
    } catch {
      Log.warning("what was fetched could not be trimmed to the budget yet: \(error)")
    }
    let now = Monotonic.now
    trimming.withLock { $0.nextAt = now + 20 * (now - began) }
  }

  /// Room was wanted and not there: lets go of what may go. Once a second at most.
  func makeRoom() {
    let now = Monotonic.now
    let isDue = trimming.withLock { state in
      guard state.roomAt == .min || now - state.roomAt > 1_000_000_000 else { return false }
      state.roomAt = now
      return true
    }
    guard isDue else { return }
    queue.post { [self] in
      do throws(MarfaError) {
        try store.write { (connection) throws(MarfaError) in
          if let allowance = try blobs.allowance(in: connection) {
            _ = try blobs.trim(to: allowance, in: connection)
          }
          if room.left < 64 << 20 { _ = try blobs.letGo(of: 64 << 20, in: connection) }
        }
        room.refresh()
      } catch {
        Log.warning("no room could be made for what is fetched: \(error)")
      }
    }
  }
}

/// A whole blob that is being fetched for somebody.
public final class WholeFetch: Sendable {
  private struct State {
    var begun: (fetch: BlobFetch, id: Int)?
    var isCanceled = false
  }
  private let state = Lock<State>(.leaf, State())

  init() {}

  var isCanceled: Bool { state.withLock { $0.isCanceled } }

  func began(_ fetch: BlobFetch, _ id: Int) {
    let isCanceled = state.withLock { state in
      state.begun = (fetch, id)
      return state.isCanceled
    }
    if isCanceled { fetch.cancel(whole: id) }
  }

  /// Stops waiting for it: who waits is told ``MarfaError/canceled``, unless it is over. What came stays.
  public func cancel() {
    let begun = state.withLock { state in
      state.isCanceled = true
      return state.begun
    }
    begun?.fetch.cancel(whole: begun?.id ?? 0)
  }
}
