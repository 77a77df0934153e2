import Glibc

/// Files that were made or removed a moment ago, and whose rows are not made, or still there.
///
/// A program that copies or removes ten thousand small files spends a few dozen microseconds on each; a transaction for each
/// would cost ten times that. So a new file is kept here while it is written, and when it is closed one line in a file beside
/// the store (the journal) says all of it: that survives this process. So does the line of one that was removed. The rows
/// follow a moment later, those of many files in one transaction.
///
/// Nobody sees a difference: a look-up and a stat find it here, or here that it is gone, and everything else that reads or
/// changes the store has the rows made first (``Store/write(after:_:)`` and ``Store/read(settled:_:)`` call
/// ``begin(_:all:isWanted:)``).
final class LateRows: StorePrologue {
  /// A new file.
  private struct File {
    /// As a stat shows it.
    var node: Node
    var parent: Int64
    var name: FileName
    var staged: StagedFile
    /// Set when it was closed: what it will be sealed as.
    var seal: Seal?
    /// Its rows are being made: whoever would change it changes the rows, once they are there.
    var isOnItsWay = false
  }

  private struct Seal {
    var hash: BlobHash
    var size: Int64
    var mimeType: String
  }

  private struct Place: Hashable {
    var parent: Int64
    var name: FileName
  }

  private struct State {
    var files: [Int64: File] = [:]
    var places: [Place: Int64] = [:]
    /// When a directory last got a new file.
    var touched: [Int64: Timestamp] = [:]
    /// Those on their way in the transaction under way.
    var leaving: [Int64] = []
    /// Nodes that were removed, and where their only names were.
    var removed: [Int64: Place] = [:]
    var freed: Set<Place> = []
    /// Those whose rows go in the transaction under way.
    var going: [Int64] = []
    var isFlushWanted = false
    /// Nodes with lines in the journal that their rows do not say yet.
    var journaled: Set<Int64> = []

    var isEmpty: Bool { files.isEmpty && removed.isEmpty }
  }

  private let store: Store
  private let blobs: BlobStore
  private unowned let tree: Tree
  private let journal: LateRowsJournal
  private let state = Lock<State>(.leaf, State())
  private let flusher = WorkQueue(name: "marfa-new-files", threads: 1)

  /// Beyond so many, one more makes the rows of all first: memory stays bounded.
  private static let most = 4096
  /// How long one waits for others, in microseconds.
  private static let patience: UInt32 = 100_000
  /// How long one lets those who wait to write go first, in microseconds.
  private static let turn: UInt32 = 500

  init(_ tree: Tree, store: Store, blobs: BlobStore) {
    self.tree = tree
    self.store = store
    self.blobs = blobs
    journal = LateRowsJournal(beside: store.path)
  }

  var isEmpty: Bool { state.withLock { $0.isEmpty } }

  /// Makes all rows there are to make, and ends.
  func close() {
    flusher.close()
    do throws(MarfaError) { if !isEmpty { try store.write { _ in } } } catch {
      Log.error("what was made and removed just now is kept beside the store until the next start: \(error)")
    }
    journal.close(isDone: isEmpty)
  }

  // MARK: - Looking

  /// A new file's node, or `nil` for another's.
  func node(_ number: Int64) -> Node? { state.withLock { $0.files.isEmpty ? nil : $0.files[number]?.node } }

  /// The new file of a name.
  func lookup(_ parent: Int64, _ name: UnsafeRawBufferPointer) -> Node? {
    state.withLock { state in
      guard state.touched[parent] != nil else { return nil }
      return state.places[Place(parent: parent, name: FileName(stored: Array(name)))].flatMap { state.files[$0]?.node }
    }
  }

  /// True for the name of a new file.
  func isNew(_ parent: Int64, _ name: FileName) -> Bool {
    state.withLock { $0.places[Place(parent: parent, name: name)] != nil }
  }

  /// True for a node that was removed.
  func isRemoved(_ number: Int64) -> Bool { state.withLock { !$0.removed.isEmpty && $0.removed[number] != nil } }

  /// True for a name that was removed, though the rows have it.
  func isFreed(_ parent: Int64, _ name: @autoclosure () -> FileName) -> Bool {
    state.withLock { !$0.freed.isEmpty && $0.freed.contains(Place(parent: parent, name: name())) }
  }

  /// When something was made or removed in a directory last, of which its rows do not say so yet.
  func touched(_ directory: Int64) -> Timestamp? { state.withLock { $0.touched[directory] } }

  // MARK: - Changing

