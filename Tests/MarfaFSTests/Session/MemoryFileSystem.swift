import CFuse3
import Glibc
import MarfaEngine

@testable import MarfaFS

/// `SEEK_HOLE`, which glibc hides from Swift.
private let seekHole: CInt = 4

/// A small filesystem in memory, with the few oddities the session's tests need.
final class MemoryFileSystem: FileSystemOperations {
  /// What a node is.
  enum Content {
    case file([UInt8])
    case directory([(name: [UInt8], node: UInt64)])
    case link([UInt8])
  }

  /// One node.
  struct Node {
    var content: Content
    var mode: mode_t
    var xattrs: [[UInt8]: [UInt8]] = [:]
    var mtime = Timestamp(nanoseconds: 1_700_000_000_123_456_789)
    var lookups: UInt64 = 0
  }

  /// All that changes.
  struct State {
    var nodes: [UInt64: Node] = [1: Node(content: .directory([]), mode: 0o755)]
    var last: UInt64 = 1
    var parked: [ParkedReply<DataAnswer>] = []
    var reads = 0
    var lookups = 0
    var releases = 0
    /// How often an extended attribute was asked for.
    var questions = 0
    var changes: [AttributeChanges] = []
  }

  let state = Monitor(State())
  /// Until this is true, a lookup of `stuck` holds its thread.
  let isFreed = Monitor(false)
  /// How many lookups hold their thread.
  let stuck = Monitor(0)
  /// How many seconds the kernel may believe what it was told.
  let timeout: Double

  init(timeout: Double = 60) { self.timeout = timeout }

  /// Puts a file in the root.
  @discardableResult
  func addFile(_ name: String, _ bytes: [UInt8]) -> UInt64 {
    state.update { $0.add(Array(name.utf8), Node(content: .file(bytes), mode: 0o644), to: 1) ?? 0 }
  }

  /// Replaces a file's bytes behind the kernel's back.
  func replace(_ node: UInt64, _ bytes: [UInt8]) { state.update { $0.nodes[node]?.content = .file(bytes) } }

  /// Takes a name out of the root behind the kernel's back.
  func remove(_ name: String) { _ = state.update { $0.remove(Array(name.utf8), from: 1) } }

  /// Answers every read that is parked still, and tells how many those were.
  func answerParked(_ error: Errno) -> Int {
    var count = 0
    for parked in state.read({ $0.parked }) {
      guard let reply = parked.take() else { continue }
      reply.fail(error)
      count += 1
    }
    return count
  }

  // MARK: Names

  func lookup(parent: UInt64, name: UnsafeRawBufferPointer, reply: consuming EntryReply) {
    let name = Array(name)
    if name == Array("stuck".utf8) {
      stuck.update { $0 += 1 }
      _ = isFreed.wait { $0 ? true : nil }
    }
    let found = state.update { state -> (UInt64, stat)? in
      state.lookups += 1
      guard let node = state.child(name, of: parent) else { return nil }
      state.nodes[node]?.lookups += 1
      return (node, state.status(node))
    }
    guard let (node, status) = found else { return reply.noEntry(timeout: timeout) }
    _ = reply.entry(
      node: node, generation: 0, attributes: status, entryTimeout: timeout, attributeTimeout: timeout)
  }

  func forget(node: UInt64, count: UInt64) { state.update { $0.nodes[node]?.lookups &-= count } }

  private func make(_ parent: UInt64, _ name: UnsafeRawBufferPointer, _ node: Node, _ reply: consuming EntryReply) {
    let made = state.update { state -> (UInt64, stat)? in
      guard let made = state.add(Array(name), node, to: parent) else { return nil }
      state.nodes[made]?.lookups += 1
      return (made, state.status(made))
    }
    guard let (node, status) = made else { return reply.fail(.exists) }
    _ = reply.entry(node: node, generation: 0, attributes: status, entryTimeout: timeout, attributeTimeout: timeout)
  }

  func mknod(
    parent: UInt64, name: UnsafeRawBufferPointer, mode: mode_t, rdev: dev_t, caller: Caller,
    reply: consuming EntryReply
  ) {
    make(parent, name, Node(content: .file([]), mode: mode & 0o7777), reply)
  }

