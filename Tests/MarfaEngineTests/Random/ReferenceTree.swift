import Glibc

@testable import MarfaEngine

/// One thing a program does to a tree, or a server to its queue.
enum TreeOperation: CustomStringConvertible {
  case mkdir(String)
  case write(String, String)
  case symlink(String, String)
  case link(String, String)
  case move(String, String, Tree.RenameMode)
  case unlink(String)
  case rmdir(String)
  case answer
  case sendOut
  case reopen

  var description: String {
    switch self {
    case .mkdir(let path): "mkdir \(path)"
    case .write(let path, let text): "write \(path) \"\(text)\""
    case .symlink(let path, let target): "symlink \(path) -> \(target)"
    case .link(let path, let new): "link \(path) \(new)"
    case .move(let path, let new, let mode): "move \(path) \(new) \(mode)"
    case .unlink(let path): "unlink \(path)"
    case .rmdir(let path): "rmdir \(path)"
    case .answer: "answer"
    case .sendOut: "send out"
    case .reopen: "reopen"
    }
  }
}

/// A tree as POSIX has it, kept in memory: what a working copy's must look like after the same operations.
final class ReferenceTree {
  final class Node {
    enum Kind { case directory, file, symlink }
    let kind: Kind
    var children: [String: Node] = [:]
    var text: String
    init(_ kind: Kind, _ text: String = "") {
      self.kind = kind
      self.text = text
    }
    func holds(_ other: Node) -> Bool { self === other || children.values.contains { $0.holds(other) } }
  }

  let root = Node(.directory)

  func node(_ path: String) -> Node? {
    path.split(separator: "/").reduce(root as Node?) { $0?.children[String($1)] }
  }

  /// Every path, in order.
  func paths(_ kind: Node.Kind? = nil) -> [String] {
    var found: [String] = []
    func walk(_ node: Node, _ prefix: String) {
      for (name, child) in node.children.sorted(by: { $0.key < $1.key }) {
        if kind == nil || child.kind == kind { found.append(prefix + name) }
        walk(child, prefix + name + "/")
      }
    }
    walk(root, "")
    return found
  }

  /// Does one operation; the error it must fail with, `nil` when it must succeed.
  func apply(_ operation: TreeOperation) -> Errno? {
    switch operation {
    case .answer, .sendOut, .reopen: return nil
    case .mkdir(let path): return make(path, Node(.directory))
    case .symlink(let path, let target): return make(path, Node(.symlink, target))
    case .write(let path, let text):
      if let node = node(path) {
        node.text = text
        return nil
      }
      return make(path, Node(.file, text))
    case .link(let path, let new):
      guard let node = node(path) else { return .notFound }
      if node.kind == .directory { return .notPermitted }
      return make(new, node)
    case .unlink(let path):
      guard let (parent, name) = place(path), let node = parent.children[name] else { return .notFound }
      if node.kind == .directory { return .isDirectory }
      parent.children[name] = nil
      return nil
    case .rmdir(let path):
      guard let (parent, name) = place(path), let node = parent.children[name] else { return .notFound }
      if node.kind != .directory { return .notDirectory }
      if !node.children.isEmpty { return .notEmpty }
      parent.children[name] = nil
      return nil
    case .move(let path, let new, let mode): return move(path, new, mode)
    }
  }

  private func place(_ path: String) -> (parent: Node, name: String)? {
    let parent = path.contains("/") ? node(Path.parent(path)) : root
    guard let parent, parent.kind == .directory else { return nil }
    return (parent, Path.lastComponent(path))
  }

  private func make(_ path: String, _ node: Node) -> Errno? {
    guard let (parent, name) = place(path) else { return .notFound }
    if parent.children[name] != nil { return .exists }
    parent.children[name] = node
    return nil
  }

  private func move(_ path: String, _ newPath: String, _ mode: Tree.RenameMode) -> Errno? {
    guard let (from, name) = place(path), let (to, newName) = place(newPath), let node = from.children[name] else {
      return .notFound
    }
    let present = to.children[newName]
    if mode == .exchanging {
      guard let present else { return .notFound }
      if node.holds(to) && node.kind == .directory { return .invalid }
      if present.holds(from) && present.kind == .directory { return .invalid }
      from.children[name] = present
      to.children[newName] = node
      return nil
    }
    if mode == .refusing && present != nil { return .exists }
    if present === node { return nil }
    if node.kind == .directory {
      if let present, present.kind != .directory { return .notDirectory }
      if node.holds(to) { return .invalid }
      if let present, !present.children.isEmpty { return .notEmpty }
    } else if present?.kind == .directory {
      return .isDirectory
    }
    from.children[name] = nil
    to.children[newName] = node
    return nil
  }
}

/// Random numbers that come again with their seed (SplitMix64).
struct SeededGenerator: RandomNumberGenerator {
  private var state: UInt64
  init(seed: UInt64) { state = seed }
  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }
}

/// Operations drawn at random, most of them possible.
struct OperationSource {
  private var random: SeededGenerator
  private var count = 0
  /// Without operations on the queue and the process: what a child does that is killed.
  let isTreeOnly: Bool

  private static let names = ["a", "b", "c.txt", "d.md", "e~", ".f.swp", ".Trash-1000", "g"]

