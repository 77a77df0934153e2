import Glibc

/// What stays: which blocks the store may say are in, and the whole once it is right.
extension BlobFetch {
  /// New bytes that make it worth syncing at once.
  private static let flushAt: Int64 = 8 << 20
  /// Bytes in order that make it worth hashing.
  private static let hashStride: Int64 = 1 << 20

  // MARK: - Blocks

  /// Has what is in recorded: soon, at once when it is much. A block is recorded only once its bytes are on the disk.
  func flushSoon(_ state: inout State, _ after: inout After, now isNow: Bool = false) {
    guard state.unrecorded > 0, !state.isFlushing, state.phase == .partial else { return }
    if isNow || state.unrecorded >= BlobFetch.flushAt {
      state.isFlushing = true
      after.add { self.fetcher.queue.post { self.flush() } }
    } else if !state.isFlushDue {
      state.isFlushDue = true
      after.add {
        self.fetcher.alarm.at(Monotonic.now + self.fetcher.settings.flushDelay) {
          self.update { state, after in
            state.isFlushDue = false
            self.flushSoon(&state, &after, now: true)
          }
        }
      }
    }
  }

  /// On the fetcher's threads.
  func flush() {
    let taken = state.withLock { state -> (file: Descriptor, row: PartialRow)? in
      guard state.phase == .partial, let file = state.file, let size = state.size else {
        state.unrecorded = 0
        return nil
      }
      state.unrecorded = 0
      return (file, PartialRow(size: size, blocks: state.blocks, bytes: state.blocks.bytes(of: size)))
    }
    if let taken {
      do throws(MarfaError) {
        do throws(Errno) { try taken.file.synchronize() } catch { throw .io(error, fetcher.files.partial(hash)) }
        try fetcher.store.write { (connection) throws(MarfaError) in
          // It may have come to be held, or to be gone, in another way.
          guard state.withLock({ $0.phase == .partial }), let row = try connection.blob(hash), !row.held else { return }
          try connection.setPartial(hash, taken.row)
        }
      } catch {
        Log.warning("what is here of \(hash) may be fetched again after a restart: \(error)")
      }
    }
    update { state, after in
      state.isFlushing = false
      flushSoon(&state, &after, now: state.readers.isEmpty && state.wholes.isEmpty)
    }
    fetcher.room.refresh()
    fetcher.trimSoon()
    fetcher.retire(self)
  }

  // MARK: - Hashing

  /// Has the beginning hashed behind what comes, so that little is left at the end.
  func hashSoon(_ size: Int64, _ state: inout State, _ after: inout After) {
    let inOrder = min(state.blocks.firstMissing(from: 0) * Block.size, size)
    guard inOrder - state.hashTold >= BlobFetch.hashStride, !state.isHashing else { return }
    state.isHashing = true
    state.hashTold = inOrder
    after.add { self.fetcher.queue.post { self.hashOn() } }
  }

  private func hashOn() {
    while true {
      let (file, limit) = state.withLock { ($0.file, $0.hashTold) }
      if let file { digest.withLock { digest in BlobFetch.hash(file, into: &digest, upTo: limit) } }
      let isDone = state.withLock { state -> Bool in
        let inOrder = min(state.blocks.firstMissing(from: 0) * Block.size, state.size ?? 0)
        if state.phase == .partial, inOrder - limit >= BlobFetch.hashStride {
          state.hashTold = inOrder
          return false
        }
        state.isHashing = false
        return true
      }
      if isDone { return fetcher.retire(self) }
    }
  }

  private static func hash(_ file: Descriptor, into digest: inout Digest, upTo end: Int64) {
    if digest.sha == nil { digest.sha = try? SHA256() }
    guard let sha = digest.sha, digest.done < end else { return }
    // Small enough to stay in the processor's cache.
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 << 10, alignment: 16)
    defer { buffer.deallocate() }
    while digest.done < end {
      let wanted = Int(min(Int64(buffer.count), end - digest.done))
      let part = UnsafeMutableRawBufferPointer(rebasing: buffer[..<wanted])
      guard let count = try? file.read(into: part, at: digest.done), count > 0 else { return }
      sha.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
      digest.done += Int64(count)
    }
  }

  // MARK: - The whole

  /// The last block is in. Nobody is answered until the whole is known to be right.
  func complete(_ state: inout State, _ after: inout After) {
    state.phase = .verifying
    for id in state.requests.keys { drop(id, &state) }
    after.add { self.fetcher.queue.post { self.verify() } }
  }

  private func verify() {
    let (file, size) = state.withLock { ($0.file, $0.size) }
    guard let file, let size else { return }
    let found = digest.withLock { digest -> BlobHash? in
      BlobFetch.hash(file, into: &digest, upTo: size)
      defer { digest = Digest() }
      return digest.done == size ? digest.sha?.finish() : nil
    }
    guard let found else {
      return failed(to: .io(.io, "\(fetcher.files.partial(hash)) can't be read"))
    }
    guard found == hash else { return spoil() }
    do throws(MarfaError) {
      try fetcher.keep(self, file, size: size)
    } catch {
      return failed(to: error)
    }
    update { state, after in
      state.phase = .held
      state.unrecorded = 0
      state.memory.removeAll()
      state.prefix = [:]
      serve(&state, &after)
      for whole in state.wholes { after.add { whole.then(.success(())) } }
      state.wholes = []
    }
    fetcher.finished(self)
  }

  /// It is all here, and the store or the disk does not take it: it stays a partial file with nothing missing, and is
  /// looked at again when it is next opened.
  private func failed(to error: MarfaError) {
    Log.error("\(hash) is here whole and could not be kept: \(error)")
    update { state, after in
      // The readers have their bytes: they are right.
      state.phase = .held
      state.unrecorded = 0
      serve(&state, &after)
      for whole in state.wholes { after.add { whole.then(.failure(error)) } }
      state.wholes = []
    }
    fetcher.retire(self)
  }

  /// What came is not what its name says.
  private func spoil() {
    let failure = FetchFailure.wrongBytes
    fetcher.throwAway(self)
    fetcher.note(hash, failure.reason, "\(failure)")
    update { state, after in
      state.phase = .spoiled
      state.file = nil
      state.blocks = BlockSet()
      state.unrecorded = 0
    }
    // Before anybody hears of it: who opens it again at once must not be given what the kernel still has.
    fetcher.spoilt(self)
    update { state, after in failAll(.notFetched(hash, failure), &state, &after) }
    fetcher.retire(self)
  }

  /// The working copy closes: nobody is waited for.
  func close() {
    let flushes = update { state, after -> Bool in
      let flushes = state.phase == .partial && state.unrecorded > 0
      failAll(.canceled, &state, &after)
      state.readers = [:]
      return flushes
    }
    if flushes { flush() }
    state.withLock { if $0.phase == .partial || $0.phase == .verifying { $0.phase = .closed } }
  }
}