  func mkdir(
    parent: UInt64, name: UnsafeRawBufferPointer, mode: mode_t, caller: Caller, reply: consuming EntryReply
  ) {
    make(parent, name, Node(content: .directory([]), mode: mode & 0o7777), reply)
  }

  func symlink(
    target: UnsafeRawBufferPointer, parent: UInt64, name: UnsafeRawBufferPointer, caller: Caller,
    reply: consuming EntryReply
  ) {
    make(parent, name, Node(content: .link(Array(target)), mode: 0o777), reply)
  }

  func unlink(parent: UInt64, name: UnsafeRawBufferPointer, reply: consuming DoneReply) {
    let name = Array(name)
    if state.update({ $0.remove(name, from: parent) }) { reply.done() } else { reply.fail(.notFound) }
  }

  func rmdir(parent: UInt64, name: UnsafeRawBufferPointer, reply: consuming DoneReply) {
    unlink(parent: parent, name: name, reply: reply)
  }

  func rename(
    parent: UInt64, name: UnsafeRawBufferPointer, newParent: UInt64, newName: UnsafeRawBufferPointer, flags: UInt32,
    reply: consuming DoneReply
  ) {
    guard flags == 0 else { return reply.fail(.invalid) }
    let (name, newName) = (Array(name), Array(newName))
    let isDone = state.update { state in
      guard let node = state.child(name, of: parent) else { return false }
      _ = state.remove(name, from: parent)
      _ = state.remove(newName, from: newParent)
      state.attach(newName, node, to: newParent)
      return true
    }
    if isDone { reply.done() } else { reply.fail(.notFound) }
  }

  func link(node: UInt64, newParent: UInt64, newName: UnsafeRawBufferPointer, reply: consuming EntryReply) {
    let name = Array(newName)
    let status = state.update { state in
      state.attach(name, node, to: newParent)
      state.nodes[node]?.lookups += 1
      return state.status(node)
    }
    _ = reply.entry(node: node, generation: 0, attributes: status, entryTimeout: timeout, attributeTimeout: timeout)
  }

  // MARK: Attributes

  func getattr(node: UInt64, handle: UInt64?, reply: consuming AttributeReply) {
    reply.attributes(state.read { $0.status(node) }, timeout: timeout)
  }

  func setattr(
    node: UInt64, changes: AttributeChanges, handle: UInt64?, caller: Caller, reply: consuming AttributeReply
  ) {
    let status = state.update { state in
      state.changes.append(changes)
      if let mode = changes.mode { state.nodes[node]?.mode = mode }
      if case .exact(let time) = changes.mtime { state.nodes[node]?.mtime = time }
      if let size = changes.size, case .file(let bytes) = state.nodes[node]?.content {
        let size = Int(size)
        state.nodes[node]?.content = .file(
          Array(bytes.prefix(size)) + [UInt8](repeating: 0, count: max(0, size - bytes.count)))
      }
      return state.status(node)
    }
    reply.attributes(status, timeout: timeout)
  }