  /// Makes a file; `nil` when it has to be made the ordinary way.
  func make(_ parent: Node, _ name: FileName, mode: mode_t, owner: Owner) throws(MarfaError) -> (Node, StagedFile)? {
    guard state.withLock({ $0.files.count + $0.removed.count < Self.most }) else { return nil }
    let now = Timestamp.now
    let number = try store.nodeNumbers.next()
    var node = Node(new: .file, in: parent, mode: mode, owner: owner, at: now)
    node.number = number
    let staged = try blobs.stage(for: number, isNew: true)
    let place = Place(parent: parent.number, name: name)
    let isFree = state.withLock { state in
      guard state.places[place] == nil else { return false }
      state.files[number] = File(node: node, parent: parent.number, name: name, staged: staged)
      state.places[place] = number
      state.touched[parent.number] = now
      return true
    }
    guard isFree else {
      blobs.discard(staged)
      throw .file(.exists)
    }
    // So that what a crash leaves of it can be called by its name. Without that line it is only called otherwise.
    if let file = state.withLock({ $0.files[number] }) { _ = record(file) }
    return (node, staged)
  }

  /// Changes a new file's attributes and answers it; `nil` for a file whose rows are to be changed.
  func setAttributes(_ number: Int64, _ changes: NodeChanges) -> Node? {
    let changed = state.withLock { state -> File? in
      guard state.files[number]?.isOnItsWay == false else { return nil }
      state.files[number]?.node.apply(changes, at: .now)
      return state.files[number]
    }
    guard let changed else { return nil }
    if changed.seal != nil { guard record(changed) else { return nil } }
    return changed.node
  }

  /// A new file is closed: it survives this process when this returns. `nil` for a file with rows, which is sealed there.
  func seal(_ staged: StagedFile, mtime: Timestamp) throws(MarfaError) -> Node? {
    guard let name = state.withLock({ $0.files[staged.node].flatMap { $0.isOnItsWay ? nil : $0.name } }) else {
      return nil
    }
    let (hash, size) = try staged.finish()
    let mimeType = MIMEType.of(name.bytes, path: staged.path)
    let closed = state.withLock { state -> File? in
      guard var file = state.files[staged.node], !file.isOnItsWay else { return nil }
      file.seal = Seal(hash: hash, size: size, mimeType: mimeType)
      file.node.content = .blob(hash)
      file.node.size = size
      file.node.mtime = mtime
      file.node.ctime = max(file.node.ctime, mtime)
      state.files[staged.node] = file
      return file
    }
    guard let closed, record(closed) else { return nil }
    wantFlush()
    return closed.node
  }

  /// Removes a node that has this one name: that survives this process when it returns. `nil` when it has to be removed
  /// the ordinary way. Answers the node as it is then.
  func remove(_ node: Node, from directory: Node, _ name: FileName) -> Node? {
    let now = Timestamp.now
    let place = Place(parent: directory.number, name: name)
    let mayWait = state.withLock { state in
      guard state.files.count + state.removed.count < Self.most, state.places[place] == nil,
        !state.freed.contains(place)
      else { return false }
      // Before the line is there: it must not be emptied away.
      state.journaled.insert(node.number)
      return true
    }
    guard mayWait else { return nil }
    do throws(Errno) { try journal.append(.removed(node.number, changed: node.ctime)) } catch {
      state.withLock { _ = $0.journaled.remove(node.number) }
      return nil
    }
    state.withLock { state in
      state.removed[node.number] = place
      state.freed.insert(place)
      state.touched[directory.number] = now
    }
    wantFlush()
    var node = node
    node.links = 0
    node.ctime = now
    return node
  }

  /// Something else was made in a directory of which the rows do not say all yet.
  func touch(_ directory: Int64, at now: Timestamp) {
    state.withLock { if $0.touched[directory] != nil { $0.touched[directory] = now } }
  }

  /// A new file is not to be: answers where its name was, `nil` for a file with rows.
  func abandon(_ number: Int64) -> (parent: Int64, name: FileName)? {
    state.withLock { state in
      guard let file = state.files[number], !file.isOnItsWay, file.seal == nil else { return nil }
      state.files[number] = nil
      state.journaled.remove(number)
      state.places[Place(parent: file.parent, name: file.name)] = nil
      return (file.parent, file.name)
    }
  }

  /// The bytes of one that is closed and has no rows, for reading them.
  func descriptor(of hash: BlobHash) -> Descriptor? {
    state.withLock { state in
      state.files.isEmpty ? nil : state.files.values.first { $0.seal?.hash == hash }?.staged.descriptor
    }
  }

  private func record(_ file: File) -> Bool {
    // One whose rows were made in between has nothing to wait for: it would keep the journal from ever being emptied.
    state.withLock { if $0.files[file.node.number] != nil { $0.journaled.insert(file.node.number) } }
    let line = LateRowsJournal.Made(
      node: file.node, parent: file.parent, name: file.name, staged: file.staged.id, size: file.seal?.size)
    do throws(Errno) {
      try journal.append(.made(line))
      return true
    } catch {
      // No room for the line, most likely. The rows are made now, then: their failure is the caller's to tell.
      return false
    }
  }

  private var hasClosed: Bool {
    state.withLock { !$0.removed.isEmpty || $0.files.values.contains { $0.seal != nil } }
  }

  private func wantFlush(after microseconds: UInt32 = LateRows.patience) {
    let begins = state.withLock { state in
      defer { state.isFlushWanted = true }
      return !state.isFlushWanted
    }
    guard begins else { return }
    flusher.post { [weak self] in
      usleep(microseconds)
      self?.flush()
    }
  }

