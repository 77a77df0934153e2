import CFuse3
import CLinux
import Glibc
import MarfaEngine

/// One open of a file.
final class Handle: Sendable {
  let file: OpenFile
  let mayWrite: Bool
  let mode: OpenModes.Mode
  /// It is open for writing what it had, not anew.
  let changesInPlace: Bool
  /// The thread that opened it.
  let opener: pid_t
  /// Reads bytes that are not all here, with a place of its own; made at the first such read.
  private let reader = Lock<RangeReader?>(.handle, nil)

  init(_ file: OpenFile, _ mode: OpenModes.Mode, mayWrite: Bool, changesInPlace: Bool = false, opener: pid_t) {
    self.file = file
    self.mode = mode
    self.mayWrite = mayWrite
    self.changesInPlace = changesInPlace
    self.opener = opener
  }

  /// The reader of these bytes.
  func reader(_ hash: BlobHash, _ blobs: Blobs) throws(MarfaError) -> RangeReader {
    try reader.withLock { (reader) throws(MarfaError) in
      if let reader, reader.hash == hash { return reader }
      let made = try blobs.open(hash)
      reader = made
      return made
    }
  }

  /// What was fetched ahead for this handle is wanted no more.
  func closeReader() { reader.withLock { $0.take() }?.close() }

  /// The number the kernel gives back with each request; it holds a reference until ``close(_:)``.
  var opened: UInt64 { UInt64(UInt(bitPattern: Unmanaged.passRetained(self).toOpaque())) }

  /// The handle of a number.
  static func of(_ number: UInt64) -> Handle {
    // Safe: the kernel gives back what `opened` gave it, and nothing after its release.
    Unmanaged<Handle>.fromOpaque(UnsafeRawPointer(bitPattern: UInt(number))!).takeUnretainedValue()
  }

  /// Drops the reference that ``opened`` took.
  static func close(_ number: UInt64) {
    // Safe: release comes once for each handle, as the last that names it.
    Unmanaged<Handle>.fromOpaque(UnsafeRawPointer(bitPattern: UInt(number))!).release()
  }
}

extension FileSystem {
  func open(node: UInt64, flags: CInt, caller: Caller, reply: consuming OpenReply) {
    let mayWrite = flags & O_ACCMODE != O_RDONLY
    if mayWrite && copy.isReader { return reply.fail(.readOnly) }
    // Its bytes were replaced, and the kernel has not heard of it yet: it looks the name up again then.
    guard copy.isReader || isCurrent(node) else { return reply.fail(.stale) }
    let file = files.retain(node)
    do throws(MarfaError) { try file.load() } catch {
      files.release(file)
      return reply.fail(error.errno)
    }
    // The kernel reads no further than the length it knows: it is learnt before anything is read.
    if let hash = file.unsized, flags & O_TRUNC == 0 {
      return whenSized(hash, file, reply) { (reply: consuming OpenReply) in
        self.finishOpen(file, flags, caller, reply)
      }
    }
    finishOpen(file, flags, caller, reply)
  }

  private func finishOpen(_ file: OpenFile, _ flags: CInt, _ caller: Caller, _ reply: consuming OpenReply) {
    let mayWrite = flags & O_ACCMODE != O_RDONLY
    // With O_DIRECT a program reads the pieces it likes from us; not every disk would have them.
    let mayPass = !mayWrite && flags & (O_TRUNC | marfa_o_direct) == 0
    // A reader's kernel looked up another content than is there by now, or one that changes where it is: it keeps nothing
    // of what is read.
    let isLive = copy.isReader && (file.isLive || ids.id(of: file.number, content: tag(file.content)) != file.id)
    let content = isLive ? nil : tag(file.content)
    guard let mode = modes.open(file.id, content: content, passing: mayPass && !isLive ? file.held : nil) else {
      files.release(file)
      forgetOutdated(file.number)
      return reply.fail(.stale)
    }
    do throws(MarfaError) {
      if mayWrite { file.addWriter() }
      do throws(MarfaError) {
        if mayWrite && flags & O_TRUNC != 0 { try file.truncate(to: 0) }
      } catch {
        removeWriter(of: file)
        throw error
      }
    } catch {
      modes.close(file.id, mode)
      files.release(file)
      return reply.fail(error.errno)
    }
    let handle = Handle(
      file, mode, mayWrite: mayWrite, changesInPlace: mayWrite && flags & O_TRUNC == 0, opener: caller.pid
    ).opened
    let delivery: Delivery
    switch mode {
    case .passthrough(let number): delivery = reply.opened(handle: handle, passingThrough: number)
    // A node id's bytes change only through this kernel, which knows; a reader's change behind its back.
    case .ordinary:
      delivery = reply.opened(
        handle: handle, keepCache: !copy.isReader, directIO: isLive, isReadOnly: !mayWrite)
    }
    if delivery == .abandoned { close(handle) }
  }

  func create(
    parent: UInt64, name: UnsafeRawBufferPointer, mode: mode_t, flags: CInt, caller: Caller,
    reply: consuming CreateReply
  ) {
    let node: Node
    let staged: StagedFile?
    do throws(MarfaError) {
      (node, staged) = try tree.createFile(
        number(parent), FileName(checking: name), mode: mode, owner: caller.owner, writing: true)
    } catch {
      return reply.fail(error.errno)
    }
    let file = files.retain(ids.id(of: node.number))
    file.load(node, staged)
    // A number that nobody has had before is open nowhere.
    guard let mode = modes.open(file.id, content: 0, passing: nil) else {
      files.release(file)
      return reply.fail(.stale)
    }
    file.addWriter()
    // Whatever it was opened for, its first close makes it a file.
    let handle = Handle(file, mode, mayWrite: true, opener: caller.pid).opened
    let delivery = reply.created(
      node: file.id, generation: 0, attributes: status(of: node), entryTimeout: timeout,
      attributeTimeout: timeout, handle: handle, keepCache: true)
    if delivery == .abandoned { close(handle) }
  }

