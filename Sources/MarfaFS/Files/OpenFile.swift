import CLinux
import Glibc
import MarfaEngine

/// A file that is open: one for all handles of its node. It reads the bytes it had when it was opened, until one of its
/// own handles writes; then all its handles see what is written (SEMANTICS.md, "Reading and writing").
///
/// Two locks: `changing`, held by whoever changes the bytes or seals them, for as long as that takes; and `facts`, held
/// for moments only, so that a read or a stat never waits for a seal.
final class OpenFile: Sendable {
  /// The kernel's id of the version that is open.
  let id: UInt64
  /// The node's number.
  var number: Int64 { NodeIDs.number(id) }
  private let tree: Tree
  private let blobs: Blobs
  private let room: Room
  private let isReader: Bool
  private let changing = Lock<Changing>(.file, Changing())
  private let facts: Lock<Facts>
  /// The bytes it has read from while it was open.
  private let inUse = Lock<[BytesInUse]>(.leaf, [])

  /// What belongs to whoever changes the file.
  private struct Changing {
    var isLoaded = false
    /// Where writes go; `nil` until the first one.
    var staged: StagedFile?
    /// The staged bytes are the node's content in the store already.
    var isAdopted = false
    /// How often it was sealed with a writer still there: a program that goes on writing is sealed once more at the end.
    var seals = 0
    /// Where a write failed for lack of room or worse, and why. Nothing is sealed past that.
    var failure: (offset: Int64, error: Errno)?
    /// Its names are gone, or it was given up: nothing of it is kept.
    var isAbandoned = false
  }

  private struct Facts {
    var descriptor: Descriptor?
    /// Its bytes are not all here, and stay as far as they are while this is open.
    var elsewhere: RangeReader?
    var node: Node?
    /// The length, when it is not the store's.
    var size: Int64?
    /// The time of the last write, when it is not in the store yet.
    var mtime: Timestamp?
    /// Something was written since the last commit.
    var isDirty = false
    var writers = 0
    /// It was made with this opening, and no writer has closed it yet.
    var isNew = false
    /// It was given up, and the kernel has not been told: the names that went.
    var givenUp: [(parent: Int64, name: FileName)]?
  }

  init(_ id: UInt64, tree: Tree, blobs: Blobs, room: Room, isReader: Bool) {
    self.id = id
    self.tree = tree
    self.blobs = blobs
    self.room = room
    self.isReader = isReader
    facts = Lock(.leaf, Facts())
  }

  // MARK: - Opening and closing

  /// Brings the bytes within reach. Every opener calls it; the first does it.
  func load() throws(MarfaError) {
    try changing.withLock { (changing) throws(MarfaError) in
      if !changing.isLoaded { try load(&changing) }
    }
  }

  private func load(_ changing: inout Changing) throws(MarfaError) {
    var failure = MarfaError.file(.stale)
    for _ in 0..<16 {
      guard var node = try tree.node(number) else { throw .file(.stale) }
      var descriptor: Descriptor?
      var elsewhere: RangeReader?
      switch node.content {
      case .empty: break
      case .blob(let hash):
        do throws(MarfaError) { (descriptor, elsewhere) = try open(hash, node) } catch {
          // Sealed anew between the two, by another: what the node says now is there.
          guard case .bytesAbsent = error, try tree.node(number)?.content != node.content else { throw error }
          failure = error
          continue
        }
      case .staged(let id):
        if isReader {
          // The writer may be sealing it this moment: look again then.
          guard let staged = try tree.openForReading(id, of: number) else { continue }
          descriptor = staged
        } else {
          guard let sealed = try tree.sealLeftOver(id, of: number) else { throw .file(.stale) }
          node = sealed
          if case .blob(let hash) = node.content { (descriptor, elsewhere) = try open(hash, node) }
        }
      }
      facts.withLock { facts in
        facts.node = node
        facts.descriptor = descriptor
        facts.elsewhere = elsewhere
      }
      changing.isLoaded = true
      return
    }
    throw failure
  }

  /// The bytes where they are: in a file, or to be fetched.
  private func open(_ hash: BlobHash, _ node: Node) throws(MarfaError) -> (Descriptor?, RangeReader?) {
    if node.partialBytes == nil || !blobs.canFetch {
      do throws(MarfaError) {
        return (try openHeld(hash, size: node.size), nil)
      } catch {
        // Let go of since the row was read.
        guard case .bytesAbsent = error, blobs.canFetch else { throw error }
      }
    }
    return (nil, try blobs.open(hash))
  }

