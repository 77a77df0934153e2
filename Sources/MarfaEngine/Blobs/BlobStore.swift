import Glibc

/// The bytes on this device: staging, sealing, opening and letting go. Whoever changes what refers to bytes does so in
/// the same transaction.
final class BlobStore: Sendable {
  let files: BlobFiles
  private let store: Store
  private let pins: Lock<Pins>
  /// Removes what nothing refers to.
  let reaper: Reaper

  private struct Pins {
    /// How many closures, fetches or open files want a blob's file to stay where it is.
    var counts: [BlobHash: Int] = [:]
    /// Those of them whose file was to go meanwhile.
    var letGo: Set<BlobHash> = []
  }

  init(store: Store) throws(MarfaError) {
    self.store = store
    files = BlobFiles(beside: store.path)
    let pins = Lock<Pins>(.leaf, Pins())
    self.pins = pins
    reaper = Reaper(store: store, files: files) { hash in
      pins.withLock { pins in
        guard pins.counts[hash] != nil else { return false }
        pins.letGo.insert(hash)
        return true
      }
    }
    if store.isWriter { try files.prepare() }
  }

  // MARK: - Staging and sealing

  /// A new empty file to write bytes into.
  func stage(for node: Int64, isNew: Bool = false, base: StagedFile.Base? = nil) throws(MarfaError) -> StagedFile {
    let id = BlobFiles.mintStaged(isNew: isNew)
    do throws(Errno) {
      return try StagedFile(path: files.staged(node, id), node: node, id: id, base: base)
    } catch {
      throw .io(error, "making a file under \(files.root)/staged")
    }
  }

  /// Opens what a former process staged.
  func reopen(_ node: Int64, _ id: StagedID, base: StagedFile.Base?) throws(MarfaError) -> StagedFile {
    let path = files.staged(node, id)
    do throws(Errno) { return try StagedFile(reopening: path, node: node, id: id, base: base) } catch {
      throw .io(error, path)
    }
  }

  /// Removes a staged file: its bytes are not wanted, or are held by now.
  func discard(_ staged: StagedFile) {
    do throws(Errno) { try Path.remove(staged.path) } catch { Log.warning("\(staged.path) stays behind: \(error)") }
  }

  /// Copies a file of the person's into a staged one. Nothing of the original is touched.
  func stage(copying path: String) throws(MarfaError) -> StagedFile {
    let source: Descriptor
    let status: stat
    do throws(Errno) {
      source = try Descriptor.open(path, O_RDONLY)
      status = try source.status()
    } catch {
      throw .io(error, path)
    }
    guard status.st_mode & S_IFMT == S_IFREG else { throw .invalid("\(path) is no regular file") }
    let size = Int64(status.st_size)
    guard size > 0 else {
      throw .invalid("\(path) is empty, and an empty file can't be attached: the server holds none")
    }
    if let room = try? VolumeRoom.of(files.root), room.available < size {
      throw .noRoom(size: size, left: room.available)
    }
    let staged = try stage(for: 0)
    do throws(Errno) {
      try staged.copy(from: source, limit: size)
      // The source grew or shrank meanwhile: what was copied is what is attached, as long as it is all there.
      guard Int64(try staged.descriptor.status().st_size) == size else { throw .stale }
      try staged.descriptor.synchronize()
    } catch {
      discard(staged)
      if error == .noSpace {
        throw .noRoom(size: size, left: (try? VolumeRoom.of(files.root))?.available ?? 0)
      }
      throw .io(error, error == .stale ? "\(path) changed while it was read" : path)
    }
    return staged
  }

  /// Gives finished bytes their name and their row. Inside the transaction that makes something refer to them; the
  /// staged file is discarded once that is committed. Answers the files that showed these bytes without knowing their
  /// length, and know it now.
  func hold(
    _ staged: StagedFile, _ hash: BlobHash, size: Int64, mimeType: String?, in connection: Connection, at now: Timestamp
  ) throws(MarfaError) -> [Int64] {
    do throws(Errno) { try files.hold(staged.path, as: hash) } catch {
      throw error == .noSpace ? .noRoom(size: size, left: 0) : .io(error, files.held(hash))
    }
    try connection.setHeld(hash, size: size, mimeType: mimeType, at: now)
    return try connection.setSize(hash, size)
  }

