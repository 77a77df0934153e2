import CFuse3

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
  let wanted =
    UInt32(FUSE_CAP_ASYNC_READ) | UInt32(FUSE_CAP_ATOMIC_O_TRUNC) | UInt32(FUSE_CAP_READDIRPLUS)
    | UInt32(FUSE_CAP_READDIRPLUS_AUTO) | UInt32(FUSE_CAP_PARALLEL_DIROPS) | UInt32(FUSE_CAP_SPLICE_READ) | UInt32(FUSE_CAP_SPLICE_WRITE) | UInt32(FUSE_CAP_SPLICE_MOVE)
    | UInt32(FUSE_CAP_HANDLE_KILLPRIV) | UInt32(FUSE_CAP_CACHE_SYMLINKS) | UInt32(FUSE_CAP_EXPLICIT_INVAL_DATA)
  connection.pointee.want = wanted & connection.pointee.capable
  connection.pointee.max_write = largestTransfer
  connection.pointee.max_background = background
  connection.pointee.congestion_threshold = background * 3 / 4
  // `max_readahead` stays what the kernel offers.
}