  private func openHeld(_ hash: BlobHash, size: Int64?) throws(MarfaError) -> Descriptor {
    let reading = blobs.reading(hash)
    let descriptor = try tree.open(hash, size: size)
    inUse.withLock { $0.append(reading) }
    return descriptor
  }

  /// The same for a file that was made this moment, with what it will be written to.
  func load(_ node: Node, _ staged: StagedFile?) {
    changing.withLock { changing in
      changing.isLoaded = true
      changing.staged = staged
    }
    facts.withLock { facts in
      facts.node = node
      facts.descriptor = staged?.descriptor
      facts.isNew = staged != nil
    }
  }

  /// One more handle that may write.
  func addWriter() { facts.withLock { $0.writers += 1 } }

  /// A writing handle is gone; with the last one, what is staged is sealed. Nobody hears of an error now: it is logged,
  /// and what close had not refused before stays as it is for the next start.
  func removeWriter() {
    let isLast = facts.withLock { facts in
      facts.writers -= 1
      return facts.writers == 0
    }
    guard isLast else { return }
    changing.withLock { changing in
      defer {
        if changing.staged == nil {
          do throws(MarfaError) { try tree.endWriting(number) } catch {
            Log.error("file \(number), which went while it was open, is left as it was: \(error)")
          }
        } else {
          tree.setBeingWritten(number, false)
        }
      }
      if changing.isAbandoned {
        if let staged = changing.staged { tree.discard(staged) }
        changing.staged = nil
        return
      }
      if changing.failure != nil { return giveUp(&changing) }
      do throws(MarfaError) {
        if changing.staged != nil || isUncommitted {
          try commit(&changing, durably: false, sealing: true, isLast: true)
        }
      } catch {
        Log.error("file \(number) is kept as it was written, and could not be sealed: \(error)")
      }
    }
  }

  /// What the kernel knows wrongly since the file was given up: its bytes, and the names that went with it. Once.
  func takeGivenUp() -> [(parent: Int64, name: FileName)]? {
    facts.withLock { facts in
      defer { facts.givenUp = nil }
      return facts.givenUp
    }
  }

  private var isUncommitted: Bool { facts.withLock { $0.isDirty || $0.isNew } }

  // MARK: - Reading

  /// A reader has it open while the writer writes to it where it is.
  var isLive: Bool {
    guard isReader, case .staged = content else { return false }
    return true
  }

  /// What it had when it was opened.
  var content: Node.Content { facts.withLock { $0.node?.content ?? .empty } }

  /// Where the bytes are; `nil` for an empty file.
  var descriptor: Descriptor? { facts.withLock { $0.descriptor } }

  /// The bytes, when they are here whole and nobody is writing others.
  var held: OpenModes.Held? {
    facts.withLock { facts in
      guard let node = facts.node, case .blob(let hash) = node.content, let descriptor = facts.descriptor,
        let size = node.size, facts.size == nil, facts.writers == 0, !facts.isDirty, !facts.isNew
      else { return nil }
      return OpenModes.Held(hash: hash, descriptor: descriptor, size: size)
    }
  }

  /// The bytes that are not all here and are read, when there is no ``descriptor``.
  var elsewhere: BlobHash? { facts.withLock { $0.elsewhere?.hash } }

  /// The bytes whose size nobody knew when the file was opened.
  var unsized: BlobHash? {
    facts.withLock { facts in
      guard let node = facts.node, node.size == nil, facts.size == nil, case .blob(let hash) = node.content else {
        return nil
      }
      return hash
    }
  }

  /// It is known by now.
  func learnt(_ hash: BlobHash, size: Int64) {
    facts.withLock { facts in
      if facts.node?.content == .blob(hash), facts.node?.size == nil { facts.node?.size = size }
    }
  }

  /// The bytes are here whole by now: they are read, or copied to be changed, from the file.
  func arrived(_ hash: BlobHash) throws(MarfaError) {
    guard elsewhere == hash else { return }
    let descriptor = try openHeld(hash, size: nil)
    let reader = facts.withLock { facts -> RangeReader? in
      guard facts.elsewhere?.hash == hash else { return nil }
      facts.descriptor = descriptor
      defer { facts.elsewhere = nil }
      return facts.elsewhere
    }
    reader?.close()
  }

