import Glibc

/// `NAME.db.new`: a line for each file that was made and has no rows yet, another once it is closed, and one for each that
/// was removed and still has its rows. Written in one piece each, so that this process's end leaves whole lines; emptied as
/// soon as the rows say all of it.
final class LateRowsJournal: Sendable {
  /// What a line says.
  enum Line: Equatable {
    case made(Made)
    /// The node of this number, as it was changed last then, lost its only name.
    case removed(Int64, changed: Timestamp)
  }

  /// A file that was made.
  struct Made: Equatable {
    var node: Node
    var parent: Int64
    var name: FileName
    var staged: StagedID
    /// `nil` while nobody has closed it.
    var size: Int64?
  }

  private let path: String
  /// Below the lock of those who ask whether it is done with.
  private let file = Lock<Descriptor?>(.digest, nil)

  init(beside store: String) { path = Self.path(beside: store) }

  static func path(beside store: String) -> String { store + ".new" }

  /// Adds a line.
  func append(_ line: Line) throws(Errno) {
    let text = line.text
    try file.withLock { (file) throws(Errno) in
      if file == nil { file = try Descriptor.open(path, O_WRONLY | O_CREAT | O_APPEND, mode: 0o600) }
      guard let file else { return }
      let count = text.withUnsafeBytes { write(file.raw, $0.baseAddress, $0.count) }
      guard count < 0 || count == text.count else { throw .noSpace }
      if count < 0 { throw .last }
    }
  }

  /// Empties it, if `isDone` still says so.
  func clear(_ isDone: () -> Bool) {
    file.withLock { file in
      guard let file, isDone() else { return }
      if ftruncate(file.raw, 0) != 0 { Log.warning("\(path) can't be emptied: \(Errno.last)") }
    }
  }

  /// Ends; with nothing to say it goes.
  func close(isDone: Bool) {
    file.withLock { file in
      if file != nil, isDone { unlink(path) }
      file = nil
    }
  }

  /// What a former process left: of several lines about one file the last.
  struct Left {
    var made: [Made] = []
    var removed: [Int64: Timestamp] = [:]
  }

  static func read(beside store: String) throws(Errno) -> Left {
    let path = path(beside: store)
    guard let status = try Path.status(path), status.st_size > 0 else { return Left() }
    let bytes = try Descriptor.open(path, O_RDONLY).prefix(Int(status.st_size))
    var made: [Int64: Made] = [:]
    var left = Left()
    for part in bytes.split(separator: 0x0a) {
      switch Line(reading: part) {
      case .made(let line): made[line.node.number] = line
      case .removed(let number, let changed): left.removed[number] = changed
      case nil: break
      }
    }
    left.made = made.values.sorted { $0.node.number < $1.node.number }
    return left
  }
}

extension LateRowsJournal.Line {
  /// A digit for the kind, then what it says, with spaces between. A line's end goes before it too: a full disk may have
  /// left the half of another one there.
  fileprivate var text: [UInt8] {
    switch self {
    case .made(let made): made.text
    case .removed(let number, let changed): Array("\n2 \(number) \(changed.nanoseconds)\n".utf8)
    }
  }

  fileprivate init?(reading bytes: ArraySlice<UInt8>) {
    let words = bytes.split(separator: 0x20)
    if words.count == 3, words[0].elementsEqual([0x32]),
      let number = Int64(String(decoding: words[1], as: UTF8.self)),
      let changed = Int64(String(decoding: words[2], as: UTF8.self))
    {
      self = .removed(number, changed: Timestamp(nanoseconds: changed))
    } else if let made = LateRowsJournal.Made(reading: words) {
      self = .made(made)
    } else {
      return nil
    }
  }
}

