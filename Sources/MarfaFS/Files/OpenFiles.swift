import MarfaEngine

/// The files that are open, by node.
final class OpenFiles: Sendable {
  private struct Slot {
    var file: OpenFile
    var handles: Int
  }
  private let slots = Lock<[Int64: Slot]>(.files, [:])
  private let make: @Sendable (Int64) -> OpenFile
  /// Handles of one node share one file. A reader's don't: each has the version that was the writer's when it opened.
  private let isShared: Bool

  init(isShared: Bool, make: @escaping @Sendable (Int64) -> OpenFile) {
    self.isShared = isShared
    self.make = make
  }

  /// The open file of a node, with one handle more.
  func retain(_ number: Int64) -> OpenFile {
    guard isShared else { return make(number) }
    return slots.withLock { slots in
      if let slot = slots[number] {
        slots[number]?.handles += 1
        return slot.file
      }
      let file = make(number)
      slots[number] = Slot(file: file, handles: 1)
      return file
    }
  }

  /// One handle less; with the last, it is open no more.
  func release(_ file: OpenFile) {
    slots.withLock { slots in
      guard let slot = slots[file.number], slot.file === file else { return }
      if slot.handles == 1 { slots[file.number] = nil } else { slots[file.number]?.handles -= 1 }
    }
  }

  /// The open file of a node, when it is open.
  func find(_ number: Int64) -> OpenFile? { slots.withLock { $0.isEmpty ? nil : $0[number]?.file } }
}
