import Glibc

/// Sends what the queue holds: one at a time per store (contract, "The queue"). Writes to one row go strictly in order,
/// a write waits for what it names, and chains that have nothing to do with each other are in flight together.
///
/// One thread looks for writes that may go and one thread each sends them; each answer is one transaction.
final class Drain: Sendable {
  /// How it goes about it.
  struct Settings: Sendable {
    /// Writes in flight at once, uploads not counted.
    var writes = 8
    /// Uploads in flight at once.
    var uploads = 4
    /// Seconds after the first environmental failure; doubled with each further one.
    var shortestWait = 1.0
    /// And the longest, unless the server asks for more.
    var longestWait = 30.0
  }

  private struct State {
    var isOver = false
    var isPaused = false
    /// Something may have come that can be sent.
    var isAwake = true
    /// Something was committed, which may be a write.
    var hasCommits = false
    /// Nothing waits at all.
    var isIdle = false
    /// Nothing but bytes is sent while a hydration replaces the rows.
    var isHydrating = false
    /// The server has shown that it is one, and the store is bound to it: nothing goes to any other.
    var isBound = false
    /// Writes are being chosen that will be sent.
    var isLooking = false
    /// Rows that are owed are being read: what they say is older than what a hydration reads later.
    var isReading = false
    /// The key was refused: one write at a time goes, to see whether it is taken again.
    var isParked = false
    var inFlight: Set<WriteID> = []
    var uploads = 0
    /// After environmental failures.
    var wait = Wait()
    /// The same for uploads alone, of which the server has no room for more. Nothing else waits for that.
    var uploadWait = Wait()
    /// Nothing is sent before this, which the server asked for: nobody here cuts that short.
    var asked: Deadline?
    /// Writes that a key could not make are tried again from then on.
    var retryBlocked: Deadline?
    /// Bytes of an upload that are on their way.
    var progress: [BlobHash: Int64] = [:]

    /// Rows that could not be read back, and when they are tried again.
    var unread: Set<ItemID> = []
    var retryUnread: Deadline?
    /// Rows the server did not find and has not told of: a stream that is opened anew does, if anything does.
    var untold: Set<ItemID> = []
    /// Those of which such a stream did not tell either.
    var searched: Set<ItemID> = []

    /// No wait is under way.
    var mayAsk: Bool { wait.isOver && (asked?.hasPassed ?? true) }

    func room(_ settings: Settings) -> Room {
      let blocked = retryBlocked?.hasPassed ?? true
      guard !isPaused, isBound, mayAsk else { return Room() }
      if isParked {
        return Room(writes: isHydrating || !inFlight.isEmpty ? 0 : 1, uploads: inFlight.isEmpty ? 1 : 0, blocked: true)
      }
      // Until one was taken again, one is enough to find out.
      let uploadLimit = uploadWait.failures == 0 ? settings.uploads : uploadWait.isOver ? 1 : 0
      return Room(
        writes: isHydrating ? 0 : settings.writes - (inFlight.count - uploads), uploads: uploadLimit - uploads,
        blocked: blocked)
    }
  }

  /// A wait that doubles with each failure in a row.
  private struct Wait {
    var failures = 0
    /// Nothing is sent before this.
    var end: Deadline?
    /// Why.
    var trouble: DrainTrouble?

    var isOver: Bool { end?.hasPassed ?? true }

    /// One more failure. Those that were in flight together fail together, and that is one. Answers whether it is news.
    mutating func lengthen(_ settings: Settings, _ trouble: DrainTrouble) -> Bool {
      let isNew = self.trouble != trouble
      self.trouble = trouble
      guard isOver else { return false }
      let doubled = settings.shortestWait * Double(1 << min(failures, 10))
      failures += 1
      end = .after(seconds: min(doubled, settings.longestWait))
      return isNew
    }
  }

  /// How many more may be sent, and whether those that a key could not make are tried.
  private struct Room {
    var writes = 0
    var uploads = 0
    var blocked = false
  }

