import MarfaEngine

/// The files that are open, by the kernel's node id.
final class OpenFiles: Sendable {
  private struct Slot {
    var file: OpenFile
    var handles: Int
  }
  private let slots = Lock<[UInt64: Slot]>(.files, [:])
  private let make: @Sendable (UInt64) -> OpenFile
  /// Handles of one node share one file. A reader's don't: each has the version that was the writer's when it opened.
  private let isShared: Bool

  init(isShared: Bool, make: @escaping @Sendable (UInt64) -> OpenFile) {
    self.isShared = isShared
    self.make = make
  }

  /// The open file of a node, with one handle more.
  func retain(_ id: UInt64) -> OpenFile {
    slots.withLock { slots in
      if isShared, let slot = slots[id] {
        slots[id]?.handles += 1
        return slot.file
      }
      let file = make(id)
      slots[id] = Slot(file: file, handles: (slots[id]?.handles ?? 0) + 1)
      return file
    }
  }

  /// One handle less; with the last, it is open no more.
  func release(_ file: OpenFile) {
    slots.withLock { slots in
      guard let slot = slots[file.id], slot.file === file || !isShared else { return }
      if slot.handles == 1 { slots[file.id] = nil } else { slots[file.id]?.handles -= 1 }
    }
  }

  /// The open file of a node, when it is open and all its handles share it.
  func find(_ id: UInt64) -> OpenFile? { isShared ? last(id) : nil }

  /// The file that was opened last of a node that is open: of one that has no name any more it knows what is to be known.
  func last(_ id: UInt64) -> OpenFile? { slots.withLock { $0.isEmpty ? nil : $0[id]?.file } }
}