extension LateRowsJournal.Made {
  /// Numbers, then the staged file's id, then the name in hexadecimal.
  fileprivate var text: [UInt8] {
    var out = "\n1"
    for number in [
      node.number, parent, Int64(node.mode), Int64(node.uid), Int64(node.gid), node.atime.nanoseconds,
      node.mtime.nanoseconds, node.ctime.nanoseconds, size ?? -1,
    ] {
      out += " "
      out += String(number)
    }
    out += " "
    out += staged.bytes.text
    out += " "
    var bytes = Array(out.utf8)
    for byte in name.bytes {
      bytes.append(Hex.digit(byte >> 4))
      bytes.append(Hex.digit(byte & 15))
    }
    bytes.append(0x0a)
    return bytes
  }

  fileprivate init?(reading words: [ArraySlice<UInt8>]) {
    guard words.count == 12, words[0].elementsEqual([0x31]) else { return nil }
    var numbers: [Int64] = []
    for word in words[1...9] {
      guard let number = Int64(String(decoding: word, as: UTF8.self)) else { return nil }
      numbers.append(number)
    }
    guard let id = Bytes128(text: String(decoding: words[10], as: UTF8.self)), words[11].count % 2 == 0 else {
      return nil
    }
    var name: [UInt8] = []
    var digits = words[11]
    while let high = digits.popFirst(), let low = digits.popFirst() {
      guard let high = Hex.value(high), let low = Hex.value(low) else { return nil }
      name.append(UInt8(high) << 4 | UInt8(low))
    }
    guard let checked = try? FileName(checking: name), numbers[0] > Node.root else { return nil }
    let staged = StagedID(bytes: id)
    node = Node(
      number: numbers[0], kind: .file, item: nil, local: false, mode: mode_t(truncatingIfNeeded: numbers[2]) & 0o7777,
      uid: uid_t(truncatingIfNeeded: numbers[3]), gid: gid_t(truncatingIfNeeded: numbers[4]),
      atime: Timestamp(nanoseconds: numbers[5]), mtime: Timestamp(nanoseconds: numbers[6]),
      ctime: Timestamp(nanoseconds: numbers[7]), links: 1, content: .staged(staged), size: max(numbers[8], 0))
    parent = numbers[1]
    self.name = checked
    self.staged = staged
    size = numbers[8] < 0 ? nil : numbers[8]
  }
}

extension Recovery {
  /// Makes the rows of files that the last process closed and had no time to make rows of. Before ``run(_:titles:)``, which
  /// would take them for files nobody closed. Answers what those nobody closed were called.
  static func takeLateRows(_ tree: Tree) throws(MarfaError) -> [Int64: String] {
    let path = LateRowsJournal.path(beside: tree.store.path)
    let left: LateRowsJournal.Left
    do throws(Errno) { left = try LateRowsJournal.read(beside: tree.store.path) } catch { throw .io(error, path) }
    guard !left.made.isEmpty || !left.removed.isEmpty else { return [:] }
    // No number is ever used again.
    tree.store.nodeNumbers.begin(above: left.made.map(\.node.number).max() ?? 0)
    try tree.change { (change) throws(MarfaError) in
      for (number, changed) in left.removed.sorted(by: { $0.key < $1.key })
      where try change.connection.node(number)?.ctime == changed { try change.removeOnlyName(of: number) }
      // What was removed had its rows, though its line may still be here.
      for line in left.made where left.removed[line.node.number] == nil {
        let staged = tree.blobs.files.staged(line.node.number, line.staged)
        guard line.size != nil, try change.connection.node(line.node.number) == nil,
          let status = (try? Path.status(staged)) ?? nil, Int64(status.st_size) == line.size
        else { continue }
        var parent = line.parent
        if try change.connection.node(parent)?.kind != .directory { parent = Node.root }
        let name = try change.connection.freeName(parent, line.name)
        _ = try change.connection.insertNode(line.node, numbered: line.node.number)
        try change.connection.updateNode(line.node)
        try change.connection.insertEntry(parent, name, node: line.node.number)
        try change.connection.touch(parent, at: line.node.ctime)
      }
    }
    do throws(Errno) { try Path.remove(path) } catch { throw .io(error, path) }
    let open = left.made.filter { $0.size == nil }
    return Dictionary(open.map { ($0.node.number, $0.name.title) }, uniquingKeysWith: { a, _ in a })
  }
}
