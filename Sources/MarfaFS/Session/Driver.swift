import CFuse3
import MarfaEngine
import Synchronization

/// What every callback finds behind a request: the filesystem, and how many requests it still owes an answer.
///
/// The mount holds one reference from before the session starts until after it is destroyed.
final class Driver: Sendable {
  /// How far the first exchange with the kernel has come.
  private enum Stage {
    static let none = 0
    static let agreed = 1
    static let told = 2
  }

  /// The filesystem that answers.
  let operations: any FileSystemOperations
  /// The files that the kernel reads by itself.
  let backing: BackingFiles
  private let whenReady: @Sendable () -> Void
  private let greeting = Atomic<Int>(Stage.none)
  /// What the kernel offered in its INIT request: `flags` and, above them, `flags2`.
  private let offer = Atomic<UInt64>(0)
  /// Requests taken on and not yet answered.
  private let owed = Atomic<Int>(0)

  /// Makes the driver of one session. `whenReady` is called once, when the mount answers.
  init(
    _ operations: any FileSystemOperations, backing: BackingFiles = BackingFiles(),
    whenReady: @escaping @Sendable () -> Void
  ) {
    self.operations = operations
    self.backing = backing
    self.whenReady = whenReady
  }

  /// How many requests wait for an answer.
  var outstanding: Int { owed.load(ordering: .acquiring) }

  /// A request was taken on.
  func begin() { owed.wrappingAdd(1, ordering: .relaxed) }

  /// A request was answered: libfuse touches neither it nor, for it, the session again.
  func end() { owed.wrappingSubtract(1, ordering: .releasing) }

  /// Whether INIT is under way: asked, agreed on, and not yet answered.
  var isGreeting: Bool { greeting.load(ordering: .relaxed) == Stage.agreed }

  /// What the kernel can do, as its INIT request said; `nil` before that.
  var offered: UInt64? {
    get {
      let flags = offer.load(ordering: .acquiring)
      return flags == 0 ? nil : flags
    }
    set { offer.store(newValue ?? 0, ordering: .releasing) }
  }

  /// The kernel and we have agreed on how to speak. It hears of it when the callback has returned.
  func agreed() { greeting.store(Stage.agreed, ordering: .releasing) }

  /// A request was processed. If it was the first one, the mount now answers.
  func processed() {
    guard isGreeting else { return }
    let (first, _) = greeting.compareExchange(
      expected: Stage.agreed, desired: Stage.told, ordering: .acquiringAndReleasing)
    if first { whenReady() }
  }

  /// The driver a request belongs to.
  @inline(__always)
  static func of(_ request: fuse_req_t) -> Driver {
    // Safe: the mount holds a reference for as long as the session can hand out requests, and the session was made
    // with this object as its user data.
    Unmanaged<Driver>.fromOpaque(fuse_req_userdata(request)).takeUnretainedValue()
  }
}