  /// A node's attributes with what this file knows better; the last known ones when the store has none any more.
  ///
  /// Length and times of the content are always this file's: `stored` was read before, and a commit may have come
  /// between. The kernel would believe an older length for a day.
  func overlay(_ stored: Node?) -> Node? {
    facts.withLock { facts in
      guard var node = stored ?? facts.node else { return nil }
      if stored == nil { node.links = 0 }
      if let known = facts.node {
        node.content = known.content
        // What was not known then may be by now, of the same bytes.
        node.size = known.size ?? (stored?.content == known.content ? stored?.size : nil)
        node.mtime = known.mtime
        node.ctime = max(node.ctime, known.ctime)
      }
      if let size = facts.size { node.size = size }
      if isReader, case .staged = node.content, let size = try? facts.descriptor?.status().st_size {
        node.size = Int64(size)
      }
      if let mtime = facts.mtime {
        node.mtime = mtime
        node.ctime = max(node.ctime, mtime)
      }
      return node
    }
  }

  /// True while something written is not committed.
  var isBeingWritten: Bool { isUncommitted }

  // MARK: - Writing

  /// Writes bytes at an offset: `move` puts them into a descriptor and answers how many went.
  func write(_ count: Int, at offset: Int64, _ move: (CInt) throws(Errno) -> Int) throws(MarfaError) -> Int {
    try changing.withLock { (changing) throws(MarfaError) in
      let staged = try stage(&changing, keeping: .max)
      let written: Int
      do throws(Errno) {
        try room.take(Int64(count))
        written = try move(staged.descriptor.raw)
      } catch {
        // The first failure is where the file ends being right.
        if changing.failure.map({ offset < $0.offset }) ?? true { changing.failure = (offset, error) }
        // The next close says so, though nothing new is there to commit.
        facts.withLock { $0.isDirty = true }
        throw .io(error, "writing file \(number)")
      }
      // The program made room and wrote again what had failed.
      if let failure = changing.failure, offset <= failure.offset, offset + Int64(written) > failure.offset {
        changing.failure = nil
      }
      staged.wrote(at: offset, count: written)
      try noteChange(size: staged.size)
      return written
    }
  }

  /// Changes the length.
  func truncate(to size: Int64) throws(MarfaError) {
    try changing.withLock { (changing) throws(MarfaError) in
      if changing.staged == nil && currentSize == size && size == 0 { return try noteChange(size: 0) }
      let staged = try stage(&changing, keeping: size)
      do throws(Errno) { try staged.truncate(to: size) } catch { throw .io(error, "truncating file \(number)") }
      if let failure = changing.failure, size <= failure.offset { changing.failure = nil }
      try noteChange(size: size)
    }
  }

