import CFuse3
import Glibc
import MarfaEngine

/// The files that the kernel reads by itself, without asking us ("passthrough", Linux 6.9 and later).
///
/// Each is known to the kernel by a number, which an open's answer names. It is there for opens that are still to be
/// answered only: whoever has the file open goes on with it when the number is gone.
final class BackingFiles: Sendable {
  /// Whether it is in use, or why it is not.
  enum Standing: Equatable {
    /// Not wanted.
    case off
    /// There is no session yet, or the kernel has not said hello.
    case waiting
    /// Linux is older than 6.9, or was built without it.
    case notOffered
    /// The kernel lets only those have it who may administer the system (`CAP_SYS_ADMIN`).
    case notPermitted
    /// The kernel takes no file of the volume the bytes are on.
    case notPossible(Errno)
    /// It is in use.
    case inUse
    /// The mount has ended.
    case ended
  }

  private struct State {
    var standing: Standing
    var device: CInt = -1
    var registered = 0
  }

  private let state: Lock<State>
  /// A file on the volume that the bytes are on, to try it with. Not the database: closing it would take SQLite's locks.
  private let probe: String?

  /// Backing files of no session yet. None are used unless they are wanted; `probe` is a file on the bytes' volume.
  init(wanted: Bool = false, probe: String? = nil) {
    state = Lock(.leaf, State(standing: wanted ? .waiting : .off))
    self.probe = probe
  }

  /// Whether the kernel is to be asked for it.
  var isWanted: Bool { state.withLock { $0.standing == .waiting } }

  /// How it stands.
  var standing: Standing { state.withLock { $0.standing } }

  /// Whether the kernel takes files.
  var isInUse: Bool { standing == .inUse }

  /// How many the kernel knows now.
  var count: Int { state.withLock { $0.registered } }

  /// The session there is. Before its threads start.
  func attach(_ session: SessionHandle) { state.withLock { $0.device = session.descriptor } }

  /// The kernel was answered: from now on it takes files, if both sides have it.
  func agreed(_ isAgreed: Bool) {
    state.withLock { state in
      guard state.standing == .waiting else { return }
      state.standing = isAgreed ? .inUse : .notOffered
    }
  }

  /// Tries it, so that `status` tells what will be so, and nothing is tried in vain with every open.
  func tryOut() {
    guard isInUse, let probe, let file = try? Descriptor.open(probe, O_RDONLY) else { return }
    if let number = register(file) { close(number) }
  }

  /// Gives the kernel a file to read by itself, under a number; `nil` when it does not take it, and it is to be read the
  /// ordinary way. It stays open there until it is closed everywhere.
  func register(_ file: Descriptor) -> CInt? {
    state.withLock { state -> CInt? in
      guard state.standing == .inUse else { return nil }
      let number = marfa_backing_open(state.device, file.raw)
      if number > 0 {
        state.registered += 1
        return number
      }
      switch -number {
      case EPERM: state.standing = .notPermitted
      // A volume that is itself stacked on another (ELOOP), or that the kernel does not read through files.
      case ELOOP, EOPNOTSUPP, EINVAL, ENOTTY: state.standing = .notPossible(Errno(-number))
      default: break
      }
      return nil
    }
  }

  /// Takes a number back.
  func close(_ number: CInt) {
    state.withLock { state in
      state.registered -= 1
      // At the end of the mount the kernel drops them all.
      guard state.standing != .ended else { return }
      _ = marfa_backing_close(state.device, number)
    }
  }

  /// The session is about to go: its descriptor is not to be used any more.
  func stop() {
    state.withLock { state in
      state.standing = .ended
      state.device = -1
    }
  }
}

extension BackingFiles.Standing {
  /// Why files are read the ordinary way, for a person; `nil` when they are not.
  var why: String? {
    switch self {
    case .inUse: nil
    case .off: "passthrough is off; --passthrough turns it on"
    case .waiting: "the kernel has not answered yet"
    case .notOffered: "the kernel has no passthrough: Linux 6.9 or later has"
    case .notPermitted: "passthrough needs the right to administer the system (CAP_SYS_ADMIN)"
    case .notPossible(let error): "the kernel can't pass files of the store's volume through: \(error)"
    case .ended: "the mount has ended"
    }
  }
}
