import CLinux
import Glibc
import MarfaEngine

extension FileSystem {
  func lookup(parent: UInt64, name: UnsafeRawBufferPointer, reply: consuming EntryReply) {
    guard name.count <= FileName.limit else { return reply.fail(.nameTooLong) }
    do throws(MarfaError) {
      guard let node = try tree.lookup(number(parent), name) else { return reply.noEntry(timeout: timeout) }
      answer(node, reply)
    } catch {
      reply.fail(error.errno)
    }
  }

  func forget(node: UInt64, count: UInt64) {}

  func mknod(
    parent: UInt64, name: UnsafeRawBufferPointer, mode: mode_t, rdev: dev_t, caller: Caller,
    reply: consuming EntryReply
  ) {
    do throws(MarfaError) {
      let (parent, name) = (number(parent), try FileName(checking: name))
      if mode & S_IFMT == S_IFREG || mode & S_IFMT == 0 {
        // Nobody has it open: it is what it will be.
        answer(try tree.createFile(parent, name, mode: mode, owner: caller.owner, writing: false).node, reply)
      } else {
        answer(try tree.makeSpecial(parent, name, mode: mode, device: rdev, owner: caller.owner), reply)
      }
    } catch {
      reply.fail(error.errno)
    }
  }

  func mkdir(
    parent: UInt64, name: UnsafeRawBufferPointer, mode: mode_t, caller: Caller, reply: consuming EntryReply
  ) {
    do throws(MarfaError) {
      answer(
        try tree.makeDirectory(number(parent), FileName(checking: name), mode: mode, owner: caller.owner), reply)
    } catch {
      reply.fail(error.errno)
    }
  }

  func symlink(
    target: UnsafeRawBufferPointer, parent: UInt64, name: UnsafeRawBufferPointer, caller: Caller,
    reply: consuming EntryReply
  ) {
    do throws(MarfaError) {
      answer(
        try tree.makeSymlink(number(parent), FileName(checking: name), target: Array(target), owner: caller.owner),
        reply)
    } catch {
      reply.fail(error.errno)
    }
  }

  func readlink(node: UInt64, reply: consuming LinkReply) {
    do throws(MarfaError) {
      guard let target = try tree.linkTarget(number(node)) else { return reply.fail(.invalid) }
      let bytes = Lent(target)
      reply.target(bytes.buffer)
      withExtendedLifetime(bytes) {}
    } catch {
      reply.fail(error.errno)
    }
  }

  func unlink(parent: UInt64, name: UnsafeRawBufferPointer, reply: consuming DoneReply) {
    do throws(MarfaError) {
      _ = try tree.unlink(number(parent), FileName(checking: name))
      reply.done()
    } catch {
      reply.fail(error.errno)
    }
  }

  func rmdir(parent: UInt64, name: UnsafeRawBufferPointer, reply: consuming DoneReply) {
    do throws(MarfaError) {
      _ = try tree.removeDirectory(number(parent), FileName(checking: name))
      reply.done()
    } catch {
      reply.fail(error.errno)
    }
  }

  func rename(
    parent: UInt64, name: UnsafeRawBufferPointer, newParent: UInt64, newName: UnsafeRawBufferPointer, flags: UInt32,
    reply: consuming DoneReply
  ) {
    let mode: Tree.RenameMode
    switch flags {
    case 0: mode = .replacing
    case UInt32(RENAME_NOREPLACE): mode = .refusing
    case UInt32(RENAME_EXCHANGE): mode = .exchanging
    default: return reply.fail(.invalid)
    }
    do throws(MarfaError) {
      // A file that is renamed before it is closed takes the place of another for good: what it has by now must
      // survive this process as the other's bytes did.
      try commitUnclosed(number(parent), name)
      if mode == .exchanging { try commitUnclosed(number(newParent), newName) }
      _ = try tree.rename(
        number(parent), FileName(checking: name), to: number(newParent), FileName(checking: newName), mode: mode)
      reply.done()
    } catch {
      reply.fail(error.errno)
    }
  }

  private func commitUnclosed(_ parent: Int64, _ name: UnsafeRawBufferPointer) throws(MarfaError) {
    guard let node = try tree.lookup(parent, name), node.kind == .file, let file = files.find(ids.id(of: node.number)),
      file.isBeingWritten
    else { return }
    try file.flush(sealing: false)
  }

  func link(node: UInt64, newParent: UInt64, newName: UnsafeRawBufferPointer, reply: consuming EntryReply) {
    do throws(MarfaError) {
      answer(try tree.link(number(node), to: number(newParent), FileName(checking: newName)), reply)
    } catch {
      reply.fail(error.errno)
    }
  }
}

extension Caller {
  /// Whose what he makes is.
  var owner: Owner { Owner(uid: uid, gid: gid) }
}

/// Bytes at a fixed address as long as this lives: a reply can't be spent inside `withUnsafeBytes`.
final class Lent {
  let buffer: UnsafeRawBufferPointer

  init(_ bytes: [UInt8]) {
    let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 1)
    copy.copyBytes(from: bytes)
    buffer = UnsafeRawBufferPointer(copy)
  }

  deinit { buffer.deallocate() }
}