  private let copy: WorkingCopy
  private let server: Server
  private let settings: Settings
  private let state = Monitor(State())
  private let streamWanted = Lock<(@Sendable () -> Void)?>(.leaf, nil)
  private let cancellation = Cancellation()
  private let senders: WorkQueue
  private let isDone = Monitor(false)

  init(_ copy: WorkingCopy, _ server: Server, _ settings: Settings = Settings()) {
    self.copy = copy
    self.server = server
    self.settings = settings
    senders = WorkQueue(name: "marfa-send", threads: settings.writes + settings.uploads)
  }

  /// Begins. Call once.
  func start() throws(MarfaError) {
    // What was on its way when the last process ended goes again, under its key.
    try copy.store.write { (connection) throws(MarfaError) in
      _ = try connection.run("UPDATE writes SET state = 'queued' WHERE state = 'sending'")
    }
    let isBound = try copy.origin() != nil
    state.update { $0.isBound = isBound }
    startThread(named: "marfa-drain") { [self] in
      run()
      isDone.update { $0 = true }
    }
  }

  /// Has it end: what is on its way is broken off and goes again the next time. Returns at once.
  func stop() {
    state.update { $0.isOver = true }
    cancellation.cancel()
  }

  /// Ends. Returns once nothing is on its way.
  func close() {
    stop()
    _ = isDone.wait { $0 ? true : nil }
    senders.close()
  }

  /// Something was committed; it may have been queued.
  func noteCommit() {
    // Most commits come while one is noted already.
    guard !state.read({ $0.hasCommits }) else { return }
    state.update { state in
      state.hasCommits = true
      // Otherwise it looks by itself before long.
      if state.isIdle { state.isAwake = true }
    }
  }

  /// Sends and reads nothing about rows while `body` runs, and no answer about one is on its way meanwhile. Bytes go on.
  func holding<T, E: Error>(_ body: () throws(E) -> T) throws(E) -> T {
    state.update { $0.isHydrating = true }
    defer {
      state.update {
        $0.isHydrating = false
        $0.isAwake = true
      }
    }
    _ = state.wait { ($0.inFlight.count == $0.uploads && !$0.isLooking && !$0.isReading) || $0.isOver ? true : nil }
    return try body()
  }

  /// The store is bound to the server from now on.
  func noteBound() {
    state.update {
      $0.isBound = true
      $0.isAwake = true
    }
  }

  /// Tries again now, whatever it waited for.
  func retryNow() {
    state.update {
      $0.isAwake = true
      $0.wait.end = nil
      $0.wait.failures = 0
      $0.uploadWait.end = nil
      $0.retryBlocked = nil
      $0.retryUnread = nil
    }
  }

  /// Sends nothing more until it is resumed. What is on its way goes on.
  var isPaused: Bool {
    get { state.read { $0.isPaused } }
    set {
      state.update {
        $0.isPaused = newValue
        $0.isAwake = true
      }
    }
  }

  /// Why nothing is sent, when something keeps it.
  var trouble: DrainTrouble? { state.read { $0.wait.trouble ?? $0.uploadWait.trouble } }

  /// How many bytes of an upload are on their way or there; `nil` for one that is not being sent.
  func progress(of hash: BlobHash) -> Int64? { state.read { $0.progress[hash] } }

  /// The bytes of all uploads under way that have gone out.
  var bytesOnTheirWay: Int64 { state.read { $0.progress.values.reduce(0, +) } }

  // MARK: - The pass

  private func run() {
    while true {
      let room: Room? = state.wait(until: nextLook()) { state in
        if state.isOver { return Room() }
        guard state.isAwake, state.isBound, state.mayAsk else { return nil }
        state.isLooking = true
        state.isAwake = false
        state.hasCommits = false
        return state.room(settings)
      }
      if state.read({ $0.isOver }) { return }
      guard let room else {
        state.update { $0.isAwake = true }
        continue
      }
      do throws(MarfaError) { try look(room) } catch {
        Log.error("the queue can't be read: \(error)")
        backOff(nil, .store(error))
      }
      state.update { $0.isLooking = false }
      readOwed()
    }
  }

