import MarfaEngine

/// The files that are open, by the kernel's node id.
final class OpenFiles: Sendable {
  private struct Slot {
    var file: OpenFile
    var handles: Int
  }
  private let slots = Lock<[UInt64: Slot]>(.files, [:])
  private let make: @Sendable (UInt64) -> OpenFile

  init(make: @escaping @Sendable (UInt64) -> OpenFile) { self.make = make }

  /// The open file of a node, with one handle more.
  func retain(_ id: UInt64) -> OpenFile {
    slots.withLock { slots in
      if let slot = slots[id] {
        slots[id]?.handles += 1
        return slot.file
      }
      let file = make(id)
      slots[id] = Slot(file: file, handles: 1)
      return file
    }
  }

  /// One handle less; with the last, it is open no more.
  func release(_ file: OpenFile) {
    slots.withLock { slots in
      guard let slot = slots[file.id], slot.file === file else { return }
      if slot.handles == 1 { slots[file.id] = nil } else { slots[file.id]?.handles -= 1 }
    }
  }

  /// The open file of a node, when it is open.
  func find(_ id: UInt64) -> OpenFile? { slots.withLock { $0.isEmpty ? nil : $0[id]?.file } }
}
