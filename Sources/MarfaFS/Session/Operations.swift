import CFuse3
import Glibc
import MarfaEngine

/// The table of callbacks that libfuse calls. Each borrows its arguments, calls one method of the filesystem, and is done:
/// there is no decision here, and nothing to allocate. The closures capture nothing; what they need is behind the request.
///
/// There is no `access` (the kernel checks, `default_permissions`), no `getlk`, `setlk` and `flock` (the kernel keeps
/// locks itself: nobody else sees these files) and no `copy_file_range` (the kernel reads and writes instead).
func makeOperations() -> fuse_lowlevel_ops {
  var operations = fuse_lowlevel_ops()
  operations.`init` = { driver, connection in
    guard let driver, let connection else { return }
    negotiate(connection)
    Unmanaged<Driver>.fromOpaque(driver).takeUnretainedValue().agreed()
  }
  addNameOperations(&operations)
  addAttributeOperations(&operations)
  addFileOperations(&operations)
  addDirectoryOperations(&operations)
  return operations
}

/// Lookups, and what makes, moves and takes away names.
private func addNameOperations(_ operations: inout fuse_lowlevel_ops) {
  operations.lookup = { request, parent, name in
    guard let request, let name else { return }
    filesystem(of: request).lookup(parent: parent, name: borrow(name), reply: Reply(request))
  }
  operations.forget = { request, node, count in
    guard let request else { return }
    filesystem(of: request).forget(node: node, count: count)
    fuse_reply_none(request)
  }
  operations.forget_multi = { request, count, forgets in
    guard let request else { return }
    let filesystem = filesystem(of: request)
    for forget in UnsafeBufferPointer(start: forgets, count: count) {
      filesystem.forget(node: forget.ino, count: forget.nlookup)
    }
    fuse_reply_none(request)
  }
  operations.mknod = { request, parent, name, mode, rdev in
    guard let request, let name else { return }
    filesystem(of: request).mknod(
      parent: parent, name: borrow(name), mode: mode, rdev: rdev, caller: Caller(request), reply: Reply(request))
  }
  operations.mkdir = { request, parent, name, mode in
    guard let request, let name else { return }
    filesystem(of: request).mkdir(
      parent: parent, name: borrow(name), mode: mode, caller: Caller(request), reply: Reply(request))
  }
  operations.symlink = { request, target, parent, name in
    guard let request, let target, let name else { return }
    filesystem(of: request).symlink(
      target: borrow(target), parent: parent, name: borrow(name), caller: Caller(request), reply: Reply(request))
  }
  operations.unlink = { request, parent, name in
    guard let request, let name else { return }
    filesystem(of: request).unlink(parent: parent, name: borrow(name), reply: Reply(request))
  }
  operations.rmdir = { request, parent, name in
    guard let request, let name else { return }
    filesystem(of: request).rmdir(parent: parent, name: borrow(name), reply: Reply(request))
  }
  operations.rename = { request, parent, name, newParent, newName, flags in
    guard let request, let name, let newName else { return }
    filesystem(of: request).rename(
      parent: parent, name: borrow(name), newParent: newParent, newName: borrow(newName), flags: flags,
      reply: Reply(request))
  }
  operations.link = { request, node, newParent, newName in
    guard let request, let newName else { return }
    filesystem(of: request).link(node: node, newParent: newParent, newName: borrow(newName), reply: Reply(request))
  }
}

/// Attributes, plain and extended.
private func addAttributeOperations(_ operations: inout fuse_lowlevel_ops) {
  operations.getattr = { request, node, info in
    guard let request else { return }
    filesystem(of: request).getattr(node: node, handle: info?.pointee.fh, reply: Reply(request))
  }
  operations.setattr = { request, node, attributes, which, info in
    guard let request, let attributes else { return }
    filesystem(of: request).setattr(
      node: node, changes: AttributeChanges(attributes, which), handle: info?.pointee.fh, caller: Caller(request),
      reply: Reply(request))
  }
  operations.readlink = { request, node in
    guard let request else { return }
    filesystem(of: request).readlink(node: node, reply: Reply(request))
  }
  operations.statfs = { request, node in
    guard let request else { return }
    filesystem(of: request).statfs(node: node, reply: Reply(request))
  }
  operations.setxattr = { request, node, name, value, size, flags in
    guard let request, let name else { return }
    filesystem(of: request).setxattr(
      node: node, name: borrow(name), value: UnsafeRawBufferPointer(start: value, count: size), flags: flags,
      reply: Reply(request))
  }
  operations.getxattr = { request, node, name, size in
    guard let request, let name else { return }
    filesystem(of: request).getxattr(node: node, name: borrow(name), size: size, reply: Reply(request))
  }
  operations.listxattr = { request, node, size in
    guard let request else { return }
    filesystem(of: request).listxattr(node: node, size: size, reply: Reply(request))
  }
  operations.removexattr = { request, node, name in
    guard let request, let name else { return }
    filesystem(of: request).removexattr(node: node, name: borrow(name), reply: Reply(request))
  }
}