  /// When to look again without being woken: soon after a commit, when a settling time may have ended, or when a wait
  /// has.
  private func nextLook() -> Deadline {
    let (waits, hasCommits, isIdle) = state.read { ([$0.wait.end, $0.asked], $0.hasCommits, $0.isIdle) }
    let left = waits.compactMap { $0?.secondsLeft }.max() ?? 0
    if left > 0 { return .after(seconds: min(max(left, 0.01), 60)) }
    return .after(seconds: hasCommits ? 0.05 : isIdle ? 60 : 0.25)
  }

  private func look(_ room: Room) throws(MarfaError) {
    let now = Timestamp.now
    let counts = try copy.store.read { (connection) throws(MarfaError) in try connection.queueCounts() }
    state.update { $0.isIdle = counts.waiting == 0 }
    var ready: [QueuedWrite] = []
    if room.uploads > 0 {
      ready += try copy.store.read { (connection) throws(MarfaError) in
        try connection.uploadsReady(at: now, limit: room.uploads, blocked: room.blocked)
      }
    }
    if room.writes > 0 {
      ready += try copy.store.read { (connection) throws(MarfaError) in
        try connection.writesReady(at: now, limit: room.writes, blocked: room.blocked)
      }
    }
    guard !ready.isEmpty else { return }
    if room.blocked { state.update { $0.retryBlocked = .after(seconds: settings.longestWait) } }
    // From here on a write never changes: what is read again is what goes out. It may have been changed since it was found
    // ready, and wait for other bytes now.
    let going = try copy.store.write { (connection) throws(MarfaError) -> [QueuedWrite] in
      var going: [QueuedWrite] = []
      for write in ready {
        guard let current = try connection.queuedWrite(write.id), current.state == write.state,
          current.notBefore <= now, try !connection.isHeldUp(write.id)
        else { continue }
        try connection.run("UPDATE writes SET state = 'sending', verdict = NULL, gone_out = 1 WHERE number = ?1") {
          $0.int(1, write.id.number)
        }
        going.append(current)
      }
      return going
    }
    state.update { state in
      for write in going {
        state.inFlight.insert(write.id)
        if write.kind == .uploadBlob { state.uploads += 1 }
      }
    }
    for write in going { senders.post { [self] in send(write) } }
  }

  // MARK: - Rows owed

  /// Reads rows that are owed: of writes that were refused or whose answer was lost, and of items that came into the
  /// slice. One that can't be read now keeps no other from it, and nothing from being sent.
  private func readOwed() {
    let (mayRead, unread) = state.update { state in
      if state.retryUnread?.hasPassed ?? true { state.unread = [] }
      state.isReading = !state.isOver && !state.isHydrating && state.mayAsk
      return (state.isReading, state.unread.union(state.untold))
    }
    guard mayRead else { return }
    defer { state.update { $0.isReading = false } }
    let limit = 16
    guard
      let known = try? copy.store.read({ (connection) throws(MarfaError) in
        try connection.owed(limit: limit + unread.count)
      })
    else { return }
    let owed = known.filter { !unread.contains($0) }.prefix(limit)
    for id in owed {
      do throws(RemoteFailure) {
        try readBack(id)
      } catch {
        guard error != .canceled else { return }
        if error.isEnvironmental { return backOff(error.retryAfter, .remote(error)) }
        Log.warning("\(id) can't be read back now: \(error)")
        putOff(id)
      }
      if state.read({ $0.isOver || $0.isHydrating }) { return }
    }
    if owed.count == limit { state.update { $0.isAwake = true } }
  }

