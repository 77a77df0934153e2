import Glibc
import MarfaEngine

/// One open of a directory: the buffer its listings are laid out in.
final class DirectoryHandle: Sendable {
  private let spare = Lock<DirectoryBuffer?>(.leaf, nil)

  /// The buffer of the answer before this one, unless another thread is at work on that still.
  func takeBuffer() -> DirectoryBuffer { spare.withLock { $0.take() } ?? DirectoryBuffer() }

  /// Keeps a buffer for the next answer.
  func giveBack(_ buffer: DirectoryBuffer) { spare.withLock { $0 = buffer } }

  var opened: UInt64 { UInt64(UInt(bitPattern: Unmanaged.passRetained(self).toOpaque())) }

  static func of(_ number: UInt64) -> DirectoryHandle {
    // Safe: the kernel gives back what `opened` gave it, and nothing after its releasedir.
    Unmanaged<DirectoryHandle>.fromOpaque(UnsafeRawPointer(bitPattern: UInt(number))!).takeUnretainedValue()
  }

  static func close(_ number: UInt64) {
    // Safe: releasedir comes once for each handle, as the last that names it.
    Unmanaged<DirectoryHandle>.fromOpaque(UnsafeRawPointer(bitPattern: UInt(number))!).release()
  }
}

extension FileSystem {
  func opendir(node: UInt64, flags: CInt, reply: consuming OpenReply) {
    let handle = DirectoryHandle().opened
    if reply.opened(handle: handle, keepCache: !copy.isReader, cacheReaddir: !copy.isReader) == .abandoned {
      DirectoryHandle.close(handle)
    }
  }

  func readdir(node: UInt64, handle: UInt64, size: Int, offset: Int64, plus: Bool, reply: consuming DirectoryReply) {
    let number = number(node)
    let directory = DirectoryHandle.of(handle)
    let buffer = directory.takeBuffer()
    buffer.reset(size: size)
    do throws(MarfaError) {
      try list(number, from: offset, plus: plus, into: buffer)
      reply.entries(buffer)
      directory.giveBack(buffer)
    } catch {
      reply.fail(error.errno)
    }
  }

  /// Cookies: 1 and 2 are behind `.` and `..`, an entry's own number and two are behind it.
  private static let dots: Int64 = 2

  private func list(_ number: Int64, from offset: Int64, plus: Bool, into buffer: DirectoryBuffer) throws(MarfaError) {
    if offset < 1, !append(".", number, cookie: 1, plus: plus, to: buffer) { return }
    if offset < 2, !append("..", try tree.parent(of: number), cookie: 2, plus: plus, to: buffer) { return }
    try tree.list(number, after: max(0, offset - FileSystem.dots)) { entry in
      let cookie = entry.cookie + FileSystem.dots
      return entry.name.bytes.withUnsafeBytes { name in
        guard plus else {
          return buffer.append(
            name: name, inode: UInt64(entry.node.number), mode: entry.node.fileMode, offset: cookie)
        }
        let shown = current(entry.node)
        return buffer.append(
          name: name, attributes: status(of: shown), node: id(of: entry.node), generation: 0, offset: cookie,
          entryTimeout: timeout, attributeTimeout: attributeTimeout(shown))
      }
    }
  }

  private func append(_ name: StaticString, _ number: Int64, cookie: Int64, plus: Bool, to buffer: DirectoryBuffer)
    -> Bool
  {
    let bytes = UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
    guard plus else { return buffer.append(name: bytes, inode: UInt64(number), mode: S_IFDIR, offset: cookie) }
    var attributes = stat()
    attributes.st_ino = ino_t(number)
    attributes.st_mode = S_IFDIR
    return buffer.append(
      name: bytes, attributes: attributes, node: 0, generation: 0, offset: cookie, entryTimeout: 0, attributeTimeout: 0)
  }

  func releasedir(node: UInt64, handle: UInt64, reply: consuming DoneReply) {
    DirectoryHandle.close(handle)
    reply.done()
  }

  func fsyncdir(node: UInt64, handle: UInt64, dataOnly: Bool, reply: consuming DoneReply) {
    guard !copy.isReader else {
      reply.done()
      return
    }
    do throws(MarfaError) {
      try tree.synchronize()
      reply.done()
    } catch {
      reply.fail(error.errno)
    }
  }
}
