import CFuse3
import Glibc

/// The entries of one readdir answer, laid out as the kernel wants them. One belongs to each open directory and is used
/// again for every answer. Not for two threads at once: the kernel may read one directory handle from several.
final class DirectoryBuffer: @unchecked Sendable {
  // Safe: it is confined to whoever holds the directory handle's lock.
  private var storage = UnsafeMutableRawPointer(bitPattern: 0)
  private var allocated = 0
  private var capacity = 0
  private var used = 0
  private let name = UnsafeMutablePointer<CChar>.allocate(capacity: DirectoryBuffer.longestName + 1)

  /// The longest name the kernel takes in a listing (`FUSE_NAME_MAX`).
  static let longestName = 1024
  /// More than the kernel ever asks for; what is asked beyond it is answered in parts.
  private static let largest = 1 << 20

  /// Makes a buffer with no room: `reset` gives it some.
  init() {}

  deinit {
    storage?.deallocate()
    name.deallocate()
  }

  /// Empties the buffer, for an answer of at most `size` bytes.
  func reset(size: Int) {
    capacity = max(0, min(size, Self.largest))
    used = 0
    if capacity > allocated {
      storage?.deallocate()
      storage = .allocate(byteCount: capacity, alignment: 8)
      allocated = capacity
    }
  }

  /// Whether no entry is in.
  var isEmpty: Bool { used == 0 }

  /// What is in, until the next `reset` or `append`.
  var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: storage, count: used) }

  /// Adds an entry of a plain listing, of which the kernel takes the inode number and the type. `offset` is the cookie
  /// that the next entry is asked for with. `false`: it does not fit, and is left out.
  func append(name: UnsafeRawBufferPointer, inode: UInt64, mode: mode_t, offset: Int64) -> Bool {
    guard terminate(name) else { return true }
    var attributes = stat()
    attributes.st_ino = ino_t(inode)
    attributes.st_mode = mode
    return add { fuse_add_direntry(nil, $0, $1, self.name, &attributes, off_t(offset)) }
  }

  /// Adds an entry of a listing with attributes. `false`: it does not fit, is left out, and its lookup count is not to
  /// be raised. For `.` and `..`, `node` is 0: the kernel then keeps nothing of it but the number and the type.
  func append(
    name: UnsafeRawBufferPointer, attributes: stat, node: UInt64, generation: UInt64, offset: Int64,
    entryTimeout: Double, attributeTimeout: Double
  ) -> Bool {
    guard terminate(name) else { return true }
    var parameters = fuse_entry_param(
      ino: node, generation: generation, attr: attributes, attr_timeout: attributeTimeout,
      entry_timeout: entryTimeout)
    return add { fuse_add_direntry_plus(nil, $0, $1, self.name, &parameters, off_t(offset)) }
  }

  /// Lets libfuse write one entry behind those there are. It writes nothing when there is no room, and tells the size.
  private func add(_ write: (UnsafeMutablePointer<CChar>, Int) -> Int) -> Bool {
    guard let storage else { return false }
    let room = capacity - used
    let size = write((storage + used).assumingMemoryBound(to: CChar.self), room)
    guard size <= room else { return false }
    used += size
    return true
  }

  /// Copies a name to where a NUL can stand behind it. A name the kernel would fail the whole listing for is left out.
  private func terminate(_ bytes: UnsafeRawBufferPointer) -> Bool {
    guard let start = bytes.baseAddress, bytes.count > 0, bytes.count <= Self.longestName else { return false }
    memcpy(name, start, bytes.count)
    name[bytes.count] = 0
    return true
  }
}
