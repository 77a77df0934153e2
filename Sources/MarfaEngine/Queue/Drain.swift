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
    /// Nothing is sent while a hydration replaces the rows.
    var isHeld = false
    var inFlight: Set<WriteID> = []
    var uploads = 0
    /// How often in a row it failed environmentally.
    var failures = 0
    /// Nothing is sent before this.
    var notBefore: Deadline?
    /// Writes that a key could not make are tried again from then on.
    var retryBlocked: Deadline?
    /// Why the last pass ended, `nil` while all is well.
    var trouble: DrainTrouble?
    /// Bytes of an upload that are on their way.
    var progress: [BlobHash: Int64] = [:]

    func room(_ settings: Settings) -> Room {
      Room(
        writes: settings.writes - (inFlight.count - uploads), uploads: settings.uploads - uploads,
        blocked: retryBlocked?.hasPassed ?? true)
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
    startThread(named: "marfa-drain") { [self] in
      run()
      isDone.update { $0 = true }
    }
  }

  /// Ends: what is on its way is broken off and goes again the next time. Returns once nothing is.
  func close() {
    state.update { $0.isOver = true }
    cancellation.cancel()
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

  /// Sends nothing while `body` runs, and nothing is on its way meanwhile.
  func holding<T, E: Error>(_ body: () throws(E) -> T) throws(E) -> T {
    state.update { $0.isHeld = true }
    defer {
      state.update {
        $0.isHeld = false
        $0.isAwake = true
      }
    }
    _ = state.wait { $0.inFlight.isEmpty || $0.isOver ? true : nil }
    return try body()
  }

  /// Tries again now, whatever it waited for.
  func retryNow() {
    state.update {
      $0.isAwake = true
      $0.notBefore = nil
      $0.retryBlocked = nil
      $0.failures = 0
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
  var trouble: DrainTrouble? { state.read { $0.trouble } }

  /// How many bytes of an upload are on their way or there; `nil` for one that is not being sent.
  func progress(of hash: BlobHash) -> Int64? { state.read { $0.progress[hash] } }

  /// The bytes of all uploads under way that have gone out.
  var bytesOnTheirWay: Int64 { state.read { $0.progress.values.reduce(0, +) } }

  // MARK: - The pass

  private func run() {
    while true {
      let room: Room? = state.wait(until: nextLook()) { state in
        if state.isOver { return Room() }
        guard state.isAwake, !state.isPaused, !state.isHeld, state.notBefore?.hasPassed ?? true else { return nil }
        return state.room(settings)
      }
      if state.read({ $0.isOver }) { return }
      state.update { state in
        state.isAwake = room == nil
        if room != nil { state.hasCommits = false }
      }
      guard let room else { continue }
      do throws(MarfaError) { try look(room) } catch {
        Log.error("the queue can't be read: \(error)")
        backOff(nil, .store(error))
      }
    }
  }

  /// When to look again without being woken: soon after a commit, when a settling time may have ended, or when a wait
  /// has.
  private func nextLook() -> Deadline {
    let (wait, hasCommits, isIdle) = state.read { ($0.notBefore, $0.hasCommits, $0.isIdle) }
    if let wait, !wait.hasPassed { return .after(seconds: min(max(wait.secondsLeft, 0.01), 60)) }
    return .after(seconds: hasCommits ? 0.05 : isIdle ? 60 : 0.25)
  }

  private func look(_ room: Room) throws(MarfaError) {
    let now = Timestamp.now
    let counts = try copy.store.read { (connection) throws(MarfaError) in try connection.queueCounts() }
    state.update { $0.isIdle = counts.waiting == 0 }
    try readOwed()
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
    // From here on a write never changes: what is read again is what goes out.
    let going = try copy.store.write { (connection) throws(MarfaError) -> [QueuedWrite] in
      var going: [QueuedWrite] = []
      for write in ready {
        guard let current = try connection.queuedWrite(write.id), current.state == write.state,
          current.notBefore <= now
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

  /// Reads back the rows of writes that were refused.
  private func readOwed() throws(MarfaError) {
    let owed = try copy.store.read { (connection) throws(MarfaError) in try connection.owed(limit: 50) }
    for id in owed {
      do throws(RemoteFailure) {
        let row = try server.item(id, cancellation)
        try copy.applyReadBack(id, row)
      } catch {
        if case .refused = error {
          // Not this key's to read: there is nothing to put back but what is here.
          try? copy.store.write { (connection) throws(MarfaError) in try connection.settleOwed(id) }
          continue
        }
        if error != .canceled { backOff(error.retryAfter, .remote(error)) }
        return
      }
    }
  }

  // MARK: - One write

  private func send(_ write: QueuedWrite) {
    let (judgement, answer) = write.kind == .uploadBlob ? upload(write) : ask(write)
    do throws(MarfaError) {
      try copy.settle(write, judgement, answer)
    } catch {
      // The answer could not be kept: it counts as a failure, and the write goes again under its key.
      Log.error("the answer to write \(write.id) could not be kept: \(error)")
      try? copy.settle(write, .failure("the store could not take the answer: \(error)"), nil)
    }
    after(write, judgement)
  }

  private func ask(_ write: QueuedWrite) -> (Judgement, WriteAnswer?) {
    guard let request = write.request else { return (.failure("the store's row of it says too little"), nil) }
    let result: Result<WriteAnswer, RemoteFailure> = Result { () throws(RemoteFailure) in
      try server.send(request, cancellation)
    }
    return (.of(write.kind, result), try? result.get())
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
        return (.environmental(.file(Errno(EIO))), nil)
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

  private func after(_ write: QueuedWrite, _ judgement: Judgement) {
    state.update { state in
      state.inFlight.remove(write.id)
      if write.kind == .uploadBlob { state.uploads -= 1 }
      state.isAwake = true
    }
    switch judgement {
    case .verdict(.blocked(.credentialRefused(grant: nil))):
      backOff(nil, .credential)
    case .verdict, .doneUnread, .failure:
      state.update {
        $0.failures = 0
        $0.trouble = nil
      }
    case .environmental(let failure): backOff(failure.retryAfter, .remote(failure))
    case .contractMismatch(let named): backOff(nil, .remote(.contractMismatch(named: named)))
    case .canceled: break
    }
  }

  /// Ends the pass: nothing is sent for a while.
  private func backOff(_ seconds: Int?, _ trouble: DrainTrouble) {
    state.update { state in
      let isNew = state.trouble != trouble
      state.trouble = trouble
      // Those that were in flight together fail together, and that is one failure.
      guard state.notBefore?.hasPassed ?? true else { return }
      let doubled = settings.shortestWait * Double(1 << min(state.failures, 10))
      let wait = max(min(doubled, settings.longestWait), Double(seconds ?? 0))
      state.failures += 1
      state.notBefore = .after(seconds: wait)
      if isNew { Log.warning("nothing is sent for now: \(trouble)") }
    }
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
  fileprivate func uploadsReady(at now: Timestamp, limit: Int, blocked: Bool) throws(MarfaError) -> [QueuedWrite] {
    try writes(
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
            SELECT number FROM writes WHERE kind = 'upload_blob' AND state = 'blocked'
              AND json_extract(verdict, '$.reason') = 'credential_refused' ORDER BY number LIMIT ?1
            """, { $0.int(1, Int64(limit)) }, { WriteID($0.int(0)) }) : [])
    ).prefix(limit).map { $0 }
  }

  /// Other writes that may be sent now, in order: what they name and follow has been answered.
  ///
  /// Those that may go stand near the head, for they are answered in order; so it is looked through in pieces.
  fileprivate func writesReady(at now: Timestamp, limit: Int, blocked: Bool) throws(MarfaError) -> [QueuedWrite] {
    var last: Int64 = 0
    while true {
      let piece = try all(
        """
        SELECT w.number, w.not_before <= ?1 AND (w.state = 'queued'
            OR (?2 AND json_extract(w.verdict, '$.reason') = 'credential_refused'))
          AND NOT EXISTS (SELECT 1 FROM writes a WHERE a.number = w.follows AND a.state <> 'refused')
          AND (w.depends_on IS NULL OR NOT EXISTS (SELECT 1 FROM json_each('[' || w.depends_on || ']') d
            JOIN writes a ON a.number = d.value))
        FROM writes w WHERE w.state IN ('queued', 'blocked') AND w.kind <> 'upload_blob' AND w.number > ?3
        ORDER BY w.number LIMIT 256
        """,
        {
          $0.time(1, now)
          $0.bool(2, blocked)
          $0.int(3, last)
        }, { (WriteID($0.int(0)), $0.bool(1)) })
      let ready = piece.filter { $0.1 }.map { $0.0 }
      if !ready.isEmpty { return try writes(Array(ready.prefix(limit))) }
      guard piece.count == 256, let end = piece.last else { return [] }
      last = end.0.number
    }
  }

  private func writes(_ ids: [WriteID]) throws(MarfaError) -> [QueuedWrite] {
    var writes: [QueuedWrite] = []
    for id in ids {
      if let write = try queuedWrite(id) { writes.append(write) }
    }
    return writes
  }
}