  private func flush() {
    state.withLock { $0.isFlushWanted = false }
    do throws(MarfaError) {
      try store.write(after: .closed) { _ in }
      // Somebody else wanted to write: the rest comes after him.
      if hasClosed { wantFlush(after: Self.turn) }
    } catch {
      Log.error("the rows of what was made and removed just now can't be written yet: \(error)")
      // What they said stays in the journal. It is tried again, not at once.
      usleep(1_000_000)
      if !isEmpty { wantFlush() }
    }
  }

  // MARK: - In a transaction

  func begin(_ connection: Connection, all: Bool, isWanted: () -> Bool) throws(MarfaError) {
    let (coming, going) = state.withLock { state -> ([File], [(number: Int64, parent: Int64)]) in
      guard !state.isEmpty else { return ([], []) }
      state.going = state.removed.keys.sorted()
      let numbers = state.files.values.filter { all || $0.seal != nil }.map(\.node.number).sorted()
      for number in numbers { state.files[number]?.isOnItsWay = true }
      state.leaving = numbers
      return (
        numbers.compactMap { state.files[$0] },
        state.going.compactMap { number in
          state.removed[number].map { (number, $0.parent) }
        }
      )
    }
    guard !coming.isEmpty || !going.isEmpty else { return }
    let now = Timestamp.now
    let outbox = Outbox(connection, now: now, settling: tree.settings.settling)
    let change = Tree.Change(connection: connection, outbox: outbox, now: now, tree: tree)
    // Before what was made: it may have the name of what was removed.
    for removal in going { try change.removeOnlyName(of: removal.number) }
    var directories: [Int64: Node] = [:]
    for (index, file) in coming.enumerated() {
      if index % 8 == 7, isWanted() {
        leave(coming[index...].map(\.node.number))
        break
      }
      if directories[file.parent] == nil { directories[file.parent] = try connection.node(file.parent) }
      // A directory with a new file in it is not removed without its rows being made first.
      guard let directory = directories[file.parent] else { continue }
      try insert(file, in: directory, change)
    }
    for number in Set(directories.keys).union(going.map(\.parent)) {
      try connection.touch(number, at: state.withLock { $0.touched[number] } ?? now)
    }
  }

  /// Their rows are made another time.
  private func leave(_ numbers: [Int64]) {
    state.withLock { state in
      for number in numbers { state.files[number]?.isOnItsWay = false }
      state.leaving.removeLast(numbers.count)
    }
  }

  private func insert(_ file: File, in directory: Node, _ change: Tree.Change) throws(MarfaError) {
    let connection = change.connection
    var node = file.node
    var name = file.name
    if try connection.child(directory.number, name) != nil {
      // An event brought one of this name in between.
      name = try connection.freeName(directory.number, name)
      tree.notify(
        [.entry(parent: directory.number, name: file.name), .entry(parent: directory.number, name: name)], in: change)
    }
    guard let seal = file.seal, tree.displaced.withLock({ $0.isEmpty }) else {
      // Not closed yet; or it may take over the item of a file renamed away meanwhile, which its seal sees to.
      node.content = .empty
      node.size = 0
      _ = try connection.insertNode(node, numbered: node.number)
      try connection.insertEntry(directory.number, name, node: node.number)
      guard let seal = file.seal else { return }
      _ = try change.seal(file.staged, seal.hash, size: seal.size, mimeType: seal.mimeType, mtime: file.node.mtime)
      return
    }
    // Each row is written once, as it is to be: what a seal would look up of a file is known of a new one.
    store.afterCommit { [blobs] in blobs.discard(file.staged) }
    try change.hold(file.staged, seal.hash, size: seal.size, mimeType: seal.mimeType)
    let item = try change.createFileItem(titled: name.title, seal.hash, mimeType: seal.mimeType)
    node.item = item
    _ = try connection.insertNode(node, numbered: node.number)
    try connection.insertEntry(directory.number, name, node: node.number)
    if let host = directory.item { try change.attach(item, to: host) }
  }

  func committed() {
    let isDone = state.withLock { state -> Bool in
      for number in state.leaving {
        guard let file = state.files.removeValue(forKey: number) else { continue }
        state.places[Place(parent: file.parent, name: file.name)] = nil
        state.journaled.remove(number)
      }
      for number in state.going {
        if let place = state.removed.removeValue(forKey: number) { state.freed.remove(place) }
        state.journaled.remove(number)
      }
      let left = Set(state.files.values.map(\.parent)).union(state.removed.values.map(\.parent))
      state.touched = state.touched.filter { left.contains($0.key) }
      let hadAny = !state.leaving.isEmpty || !state.going.isEmpty
      state.leaving = []
      state.going = []
      return hadAny && state.journaled.isEmpty
    }
    if isDone { journal.clear { state.withLock { $0.journaled.isEmpty } } }
  }

  func rolledBack() {
    state.withLock { state in
      for number in state.leaving { state.files[number]?.isOnItsWay = false }
      state.leaving = []
      state.going = []
    }
  }
}
