import Glibc
import MarfaEngine

/// How each node id is open: read by the kernel itself ("passthrough"), or through us.
///
/// The kernel wants all opens of one id at one time to be of one kind, and those it reads by itself to be of one file;
/// what does not fit it refuses with `EIO`. So whoever wants it otherwise, such as a program that writes, gets another
/// id of the same node: this one is outdated (``NodeIDs``), the kernel is told `ESTALE`, looks the name up again, and
/// opens what it finds. Nobody waits for anybody.
final class OpenModes: Sendable {
  /// One open, as it was let in.
  enum Mode: Equatable {
    /// Through us.
    case ordinary
    /// By the kernel itself, which knows the file by this number.
    case passthrough(CInt)
  }

  /// Bytes that nobody changes any more, and where they are.
  struct Held {
    var hash: BlobHash
    var descriptor: Descriptor
    var size: Int64

    /// Whether the kernel is to read them by itself, when nothing stands against it.
    fileprivate var isWorthIt: Bool { size >= OpenModes.smallest && !isDatabase }

    /// Several programs share a SQLite database through locks, which are the kernel's and of one id: its readers and its
    /// writers are to have the same one.
    private var isDatabase: Bool {
      var head: (UInt64, UInt64) = (0, 0)
      let count = withUnsafeMutableBytes(of: &head) { pread(descriptor.raw, $0.baseAddress, $0.count, 0) }
      return count == MemoryLayout.size(ofValue: head) && head == Self.sign
    }

    /// What each SQLite database begins with.
    private static let sign: (UInt64, UInt64) = Array("SQLite format 3\0".utf8).withUnsafeBytes {
      $0.loadUnaligned(as: (UInt64, UInt64).self)
    }
  }

  /// How an id is open now.
  private struct Slot {
    var ordinary = 0
    var passing = 0
    /// What is passed through, and its number.
    var hash: BlobHash?
    var number: CInt = 0
  }

  private struct State {
    var slots: [UInt64: Slot] = [:]
    /// Nodes that are not passed through any more while this mount lasts: a program wrote to one in place, and whoever
    /// reads it may wait for more; or one needed another id for it, and the kernel looks a name up again only once.
    var left: Set<Int64> = []
  }

  /// What is smaller comes in a request or few, and is in the page cache then: there is little to gain, and a log that
  /// somebody watches or a table that two programs share is mostly of this size.
  static let smallest: Int64 = 1 << 20

  private let ids: NodeIDs
  private let backing: BackingFiles
  private let state = Lock<State>(.files, State())

  init(_ ids: NodeIDs, _ backing: BackingFiles) {
    self.ids = ids
    self.backing = backing
  }

  /// Lets in one more open of an id, whose bytes `content` tells from others (``NodeIDs/id(of:content:)``); `held` is there if the kernel may read it by itself. `nil`: the id is outdated, or
  /// is so from now on. The open is to be answered with `ESTALE` then, and the node's names are to be forgotten. Without
  /// `content` the kernel keeps nothing of what is read, and no id is outdated for that.
  func open(_ id: UInt64, content: UInt64?, passing held: Held?) -> Mode? {
    let isWorthIt = backing.isInUse && (held?.isWorthIt ?? false)
    return state.withLock { state in
      if let content, ids.id(of: NodeIDs.number(id), content: content) != id { return nil }
      var slot = state.slots[id] ?? Slot()
      defer { if slot.ordinary + slot.passing > 0 { state.slots[id] = slot } }
      if slot.passing > 0 {
        guard let held, held.hash == slot.hash else {
          if held == nil { state.left.insert(NodeIDs.number(id)) }
          ids.replace(NodeIDs.number(id))
          return nil
        }
        slot.passing += 1
        return .passthrough(slot.number)
      }
      if isWorthIt, slot.ordinary == 0, let held, !state.left.contains(NodeIDs.number(id)),
        let number = backing.register(held.descriptor)
      {
        slot.passing = 1
        slot.hash = held.hash
        slot.number = number
        return .passthrough(number)
      }
      slot.ordinary += 1
      return .ordinary
    }
  }

  /// One open less.
  func close(_ id: UInt64, _ mode: Mode) {
    state.withLock { state in
      guard var slot = state.slots[id] else { return }
      switch mode {
      case .ordinary: slot.ordinary -= 1
      case .passthrough(let number):
        slot.passing -= 1
        if slot.passing == 0 { backing.close(number) }
      }
      state.slots[id] = slot.ordinary + slot.passing > 0 ? slot : nil
    }
  }

  /// A program writes to a file without having emptied it first.
  func noteChange(_ number: Int64) {
    guard backing.isInUse else { return }
    state.withLock { state in _ = state.left.insert(number) }
  }
}
