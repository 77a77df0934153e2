import Glibc

extension Tree {
  /// How a rename treats what is there already (rename(2)).
  public enum RenameMode: Sendable {
    case replacing
    case refusing
    case exchanging
  }

  /// Moves or renames. Over an existing file it is a safe save: the file item that was there goes on, with the new
  /// bytes (SEMANTICS.md, "Safe saves"). Answers the node that lost its last name, when one did.
  public func rename(
    _ parent: Int64, _ name: FileName, to newParent: Int64, _ newName: FileName, mode: RenameMode
  ) throws(MarfaError) -> Node? {
    try change { (change) throws(MarfaError) in
      let from = try change.directory(parent)
      let to = newParent == parent ? from : try change.directory(newParent)
      guard let node = try change.connection.child(parent, name) else { throw .file(.notFound) }
      let present = try change.connection.child(newParent, newName)
      if mode == .exchanging {
        guard let present else { throw .file(.notFound) }
        try change.exchange(node, in: from, name, with: present, in: to, newName)
        return nil
      }
      if mode == .refusing && present != nil { throw .file(.exists) }
      // Two names of one file: nothing is to be done (rename(2)).
      if present?.number == node.number { return nil }
      return try change.move(node, from: from, name, to: to, newName, replacing: present)
    }
  }
}

extension Tree.Change {
  fileprivate func move(
    _ moved: Node, from: Node, _ name: FileName, to: Node, _ newName: FileName, replacing present: Node?
  ) throws(MarfaError) -> Node? {
    var node = moved
    var gone: Node?
    if node.kind == .directory {
      if let present, present.kind != .directory { throw .file(.notDirectory) }
      try refuseLoop(moving: node, into: to)
    } else if present?.kind == .directory {
      throw .file(.isDirectory)
    }
    var tookOver = false
    // What is replaced hands its place in the listing on: a name that is always there is listed once.
    let place = present == nil ? nil : try connection.entryNumber(to.number, newName)
    if var present {
      if present.kind == .directory {
        try removeEmptyDirectory(present, from: to, newName)
      } else if !to.local, try takesOver(node, present, in: to.number, newName) {
        let hadOtherNames = present.links > 1
        try takeOver(&node, itemOf: &present, called: newName)
        tookOver = true
        // The backups that gave it its title are others' names now.
        if hadOtherNames, let item = node.item, try connection.item(item)?.title != newName.title {
          try outbox.updateItem(item, ["title": .string(newName.title)], folding: true)
        }
        try removeName(&present, from: to, newName)
        if present.links == 0 { gone = present } else { try settleBackup(&present) }
      } else {
        try removeName(&present, from: to, newName)
        if present.links == 0 { gone = present }
      }
    } else if node.kind == .file, node.links == 1, !to.local {
      tookOver = try takeOverDisplaced(&node, at: to.number, newName)
    }

    if from.number == to.number {
      try connection.renameEntry(from.number, name, to: newName)
    } else {
      try connection.deleteEntry(from.number, name)
      try connection.insertEntry(to.number, newName, node: node.number)
      try connection.touch(to.number, at: now)
    }
    if let place { try connection.setEntryNumber(to.number, newName, place) }
    try connection.touch(from.number, at: now)
    node.ctime = now
    if tookOver {
      node.local = false
    } else {
      if node.kind == .file, node.item != nil, node.links == 1, Displaced.isBackup(newName, of: name, tree.settings) {
        tree.displaced.withLock { $0.remember(node.number, at: from.number, name, until: now.nanoseconds) }
      }
      try placeChanged(&node, from: from, name, to: to, newName)
    }
    try connection.updateNode(node)
    if node.kind == .directory, from.number != to.number { try reconsider(above: from) }
    return gone
  }

  fileprivate func exchange(
    _ first: Node, in from: Node, _ name: FileName, with second: Node, in to: Node, _ newName: FileName
  ) throws(MarfaError) {
    if first.kind == .directory { try refuseLoop(moving: first, into: to) }
    if second.kind == .directory { try refuseLoop(moving: second, into: from) }
    guard first.number != second.number else { return }
    var first = first
    try connection.deleteEntry(from.number, name)
    try connection.deleteEntry(to.number, newName)
    try connection.insertEntry(to.number, newName, node: first.number)
    try connection.insertEntry(from.number, name, node: second.number)
    try connection.touch(from.number, at: now)
    try connection.touch(to.number, at: now)
    first.ctime = now
    try placeChanged(&first, from: from, name, to: to, newName)
    try connection.updateNode(first)
    // One may be a directory in which the other has a name, too: each is read when its turn comes, and written at once.
    guard var second = try connection.node(second.number) else { return }
    second.ctime = now
    try placeChanged(&second, from: to, newName, to: from, name)
    try connection.updateNode(second)
    if from.number != to.number {
      try reconsider(above: from)
      try reconsider(above: to)
    }
  }

  private func refuseLoop(moving node: Node, into directory: Node) throws(MarfaError) {
    var ancestor: Int64? = directory.number
    while let current = ancestor {
      if current == node.number { throw .file(.invalid) }
      ancestor = try connection.parent(of: current)
    }
  }

