import Glibc
import MarfaEngine

/// The room on the store's volume, asked for before bytes are written, so that the store itself can always record what
/// happened: a little is left that files never take.
final class Room: Sendable {
  private struct State {
    var left: Int64 = 0
    var askedAt: Int64 = .min
  }
  private let folder: String
  private let state = Lock<State>(.leaf, State())

  private let settle: @Sendable () -> Void

  /// The room on the volume of `folder`. `settle` waits for files that are about to go.
  init(folder: String, settle: @escaping @Sendable () -> Void) {
    self.folder = folder
    self.settle = settle
  }

  /// Takes room for bytes about to be written. `ENOSPC` when there is none.
  func take(_ bytes: Int64) throws(Errno) {
    if fits(bytes) { return }
    // What was removed a moment ago may still be on its way out.
    settle()
    guard fits(bytes) else { throw .noSpace }
  }

  private func fits(_ bytes: Int64) -> Bool {
    state.withLock { state -> Bool in
      var now = timespec()
      clock_gettime(CLOCK_MONOTONIC_COARSE, &now)
      // Others write on the volume too, and what was written may have been freed.
      if state.left < bytes || Int64(now.tv_sec) != state.askedAt {
        state.askedAt = Int64(now.tv_sec)
        // An unreadable volume refuses nothing: the write itself will.
        guard let volume = try? VolumeRoom.of(folder) else { return true }
        state.left = volume.available - volume.reserve
      }
      guard state.left >= bytes else { return false }
      state.left -= bytes
      return true
    }
  }

  /// What statfs(2) answers: what can really be written here.
  func status() throws(Errno) -> statvfs {
    var status = statvfs()
    guard statvfs(folder, &status) == 0 else { throw .last }
    let unit = Int64(max(status.f_frsize, 1))
    let volume = VolumeRoom(total: Int64(status.f_blocks) * unit, available: Int64(status.f_bavail) * unit)
    let reserve = fsblkcnt_t(volume.reserve / unit)
    status.f_bavail -= min(status.f_bavail, reserve)
    status.f_bfree -= min(status.f_bfree, reserve)
    status.f_namemax = UInt(FileName.limit)
    return status
  }
}
