import CFuse3
import Glibc
import MarfaEngine

/// Whether the kernel took an answer.
enum Delivery: Sendable {
  /// It did, and it keeps what the answer gave it.
  case delivered
  /// The request is gone (its mount ended) and the kernel keeps nothing. Undo what the answer promised: lower the lookup
  /// count, close the handle.
  case abandoned
}

/// Answers a lookup, or what makes an entry.
typealias EntryReply = Reply<EntryAnswer>
/// Answers with attributes.
typealias AttributeReply = Reply<AttributeAnswer>
/// Answers a readlink.
typealias LinkReply = Reply<LinkAnswer>
/// Answers an open or opendir.
typealias OpenReply = Reply<OpenAnswer>
/// Answers a create.
typealias CreateReply = Reply<CreateAnswer>
/// Answers a read.
typealias DataReply = Reply<DataAnswer>
/// Answers a write.
typealias WriteReply = Reply<WriteAnswer>
/// Answers what has nothing to tell but that it is done.
typealias DoneReply = Reply<DoneAnswer>
/// Answers a getxattr or listxattr.
typealias XattrReply = Reply<XattrAnswer>
/// Answers a statfs.
typealias StatfsReply = Reply<StatfsAnswer>
/// Answers an lseek.
typealias SeekReply = Reply<SeekAnswer>
/// Answers a readdir.
typealias DirectoryReply = Reply<DirectoryAnswer>

// What a reply may say. These have no values: they only choose which methods a `Reply` has.
enum EntryAnswer {}
enum AttributeAnswer {}
enum LinkAnswer {}
enum OpenAnswer {}
enum CreateAnswer {}
enum DataAnswer {}
enum WriteAnswer {}
enum DoneAnswer {}
enum XattrAnswer {}
enum StatfsAnswer {}
enum SeekAnswer {}
enum DirectoryAnswer {}

/// The duty to answer one request of the kernel: a value that is spent exactly once, from any thread.
///
/// Answering twice, or a lookup with a write's answer, does not compile. One that is dropped unspent is a defect: it traps
/// in debug builds, and answers EIO in release ones, so that no program hangs for it.
struct Reply<Answer>: ~Copyable, @unchecked Sendable {
  // Safe to send: libfuse lets any thread answer, and a noncopyable value has one owner.
  let request: fuse_req_t

  /// Takes on the duty. The session counts it, so that it is not torn down under an answer that is still to come.
  init(_ request: fuse_req_t) {
    self.request = request
    Driver.of(request).begin()
  }

  /// Whether the asking program no longer waits (a signal came). It still gets an answer; EINTR is the right one.
  var isInterrupted: Bool { fuse_req_interrupted(request) != 0 }

  /// Answers with an error.
  consuming func fail(_ error: Errno) {
    _ = Self.send(request) { fuse_reply_err($0, error.code) }
    discard self
  }

  /// Keeps the duty for later, in a box that can be shared between threads.
  consuming func park() -> ParkedReply<Answer> { ParkedReply(self) }

  deinit {
    assertionFailure("request dropped without a reply")
    _ = Self.send(request) { fuse_reply_err($0, EIO) }
  }

  /// Sends one answer and tells whether the kernel took it. The request is gone afterwards, so its driver is looked up
  /// before.
  @inline(__always)
  fileprivate static func send(_ request: fuse_req_t, _ answer: (fuse_req_t) -> CInt) -> Delivery {
    let driver = Driver.of(request)
    let code = answer(request)
    driver.end()
    return code == 0 ? .delivered : .abandoned
  }
}

extension Reply where Answer == EntryAnswer {
  /// The entry: a node, and for how many seconds the kernel may believe the name and the attributes without asking.
  consuming func entry(
    node: UInt64, generation: UInt64, attributes: stat, entryTimeout: Double, attributeTimeout: Double
  ) -> Delivery {
    var parameters = fuse_entry_param(
      ino: node, generation: generation, attr: attributes, attr_timeout: attributeTimeout,
      entry_timeout: entryTimeout)
    let delivery = Self.send(request) { fuse_reply_entry($0, &parameters) }
    discard self
    return delivery
  }

