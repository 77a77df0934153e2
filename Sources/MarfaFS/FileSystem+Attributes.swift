import Glibc
import MarfaEngine

extension FileSystem {
  func getattr(node: UInt64, handle: UInt64?, reply: consuming AttributeReply) {
    do throws(MarfaError) {
      let stored = try tree.node(number(node))
      let file = stored?.kind == .directory ? nil : files.find(node)
      let known = file.map { $0.overlay(stored) } ?? stored
      let isCurrent = stored.map { id(of: $0) == node } ?? false
      // A name that a reader's kernel remembers, of other bytes by now: it looks it up again.
      guard let known, file != nil || isCurrent || !copy.isReader else { return reply.fail(.stale) }
      if known.kind == .file, known.size == nil, copy.blobs.canFetch, case .blob(let hash) = known.content {
        return getattr(known, sizeOf: hash, reply)
      }
      // Of an outdated id the kernel is told nothing when the node's attributes change.
      let lasts = isCurrent && file?.isLive != true
      reply.attributes(status(of: known), timeout: lasts ? attributeTimeout(known) : 0)
    } catch {
      reply.fail(error.errno)
    }
  }

  func setattr(
    node: UInt64, changes: AttributeChanges, handle: UInt64?, caller: Caller, reply: consuming AttributeReply
  ) {
    // Some of the old bytes stay: all are fetched first.
    if let size = changes.size, size > 0 {
      guard handle != nil || isCurrent(node) else { return reply.fail(.stale) }
      let file = files.retain(node)
      do throws(MarfaError) { try file.load() } catch {
        files.release(file)
        return reply.fail(error.errno)
      }
      if let hash = file.elsewhere {
        return whenWhole(
          hash, file, reply, finally: { self.files.release(file) },
          then: { (reply: consuming AttributeReply) in
            self.change(node: node, changes: changes, handle: handle, caller: caller, reply: reply)
          })
      }
      change(node: node, changes: changes, handle: handle, caller: caller, reply: reply)
      return files.release(file)
    }
    change(node: node, changes: changes, handle: handle, caller: caller, reply: reply)
  }

  private func change(
    node: UInt64, changes: AttributeChanges, handle: UInt64?, caller: Caller, reply: consuming AttributeReply
  ) {
    let number = number(node)
    do throws(MarfaError) {
      let result: Node?
      if let handle {
        result = try change(Handle.of(handle).file, changes)
      } else if changes.size != nil {
        // truncate(2): opened and closed again around it, so that it is committed when it returns.
        guard isCurrent(node) else { return reply.fail(.stale) }
        let file = files.retain(node)
        defer { files.release(file) }
        guard let mode = modes.open(node, content: 0, passing: nil) else {
          forgetOutdated(number)
          return reply.fail(.stale)
        }
        defer { modes.close(node, mode) }
        try file.load()
        file.addWriter()
        defer { removeWriter(of: file) }
        result = try change(file, changes)
        try file.flush(sealing: true)
      } else if let file = files.find(node) {
        result = try change(file, changes)
      } else {
        result = try tree.setAttributes(number, try nodeChanges(changes, of: number))
      }
      guard let result else { return reply.fail(.stale) }
      let isCurrent = isCurrent(node)
      // Asked through a handle of an outdated id: the kernel has the node under another one too.
      if !isCurrent { forgetAttributes(number) }
      reply.attributes(status(of: result), timeout: isCurrent ? attributeTimeout(result) : 0)
    } catch {
      reply.fail(error.errno)
    }
  }

  private func change(_ file: OpenFile, _ changes: AttributeChanges) throws(MarfaError) -> Node? {
    if let size = changes.size { try file.truncate(to: size) }
    let nodeChanges = try nodeChanges(changes, of: file.number)
    guard nodeChanges != NodeChanges() else { return file.overlay(try tree.node(file.number)) }
    return file.attributesChanged(nodeChanges, stored: try tree.setAttributes(file.number, nodeChanges))
  }

  private func nodeChanges(_ changes: AttributeChanges, of number: Int64) throws(MarfaError) -> NodeChanges {
    var result = NodeChanges()
    result.mode = changes.mode
    result.uid = changes.uid
    result.gid = changes.gid
    result.atime = changes.atime.map { $0.moment }
    result.mtime = changes.mtime.map { $0.moment }
    if changes.killSuidGid, changes.mode == nil, let node = try tree.node(number), node.kind != .directory,
      OpenFile.withoutPrivileges(node.mode) != node.mode
    {
      result.mode = OpenFile.withoutPrivileges(node.mode)
    }
    return result
  }

  func statfs(node: UInt64, reply: consuming StatfsReply) {
    do throws(Errno) { reply.room(try room.status()) } catch { reply.fail(error) }
  }
}

extension TimeChange {
  fileprivate var moment: Timestamp {
    switch self {
    case .now: .now
    case .exact(let moment): moment
    }
  }
}