  /// fallocate(2): reserves room, or makes a range zeroes.
  func allocate(mode: CInt, at offset: Int64, length: Int64) throws(MarfaError) {
    try changing.withLock { (changing) throws(MarfaError) in
      let staged = try stage(&changing, keeping: .max)
      do throws(Errno) {
        if mode & FALLOC_FL_PUNCH_HOLE == 0 { try room.take(length) }
        while fallocate(staged.descriptor.raw, mode, off_t(offset), off_t(length)) != 0 {
          let error = Errno.last
          if error.code != EINTR { throw error }
        }
      } catch {
        throw .io(error, "allocating in file \(number)")
      }
      if mode & FALLOC_FL_KEEP_SIZE == 0 && offset + length > staged.size {
        do throws(Errno) { try staged.truncate(to: offset + length) } catch { throw .io(error, "file \(number)") }
      }
      // Zeroes may have replaced what was hashed.
      if mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE) != 0, offset < staged.size {
        staged.wrote(at: offset, count: Int(min(length, staged.size - offset)))
      }
      try noteChange(size: staged.size)
    }
  }

  private var currentSize: Int64 { facts.withLock { $0.size ?? $0.node?.size ?? 0 } }

  /// The staged file that writes go to; made at the first, with as many of the old bytes as will stay.
  private func stage(_ changing: inout Changing, keeping limit: Int64) throws(MarfaError) -> StagedFile {
    if let staged = changing.staged { return staged }
    let staged = try tree.stage(for: number)
    // Before anything is written: what goes elsewhere meanwhile stays here.
    tree.setBeingWritten(number, true)
    let (descriptor, elsewhere, size) = facts.withLock {
      ($0.descriptor, $0.elsewhere?.hash, $0.size ?? $0.node?.size ?? 0)
    }
    let kept = min(size, limit)
    if descriptor == nil, kept > 0, let elsewhere {
      // Whoever changes bytes has had them fetched before.
      tree.discard(staged)
      throw .bytesAbsent(elsewhere)
    }
    if let descriptor, kept > 0 {
      do throws(Errno) {
        try room.take(kept)
        try staged.copy(from: descriptor, limit: kept)
      } catch {
        tree.discard(staged)
        throw .io(error, "copying file \(number) to change it")
      }
    }
    changing.staged = staged
    changing.isAdopted = false
    let reader = facts.withLock { facts -> RangeReader? in
      facts.descriptor = staged.descriptor
      defer { facts.elsewhere = nil }
      return facts.elsewhere
    }
    reader?.close()
    return staged
  }

  /// Records that the bytes changed now, which takes set-user-ID and set-group-ID away (`FUSE_HANDLE_KILLPRIV_V2` leaves
  /// that to us).
  private func noteChange(size: Int64) throws(MarfaError) {
    tree.setBeingWritten(number, true)
    let mode = facts.withLock { facts -> mode_t? in
      facts.size = size
      facts.mtime = .now
      facts.isDirty = true
      guard let mode = facts.node?.mode,
        mode & S_ISUID != 0 || mode & (S_ISGID | S_IXGRP) == S_ISGID | S_IXGRP
      else { return nil }
      facts.node?.mode = OpenFile.withoutPrivileges(mode)
      return OpenFile.withoutPrivileges(mode)
    }
    if let mode {
      var changes = NodeChanges()
      changes.mode = mode
      _ = try tree.setAttributes(number, changes)
    }
  }

  /// A mode without set-user-ID, and without set-group-ID where the group may execute (inode(7)).
  static func withoutPrivileges(_ mode: mode_t) -> mode_t {
    mode & ~(S_ISUID | (mode & S_IXGRP != 0 ? S_ISGID : 0))
  }

  // MARK: - Committing

  /// What close(2) promises: the bytes and the writes they queue survive this process. Does nothing when nothing was
  /// written. Without `sealing` the bytes are made the content as they are: somebody else may be writing on.
  func flush(sealing: Bool) throws(MarfaError) {
    guard isUncommitted else { return }
    try changing.withLock { (changing) throws(MarfaError) in
      // Another thread's fsync or close may have committed it while this one waited: nothing is staged then.
      guard isUncommitted else { return }
      // A file that was emptied is usually about to be filled (a shell closes what it redirects to before the program
      // begins): until its last writer goes it keeps the bytes it had, should this process die.
      let isNew = facts.withLock { $0.isNew }
      if changing.failure == nil && currentSize == 0 && !(sealing && isNew) { return }
      do throws(MarfaError) {
        try commit(&changing, durably: false, sealing: sealing, isLast: false)
      } catch {
        // What close refused is not kept, though a later try might do.
        if changing.failure == nil { changing.failure = (0, error.errno) }
        if sealing && facts.withLock({ $0.writers == 1 }) { giveUp(&changing) }
        throw error
      }
    }
  }

  /// What fsync(2) promises: the same, and power loss.
  func synchronize() throws(MarfaError) {
    try changing.withLock { (changing) throws(MarfaError) in
      if isUncommitted {
        return try commit(&changing, durably: true, sealing: true, isLast: false)
      }
      if let failure = changing.failure { throw .io(failure.error, "file \(number)") }
      if let staged = changing.staged {
        guard let mtime = facts.withLock({ $0.node?.mtime }) else { return }
        _ = try tree.adopt(staged, mtime: mtime, durably: true)
      } else if case .blob(let hash) = facts.withLock({ $0.node?.content }) {
        try tree.synchronize(hash)
      } else {
        try tree.synchronize()
      }
    }
  }

  /// Seals what is staged, or, where hashing it now would keep a program waiting that goes on writing, makes it the
  /// content as it is; it is sealed with the last writer then.
  private func commit(_ changing: inout Changing, durably: Bool, sealing: Bool, isLast: Bool) throws(MarfaError) {
    if let failure = changing.failure { throw .io(failure.error, "file \(number) is not kept: a write failed") }
    guard !changing.isAbandoned else {
      // Its names are gone: what is written is there for those who have it open, and for nobody after them.
      if isLast, let staged = changing.staged {
        tree.discard(staged)
        changing.staged = nil
      }
      return facts.withLock { $0.isDirty = false }
    }
    let (mtime, isDirty, isEmptyAlready) = facts.withLock {
      ($0.mtime ?? $0.node?.mtime ?? .now, $0.isDirty, $0.node?.content == .empty && $0.mtime == nil)
    }
    guard let staged = changing.staged, staged.size > 0 else {
      // Never written, or cut to nothing. Made and closed is in the store as it is: only what marks it as new goes.
      let node = isEmptyAlready ? try tree.keepEmpty(number) : try tree.sealEmpty(number, changing.staged, mtime: mtime)
      if isEmptyAlready, let staged = changing.staged { tree.discard(staged) }
      changing.staged = nil
      if durably { try tree.synchronize() }
      return settled(node, &changing)
    }
    if isLast || (sealing && changing.seals == 0 && staged.isCheapToFinish) {
      if durably || changing.isAdopted {
        // What an earlier fsync promised stays promised: the bytes first, then the row that names them, then the old
        // name goes.
        do throws(Errno) { try staged.descriptor.synchronize() } catch { throw .io(error, "syncing file \(number)") }
      }
      let node = try tree.seal(staged, mtime: mtime)
      if durably {
        if case .blob(let hash) = node?.content {
          try tree.synchronize(hash, synced: staged.descriptor)
        } else {
          try tree.synchronize()
        }
      }
      changing.seals += 1
      changing.staged = nil
      return settled(node, &changing)
    }
    guard isDirty || !changing.isAdopted || durably else { return }
    let node = try tree.adopt(staged, mtime: mtime, durably: durably)
    changing.isAdopted = node != nil
    settled(node, &changing)
  }

  /// The store has it now: it answers for size and time again. `nil`: the last name is gone, and nothing is kept.
  private func settled(_ node: Node?, _ changing: inout Changing) {
    if node == nil {
      changing.isAbandoned = true
      if let staged = changing.staged { tree.discard(staged) }
    }
    facts.withLock { facts in
      facts.isDirty = false
      facts.isNew = false
      guard let node else { return }
      facts.node = node
      facts.size = nil
      facts.mtime = nil
      if node.content == .empty { facts.descriptor = nil }
    }
    tree.setBeingWritten(number, false)
  }

  /// A write failed and nobody mended it: what was written is thrown away. A new file goes, an old one keeps the bytes
  /// it had.
  private func giveUp(_ changing: inout Changing) {
    let staged = changing.isAdopted ? nil : changing.staged
    // Its room is needed now, whoever still has it open.
    try? staged?.truncate(to: 0)
    changing.staged = nil
    changing.isLoaded = false
    let isNew = facts.withLock { facts in
      facts.descriptor = nil
      facts.elsewhere = nil
      facts.size = nil
      facts.mtime = nil
      facts.isDirty = false
      facts.givenUp = []
      return facts.isNew
    }
    do throws(MarfaError) {
      if isNew {
        // The failure stays: whoever goes on writing through another descriptor is told at each close.
        changing.isAbandoned = true
        let names = try tree.abandon(number)
        facts.withLock { facts in
          facts.isNew = false
          facts.givenUp = names
        }
      } else {
        changing.failure = nil
        try load(&changing)
      }
      // Until its name is gone it says that the file was never closed: a start takes the name away then.
      if let staged { tree.discard(staged) }
    } catch {
      Log.error("file \(number) could not be kept, and not yet be taken back: \(error)")
    }
  }

  // MARK: - Attributes

  /// A change of attributes that the store has made, or, for a file whose names are gone, that only this file keeps.
  func attributesChanged(_ changes: NodeChanges, stored: Node?) -> Node? {
    facts.withLock { facts in
      if let stored {
        let mtime = facts.node?.mtime
        facts.node = Node(merging: stored, contentOf: facts.node)
        // A commit may have come between: a time nobody set is this file's to know.
        if changes.mtime == nil, let mtime { facts.node?.mtime = mtime }
      } else {
        facts.node?.apply(changes, at: .now)
        facts.node?.links = 0
      }
      if let mtime = changes.mtime, facts.mtime != nil { facts.mtime = mtime }
      guard var node = facts.node else { return nil }
      if let size = facts.size { node.size = size }
      if isReader, case .staged = node.content, let size = try? facts.descriptor?.status().st_size {
        node.size = Int64(size)
      }
      if let mtime = facts.mtime { node.mtime = mtime }
      return node
    }
  }
}

extension Node {
  /// The store's attributes with the content this file has open.
  fileprivate init(merging stored: Node, contentOf open: Node?) {
    self = stored
    if let open {
      content = open.content
      size = open.size
    }
  }
}
