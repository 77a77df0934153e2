import CSQLite

/// Copies the log into the database when it has grown, on a thread and a connection of its own: a commit never pays for
/// a checkpoint's syncs (sqlite.org, "Write-Ahead Logging", passive checkpoints).
final class Checkpointer: Sendable {
  private struct State {
    var isUnderWay = false
    /// Pages in the log when the last one ended: readers may have kept it from resetting the log.
    var left: Int32 = 0
  }
  /// Pages of log: 64 MiB where there is much room, a hundredth of the volume where there is little.
  private let threshold: Int32

  private let path: String
  private let state = Lock<State>(.leaf, State())
  private let queue = WorkQueue(name: "marfa-checkpoint", threads: 1)
  /// Runs a closure while nobody writes.
  private let whileQuiet: @Sendable (() -> Void) -> Void

  init(path: String, whileQuiet: @escaping @Sendable (() -> Void) -> Void) {
    self.path = path
    self.whileQuiet = whileQuiet
    let volume = try? VolumeRoom.of(Path.parent(path))
    threshold = Int32(max(64, min(16_384, (volume?.total ?? .max) / 100 / 4096)))
  }

  /// Has the connection's commits looked at. It must be closed before this object goes.
  func watch(_ connection: Connection) {
    connection.onCommit(Unmanaged.passUnretained(self).toOpaque()) { context, _, _, pages in
      guard let context else { return SQLITE_OK }
      // Safe: the store holds the checkpointer for longer than the connection.
      Unmanaged<Checkpointer>.fromOpaque(context).takeUnretainedValue().grew(to: pages)
      return SQLITE_OK
    }
  }

  private func grew(to pages: Int32) {
    let begins = state.withLock { state in
      if pages < state.left { state.left = 0 }
      guard !state.isUnderWay, pages - state.left >= threshold else { return false }
      state.isUnderWay = true
      return true
    }
    if begins { queue.post { self.checkpoint(pages) } }
  }

  private func checkpoint(_ pages: Int32) {
    do throws(MarfaError) {
      let connection = try Connection(path: path, flags: SQLITE_OPEN_READWRITE)
      _ = try connection.first("PRAGMA wal_checkpoint(PASSIVE)") { $0.int(0) }
      // Under a steady stream of commits there is always a frame more. The few that came meanwhile are copied while
      // nobody writes, so that the next commit begins the log anew.
      whileQuiet { _ = try? connection.first("PRAGMA wal_checkpoint(PASSIVE)") { $0.int(0) } }
    } catch {
      Log.warning("the store's log could not be folded in yet: \(error)")
    }
    state.withLock { state in
      state.isUnderWay = false
      state.left = pages
    }
  }

  /// Waits for one that is under way; begins no more.
  func close() { queue.close() }
}
