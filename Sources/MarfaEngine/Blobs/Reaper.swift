import Glibc

/// Removes files that a committed transaction no longer refers to, once that transaction survives power loss: before
/// that, power coming back could bring the row back and find its bytes gone. On a thread of its own, which waits a moment
/// for others: many files for one sync of the log.
final class Reaper: Sendable {
  /// A file to go.
  enum File: Sendable {
    /// Sealed or fetched bytes, also the parts of a file. They stay when somebody sealed the same meanwhile, or has them pinned.
    case held(BlobHash)
    /// A staged file; when it was sealed, under which name it goes on, so that this one is on the disk first.
    case staged(path: String, sealedAs: BlobHash?)
  }

  private let store: Store
  private let files: BlobFiles
  /// Whether a file is to stay because somebody wants it, who is told that it was to go.
  private let isPinned: @Sendable (BlobHash) -> Bool
  private let waiting = Lock<[File]>(.leaf, [])
  /// Somebody waits for the room: no moment is lost.
  private let isHurried = Monitor(false)
  private let thread = WorkQueue(name: "marfa-reaper", threads: 1)

  /// How many seconds a file waits for others that go with it.
  private static let patience = 0.25
  /// How many files are removed while nobody can write.
  private static let portion = 256

  init(store: Store, files: BlobFiles, isPinned: @escaping @Sendable (BlobHash) -> Bool) {
    self.store = store
    self.files = files
    self.isPinned = isPinned
  }

  /// Inside a transaction: the file goes once that is committed and durable; never, when it is rolled back.
  func afterCommit(_ file: File) {
    store.afterCommit { [self] in
      let isFirst = waiting.withLock { waiting in
        waiting.append(file)
        return waiting.count == 1
      }
      if isFirst { thread.post { self.reap() } }
    }
  }

  /// Returns when everything that was to go by now has gone, or could not.
  func settle() {
    hurry()
    thread.wait()
  }

  /// Does what is left, and takes no more.
  func close() {
    hurry()
    thread.close()
  }

  private func hurry() {
    if waiting.withLock({ !$0.isEmpty }) { isHurried.update { $0 = true } }
  }

  private func reap() {
    _ = isHurried.wait(until: .after(seconds: Reaper.patience)) { $0 ? true : nil }
    isHurried.update { $0 = false }
    let batch = waiting.withLock { waiting in
      defer { waiting = [] }
      return waiting
    }
    do throws(MarfaError) {
      for case .staged(_, let hash?) in batch {
        do throws(Errno) { try files.synchronizeHeld(hash) } catch { throw .io(error, files.held(hash)) }
      }
      try store.synchronize()
      for case .staged(let path, _) in batch { remove(path) }
      let hashes = batch.compactMap { file in if case .held(let hash) = file { hash } else { nil } }
      for start in stride(from: 0, to: hashes.count, by: Reaper.portion) {
        try removeHeld(hashes[start..<min(start + Reaper.portion, hashes.count)])
      }
    } catch {
      Log.warning("\(batch.count) files that nothing refers to stay until the next start: \(error)")
    }
  }

  /// Under the writer's lock, so that nobody seals the same bytes between the look and the removal.
  private func removeHeld(_ hashes: ArraySlice<BlobHash>) throws(MarfaError) {
    try store.write { (connection) throws(MarfaError) in
      for hash in hashes where try connection.blob(hash)?.held != true && !isPinned(hash) {
        remove(files.held(hash))
        if try connection.partialBytes(hash) == nil { remove(files.partial(hash)) }
      }
    }
  }

  private func remove(_ path: String) {
    do throws(Errno) { try Path.remove(path) } catch { Log.warning("\(path) stays behind: \(error)") }
  }
}