  /// Runs the transaction that makes something refer to a copy of a person's file. When it fails, nothing of the copy
  /// stays.
  func keeping<T>(
    _ staged: StagedFile, as hash: BlobHash, size: Int64, _ body: () throws(MarfaError) -> T
  ) throws(MarfaError) -> T {
    do throws(MarfaError) { return try body() } catch {
      discard(staged)
      forget(hash)
      // The rows want room as the bytes do.
      guard case .store(let failure) = error, failure.isFull else { throw error }
      throw .noRoom(size: size, left: (try? VolumeRoom.of(files.root))?.available ?? 0)
    }
  }

  /// Takes the name under `held/` back that ``hold(_:_:size:mimeType:in:at:)`` gave, after a transaction that failed.
  func forget(_ hash: BlobHash) {
    do throws(MarfaError) { try removeUnknown(hash) } catch {
      Log.warning("\(files.held(hash)) may stay behind: \(error)")
    }
  }

  /// Lets bytes go that nothing refers to any more. Inside the transaction that dropped the reference: the row goes
  /// with it, the file after the commit (and under the writer's lock, so that nobody seals the same bytes meanwhile).
  func release(_ hash: BlobHash, in connection: Connection) throws(MarfaError) {
    guard try !connection.isReferenced(hash) else { return }
    try connection.deleteBlobRow(hash)
    removeAfterCommit(hash)
  }

  /// Removes a blob's file once the transaction is committed, unless somebody pinned it: then its last unpin does.
  func removeAfterCommit(_ hash: BlobHash) {
    reaper.afterCommit(.held(hash))
  }

  /// Removes a staged file once the transaction is committed: its node is gone, or it was sealed.
  func removeAfterCommit(_ node: Int64, _ id: StagedID, sealedAs hash: BlobHash? = nil) {
    reaper.afterCommit(.staged(path: files.staged(node, id), sealedAs: hash))
  }

  /// True while somebody wants a blob's file to stay where it is.
  func isPinned(_ hash: BlobHash) -> Bool { pins.withLock { $0.counts[hash] != nil } }

  // MARK: - Reading

  /// Opens held bytes for reading. They stay readable through the descriptor whatever happens to their name.
  func open(_ hash: BlobHash) throws(MarfaError) -> Descriptor {
    do throws(Errno) { return try Descriptor.open(files.held(hash), O_RDONLY) } catch {
      throw error == .notFound ? .bytesAbsent(hash) : .io(error, files.held(hash))
    }
  }

  /// The same. `EBADMSG` when the file has another length than was sealed: it was cut by a power loss or by hand, and what
  /// is left of it is not what its name says.
  func openWhole(_ hash: BlobHash, size: Int64?) throws(MarfaError) -> Descriptor {
    let descriptor = try open(hash)
    let found: Int64
    do throws(Errno) { found = Int64(try descriptor.status().st_size) } catch { throw .io(error, files.held(hash)) }
    if let size, size != found {
      throw .io(Errno(EBADMSG), "\(files.held(hash)) has \(found) bytes and should have \(size)")
    }
    return descriptor
  }

  /// True when the whole is here.
  func isHeld(_ hash: BlobHash) throws(MarfaError) -> Bool {
    try store.read { (connection) throws(MarfaError) in try connection.blob(hash)?.held ?? false }
  }

  /// Keeps a blob's file where it is until ``unpin(_:)``.
  func pin(_ hash: BlobHash) {
    pins.withLock { $0.counts[hash, default: 0] += 1 }
  }

  /// Ends a pin; what was let go meanwhile goes now.
  func unpin(_ hash: BlobHash) {
    if dropPin(hash) { removeLetGo(hash) }
  }

  /// Ends a pin. True for the last of a file that was to go: ``removeLetGo(_:)`` is to follow, in its own time.
  func dropPin(_ hash: BlobHash) -> Bool {
    pins.withLock { pins -> Bool in
      guard let count = pins.counts[hash], count > 1 else {
        pins.counts[hash] = nil
        return pins.letGo.remove(hash) != nil
      }
      pins.counts[hash] = count - 1
      return false
    }
  }

  /// Removes what was let go while it was pinned.
  func removeLetGo(_ hash: BlobHash) {
    guard store.isWriter else { return }
    do throws(MarfaError) { try removeUnknown(hash) } catch {
      Log.warning("a file that nothing refers to may stay behind: \(error)")
    }
  }

  /// Removes a file under `held/` when no row says that it is held.
  func removeUnknown(_ hash: BlobHash) throws(MarfaError) {
    guard try !isHeld(hash) else { return }
    try store.write { (connection) throws(MarfaError) in
      if try connection.blob(hash)?.held != true { removeAfterCommit(hash) }
    }
  }
}
