import CLinux
import Glibc
import MarfaEngine

extension FileSystem {
  func getxattr(node: UInt64, name: UnsafeRawBufferPointer, size: Int, reply: consuming XattrReply) {
    let name = Array(name)
    do throws(MarfaError) {
      guard let value = try value(of: name, node) else { return reply.fail(.noData) }
      let bytes = Lent(value)
      reply.value(bytes.buffer, asked: size)
      withExtendedLifetime(bytes) {}
    } catch {
      reply.fail(error.errno)
    }
  }

  func listxattr(node: UInt64, size: Int, reply: consuming XattrReply) {
    do throws(MarfaError) {
      var names: [UInt8] = []
      // Of links, pipes and the like the kernel lets nobody read these (xattr(7)): a name listed would be an error to
      // whoever copies the attributes.
      if case .file(let facts, _) = try known(of: node), facts.node.kind == .special {
        return reply.value(UnsafeRawBufferPointer(start: nil, count: 0), asked: size)
      }
      let ours = try attributes(of: node).values.map { Array($0.name.utf8) }
      for name in ours { names += name + [0] }
      for name in try tree.attributeNames(number(node)) where !ours.contains(name) { names += name + [0] }
      let bytes = Lent(names)
      reply.value(bytes.buffer, asked: size)
      withExtendedLifetime(bytes) {}
    } catch {
      if error.errno == .noData { return reply.value(UnsafeRawBufferPointer(start: nil, count: 0), asked: size) }
      reply.fail(error.errno)
    }
  }

  private func value(of name: [UInt8], _ node: UInt64) throws(MarfaError) -> [UInt8]? {
    switch AttributeName.kind(of: name) {
    // Not "there is none on this file": `ls -l` asks each file for its ACL and its label, unless the first said this.
    case .foreign: throw .file(.notSupported)
    case .device: return try tree.attribute(number(node), name)
    case .marfa: return try attributes(of: node)[String(decoding: name, as: UTF8.self)].map { Array($0.utf8) }
    case .desktop:
      if let value = try attributes(of: node)[String(decoding: name, as: UTF8.self)] { return Array(value.utf8) }
      return try tree.attribute(number(node), name)
    }
  }

  /// What our attributes of a node say now.
  private func attributes(of node: UInt64) throws(MarfaError) -> NodeAttributes {
    switch try known(of: node) {
    case .root(let status): return NodeAttributes(root: status, server: copy.serverStatus)
    case .directory(let facts): return NodeAttributes(directory: facts, store: copy.path)
    case .file(let facts, let origin):
      let file = files.find(node)
      var now = FileNow(link: LinkState(copy, origin: origin))
      now.isBeingWritten = file?.isBeingWritten ?? false
      now.isOpen = file != nil
      now.size = file?.overlay(facts.node)?.size ?? facts.node.size ?? 0
      if let hash = facts.upload?.blob { now.sent = copy.uploadProgress(of: hash) }
      return NodeAttributes(file: facts, now)
    }
  }

  /// What the store says of a node. `ENODATA` of one that is open and has no name any more.
  private func known(of node: UInt64) throws(MarfaError) -> KnownFacts {
    let number = number(node)
    // Counted before the store is read: what is committed meanwhile makes this stale, never fresh.
    let commits = try copy.settledCommits()
    if let known = facts.find(number, commits: commits) { return known }
    let known: KnownFacts
    if number == Node.root {
      known = .root(try copy.status())
    } else if let stored = try tree.node(number), stored.kind == .directory {
      guard let facts = try copy.facts(ofDirectory: number) else { throw .file(.stale) }
      known = .directory(facts)
    } else {
      guard let facts = try copy.facts(ofFile: number) else {
        throw .file(files.find(node) == nil ? .stale : .noData)
      }
      known = .file(facts, origin: try copy.knownOrigin())
    }
    if !copy.isReader { facts.keep(known, of: number, commits: commits) }
    return known
  }

  // MARK: - Setting

  func setxattr(
    node: UInt64, name: UnsafeRawBufferPointer, value: UnsafeRawBufferPointer, flags: CInt,
    reply: consuming DoneReply
  ) {
    guard !copy.isReader else { return reply.fail(.readOnly) }
    let mode: Tree.AttributeMode =
      flags & XATTR_CREATE.code != 0 ? .create : flags & XATTR_REPLACE.code != 0 ? .replace : .either
    if case .marfa("held") = AttributeName.kind(of: Array(name)) {
      return setHeld(Array(value), node, reply)
    }
    do throws(MarfaError) {
      try set(Array(name), Array(value), node, mode: mode)
      reply.done()
    } catch {
      reply.fail(error.errno)
    }
  }

  func removexattr(node: UInt64, name: UnsafeRawBufferPointer, reply: consuming DoneReply) {
    guard !copy.isReader else { return reply.fail(.readOnly) }
    let name = Array(name)
    do throws(MarfaError) {
      switch AttributeName.kind(of: name) {
      case .foreign: throw .file(.notSupported)
      case .marfa: throw .file(.notPermitted)
      case .device: try tree.removeAttribute(number(node), name)
      case .desktop(let desktop):
        guard try value(of: name, node) != nil else { throw .file(.noData) }
        try set(desktop, [], node, name: name)
      }
      reply.done()
    } catch {
      reply.fail(error.errno)
    }
  }

  private func set(_ name: [UInt8], _ value: [UInt8], _ node: UInt64, mode: Tree.AttributeMode) throws(MarfaError) {
    switch AttributeName.kind(of: name) {
    case .foreign: throw .file(.notSupported)
    case .device: try tree.setAttribute(number(node), name, value, mode: mode)
    case .marfa(let own): try set(own: own, value, node)
    case .desktop(let desktop):
      let present = try self.value(of: name, node) != nil
      if mode == .create && present { throw .file(.exists) }
      if mode == .replace && !present { throw .file(.noData) }
      try set(desktop, value, node, name: name)
    }
  }

  /// `pin` (and `held`, elsewhere) are the person's to set; the rest says what is.
  private func set(own name: String, _ value: [UInt8], _ node: UInt64) throws(MarfaError) {
    let word = String(decoding: value, as: UTF8.self)
    switch name {
    case "pin":
      guard word == "yes" || word == "no" else { throw .file(.invalid) }
      guard try copy.items.item(ofNode: number(node)) != nil else { throw .file(.notPermitted) }
      try tree.setPinned(number(node), word == "yes")
    default: throw .file(.notPermitted)
    }
  }

  /// What belongs to the item is set on it; a file that has none yet keeps it until it does.
  private func set(_ desktop: AttributeName.Desktop, _ value: [UInt8], _ node: UInt64, name: [UInt8]) throws(MarfaError)
  {
    if desktop == .mimeType { throw .file(.notPermitted) }
    guard try copy.items.item(ofNode: number(node)) != nil else {
      if value.isEmpty { return try tree.removeAttribute(number(node), name) }
      return try tree.setAttribute(number(node), name, value, mode: .either)
    }
    if let property = desktop.property {
      try tree.setProperty(number(node), property, FileName.text(of: value))
    } else {
      try tree.setTags(number(node), commaSeparated: value)
    }
  }
}

extension Int {
  fileprivate var code: CInt { CInt(truncatingIfNeeded: self) }
}