/// Open files. The kernel always hands back what `open` or `create` made, so `info` is never null here.
private func addFileOperations(_ operations: inout fuse_lowlevel_ops) {
  operations.open = { request, node, info in
    guard let request, let info else { return }
    filesystem(of: request).open(
      node: node, flags: info.pointee.flags, caller: Caller(request), reply: Reply(request))
  }
  operations.create = { request, parent, name, mode, info in
    guard let request, let name, let info else { return }
    filesystem(of: request).create(
      parent: parent, name: borrow(name), mode: mode, flags: info.pointee.flags, caller: Caller(request),
      reply: Reply(request))
  }
  operations.read = { request, node, size, offset, info in
    guard let request, let info else { return }
    filesystem(of: request).read(
      node: node, handle: info.pointee.fh, size: size, offset: Int64(offset), reply: Reply(request))
  }
  operations.write_buf = { request, node, source, offset, info in
    guard let request, let source, let info else { return }
    filesystem(of: request).write(
      node: node, handle: info.pointee.fh, source: source, offset: Int64(offset), flags: info.pointee.flags,
      reply: Reply(request))
  }
  operations.flush = { request, node, info in
    guard let request, let info else { return }
    filesystem(of: request).flush(
      node: node, handle: info.pointee.fh, caller: Caller(request), reply: Reply(request))
  }
  operations.fsync = { request, node, dataOnly, info in
    guard let request, let info else { return }
    filesystem(of: request).fsync(
      node: node, handle: info.pointee.fh, dataOnly: dataOnly != 0, reply: Reply(request))
  }
  operations.release = { request, node, info in
    guard let request, let info else { return }
    filesystem(of: request).release(
      node: node, handle: info.pointee.fh, flags: info.pointee.flags, reply: Reply(request))
  }
  operations.fallocate = { request, node, mode, offset, length, info in
    guard let request, let info else { return }
    filesystem(of: request).fallocate(
      node: node, handle: info.pointee.fh, mode: mode, offset: Int64(offset), length: Int64(length),
      reply: Reply(request))
  }
  operations.lseek = { request, node, offset, whence, info in
    guard let request, let info else { return }
    filesystem(of: request).lseek(
      node: node, handle: info.pointee.fh, offset: Int64(offset), whence: whence, reply: Reply(request))
  }
}

/// Open directories.
private func addDirectoryOperations(_ operations: inout fuse_lowlevel_ops) {
  operations.opendir = { request, node, info in
    guard let request, let info else { return }
    filesystem(of: request).opendir(node: node, flags: info.pointee.flags, reply: Reply(request))
  }
  operations.readdir = { request, node, size, offset, info in
    guard let request, let info else { return }
    filesystem(of: request).readdir(
      node: node, handle: info.pointee.fh, size: size, offset: Int64(offset), plus: false, reply: Reply(request))
  }
  operations.readdirplus = { request, node, size, offset, info in
    guard let request, let info else { return }
    filesystem(of: request).readdir(
      node: node, handle: info.pointee.fh, size: size, offset: Int64(offset), plus: true, reply: Reply(request))
  }
  operations.releasedir = { request, node, info in
    guard let request, let info else { return }
    filesystem(of: request).releasedir(node: node, handle: info.pointee.fh, reply: Reply(request))
  }
  operations.fsyncdir = { request, node, dataOnly, info in
    guard let request, let info else { return }
    filesystem(of: request).fsyncdir(
      node: node, handle: info.pointee.fh, dataOnly: dataOnly != 0, reply: Reply(request))
  }
}

/// The filesystem a request is for.
private func filesystem(of request: fuse_req_t) -> any FileSystemOperations { Driver.of(request).operations }

/// A C string as bytes, without a copy: good until the callback returns.
private func borrow(_ string: UnsafePointer<CChar>) -> UnsafeRawBufferPointer {
  UnsafeRawBufferPointer(start: string, count: strlen(string))
}

extension Caller {
  /// Who makes a request.
  fileprivate init(_ request: fuse_req_t) {
    guard let context = fuse_req_ctx(request) else {
      // libfuse has none only for requests the kernel makes itself, and none of those makes an object.
      self.init(uid: 0, gid: 0, umask: 0, pid: 0)
      return
    }
    self.init(
      uid: context.pointee.uid, gid: context.pointee.gid, umask: context.pointee.umask, pid: context.pointee.pid)
  }
}

extension AttributeChanges {
  /// What the bits of `which` say is meant of `attributes`.
  fileprivate init(_ attributes: UnsafePointer<stat>, _ which: CInt) {
    func has(_ bit: CInt) -> Bool { which & bit != 0 }
    let status = attributes.pointee
    if has(FUSE_SET_ATTR_MODE) { mode = status.st_mode & 0o7777 }
    if has(FUSE_SET_ATTR_UID) { uid = status.st_uid }
    if has(FUSE_SET_ATTR_GID) { gid = status.st_gid }
    if has(FUSE_SET_ATTR_SIZE) { size = max(0, Int64(status.st_size)) }
    if has(FUSE_SET_ATTR_ATIME_NOW) {
      atime = .now
    } else if has(FUSE_SET_ATTR_ATIME) {
      atime = .exact(Timestamp(status.st_atim))
    }
    if has(FUSE_SET_ATTR_MTIME_NOW) {
      mtime = .now
    } else if has(FUSE_SET_ATTR_MTIME) {
      mtime = .exact(Timestamp(status.st_mtim))
    }
    killSuidGid = has(FUSE_SET_ATTR_KILL_SUID | FUSE_SET_ATTR_KILL_SGID) || uid != nil || gid != nil || size != nil
  }
}
