import CFuse3
import Glibc
import MarfaEngine

/// A working copy as a filesystem: what each of the kernel's questions is answered with. It knows nothing of how the
/// questions come (`Session`) nor of how the tree is kept (`MarfaEngine/Tree`).
///
/// A FUSE node id is a node's number in the store (``NodeIDs``), so nothing has to be remembered of what the kernel knows, and
/// `forget` is nothing to us.
final class FileSystem: FileSystemOperations {
  let copy: WorkingCopy
  let tree: Tree
  let room: Room
  let files: OpenFiles
  let facts = FactsCache()
  let ids = NodeIDs()
  let modes: OpenModes
  /// Where requests go on that waited for bytes and now change something.
  let later = WorkQueue(name: "marfa-later", threads: 4)
  private let invalidator: Invalidator

  /// For how many seconds the kernel may believe what it was told. As the only writer, every change comes through the
  /// kernel or is told it. A reader hears nothing of the writer's changes, so it asks again soon.
  let timeout: Double

  init(_ copy: WorkingCopy, invalidator: Invalidator, backing: BackingFiles = BackingFiles()) {
    self.copy = copy
    modes = OpenModes(ids, backing)
    self.invalidator = invalidator
    tree = copy.tree
    let tree = copy.tree
    let room = Room(folder: copy.blobsFolder) { tree.settle() }
    let isReader = copy.isReader
    self.room = room
    let blobs = copy.blobs
    files = OpenFiles { OpenFile($0, tree: tree, blobs: blobs, room: room, isReader: isReader) }
    timeout = isReader ? 1 : 86_400
    tree.observe { [invalidator, ids] changes in
      for change in changes {
        switch change {
        case .entry(let parent, let name): invalidator.entry(parent: ids.id(of: parent), name: name.bytes)
        case .node(let number): invalidator.inode(node: ids.id(of: number))
        case .attributes(let number): invalidator.attributes(node: ids.id(of: number))
        case .bytes(let number, let places):
          ids.replace(number)
          for place in places { invalidator.entry(parent: ids.id(of: place.parent), name: place.name.bytes) }
        }
      }
    }
  }

  /// The kernel believes something of names that are gone.
  func forgetNames(_ places: [(parent: Int64, name: FileName)]) {
    for place in places {
      invalidator.entry(parent: ids.id(of: place.parent), name: place.name.bytes)
      invalidator.inode(node: ids.id(of: place.parent))
    }
  }

  /// A handle of bytes that were replaced meanwhile has written its own: those are the file's now, and what the kernel
  /// has of the bytes between is not.
  func noteSealed(_ file: OpenFile) {
    guard ids.id(of: file.number) != file.id else { return }
    ids.replace(file.number)
    let places = (try? tree.places(of: file.number)) ?? []
    for place in places { invalidator.entry(parent: ids.id(of: place.parent), name: place.name.bytes) }
  }

  /// An id was outdated so that somebody can open its node otherwise (``OpenModes``): what the kernel has of the node is
  /// the former id's. It looks the name up again that it opens; of other names it is told, before anybody can write.
  func forgetOutdated(_ number: Int64) {
    let places = (try? tree.places(of: number)) ?? []
    for place in places { invalidator.entry(parent: ids.id(of: place.parent), name: place.name.bytes) }
    // Neither an open nor a truncation holds a directory or a page there.
    if places.count > 1 { settleKernel() }
  }

  /// The kernel believes something of a node's attributes that is no longer so.
  func forgetAttributes(_ number: Int64) { invalidator.attributes(node: ids.id(of: number)) }

  /// The kernel believes what was written to a file that could not be kept. False when there is no such thing.
  @discardableResult
  func forgetGivenUp(_ file: OpenFile) -> Bool {
    guard let names = file.takeGivenUp() else { return false }
    forgetNames(names)
    invalidator.inode(node: file.id)
    return true
  }

  /// Waits a moment for the kernel to have been told. (A close holds no directory and no page there.)
  func settleKernel() { invalidator.settle(seconds: 1) }

  // MARK: - Ids

  /// The id under which the kernel is to know a node as it is now.
  func id(of node: Node) -> UInt64 { ids.id(of: node.number, content: tag(node.content)) }

  /// What tells a file's bytes from others in its id. A reader hears nothing of the writer's changes: whatever it finds
  /// then, a handle keeps the bytes and the length it was opened with, and other bytes have another id.
  func tag(_ content: Node.Content) -> UInt64 {
    copy.isReader ? content.tag : 0
  }

  /// True for an id that is still handed out.
  func isCurrent(_ id: UInt64) -> Bool {
    guard copy.isReader else { return ids.id(of: number(id)) == id }
    guard let node = try? tree.node(number(id)) else { return false }
    return self.id(of: node) == id
  }

  /// A node number of the kernel's; it names only what it was told.
  func number(_ node: UInt64) -> Int64 { NodeIDs.number(node) }

  // MARK: - Attributes of a node

  /// What `stat` shows of a node (SEMANTICS.md, "Attributes").
  func status(of node: Node) -> stat {
    var status = stat()
    status.st_ino = ino_t(truncatingIfNeeded: node.number)
    status.st_mode = node.fileMode
    // A directory's count says nothing of its subdirectories: 1 tells programs so.
    status.st_nlink = nlink_t(max(node.kind == .directory ? 1 : 0, node.kind == .directory ? 1 : node.links))
    status.st_uid = node.uid
    status.st_gid = node.gid
    status.st_size = off_t(node.length)
    status.st_rdev = node.device
    // Larger than a page: programs that ask read and write in such pieces, each a trip through the kernel.
    status.st_blksize = 131_072
    if node.kind == .file { status.st_blocks = blkcnt_t(((node.partialBytes ?? node.size ?? 0) + 511) / 512) }
    status.st_atim = node.atime.timespec
    status.st_mtim = node.mtime.timespec
    status.st_ctim = node.ctime.timespec
    return status
  }

  /// For how many seconds the kernel may believe a node's attributes. Of bytes on their way here it asks again soon; a
  /// length that nobody knows yet it does not believe at all.
  func attributeTimeout(_ node: Node) -> Double {
    guard node.kind == .file else { return timeout }
    if node.size == nil { return 0 }
    return node.partialBytes == nil ? timeout : min(timeout, 1)
  }

  /// A node with what an open file of it knows better.
  func current(_ node: Node) -> Node {
    guard node.kind == .file, let file = files.find(id(of: node)) else { return node }
    return file.overlay(node) ?? node
  }

  /// Answers with an entry.
  func answer(_ node: Node, _ reply: consuming EntryReply) {
    let shown = current(node)
    _ = reply.entry(
      node: id(of: node), generation: 0, attributes: status(of: shown), entryTimeout: timeout,
      attributeTimeout: attributeTimeout(shown))
  }
}
