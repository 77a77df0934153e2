import CFuse3
import Glibc
import MarfaEngine

/// The bytes of one write, where the kernel left them: in memory, or in a pipe that a file can take them from without a
/// copy. They are there once, during the call of `write` only.
struct WriteSource {
  private let buffers: UnsafeMutablePointer<fuse_bufvec>

  /// Wraps what libfuse hands to `write`.
  init(_ buffers: UnsafeMutablePointer<fuse_bufvec>) { self.buffers = buffers }

  /// How many bytes there are.
  var size: Int { fuse_buf_size(buffers) }

  /// Moves all of them to a file, and tells how many went: fewer only when the disk is full right after them.
  func move(to descriptor: CInt, at offset: Int64) throws(Errno) -> Int {
    var target = fuse_bufvec()
    target.count = 1
    target.buf.size = size
    target.buf.flags = fuse_buf_flags(
      rawValue: FUSE_BUF_IS_FD.rawValue | FUSE_BUF_FD_SEEK.rawValue | FUSE_BUF_FD_RETRY.rawValue)
    target.buf.fd = descriptor
    target.buf.pos = off_t(offset)
    return try copy(&target)
  }

  /// Copies them to memory that has room for them, and tells how many there were.
  func copy(into memory: UnsafeMutableRawBufferPointer) throws(Errno) -> Int {
    guard memory.count >= size else { throw .invalid }
    var target = fuse_bufvec()
    target.count = 1
    target.buf.size = size
    target.buf.mem = memory.baseAddress
    return try copy(&target)
  }

  private func copy(_ target: inout fuse_bufvec) throws(Errno) -> Int {
    let count = fuse_buf_copy(&target, buffers, fuse_buf_copy_flags(rawValue: 0))
    guard count >= 0 else { throw Errno(CInt(truncatingIfNeeded: -count)) }
    return count
  }
}