  func read(node: UInt64, handle: UInt64, size: Int, offset: Int64, reply: consuming DataReply) {
    let descriptor = Handle.of(handle).file.descriptor
    if descriptor == nil, let hash = Handle.of(handle).file.elsewhere {
      return readElsewhere(Handle.of(handle), hash, offset, size, reply)
    }
    answer(descriptor?.raw, offset, size, reply)
    // It is read from until the reply is out, whoever swaps the file's bytes meanwhile.
    withExtendedLifetime(descriptor) {}
  }

  /// Bytes of a descriptor, none without one. (Apart from `read`: Swift 6.0's optimizer trips over the two together.)
  @inline(never)
  private func answer(_ descriptor: CInt?, _ offset: Int64, _ size: Int, _ reply: consuming DataReply) {
    if let descriptor {
      reply.file(descriptor: descriptor, offset: offset, count: size)
    } else {
      reply.bytes(UnsafeRawBufferPointer(start: nil, count: 0))
    }
  }

  func write(
    node: UInt64, handle: UInt64, source: UnsafeMutablePointer<fuse_bufvec>, offset: Int64, flags: CInt,
    reply: consuming WriteReply
  ) {
    let source = WriteSource(source)
    if Handle.of(handle).changesInPlace { modes.noteChange(NodeIDs.number(node)) }
    if let hash = Handle.of(handle).file.elsewhere {
      return writeElsewhere(Handle.of(handle).file, hash, source, at: offset, reply)
    }
    do throws(MarfaError) {
      let written = try Handle.of(handle).file.write(source.size, at: offset) { (descriptor) throws(Errno) in
        try source.move(to: descriptor, at: offset)
      }
      reply.written(written)
    } catch {
      reply.fail(error.errno)
    }
  }

  func flush(node: UInt64, handle: UInt64, caller: Caller, reply: consuming DoneReply) {
    let handle = Handle.of(handle)
    guard handle.mayWrite else {
      reply.done()
      return
    }
    let isDirty = handle.file.isBeingWritten
    do throws(MarfaError) {
      // Another than its opener closes what it was handed down, or what an exec closes for it: its opener may be in the
      // middle of writing, and half a file is not sealed for that.
      try handle.file.flush(sealing: caller.pid == handle.opener)
      if isDirty { noteSealed(handle.file) }
      reply.done()
    } catch {
      // Before the program hears of it: what it reads next is what there is.
      if forgetGivenUp(handle.file) { settleKernel() }
      reply.fail(error.errno)
    }
  }

  func fsync(node: UInt64, handle: UInt64, dataOnly: Bool, reply: consuming DoneReply) {
    guard !copy.isReader else {
      reply.done()
      return
    }
    do throws(MarfaError) {
      try Handle.of(handle).file.synchronize()
      reply.done()
    } catch {
      reply.fail(error.errno)
    }
  }

  func release(node: UInt64, handle: UInt64, flags: CInt, reply: consuming DoneReply) {
    close(handle)
    reply.done()
  }

  /// A writing handle of a file is gone. The kernel hears of it when what it wrote could not be kept.
  func removeWriter(of file: OpenFile) {
    let isDirty = file.isBeingWritten
    file.removeWriter()
    forgetGivenUp(file)
    if isDirty { noteSealed(file) }
  }

  private func close(_ number: UInt64) {
    let handle = Handle.of(number)
    handle.closeReader()
    if handle.mayWrite { removeWriter(of: handle.file) }
    // What was written is sealed before the kernel may read it by itself.
    modes.close(handle.file.id, handle.mode)
    files.release(handle.file)
    Handle.close(number)
  }

  func fallocate(
    node: UInt64, handle: UInt64, mode: CInt, offset: Int64, length: Int64, reply: consuming DoneReply
  ) {
    let known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE
    guard mode & ~known == 0 else { return reply.fail(.notSupported) }
    if let hash = Handle.of(handle).file.elsewhere {
      return whenWhole(hash, Handle.of(handle).file, reply) { (reply: consuming DoneReply) in
        self.fallocate(node: node, handle: handle, mode: mode, offset: offset, length: length, reply: reply)
      }
    }
    do throws(MarfaError) {
      try Handle.of(handle).file.allocate(mode: mode, at: offset, length: length)
      reply.done()
    } catch {
      reply.fail(error.errno)
    }
  }

  func lseek(node: UInt64, handle: UInt64, offset: Int64, whence: CInt, reply: consuming SeekReply) {
    do throws(Errno) { reply.offset(try seek(Handle.of(handle).file, offset, whence)) } catch { reply.fail(error) }
  }

  private func seek(_ file: OpenFile, _ offset: Int64, _ whence: CInt) throws(Errno) -> Int64 {
    guard let descriptor = file.descriptor else {
      // Which parts are here says nothing of where data is.
      guard file.elsewhere != nil, let size = file.overlay(nil)?.size, offset >= 0, offset < size else {
        throw Errno(ENXIO)
      }
      return whence == SEEK_HOLE ? size : offset
    }
    let found = Glibc.lseek(descriptor.raw, off_t(offset), whence)
    let error = Errno.last
    withExtendedLifetime(descriptor) {}
    if found < 0 { throw error }
    return Int64(found)
  }
}