  private func putOff(_ id: ItemID) {
    state.update { state in
      state.unread.insert(id)
      if state.retryUnread?.hasPassed ?? true { state.retryUnread = .after(seconds: settings.longestWait) }
    }
  }

  private func readBack(_ id: ItemID) throws(RemoteFailure) {
    let heard = (item: copy.news.watch(id.bytes), edges: copy.edgeNews.watch(id.bytes))
    defer {
      copy.news.unwatch(id.bytes)
      copy.edgeNews.unwatch(id.bytes)
    }
    let row: ItemRow?
    do throws(RemoteFailure) { row = try server.item(id, cancellation) } catch {
      // Not this key's to read: there is nothing to put back but what is here.
      if case .refused(let refusal) = error, refusal.status != 401 {
        try? copy.store.write { (connection) throws(MarfaError) in try connection.settleOwed(id) }
        return
      }
      throw error
    }
    var edges = row?.edges.flatMap(\.edges) ?? []
    for block in row?.edges ?? [] {
      guard let next = block.nextCursor else { continue }
      try Server.eachPage(from: next) { (cursor) throws(RemoteFailure) in
        try server.edges(of: id, type: block.type, cursor: cursor, cancellation)
      } _: { (page) throws(RemoteFailure) in
        edges += page
        guard edges.count <= 1_000_000 else { throw .unreadable("an item that draws more than a million edges") }
      }
    }
    do throws(MarfaError) {
      switch try copy.applyReadBack(id, row, edges, heard: heard) {
      case .taken: _ = state.update { $0.searched.remove(id) }
      // It stays owed.
      case .overtaken: state.update { $0.isAwake = true }
      case .untold: try search(id)
      }
    } catch {
      Log.error("a row that was read back could not be kept: \(error)")
      putOff(id)
    }
  }

  /// The server does not find a row and has not told of that: either the event is on its way, or it was set back. What a
  /// stream opened from now on tells decides, and nothing is taken from this device before.
  private func search(_ id: ItemID) throws(MarfaError) {
    let isSearched = state.update {
      $0.untold.insert(id)
      return $0.searched.remove(id) != nil
    }
    if isSearched {
      Log.warning("the server does not know \(id) any more and told nobody: its whole list is read again")
      try copy.expire(isBehind: true)
    }
    streamWanted.withLock { $0 }?()
  }

  /// Calls `body` when the stream of events is to be opened anew; on the drain's thread.
  func onStreamWanted(_ body: @escaping @Sendable () -> Void) { streamWanted.withLock { $0 = body } }

  /// The rows that a stream opened from now on must tell of, if they are gone.
  var untold: Set<ItemID> { state.read { $0.untold } }

  /// A stream that was opened when these were sought has caught up.
  func noteSearched(_ ids: Set<ItemID>) {
    state.update {
      $0.untold.subtract(ids)
      $0.searched.formUnion(ids)
      if !ids.isEmpty { $0.isAwake = true }
    }
  }

  // MARK: - One write

  private func send(_ write: QueuedWrite) {
    let (judgement, answer) = write.kind == .uploadBlob ? upload(write) : ask(write)
    // First of all, whether anything may be asked now: once it is settled it may be chosen again.
    note(judgement, of: write.kind)
    do throws(MarfaError) {
      try copy.settle(write, judgement, answer, wait: pause(afterFailures:))
    } catch {
      // The answer could not be kept: it counts as a failure, and the write goes again under its key.
      Log.error("the answer to write \(write.id) could not be kept: \(error)")
      let failure = Judgement.failure("the store could not take the answer: \(error)")
      do throws(MarfaError) { try copy.settle(write, failure, nil, wait: pause(afterFailures:)) } catch {
        // Not even that: it waits as it is, and the next start sends it again.
        Log.error("write \(write.id) can't be settled: \(error)")
        backOff(nil, .store(error))
      }
    }
    state.update { state in
      state.inFlight.remove(write.id)
      if write.kind == .uploadBlob { state.uploads -= 1 }
      state.isAwake = true
    }
  }