  func readlink(node: UInt64, reply: consuming LinkReply) {
    guard case .link(let target) = state.read({ $0.nodes[node]?.content }) else { return reply.fail(.invalid) }
    // A noncopyable value cannot be consumed in a closure: the pointer comes out to it.
    let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: target.count, alignment: 1)
    defer { bytes.deallocate() }
    bytes.copyBytes(from: target)
    reply.target(UnsafeRawBufferPointer(bytes))
  }

  func statfs(node: UInt64, reply: consuming StatfsReply) {
    var status = statvfs()
    status.f_bsize = 4096
    status.f_frsize = 4096
    status.f_blocks = 1000
    status.f_bavail = 500
    status.f_namemax = 255
    reply.room(status)
  }

  func setxattr(
    node: UInt64, name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer, flags: CInt,
    reply: consuming DoneReply
  ) {
    let (name, value) = (Array(name), Array(value))
    state.update { $0.nodes[node]?.xattrs[name] = value }
    reply.done()
  }

  func getxattr(node: UInt64, name: UnsafeRawBufferPointer, size: Int, reply: consuming XattrReply) {
    let name = Array(name)
    let found = state.update { state in
      state.questions += 1
      return state.nodes[node]?.xattrs[name]
    }
    guard let value = found else { return reply.fail(.noData) }
    answer(reply, value, size)
  }

  func listxattr(node: UInt64, size: Int, reply: consuming XattrReply) {
    answer(reply, state.read { ($0.nodes[node]?.xattrs ?? [:]).keys.flatMap { $0 + [0] } }, size)
  }

  private func answer(_ reply: consuming XattrReply, _ value: [UInt8], _ size: Int) {
    let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: value.count, alignment: 1)
    defer { bytes.deallocate() }
    bytes.copyBytes(from: value)
    reply.value(UnsafeRawBufferPointer(bytes), asked: size)
  }

  func removexattr(node: UInt64, name: UnsafeRawBufferPointer, reply: consuming DoneReply) {
    let name = Array(name)
    let old = state.update { $0.nodes[node]?.xattrs.removeValue(forKey: name) }
    if old == nil { reply.fail(.noData) } else { reply.done() }
  }

  // MARK: Open files

  func open(node: UInt64, flags: CInt, caller: Caller, reply: consuming OpenReply) {
    if flags & O_TRUNC != 0 { replace(node, []) }
    _ = reply.opened(handle: node, keepCache: true)
  }

  func create(
    parent: UInt64, name: UnsafeRawBufferPointer, mode: mode_t, flags: CInt, caller: Caller,
    reply: consuming CreateReply
  ) {
    let name = Array(name)
    let made = state.update { state -> (UInt64, stat)? in
      guard let made = state.add(name, Node(content: .file([]), mode: mode & 0o7777), to: parent) else { return nil }
      state.nodes[made]?.lookups += 1
      return (made, state.status(made))
    }
    guard let (node, status) = made else { return reply.fail(.exists) }
    _ = reply.created(
      node: node, generation: 0, attributes: status, entryTimeout: timeout, attributeTimeout: timeout, handle: node,
      keepCache: true)
  }

  /// A file that begins with `park` is never read until somebody answers what is parked.
  func read(node: UInt64, handle: UInt64, size: Int, offset: Int64, reply: consuming DataReply) {
    let bytes = state.update { state in
      state.reads += 1
      return state.bytes(node)
    }
    if bytes.starts(with: Array("park".utf8)) {
      let parked = reply.park()
      state.update { $0.parked.append(parked) }
      parked.whenInterrupted { $0.take()?.fail(Errno(EINTR)) }
      return
    }
    let part = bytes.dropFirst(Int(offset)).prefix(size)
    let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: part.count, alignment: 1)
    defer { copy.deallocate() }
    copy.copyBytes(from: part)
    reply.bytes(UnsafeRawBufferPointer(copy))
  }

  func write(
    node: UInt64, handle: UInt64, source: UnsafeMutablePointer<fuse_bufvec>, offset: Int64, flags: CInt,
    reply: consuming WriteReply
  ) {
    let source = WriteSource(source)
    let memory = UnsafeMutableRawBufferPointer.allocate(byteCount: source.size, alignment: 1)
    defer { memory.deallocate() }
    let count: Int
    do throws(Errno) { count = try source.copy(into: memory) } catch { return reply.fail(error) }
    state.update { state in
      var bytes = state.bytes(node)
      let start = Int(offset)
      if bytes.count < start + count { bytes += [UInt8](repeating: 0, count: start + count - bytes.count) }
      bytes.replaceSubrange(start..<start + count, with: memory.prefix(count))
      state.nodes[node]?.content = .file(bytes)
    }
    reply.written(count)
  }

  func flush(node: UInt64, handle: UInt64, caller: Caller, reply: consuming DoneReply) { reply.done() }
  func fsync(node: UInt64, handle: UInt64, dataOnly: Bool, reply: consuming DoneReply) { reply.done() }

  func release(node: UInt64, handle: UInt64, flags: CInt, reply: consuming DoneReply) {
    state.update { $0.releases += 1 }
    reply.done()
  }

  func fallocate(
    node: UInt64, handle: UInt64, mode: CInt, offset: Int64, length: Int64, reply: consuming DoneReply
  ) {
    reply.fail(.notSupported)
  }

  func lseek(node: UInt64, handle: UInt64, offset: Int64, whence: CInt, reply: consuming SeekReply) {
    let size = Int64(state.read { $0.bytes(node).count })
    if offset >= size { reply.fail(Errno(ENXIO)) } else { reply.offset(whence == seekHole ? size : offset) }
  }

  // MARK: Open directories

  func opendir(node: UInt64, flags: CInt, reply: consuming OpenReply) { _ = reply.opened(handle: node) }

  func readdir(
    node: UInt64, handle: UInt64, size: Int, offset: Int64, plus: Bool, reply: consuming DirectoryReply
  ) {
    // One buffer a call: this filesystem keeps none for each handle.
    let buffer = DirectoryBuffer()
    buffer.reset(size: size)
    state.update { state in
      guard case .directory(let entries) = state.nodes[node]?.content else { return }
      for (index, entry) in entries.enumerated().dropFirst(Int(offset)) {
        let status = state.status(entry.node)
        let next = Int64(index) + 1
        let fits = entry.name.withUnsafeBytes { name in
          plus
            ? buffer.append(
              name: name, attributes: status, node: entry.node, generation: 0, offset: next, entryTimeout: timeout,
              attributeTimeout: timeout)
            : buffer.append(name: name, inode: entry.node, mode: status.st_mode, offset: next)
        }
        guard fits else { return }
        if plus { state.nodes[entry.node]?.lookups += 1 }
      }
    }
    reply.entries(buffer)
  }

  func releasedir(node: UInt64, handle: UInt64, reply: consuming DoneReply) { reply.done() }
  func fsyncdir(node: UInt64, handle: UInt64, dataOnly: Bool, reply: consuming DoneReply) { reply.done() }
}

