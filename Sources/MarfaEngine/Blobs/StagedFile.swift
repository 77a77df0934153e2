import CLinux
import Glibc

/// A file under `staged/`: bytes a program is writing, hashed behind the writer as far as they come in order.
///
/// Threads: any number may write and ``wrote(at:count:)`` at once; ``finish()`` wants no writer at the same time (the
/// open file's lock sees to that).
public final class StagedFile: Sendable {
  /// The open file, for reading and writing.
  public let descriptor: Descriptor
  /// Whose content it will be; 0 for an attach.
  public let node: Int64
  /// Its identity in the store.
  public let id: StagedID
  let path: String
  /// What the content was when this began to replace it; `nil` for a file that had no item.
  let base: Base?

  /// An item's content at a moment: its version, and the bytes it named.
  struct Base: Sendable, Equatable {
    var version: Int64
    var blob: BlobHash?
  }

  private struct Extent {
    var size: Int64 = 0
    /// All below has been written in order.
    var contiguous: Int64 = 0
    /// All below has been, or is being, put into the digest.
    var claimed: Int64 = 0
    /// Something below `claimed` changed: the digest is of bytes that are gone.
    var isStale = false
    /// A job that hashes behind the writer is under way.
    var isFollowed = false
    /// Moves when ``StagedFile/finish()`` begins and ends: what was claimed before is not hashed after.
    var generation = 0
  }
  private struct Digest {
    var sha: SHA256?
    var done: Int64 = 0
  }
  private let extent = Lock<Extent>(.leaf, Extent())
  private let digest = Lock<Digest>(.digest, Digest())

  /// The thread that hashes behind writers.
  private static let follower = WorkQueue(name: "marfa-hash", threads: 1)
  /// A writer this far ahead of the digest gets it moving; smaller files are hashed when they are closed.
  private static let stride: Int64 = 2 << 20