  /// How long a write that failed so often waits: what ails the server may pass.
  private func pause(afterFailures failures: Int) -> Double {
    failures == 0
      ? settings.longestWait : min(settings.shortestWait * Double(1 << min(failures, 10)), settings.longestWait)
  }

  private func ask(_ write: QueuedWrite) -> (Judgement, WriteAnswer?) {
    guard let request = write.request else { return (.failure("the store's row of it says too little"), nil) }
    let result: Result<WriteAnswer, RemoteFailure> = Result { () throws(RemoteFailure) in
      try server.send(request, cancellation)
    }
    let judgement = Judgement.of(write.kind, result)
    guard judgement == .doneUnread(nil) else { return (judgement, try? result.get()) }
    do throws(RemoteFailure) { return (.doneUnread(try readDone(write)), nil) } catch {
      // It goes again under its key, and is told the same again.
      switch error {
      case .canceled: return (.canceled, nil)
      case .contractMismatch(let named): return (.contractMismatch(named), nil)
      case _ where error.isEnvironmental: return (.environmental(error), nil)
      default: return (judgement, nil)
      }
    }
  }

  /// The row of a write that was done and whose answer is lost; `nil` when the server shows none.
  private func readDone(_ write: QueuedWrite) throws(RemoteFailure) -> Tree.Change.Answered? {
    if let item = write.item {
      return try server.item(item, cancellation).map { .item($0) }
    }
    guard let id = write.edge, write.kind != .deleteEdge else { return nil }
    let edge = try? copy.edges.get(id)
    guard let source = write.body["source_id"]?.string.flatMap({ ItemID($0) }) ?? edge?.source else { return nil }
    var found: EdgeRow?
    try Server.eachPage { (cursor) throws(RemoteFailure) in
      let page = try server.edges(of: source, type: edge?.type, cursor: cursor, cancellation)
      found = found ?? page.rows.first { $0.id == id }
      return found == nil ? page : Page(rows: [], nextCursor: nil)
    } _: { (_) throws(RemoteFailure) in
    }
    return found.map { .edge($0) }
  }

  private func upload(_ write: QueuedWrite) -> (Judgement, WriteAnswer?) {
    guard let hash = write.blob else { return (.failure("the store's row of it names no bytes"), nil) }
    let file: Descriptor
    let size: Int64
    do throws(MarfaError) {
      file = try copy.blobStore.open(hash)
      do throws(Errno) { size = Int64(try file.status().st_size) } catch {
        throw .io(error, "\(hash)")
      }
    } catch {
      guard case .bytesAbsent = error else {
        Log.warning("an upload waits: its bytes can't be opened: \(error)")
        return (.unsendable("its bytes can't be opened: \(error)"), nil)
      }
      return (
        .verdict(.refused(Refusal(code: "bytes_gone", message: "the bytes \(hash) are not beside the store any more"))),
        nil
      )
    }
    let mimeType = write.body["mime_type"]?.string ?? MIMEType.unknown
    state.update { $0.progress[hash] = 0 }
    let result: Result<Uploaded, RemoteFailure> = Result { () throws(RemoteFailure) in
      try server.upload(
        file, size: size, mimeType: mimeType,
        progress: { [state] sent in state.update { if $0.progress[hash] != nil { $0.progress[hash] = sent } } },
        cancellation)
    }
    state.update { $0.progress[hash] = nil }
    return (.of(upload: hash, result), nil)
  }

