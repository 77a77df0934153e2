import CFuse3
import MarfaEngine
import Synchronization

/// What every callback finds behind a request: the filesystem, and how many requests it still owes an answer.
///
/// The mount holds one reference from before the session starts until after it is destroyed.
final class Driver: Sendable {
  /// The filesystem that answers.
  let operations: any FileSystemOperations
  /// Whether the kernel and we have agreed on how to speak (INIT).
  let initialized = Atomic<Bool>(false)
  /// Requests taken on and not yet answered.
  private let owed = Atomic<Int>(0)

  /// Makes the driver of one session.
  init(_ operations: any FileSystemOperations) { self.operations = operations }

  /// How many requests wait for an answer.
  var outstanding: Int { owed.load(ordering: .acquiring) }

  /// A request was taken on.
  func begin() { owed.wrappingAdd(1, ordering: .relaxed) }

  /// A request was answered: libfuse touches neither it nor, for it, the session again.
  func end() { owed.wrappingSubtract(1, ordering: .releasing) }

  /// The driver a request belongs to.
  static func of(_ request: fuse_req_t) -> Driver {
    // Safe: the mount holds a reference for as long as the session can hand out requests, and the session was made
    // with this object as its user data.
    Unmanaged<Driver>.fromOpaque(fuse_req_userdata(request)).takeUnretainedValue()
  }
}