  /// A node stands in another place now: what that means for its item. The caller writes the node.
  private func placeChanged(_ node: inout Node, from: Node, _ name: FileName, to: Node, _ newName: FileName)
    throws(MarfaError)
  {
    guard node.kind != .special else { return }
    if to.local {
      if node.kind == .file, try hasNameAmongItems(node) {
        try detach(node, from: from)
        try retitle(node, from: name)
      } else {
        try localize(&node)
      }
    } else if let item = node.item {
      // An item stays one under whatever name: only what never was one is an editor's own file.
      let title = try connection.item(item)?.title
      if name != newName, node.links == 1 || title == name.title {
        try outbox.updateItem(item, ["title": .string(newName.title)], folding: true)
      }
      guard from.number != to.number else { return }
      if node.kind == .file {
        try attach(node, in: to)
        try detach(node, from: from)
      } else {
        try moveDirectoryItem(item, to: to)
      }
    } else {
      node.local = tree.settings.localNames.matches(newName)
      if !node.local { try promote(&node) }
    }
  }

  func moveDirectoryItem(_ item: ItemID, to: Node) throws(MarfaError) {
    let edge = try connection.edges(to: item, type: Edge.parentOf).first
    switch (edge, to.item) {
    case (let edge?, let parent?): try outbox.updateEdge(edge.id, source: parent, folding: true)
    case (let edge?, nil): try outbox.deleteEdge(edge.id)
    case (nil, let parent?):
      try outbox.createEdge(
        Edge(id: .mint(), source: parent, target: item, type: Edge.parentOf, properties: [:], version: 0))
    case (nil, nil): break
    }
  }

  /// Only directories of this device name it now: it and what is in it stop being items. The bytes stay here, and so does
  /// what was said of a file. The caller writes the node. `EXDEV` when bytes are not here, and would be nobody's: who moves
  /// them then copies them, which brings them here.
  func localize(_ node: inout Node) throws(MarfaError) {
    if node.item != nil, try !connection.isHere(node) { throw .file(.crossDevice) }
    let item = node.item
    node.item = nil
    node.local = true
    try connection.updateNode(node)
    guard node.kind == .directory else {
      if let item {
        try keepPending(of: item, on: node)
        try dropFileItem(item)
      }
      return
    }
    // No recursion: a tree may be deeper than a stack.
    var directories = [(number: node.number, item: item)]
    var next = 0
    while next < directories.count {
      let (directory, item) = directories[next]
      next += 1
      for number in try children(of: directory) {
        // Read one by one: a file may have two names in here.
        guard var child = try connection.node(number), !child.local else { continue }
        if child.kind == .directory {
          directories.append((number, child.item))
          child.item = nil
          child.local = true
          try connection.updateNode(child)
        } else if child.kind == .file, try hasNameAmongItems(child) {
          if let file = child.item, let item,
            let edge = try connection.edge(from: file, to: item, type: Edge.attachedTo)
          {
            try outbox.deleteEdge(edge.id)
          }
          // The name that gave its title may be the one in here.
          for place in try connection.entries(of: number) where place.parent == directory {
            try retitle(child, from: place.name)
          }
        } else {
          try localize(&child)
        }
      }
    }
    for directory in directories.reversed() {
      if let item = directory.item { try outbox.deleteItem(item) }
    }
  }

  /// True while the root or a directory that is an item names it.
  func hasNameAmongItems(_ node: Node) throws(MarfaError) -> Bool {
    for place in try connection.entries(of: node.number) where try !directory(place.parent).local { return true }
    return false
  }

  private func children(of directory: Int64) throws(MarfaError) -> [Int64] {
    try connection.all(
      "SELECT node FROM entries WHERE parent = ?1 ORDER BY number", { $0.int(1, directory) }, { $0.int(0) })
  }

  /// Something of this device only stands among items now: it, and what is in it, become items.
  func promote(_ node: inout Node) throws(MarfaError) {
    guard node.item == nil else { return }
    switch node.kind {
    case .special: node.local = true
    case .file:
      if case .blob(let hash) = node.content, let name = try titleName(of: node) {
        try createFileItem(for: &node, hash, mimeType: try mimeType(of: hash, called: name))
      }
    case .directory: try promoteDirectory(&node)
    }
  }

  private func promoteDirectory(_ node: inout Node) throws(MarfaError) {
    try makeItem(ofDirectory: &node)
    try promoteContents(of: node)
  }

  /// What this device only has in a directory that is an item's now becomes items; what the server refused does not.
  func promoteContents(of node: Node, sparingLeftBehind: Bool = false) throws(MarfaError) {
    // No recursion: a tree may be deeper than a stack.
    var directories = [node]
    while let directory = directories.popLast() {
      for number in try children(of: directory.number) {
        guard var child = try connection.node(number), child.kind != .special, let name = try titleName(of: child),
          try !connection.isRefused(number)
        else { continue }
        if sparingLeftBehind, try connection.isLeftBehind(number) { continue }
        if child.item != nil {
          // A file that stands among items under another name, too, and now here.
          if child.kind == .file { try attach(child, in: directory) }
          continue
        }
        child.local = tree.settings.localNames.matches(name)
        if child.local {
          try connection.updateNode(child)
        } else if child.kind == .directory {
          try makeItem(ofDirectory: &child)
          directories.append(child)
        } else {
          try promote(&child)
          try connection.updateNode(child)
        }
      }
    }
  }

  private func makeItem(ofDirectory node: inout Node) throws(MarfaError) {
    guard let (parent, name) = try connection.entries(of: node.number).first else { return }
    node.local = false
    node.item = try createDirectoryItem(titled: name, in: try directory(parent))
    try connection.updateNode(node)
  }
}