  /// What an answer says of the server and the way to it.
  private func note(_ judgement: Judgement, of kind: WriteKind) {
    switch judgement {
    case .verdict(.blocked(.credentialRefused(grant: nil))):
      state.update { $0.isParked = true }
      backOff(nil, .credential)
    case .verdict, .doneUnread, .goneAlready, .failure:
      state.update {
        $0.wait.failures = 0
        $0.wait.trouble = nil
        if kind == .uploadBlob { $0.uploadWait = Wait() }
        // The key is taken again: what it could not make before is tried at once.
        if $0.isParked { $0.retryBlocked = nil }
        $0.isParked = false
      }
    case .unsendable: break
    case .environmental(let failure) where kind == .uploadBlob && failure.isNoRoom:
      let isNew = state.update { $0.uploadWait.lengthen(settings, .remote(failure)) }
      if isNew { Log.warning("no bytes are sent for now: \(failure)") }
    case .environmental(let failure): backOff(failure.retryAfter, .remote(failure))
    case .contractMismatch(let named): backOff(nil, .remote(.contractMismatch(named: named)))
    case .canceled: break
    }
  }

  /// Ends the pass: nothing is sent for a while.
  private func backOff(_ seconds: Int?, _ trouble: DrainTrouble) {
    let isNew = state.update { state in
      if let seconds, state.asked.map({ $0.secondsLeft < Double(seconds) }) ?? true {
        // A little more: clocks and ways differ.
        state.asked = .after(seconds: Double(seconds) + 0.05)
      }
      return state.wait.lengthen(settings, trouble)
    }
    if isNew { Log.warning("nothing is sent for now: \(trouble)") }
  }
}

/// What keeps the queue from being sent.
public enum DrainTrouble: Sendable, Equatable, CustomStringConvertible {
  /// The server or the way to it.
  case remote(RemoteFailure)
  /// The key is not accepted.
  case credential
  /// This device's own store.
  case store(MarfaError)

  public var description: String {
    switch self {
    case .remote(let failure): failure.description
    case .credential: "the server does not accept the key; give another with --key-file and mount again"
    case .store(let error): error.description
    }
  }
}

extension Connection {
  /// Uploads that may be sent now, in order.
  func uploadsReady(at now: Timestamp, limit: Int, blocked: Bool) throws(MarfaError) -> [QueuedWrite] {
    try queuedWrites(
      try all(
        """
        SELECT number FROM writes WHERE kind = 'upload_blob' AND state = 'queued' AND not_before <= ?1
        ORDER BY number LIMIT ?2
        """,
        {
          $0.time(1, now)
          $0.int(2, Int64(limit))
        }, { WriteID($0.int(0)) })
        + (blocked
          ? try all(
            """
            SELECT number FROM writes WHERE state = 'blocked' AND kind = 'upload_blob'
              AND json_extract(verdict, '$.reason') = 'credential_refused' ORDER BY number LIMIT ?1
            """, { $0.int(1, Int64(limit)) }, { WriteID($0.int(0)) }) : [])
    ).prefix(limit).map { $0 }
  }

  /// True while a write waits for one that it names or follows.
  fileprivate func isHeldUp(_ id: WriteID) throws(MarfaError) -> Bool {
    try first("SELECT waits FROM writes WHERE number = ?1", { $0.int(1, id.number) }, { $0.bool(0) }) ?? false
  }

  /// Other writes that may be sent now, in order: what they name and follow has been answered (schema, `waits`).
  func writesReady(at now: Timestamp, limit: Int, blocked: Bool) throws(MarfaError) -> [QueuedWrite] {
    var ready = try all(
      """
      SELECT number FROM writes WHERE state = 'queued' AND waits = 0 AND kind <> 'upload_blob' AND not_before <= ?1
      ORDER BY number LIMIT ?2
      """,
      {
        $0.time(1, now)
        $0.int(2, Int64(limit))
      }, { WriteID($0.int(0)) })
    if blocked {
      ready += try all(
        """
        SELECT number FROM writes WHERE state = 'blocked' AND waits = 0 AND kind <> 'upload_blob'
          AND json_extract(verdict, '$.reason') = 'credential_refused' ORDER BY number LIMIT ?1
        """, { $0.int(1, Int64(limit)) }, { WriteID($0.int(0)) })
      ready.sort { $0.number < $1.number }
    }
    return try queuedWrites(Array(ready.prefix(limit)))
  }
}