  /// There is no such entry, and for so many seconds the kernel need not ask again. With 0 it is plain ENOENT.
  consuming func noEntry(timeout: Double) {
    if timeout > 0 {
      var parameters = fuse_entry_param()
      parameters.entry_timeout = timeout
      _ = Self.send(request) { fuse_reply_entry($0, &parameters) }
    } else {
      _ = Self.send(request) { fuse_reply_err($0, ENOENT) }
    }
    discard self
  }
}

extension Reply where Answer == AttributeAnswer {
  /// The attributes, and for how many seconds the kernel may believe them.
  @discardableResult
  consuming func attributes(_ attributes: stat, timeout: Double) -> Delivery {
    var attributes = attributes
    let delivery = Self.send(request) { fuse_reply_attr($0, &attributes, timeout) }
    discard self
    return delivery
  }
}

extension Reply where Answer == LinkAnswer {
  /// Where the link leads: bytes, no NUL at the end.
  @discardableResult
  consuming func target(_ bytes: UnsafeRawBufferPointer) -> Delivery {
    let delivery = Self.send(request) { fuse_reply_buf($0, bytes.baseAddress, bytes.count) }
    discard self
    return delivery
  }
}

/// The kernel's own flags of an answer to an open (linux/fuse.h).
private enum OpenFlag {
  static let noFlush: UInt32 = 1 << 5
  static let passthrough: UInt32 = 1 << 7
}

extension Reply where Answer == OpenAnswer {
  /// It is open, under this handle.
  ///
  /// - `keepCache`: what the kernel has cached of the file stays good.
  /// - `directIO`: past the page cache, each read and write comes here.
  /// - `cacheReaddir`: for a directory, the kernel may keep what it lists; with `keepCache` also what it kept before.
  /// - `isReadOnly`: nothing is written through it, so that closing it need not be told.
  consuming func opened(
    handle: UInt64, keepCache: Bool = false, directIO: Bool = false, cacheReaddir: Bool = false,
    isReadOnly: Bool = false
  ) -> Delivery {
    var info = fuse_file_info(handle: handle, keepCache: keepCache, directIO: directIO)
    info.cache_readdir = cacheReaddir ? 1 : 0
    info.noflush = isReadOnly ? 1 : 0
    let delivery = Self.send(request) { fuse_reply_open($0, &info) }
    discard self
    return delivery
  }

  /// It is open for reading, and the kernel reads it by itself from the file that it knows by this number.
  ///
  /// Written here and not by libfuse, which has a word for it from 3.17 on only.
  consuming func opened(handle: UInt64, passingThrough number: CInt) -> Delivery {
    // struct fuse_open_out: the handle, the flags, the number.
    var flags = OpenFlag.passthrough | OpenFlag.noFlush
    var number = number
    let delivery = withUnsafeTemporaryAllocation(byteCount: 16, alignment: 8) { buffer in
      buffer.storeBytes(of: handle, as: UInt64.self)
      withUnsafeBytes(of: &flags) { buffer[8..<12].copyBytes(from: $0) }
      withUnsafeBytes(of: &number) { buffer[12..<16].copyBytes(from: $0) }
      return Self.send(request) { fuse_reply_buf($0, buffer.baseAddress, buffer.count) }
    }
    discard self
    return delivery
  }
}

extension Reply where Answer == CreateAnswer {
  /// It is made, and open under this handle.
  consuming func created(
    node: UInt64, generation: UInt64, attributes: stat, entryTimeout: Double, attributeTimeout: Double,
    handle: UInt64, keepCache: Bool = false, directIO: Bool = false
  ) -> Delivery {
    var parameters = fuse_entry_param(
      ino: node, generation: generation, attr: attributes, attr_timeout: attributeTimeout,
      entry_timeout: entryTimeout)
    var info = fuse_file_info(handle: handle, keepCache: keepCache, directIO: directIO)
    let delivery = Self.send(request) { fuse_reply_create($0, &parameters, &info) }
    discard self
    return delivery
  }
}

