import CFuse3
import Glibc
import MarfaEngine

/// Who asks: what the kernel says of the calling process.
struct Caller: Sendable, Equatable {
  /// The user the new object is to belong to.
  var uid: uid_t
  /// The group the new object is to belong to.
  var gid: gid_t
  /// The process's umask. The kernel has applied it to every mode it hands over already.
  var umask: mode_t
  /// The asking thread's number, 0 when it is of another pid namespace. For words only, never for rights.
  var pid: pid_t
}

/// A time to set: the kernel's "now" or a moment.
enum TimeChange: Sendable, Equatable {
  /// The moment the change is made.
  case now
  /// Exactly this moment.
  case exact(Timestamp)
}

/// What a `setattr` changes; `nil` is left as it is.
struct AttributeChanges: Sendable, Equatable {
  /// The permission bits, without the bits of the file's type.
  var mode: mode_t?
  /// The new owner.
  var uid: uid_t?
  /// The new group.
  var gid: gid_t?
  /// The new length in bytes, never negative.
  var size: Int64?
  /// The new time of last access.
  var atime: TimeChange?
  /// The new time of last modification.
  var mtime: TimeChange?
  /// Set-user-ID and set-group-ID are to go, if this is a regular file and `mode` does not set them anew: the owner or
  /// the length changes. The kernel leaves that to the filesystem (`FUSE_CAP_HANDLE_KILLPRIV`), and so it does with
  /// `write`, where no flag says so.
  var killSuidGid = false

  /// Whether nothing at all changes.
  var isEmpty: Bool { self == AttributeChanges() }
}

/// A filesystem as the session sees it: one method for each of the kernel's operations.
///
/// - Every reply is spent exactly once, on any thread, now or later; ``Reply/park()`` keeps it for later.
/// - A method runs on one of the session's threads. It may take its time there without stopping others, but it holds
///   that thread: what waits for the network parks its reply and returns.
/// - Names, attribute values and write sources are borrowed: they are gone when the method returns.
/// - A name has no NUL and no `/`, is not empty, and is bytes, not text.
/// - Raise a lookup count before replying and reply under no lock: the reply may be the kernel's last reference, and its
///   `forget` may arrive before the reply returns. What was `.abandoned` is to be undone.
/// - Access was checked by the kernel (`default_permissions`); file locks are the kernel's own.
protocol FileSystemOperations: AnyObject, Sendable {
  // MARK: Names

  /// Finds a name. An entry given raises that node's lookup count by one.
  func lookup(parent: UInt64, name: UnsafeRawBufferPointer, reply: consuming EntryReply)

  /// Lowers a node's lookup count. There is no reply. At unmount the kernel may forget nothing at all.
  func forget(node: UInt64, count: UInt64)

  /// Makes an empty file, or what else `mode`'s type bits say. Raises the lookup count.
  func mknod(
    parent: UInt64, name: UnsafeRawBufferPointer, mode: mode_t, rdev: dev_t, caller: Caller,
    reply: consuming EntryReply)

  /// Makes a directory. Raises the lookup count.
  func mkdir(
    parent: UInt64, name: UnsafeRawBufferPointer, mode: mode_t, caller: Caller, reply: consuming EntryReply)

  /// Makes a symbolic link to `target`. Raises the lookup count.
  func symlink(
    target: UnsafeRawBufferPointer, parent: UInt64, name: UnsafeRawBufferPointer, caller: Caller,
    reply: consuming EntryReply)

  /// Takes a name from a file. The node lives until it is forgotten.
  func unlink(parent: UInt64, name: UnsafeRawBufferPointer, reply: consuming DoneReply)

  /// Takes away an empty directory.
  func rmdir(parent: UInt64, name: UnsafeRawBufferPointer, reply: consuming DoneReply)

  /// Moves a name. `flags` are those of renameat2(2): `RENAME_NOREPLACE`, `RENAME_EXCHANGE`; refuse others by EINVAL.
  func rename(
    parent: UInt64, name: UnsafeRawBufferPointer, newParent: UInt64, newName: UnsafeRawBufferPointer, flags: UInt32,
    reply: consuming DoneReply)

  /// Gives a file one more name. Raises the lookup count.
  func link(node: UInt64, newParent: UInt64, newName: UnsafeRawBufferPointer, reply: consuming EntryReply)

