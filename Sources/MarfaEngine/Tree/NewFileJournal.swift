import Glibc

/// `NAME.db.new`: a line for each file that was made and has no rows yet, and another once it is closed. Written in one
/// piece each, so that this process's end leaves whole lines; emptied as soon as all have their rows.
final class NewFileJournal: Sendable {
  /// What a line says.
  struct Line: Equatable {
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

  /// The lines a former process left; of several about one file the last.
  static func read(beside store: String) throws(Errno) -> [Line] {
    let path = path(beside: store)
    guard let status = try Path.status(path), status.st_size > 0 else { return [] }
    let bytes = try Descriptor.open(path, O_RDONLY).prefix(Int(status.st_size))
    var lines: [Int64: Line] = [:]
    for part in bytes.split(separator: 0x0a) {
      if let line = Line(reading: part) { lines[line.node.number] = line }
    }
    return lines.values.sorted { $0.node.number < $1.node.number }
  }
}

extension NewFileJournal.Line {
  /// Numbers with spaces between, then the staged file's id, then the name in hexadecimal. A line's end goes before it
  /// too: a full disk may have left the half of another one there.
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

  fileprivate init?(reading bytes: ArraySlice<UInt8>) {
    let words = bytes.split(separator: 0x20)
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
  static func takeNewFiles(_ tree: Tree) throws(MarfaError) -> [Int64: String] {
    let path = NewFileJournal.path(beside: tree.store.path)
    let lines: [NewFileJournal.Line]
    do throws(Errno) { lines = try NewFileJournal.read(beside: tree.store.path) } catch { throw .io(error, path) }
    guard !lines.isEmpty else { return [:] }
    // No number is ever used again.
    tree.store.nodeNumbers.begin(above: lines.map(\.node.number).max() ?? 0)
    try tree.change { (change) throws(MarfaError) in
      for line in lines {
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
    let open = lines.filter { $0.size == nil }
    return Dictionary(open.map { ($0.node.number, $0.name.title) }, uniquingKeysWith: { a, _ in a })
  }
}