extension Reply where Answer == DataAnswer {
  /// The bytes read, out of memory.
  @discardableResult
  consuming func bytes(_ bytes: UnsafeRawBufferPointer) -> Delivery {
    let delivery = Self.send(request) { fuse_reply_buf($0, bytes.baseAddress, bytes.count) }
    discard self
    return delivery
  }

  /// The bytes read, straight out of a file: the kernel moves its pages where it can. Fewer are sent where the file
  /// ends before.
  @discardableResult
  consuming func file(descriptor: CInt, offset: Int64, count: Int) -> Delivery {
    var source = fuse_bufvec()
    source.count = 1
    source.buf.size = count
    source.buf.flags = fuse_buf_flags(rawValue: FUSE_BUF_IS_FD.rawValue | FUSE_BUF_FD_SEEK.rawValue)
    source.buf.fd = descriptor
    source.buf.pos = off_t(offset)
    let delivery = Self.send(request) { fuse_reply_data($0, &source, FUSE_BUF_SPLICE_MOVE) }
    discard self
    return delivery
  }
}

extension Reply where Answer == WriteAnswer {
  /// So many bytes were written.
  @discardableResult
  consuming func written(_ count: Int) -> Delivery {
    let delivery = Self.send(request) { fuse_reply_write($0, count) }
    discard self
    return delivery
  }
}

extension Reply where Answer == DoneAnswer {
  /// It is done.
  @discardableResult
  consuming func done() -> Delivery {
    let delivery = Self.send(request) { fuse_reply_err($0, 0) }
    discard self
    return delivery
  }
}

extension Reply where Answer == XattrAnswer {
  /// How many bytes there are, to one who asked with size 0.
  @discardableResult
  consuming func size(_ count: Int) -> Delivery {
    let delivery = Self.send(request) { fuse_reply_xattr($0, count) }
    discard self
    return delivery
  }

  /// The bytes themselves, no more than were asked for.
  @discardableResult
  consuming func bytes(_ bytes: UnsafeRawBufferPointer) -> Delivery {
    let delivery = Self.send(request) { fuse_reply_buf($0, bytes.baseAddress, bytes.count) }
    discard self
    return delivery
  }

  /// What both kinds of question want: with `asked` 0 the length, else the bytes, or ERANGE when they are more.
  consuming func value(_ value: UnsafeRawBufferPointer, asked: Int) {
    if asked == 0 {
      size(value.count)
    } else if value.count > asked {
      fail(Errno(ERANGE))
    } else {
      bytes(value)
    }
  }
}

extension Reply where Answer == StatfsAnswer {
  /// The room there is.
  @discardableResult
  consuming func room(_ status: statvfs) -> Delivery {
    var status = status
    let delivery = Self.send(request) { fuse_reply_statfs($0, &status) }
    discard self
    return delivery
  }
}

extension Reply where Answer == SeekAnswer {
  /// Where the data or the hole begins.
  @discardableResult
  consuming func offset(_ offset: Int64) -> Delivery {
    let delivery = Self.send(request) { fuse_reply_lseek($0, off_t(offset)) }
    discard self
    return delivery
  }
}

extension Reply where Answer == DirectoryAnswer {
  /// The entries gathered, none of them at the end of the directory. When `.abandoned`, every count the entries raised is
  /// to be lowered.
  @discardableResult
  consuming func entries(_ buffer: DirectoryBuffer) -> Delivery {
    bytes(buffer.bytes)
  }

  /// The entries as `DirectoryBuffer` has laid them out.
  @discardableResult
  consuming func bytes(_ bytes: UnsafeRawBufferPointer) -> Delivery {
    let delivery = Self.send(request) { fuse_reply_buf($0, bytes.baseAddress, bytes.count) }
    discard self
    return delivery
  }
}

extension fuse_file_info {
  /// What the kernel is told of a file just opened.
  fileprivate init(handle: UInt64, keepCache: Bool, directIO: Bool) {
    self.init()
    fh = handle
    keep_cache = keepCache ? 1 : 0
    direct_io = directIO ? 1 : 0
  }
}