  init(path: String, node: Int64, id: StagedID, base: Base? = nil) throws(Errno) {
    descriptor = try Descriptor.open(path, O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
    self.path = path
    self.node = node
    self.id = id
    self.base = base
  }

  /// Opens one that a former process left.
  init(reopening path: String, node: Int64, id: StagedID, base: Base? = nil) throws(Errno) {
    descriptor = try Descriptor.open(path, O_RDWR)
    self.path = path
    self.node = node
    self.id = id
    self.base = base
    let size = Int64(try descriptor.status().st_size)
    extent.withLock {
      $0.size = size
      $0.contiguous = size
    }
  }

  /// How long it is, in bytes.
  public var size: Int64 { extent.withLock { $0.size } }

  /// True when the digest keeps up: ``finish()`` costs little.
  public var isCheapToFinish: Bool {
    extent.withLock { !$0.isStale && $0.contiguous >= $0.size && $0.size - $0.claimed <= 16 << 20 }
  }

  /// Tells of bytes that have just been written to ``descriptor``.
  public func wrote(at offset: Int64, count: Int) {
    let end = offset + Int64(count)
    let follows = extent.withLock { extent -> Int? in
      if offset < extent.claimed { extent.isStale = true }
      if offset <= extent.contiguous { extent.contiguous = max(extent.contiguous, end) }
      extent.size = max(extent.size, end)
      guard !extent.isStale, !extent.isFollowed, extent.contiguous - extent.claimed >= StagedFile.stride else {
        return nil
      }
      extent.isFollowed = true
      return extent.generation
    }
    if let follows { StagedFile.follower.post { self.follow(since: follows) } }
  }

  /// Changes the length.
  public func truncate(to size: Int64) throws(Errno) {
    try descriptor.truncate(to: size)
    extent.withLock { extent in
      if size < extent.claimed { extent.isStale = true }
      // What grows is zeroes, and they are in place.
      extent.contiguous = extent.contiguous >= extent.size ? size : min(extent.contiguous, size)
      extent.size = size
    }
  }

  /// Takes over all bytes of another file as this one's beginning: shared where the volume can, copied where not.
  /// `limit` is how many are wanted.
  public func copy(from source: Descriptor, limit: Int64) throws(Errno) {
    if marfa_clone(descriptor.raw, source.raw) == 0 {
      try descriptor.truncate(to: limit)
    } else {
      try copyBytes(from: source, limit: limit)
    }
    extent.withLock {
      $0.size = limit
      $0.contiguous = limit
      $0.isStale = $0.claimed > 0
    }
  }

  /// Copies what has bytes; holes stay holes, so that a file that is mostly holes costs what is in it.
  private func copyBytes(from source: Descriptor, limit: Int64) throws(Errno) {
    var end: Int64 = 0
    while end < limit {
      let start = lseek(source.raw, off_t(end), SEEK_DATA)
      // lseek(2), ENXIO: the rest is a hole.
      if start < 0 && errno == ENXIO { break }
      // A filesystem that knows no holes has none.
      let hole = start < 0 ? -1 : lseek(source.raw, start, SEEK_HOLE)
      let next = hole < 0 ? limit : min(Int64(hole), limit)
      try copyRange(from: source, max(Int64(start), end), next)
      end = next
    }
    // A hole at the end has no bytes to copy.
    let status = try source.status()
    if Int64(status.st_size) >= limit { try descriptor.truncate(to: limit) }
  }

  private func copyRange(from source: Descriptor, _ start: Int64, _ end: Int64) throws(Errno) {
    var from = off_t(start)
    var to = off_t(start)
    while Int64(from) < end {
      let count = copy_file_range(source.raw, &from, descriptor.raw, &to, Int(min(end - Int64(from), 1 << 30)), 0)
      if count == 0 { return }
      if count < 0 && errno != EINTR {
        let error = Errno.last
        guard error.code == EXDEV || error.code == EINVAL || error.code == ENOSYS || error.code == EOPNOTSUPP else {
          throw error
        }
        return try copySlowly(from: source, at: Int64(from), limit: end)
      }
    }
  }

  private func copySlowly(from source: Descriptor, at start: Int64, limit: Int64) throws(Errno) {
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 1 << 20, alignment: 4096)
    defer { buffer.deallocate() }
    var offset = start
    while offset < limit {
      let count = try source.read(
        into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<min(buffer.count, Int(limit - offset))]), at: offset)
      if count == 0 { break }
      try descriptor.write(UnsafeRawBufferPointer(rebasing: buffer[..<count]), at: offset)
      offset += Int64(count)
    }
  }

  /// The hash of all its bytes. Reads what the digest has not had yet; all of it, when it was written out of order.
  func finish() throws(MarfaError) -> (hash: BlobHash, size: Int64) {
    let (size, isStale) = extent.withLock { extent in
      extent.generation += 1
      return (extent.size, extent.isStale)
    }
    return try digest.withLock { (digest) throws(MarfaError) in
      if isStale || digest.sha == nil {
        digest.sha = try SHA256()
        digest.done = 0
      }
      do throws(Errno) { try hash(into: &digest, upTo: size) } catch { throw .io(error, path) }
      guard digest.done == size, let sha = digest.sha else {
        throw .io(.io, "\(path): it is shorter than what was written to it")
      }
      digest = Digest()
      extent.withLock { extent in
        extent.claimed = 0
        extent.isStale = false
        extent.generation += 1
      }
      return (sha.finish(), size)
    }
  }

  /// Hashes behind a writer. What was finished meanwhile is not begun anew: who writes on has another one started.
  private func follow(since generation: Int) {
    while true {
      let end = extent.withLock { extent -> Int64? in
        let next = min(extent.contiguous, extent.claimed + StagedFile.stride)
        guard extent.generation == generation, !extent.isStale, next - extent.claimed >= StagedFile.stride else {
          extent.isFollowed = false
          return nil
        }
        extent.claimed = next
        return next
      }
      guard let end else { return }
      let went = digest.withLock { digest -> Bool in
        guard extent.withLock({ $0.generation == generation }) else { return true }
        do {
          if digest.sha == nil { digest.sha = try SHA256() }
          try hash(into: &digest, upTo: end)
          return true
        } catch {
          return false
        }
      }
      if !went { extent.withLock { $0.isStale = true } }
    }
  }

  private func hash(into digest: inout Digest, upTo end: Int64) throws(Errno) {
    guard let sha = digest.sha, digest.done < end else { return }
    // Small enough to stay in the processor's cache and in the heap: a large one would be fresh pages each time.
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: Int(min(end - digest.done, 64 << 10)), alignment: 16)
    defer { buffer.deallocate() }
    while digest.done < end {
      let wanted = Int(min(Int64(buffer.count), end - digest.done))
      let count = try descriptor.read(
        into: UnsafeMutableRawBufferPointer(rebasing: buffer[..<wanted]), at: digest.done)
      if count == 0 { return }
      sha.update(UnsafeRawBufferPointer(rebasing: buffer[..<count]))
      digest.done += Int64(count)
    }
  }
}