  init(seed: UInt64, isTreeOnly: Bool = false) {
    random = SeededGenerator(seed: seed)
    self.isTreeOnly = isTreeOnly
  }

  mutating func next(_ tree: ReferenceTree) -> TreeOperation {
    count += 1
    let paths = tree.paths()
    let kind = Int.random(in: 0..<100, using: &random)
    // Kept small, so that names meet.
    if paths.count > 40 {
      let path = paths.randomElement(using: &random) ?? "a"
      return tree.node(path)?.kind == .directory ? .rmdir(path) : .unlink(path)
    }
    switch kind {
    case 0..<12: return .mkdir(newPath(tree))
    case 12..<36: return write(tree, paths)
    case 36..<40: return .symlink(newPath(tree), "target \(count)")
    case 40..<50: return .link(existing(paths), newPath(tree))
    case 50..<72:
      return .move(existing(paths), Bool.random(using: &random) ? newPath(tree) : existing(paths), .replacing)
    case 72..<75: return .move(existing(paths), newPath(tree), .refusing)
    case 75..<80: return .move(existing(paths), existing(paths), .exchanging)
    case 80..<88: return .unlink(existing(paths))
    case 88..<93: return .rmdir(tree.paths(.directory).randomElement(using: &random) ?? "a")
    case 93..<96: return isTreeOnly ? write(tree, paths) : .sendOut
    case 96..<99: return isTreeOnly ? .mkdir(newPath(tree)) : .answer
    default: return isTreeOnly ? .unlink(existing(paths)) : .reopen
    }
  }

  private mutating func write(_ tree: ReferenceTree, _ paths: [String]) -> TreeOperation {
    let files = tree.paths(.file)
    let path = Bool.random(using: &random) ? files.randomElement(using: &random) : nil
    // Often equal texts, sometimes none.
    let text = ["", "same", "other", "text \(count)"].randomElement(using: &random) ?? ""
    var target = path ?? newPath(tree)
    // A write opens what is there: only files are opened so.
    if let present = tree.node(target), present.kind != .file { target = files.first ?? "fallback \(count)" }
    return .write(target, text)
  }

  private mutating func newPath(_ tree: ReferenceTree) -> String {
    let name = Self.names.randomElement(using: &random) ?? "a"
    let directory = ([""] + tree.paths(.directory)).randomElement(using: &random) ?? ""
    return directory.isEmpty ? name : "\(directory)/\(name)"
  }

  private mutating func existing(_ paths: [String]) -> String { paths.randomElement(using: &random) ?? "a" }
}

extension Scratch {
  /// Does one operation; the error it failed with.
  func apply(_ operation: TreeOperation) throws -> Errno? {
    do {
      switch operation {
      case .mkdir(let path): try mkdir(path)
      case .write(let path, let text): try write(path, text)
      case .symlink(let path, let target): try symlink(path, to: target)
      case .link(let path, let new): try link(path, new)
      case .move(let path, let new, let mode): try move(path, new, mode)
      case .unlink(let path): try unlink(path)
      case .rmdir(let path): try rmdir(path)
      case .answer: try answer()
      case .sendOut: try sendOut()
      case .reopen: try reopen()
      }
      return nil
    } catch MarfaError.file(let error) {
      return error
    }
  }
}

/// Compares a copy's tree with a reference.
struct TreeComparison {
  /// Texts read before, by their hash.
  private var texts: [BlobHash: String] = [:]

  /// Where the two differ, in words; `nil` when they are the same.
  mutating func difference(_ scratch: Scratch, _ reference: ReferenceTree) throws -> String? {
    var numbers: [Int64: ReferenceTree.Node] = [:]
    var next: [(Int64, ReferenceTree.Node, String)] = [(Node.root, reference.root, "")]
    while let (number, expected, path) = next.popLast() {
      var found: [(String, Node)] = []
      try scratch.tree.list(number, after: 0) { entry in
        found.append((entry.name.title, entry.node))
        return true
      }
      let names = Set(found.map(\.0))
      guard names.count == found.count, names == Set(expected.children.keys) else {
        return "\(path) holds \(names.sorted()) instead of \(expected.children.keys.sorted())"
      }
      for (name, node) in found {
        guard let child = expected.children[name] else { continue }
        let path = path + "/" + name
        if let known = numbers[node.number], known !== child { return "\(path) is one with another" }
        numbers[node.number] = child
        switch (node.kind, child.kind) {
        case (.directory, .directory): next.append((node.number, child, path))
        case (.special, .symlink):
          guard try scratch.tree.linkTarget(node.number) == Array(child.text.utf8) else {
            return "\(path) leads elsewhere"
          }
        case (.file, .file):
          let text = try text(node, scratch)
          guard text == child.text else { return "\(path) reads \"\(text)\" instead of \"\(child.text)\"" }
        default: return "\(path) is a \(node.kind)"
        }
      }
    }
    guard Set(numbers.values.map(ObjectIdentifier.init)).count == numbers.count else { return "one file has two nodes" }
    return nil
  }

  private mutating func text(_ node: Node, _ scratch: Scratch) throws -> String {
    if let hash = node.blob, let text = texts[hash] { return text }
    let text = String(decoding: try scratch.bytes(of: node), as: UTF8.self)
    if let hash = node.blob { texts[hash] = text }
    return text
  }
}
