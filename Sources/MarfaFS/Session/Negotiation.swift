import CFuse3
import Glibc

/// The largest read and write, which libfuse and the kernel set too: 256 pages.
private let largestTransfer: UInt32 = 1 << 20
/// How many reads ahead and other requests nobody waits for the kernel has under way at once.
private let background: UInt32 = 64

/// Says to the kernel how we want to work together. What it cannot do is left out.
///
/// Not wanted, on purpose: `WRITEBACK_CACHE` (a write's error could then be told to nobody, and passthrough excludes it),
/// `AUTO_INVAL_DATA` (we say what changed; the kernel would drop its cache whenever an mtime looks new), `ASYNC_DIO` (a
/// program that reads with `O_DIRECT` could not be killed while it waits), and the locks (the kernel's own are as good,
/// and cost no request).
func negotiate(_ connection: UnsafeMutablePointer<fuse_conn_info>) {
  var wanted = UInt32(FUSE_CAP_ASYNC_READ) | UInt32(FUSE_CAP_ATOMIC_O_TRUNC) | UInt32(FUSE_CAP_EXPLICIT_INVAL_DATA)
  wanted |= UInt32(FUSE_CAP_READDIRPLUS) | UInt32(FUSE_CAP_READDIRPLUS_AUTO) | UInt32(FUSE_CAP_PARALLEL_DIROPS)
  wanted |= UInt32(FUSE_CAP_SPLICE_READ) | UInt32(FUSE_CAP_SPLICE_WRITE) | UInt32(FUSE_CAP_SPLICE_MOVE)
  wanted |= UInt32(FUSE_CAP_HANDLE_KILLPRIV) | UInt32(FUSE_CAP_CACHE_SYMLINKS)
  connection.pointee.want = wanted & connection.pointee.capable
  connection.pointee.max_write = largestTransfer
  connection.pointee.max_background = background
  connection.pointee.congestion_threshold = background * 3 / 4
  // `max_readahead` stays what the kernel offers.
}

/// The kernel's own flags for INIT (linux/fuse.h), which libfuse keeps to itself.
private enum InitFlag {
  static let parallelDirectoryOperations: UInt64 = 1 << 18
  static let handleKillPrivileges2: UInt64 = 1 << 28
  /// `flags2` counts.
  static let extended: UInt64 = 1 << 30
  static let passthrough: UInt64 = 1 << 37
}

/// The INIT request and reply as they go by, on their way between the kernel and libfuse.
///
/// libfuse writes the reply itself, and up to 3.16 leaves out flags that it says it has set: without
/// `FUSE_PARALLEL_DIROPS` the kernel looks up one name of a directory at a time, so that one slow lookup stops all others
/// there. And it knows nothing of `FUSE_HANDLE_KILLPRIV_V2`, without which the kernel asks for `security.capability` before
/// every single write. Nor, up to 3.16, of passthrough; later ones do, and ours is still this one way.
enum Greeting {
  private static let headerSize = 40
  private static let initOperation: UInt32 = 26
  /// What follows the reply's header: `struct fuse_init_out`, in all its length.
  private static let replySize = 64

  /// What the kernel offers, if `request` is its INIT: `flags` and, above them, `flags2`.
  static func offer(in request: UnsafeRawBufferPointer) -> UInt64? {
    // Header: length, operation, …; body: major, minor, max_readahead, flags, flags2, …
    guard request.count >= headerSize + 16,
      request.loadUnaligned(fromByteOffset: 4, as: UInt32.self) == initOperation
    else { return nil }
    let flags = request.loadUnaligned(fromByteOffset: headerSize + 12, as: UInt32.self)
    guard request.count >= headerSize + 20 else { return UInt64(flags) }
    return UInt64(request.loadUnaligned(fromByteOffset: headerSize + 16, as: UInt32.self)) << 32 | UInt64(flags)
  }

  /// Adds to the reply what was offered, we want, and libfuse left out. `message` is what is being written to the kernel:
  /// anything but a good reply to INIT is left alone, and answered with `nil`. Otherwise the answer is whether the kernel
  /// is to read files by itself, which is asked of it when `passthrough` is wanted and it offers that.
  static func complete(_ message: UnsafeBufferPointer<iovec>, offered: UInt64, passthrough: Bool) -> Bool? {
    // Header: length, error, unique (0: a notice of ours); body: major, minor, max_readahead, flags, …
    guard message.count == 2, message[0].iov_len == 16, let header = message[0].iov_base,
      message[1].iov_len == replySize, let body = message[1].iov_base,
      header.loadUnaligned(fromByteOffset: 4, as: Int32.self) == 0,
      header.loadUnaligned(fromByteOffset: 8, as: UInt64.self) != 0
    else { return nil }
    func add(_ flags: UInt64, at offset: Int) {
      let there = body.loadUnaligned(fromByteOffset: offset, as: UInt32.self)
      body.storeBytes(of: there | UInt32(truncatingIfNeeded: flags), toByteOffset: offset, as: UInt32.self)
    }
    let wanted = InitFlag.parallelDirectoryOperations | InitFlag.handleKillPrivileges2
    add(wanted & offered, at: 12)
    // …, flags2 at 32, max_stack_depth at 36: how many filesystems may be stacked with this one. On ours, what is read
    // through lies on none that is stacked itself.
    let needed = InitFlag.extended | InitFlag.passthrough
    guard passthrough, offered & needed == needed else { return false }
    add(InitFlag.extended, at: 12)
    add(InitFlag.passthrough >> 32, at: 32)
    body.storeBytes(of: 1, toByteOffset: 36, as: UInt32.self)
    return true
  }
}
