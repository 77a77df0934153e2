/// What is remembered for a moment and then written together: no read costs a transaction.
extension Fetcher {
  struct Pending: Sendable {
    var reasons: [BlobHash: (reason: NotHeldReason, words: String?, at: Timestamp)] = [:]
    var sizes: [BlobHash: Int64] = [:]
    var reads: [BlobHash: Timestamp] = [:]
    /// When what is here is written; `nil` while nobody has to.
    var dueAt: Int64?
  }

  /// Why bytes are not here.
  func note(_ hash: BlobHash, _ reason: NotHeldReason, _ words: String?) {
    pending.withLock { $0.reasons[hash] = (reason, words, .now) }
    flushPending(in: settings.noteDelay)
  }

  /// A size was learnt by the way.
  func learnt(_ hash: BlobHash, _ size: Int64) {
    pending.withLock { $0.sizes[hash] = size }
    flushPending(in: settings.noteDelay)
  }

  /// Bytes were read: what was read last goes last.
  func noteRead(_ hash: BlobHash) {
    // Without a server nothing is let go of.
    guard store.isWriter, source != nil else { return }
    pending.withLock { $0.reads[hash] = .now }
    flushPending(in: settings.readDelay)
  }

  private func flushPending(in delay: Int64) {
    let moment = Monotonic.now + delay
    let isNew = pending.withLock { pending in
      if let due = pending.dueAt, due <= moment { return false }
      pending.dueAt = moment
      return true
    }
    if isNew { alarm.at(moment) { [self] in queue.post { self.flushPending() } } }
  }

  /// Writes it now: whatever was noted before is in the store when this returns.
  func flushPending() {
    guard store.isWriter else { return }
    flushing.withLock { _ in flushTaken() }
  }

  private func flushTaken() {
    let taken = pending.withLock { pending in
      defer { pending = Pending() }
      return pending
    }
    guard !taken.reasons.isEmpty || !taken.sizes.isEmpty || !taken.reads.isEmpty else { return }
    do throws(MarfaError) {
      let nodes = try store.write { (connection) throws(MarfaError) -> [Int64] in
        var nodes: [Int64] = []
        for (hash, size) in taken.sizes { nodes += try connection.setSize(hash, size) }
        for (hash, reason) in taken.reasons {
          try connection.setNotHeld(hash, reason.reason, reason.words, at: reason.at)
        }
        for (hash, moment) in taken.reads { try connection.setRead(hash, at: moment) }
        return nodes
      }
      if !nodes.isEmpty { changed(nodes.map { .attributes($0) }) }
    } catch {
      Log.warning("what was learnt of \(taken.sizes.count + taken.reasons.count) files is not written down: \(error)")
    }
  }
}