extension MemoryFileSystem.State {
  func child(_ name: [UInt8], of parent: UInt64) -> UInt64? {
    guard case .directory(let entries) = nodes[parent]?.content else { return nil }
    return entries.first { $0.name == name }?.node
  }

  mutating func attach(_ name: [UInt8], _ node: UInt64, to parent: UInt64) {
    guard case .directory(var entries) = nodes[parent]?.content else { return }
    nodes[parent]?.content = .directory([])
    entries.append((name, node))
    nodes[parent]?.content = .directory(entries)
  }

  /// A node under a name; `nil` when there is one of that name.
  mutating func add(_ name: [UInt8], _ node: MemoryFileSystem.Node, to parent: UInt64) -> UInt64? {
    guard child(name, of: parent) == nil else { return nil }
    last += 1
    nodes[last] = node
    attach(name, last, to: parent)
    return last
  }

  mutating func remove(_ name: [UInt8], from parent: UInt64) -> Bool {
    guard case .directory(var entries) = nodes[parent]?.content else { return false }
    let count = entries.count
    entries.removeAll { $0.name == name }
    nodes[parent]?.content = .directory(entries)
    return entries.count < count
  }

  func bytes(_ node: UInt64) -> [UInt8] {
    guard case .file(let bytes) = nodes[node]?.content else { return [] }
    return bytes
  }

  func status(_ number: UInt64) -> stat {
    var status = stat()
    guard let node = nodes[number] else { return status }
    status.st_ino = ino_t(number)
    status.st_nlink = 1
    status.st_uid = geteuid()
    status.st_gid = getegid()
    status.st_mtim = node.mtime.timespec
    switch node.content {
    case .file(let bytes):
      status.st_mode = S_IFREG | node.mode
      status.st_size = off_t(bytes.count)
    case .directory: status.st_mode = S_IFDIR | node.mode
    case .link(let target):
      status.st_mode = S_IFLNK | node.mode
      status.st_size = off_t(target.count)
    }
    return status
  }
}