  // MARK: Attributes

  /// Tells a node's attributes; with a handle when the kernel has one at hand (fstat).
  func getattr(node: UInt64, handle: UInt64?, reply: consuming AttributeReply)

  /// Changes attributes, and tells them all as they then are.
  func setattr(
    node: UInt64, changes: AttributeChanges, handle: UInt64?, caller: Caller, reply: consuming AttributeReply)

  /// Tells where a symbolic link leads.
  func readlink(node: UInt64, reply: consuming LinkReply)

  /// Tells the room there is.
  func statfs(node: UInt64, reply: consuming StatfsReply)

  /// Sets an extended attribute; `flags` are `XATTR_CREATE`, `XATTR_REPLACE` or none.
  func setxattr(
    node: UInt64, name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer, flags: CInt,
    reply: consuming DoneReply)

  /// Tells an extended attribute: with `size` 0 its length, else its bytes, or ERANGE when they are more than `size`.
  func getxattr(node: UInt64, name: UnsafeRawBufferPointer, size: Int, reply: consuming XattrReply)

  /// Tells the names of all extended attributes, each ended by a NUL; `size` as in `getxattr`.
  func listxattr(node: UInt64, size: Int, reply: consuming XattrReply)

  /// Takes an extended attribute away.
  func removexattr(node: UInt64, name: UnsafeRawBufferPointer, reply: consuming DoneReply)

  // MARK: Open files

  /// Opens a file. `flags` are those of open(2) without `O_CREAT`, `O_EXCL` and `O_NOCTTY`; `O_TRUNC` is the
  /// filesystem's to do.
  func open(node: UInt64, flags: CInt, caller: Caller, reply: consuming OpenReply)

  /// Makes a file and opens it. Raises the lookup count.
  func create(
    parent: UInt64, name: UnsafeRawBufferPointer, mode: mode_t, flags: CInt, caller: Caller,
    reply: consuming CreateReply)

  /// Reads `size` bytes, fewer only at the end of the file.
  func read(node: UInt64, handle: UInt64, size: Int, offset: Int64, reply: consuming DataReply)

  /// Writes all bytes of `source`, which `WriteSource` helps to move; `flags` are those the file is open with. The
  /// source must be used up before the method returns, whenever the reply is sent.
  func write(
    node: UInt64, handle: UInt64, source: UnsafeMutablePointer<fuse_bufvec>, offset: Int64, flags: CInt,
    reply: consuming WriteReply)

  /// One descriptor of the handle is closed: what `close` returns to the program. May come often for one handle.
  func flush(node: UInt64, handle: UInt64, caller: Caller, reply: consuming DoneReply)

  /// What was written is to survive a power cut; with `dataOnly`, what is not needed to read it back may wait.
  func fsync(node: UInt64, handle: UInt64, dataOnly: Bool, reply: consuming DoneReply)

  /// The last descriptor and mapping is gone; `flags` are those the file was open with. Nobody sees an error.
  func release(node: UInt64, handle: UInt64, flags: CInt, reply: consuming DoneReply)

  /// fallocate(2): reserves, zeroes or punches a range.
  func fallocate(
    node: UInt64, handle: UInt64, mode: CInt, offset: Int64, length: Int64, reply: consuming DoneReply)

  /// lseek(2) with `SEEK_DATA` or `SEEK_HOLE`, the only ones the kernel asks about.
  func lseek(node: UInt64, handle: UInt64, offset: Int64, whence: CInt, reply: consuming SeekReply)

  // MARK: Open directories

  /// Opens a directory.
  func opendir(node: UInt64, flags: CInt, reply: consuming OpenReply)

  /// Lists a directory from the entry after cookie `offset` on (0: from the start), into at most `size` bytes. With
  /// `plus`, each entry brings its attributes, and raises its node's lookup count unless it is `.` or `..`.
  /// An empty answer is the end.
  func readdir(node: UInt64, handle: UInt64, size: Int, offset: Int64, plus: Bool, reply: consuming DirectoryReply)

  /// The directory is closed.
  func releasedir(node: UInt64, handle: UInt64, reply: consuming DoneReply)

  /// The directory's entries are to survive a power cut.
  func fsyncdir(node: UInt64, handle: UInt64, dataOnly: Bool, reply: consuming DoneReply)
}
