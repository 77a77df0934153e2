import CSQLite
import Glibc

/// The SQLite file: one writer, many readers. Every change is one transaction; a reader sees whole ones only.
final class Store: Sendable {
  /// Where it is.
  let path: String
  /// True when this process may write it.
  let isWriter: Bool

  /// Held until ``close()`` or the end of the process, whichever comes first.
  private let lock: Lock<StoreLock?>
  private let writer: Lock<Connection?>
  private let readers: Lock<[Connection]>
  /// Only asks for the data version: each connection counts for itself, so the counts of two can't be compared.
  private let watcher = Lock<Connection?>(.readers, nil)
  private let checkpointer: Checkpointer
  private let wal: Lock<Descriptor?>
  private let commitCount = Lock<Int>(.leaf, 0)
  /// How many transactions this handle has committed.
  var commits: Int { commitCount.withLock { $0 } }
  /// Numbers for nodes.
  let nodeNumbers = NodeNumbers()
  /// What goes before every transaction.
  private let prologue = Lock<(any StorePrologue)?>(.leaf, nil)
  /// How many wait until they may write.
  private let waiting = Lock<Int>(.leaf, 0)
  /// The thread that writes, while one does.
  private let writing = Lock<pthread_t?>(.leaf, nil)
  func precede(with body: any StorePrologue) { prologue.withLock { $0 = body } }

  /// Told of every commit, under the writer's lock: it must only note it.
  /// In a structure: a bare closure in a generic place is wrapped anew each time it is looked at.
  private struct CommitObserver {
    var body: @Sendable () -> Void
  }
  private let commitObserver = Lock<CommitObserver?>(.leaf, nil)
  func onCommit(_ body: (@Sendable () -> Void)?) {
    commitObserver.withLock { $0 = body.map { CommitObserver(body: $0) } }
  }
  /// What to do once the transaction under way is committed. Filled and emptied under the writer's lock.
  private let committed = Lock<[@Sendable () -> Void]>(.leaf, [])

  /// How a store is opened.
  enum Mode: Sendable {
    /// As its writer when nobody else is, otherwise as a reader.
    case writerIfFree
    /// As a reader.
    case reader
  }

  /// Opens a store, making it when it is not there.
  init(path: String, mode: Mode) throws(MarfaError) {
    let exists = try Store.check(path)
    var lock: StoreLock?
    if mode == .writerIfFree {
      do throws(Errno) {
        lock = try StoreLock(beside: path)
      } catch {
        if error.code == EROFS || error.code == EACCES || error.code == EPERM {
          throw .unusable(.readOnlyFolder(path: Path.parent(path)))
        }
        throw .io(error, "taking the lock beside \(path)")
      }
    }
    if lock == nil && !exists { throw .unusable(.nothingToRead(path: path)) }
    self.path = path
    self.lock = Lock(.leaf, lock)
    isWriter = lock != nil
    do throws(MarfaError) {
      // Before anything is opened to write: another program's database is not even brought to our kind of log.
      if exists { try Store.identify(try Store.openReader(path, writable: lock != nil), path: path) }
      let connection = lock != nil ? try Store.openWriter(path) : nil
      let reader = try Store.openReader(path, writable: lock != nil)
      if lock == nil { try Store.checkSchema(reader, path: path) }
      let writer = Lock(.store, nil as Connection?)
      let checkpointer = Checkpointer(path: path) { body in writer.withLock { _ in body() } }
      if let connection {
        checkpointer.watch(connection)
        connection.nodeNumbers = nodeNumbers
        nodeNumbers.begin(above: try connection.first("SELECT max(number) FROM nodes") { $0.int(0) } ?? 0)
      }
      self.checkpointer = checkpointer
      writer.withLock { $0 = connection }
      self.writer = writer
      readers = Lock(.readers, [reader])
      wal = Lock(.leaf, nil)
    } catch {
      throw Store.explained(error, path: path)
    }
  }

  // MARK: - Access

  /// Runs `body` on a reading connection, in one snapshot. Without `settled` what has no rows yet is not seen.
  func read<T>(settled: Bool = true, _ body: (Connection) throws(MarfaError) -> T) throws(MarfaError) -> T {
    if settled { try settle() }
    var taken = readers.withLock { $0.popLast() }
    if taken == nil { taken = try Store.openReader(path, writable: isWriter) }
    guard let connection = taken else { throw .readingHandle }
    // Safe: the connection is out of the pool, so this thread alone has it.
    nonisolated(unsafe) let lent = connection
    defer { readers.withLock { if $0.count < 16 { $0.append(lent) } } }
    return try body(connection)
  }

  /// What of the rows that are made late is made before a transaction, in it.
  enum LateShare {
    case all
    /// That of files which are closed, until somebody else wants to write.
    case closed
    /// For what has nothing to do with them.
    case none
  }

  /// Somebody waits until he may write.
  private var isWanted: Bool { waiting.withLock { $0 > 0 } }

  /// Makes the rows that are made late.
  func settle() throws(MarfaError) {
    if let prologue = prologue.withLock({ $0 }), !prologue.isEmpty, !isWriting { try write { _ in } }
  }

  /// True inside ``write(after:_:)`` on this thread.
  private var isWriting: Bool { writing.withLock { $0.map { pthread_equal($0, pthread_self()) != 0 } ?? false } }

  /// Several reads of one moment.
  func snapshot<T>(_ body: (Connection) throws(MarfaError) -> T) throws(MarfaError) -> T {
    try read { (connection) throws(MarfaError) -> T in
      try connection.run("BEGIN")
      defer { _ = try? connection.run("COMMIT") }
      return try body(connection)
    }
  }

  /// Runs `body` in one transaction: all of it is there afterwards, or, when it throws, none. Committed means that it
  /// survives this process (WAL, `synchronous=NORMAL`); ``synchronize()`` makes it survive power loss.
  func write<T>(after late: LateShare = .all, _ body: (Connection) throws(MarfaError) -> T) throws(MarfaError) -> T {
    waiting.withLock { $0 += 1 }
    return try writer.withLock { (connection) throws(MarfaError) -> T in
      waiting.withLock { $0 -= 1 }
      guard let connection else { throw .readingHandle }
      writing.withLock { $0 = pthread_self() }
      defer { writing.withLock { $0 = nil } }
      let result: T
      let prologue = prologue.withLock { $0 }
      let whole = { (connection: Connection) throws(MarfaError) -> T in
        switch late {
        case .none: break
        case .all: try prologue?.begin(connection, all: true) { false }
        case .closed: try prologue?.begin(connection, all: false) { self.isWanted }
        }
        return try body(connection)
      }
      do throws(MarfaError) {
        result = try attempt(connection, whole)
      } catch {
        guard case .store(let failure) = error, failure.isFull else { throw error }
        // The log could not grow. Folded in, it begins anew in the room it has.
        _ = try? connection.first("PRAGMA wal_checkpoint(RESTART)", { _ in }, { $0.int(0) })
        result = try attempt(connection, whole)
      }
      // First: what was remembered of a row before is not to be believed once nothing else says what is new.
      commitCount.withLock { $0 += 1 }
      if late != .none { prologue?.committed() }
      let jobs = committed.withLock { jobs in
        defer { jobs.removeAll() }
        return jobs
      }
      for job in jobs { job() }
      if let observer = commitObserver.withLock({ $0 }) { observer.body() }
      return result
    }
  }

  private func attempt<T>(_ connection: Connection, _ body: (Connection) throws(MarfaError) -> T) throws(MarfaError)
    -> T
  {
    try connection.run("BEGIN IMMEDIATE")
    do throws(MarfaError) {
      let result = try body(connection)
      try connection.run("COMMIT")
      return result
    } catch {
      Store.rollBack(connection)
      prologue.withLock { $0 }?.rolledBack()
      committed.withLock { $0.removeAll() }
      throw error
    }
  }

  /// Inside ``write(after:_:)``: does `job` once the transaction is committed, still under the writer's lock; never, when it
  /// is not. For files that go with their rows.
  func afterCommit(_ job: @escaping @Sendable () -> Void) { committed.withLock { $0.append(job) } }

  private static func rollBack(_ connection: Connection) {
    // SQLite has rolled back by itself after some failures (a full disk); a second rollback is an error then.
    if !connection.isAutocommit { _ = try? connection.run("ROLLBACK") }
  }

  /// Everything committed so far survives power loss when it returns: the log is synced, or it has been copied into the
  /// database, which SQLite syncs itself (sqlite.org, "Write-Ahead Logging").
  func synchronize() throws(MarfaError) {
    try settle()
    let log = try wal.withLock { (cached) throws(MarfaError) -> Descriptor? in
      if cached == nil {
        do throws(Errno) {
          cached = try Descriptor.open(path + "-wal", O_RDONLY)
          try Path.synchronizeDirectory(Path.parent(path))
        } catch {
          if error != .notFound { throw .io(error, "opening \(path)-wal") }
        }
      }
      return cached
    }
    do throws(Errno) { try log?.synchronize() } catch { throw .io(error, "syncing \(path)-wal") }
  }

  /// SQLite's count of other connections' changes: moves when the writer has saved (a reader looks at it to learn so).
  func dataVersion() throws(MarfaError) -> Int64 {
    try watcher.withLock { (connection) throws(MarfaError) in
      if connection == nil { connection = try Store.openReader(path, writable: isWriter) }
      return try connection?.first("PRAGMA data_version") { $0.int(0) } ?? 0
    }
  }

  /// Closes the writing connection, folding the log into the database, and lets the next opener write. Nothing may be
  /// written afterwards.
  func close() {
    checkpointer.close()
    readers.withLock { $0.removeAll() }
    watcher.withLock { $0 = nil }
    writer.withLock { $0 = nil }
    wal.withLock { $0 = nil }
    lock.withLock { $0 = nil }
  }

  // MARK: - Opening

  /// Looks at the file before SQLite does, so that what is no store is left exactly as it is.
  private static func check(_ path: String) throws(MarfaError) -> Bool {
    // SQLite's own limit for a path is 512 bytes, of which the log's and the index's names take a few.
    guard path.utf8.count <= 500 else {
      throw .invalid("the store's path has \(path.utf8.count) bytes, and 500 are the most: \(path)")
    }
    let status: stat?
    let folder: stat?
    let header: [UInt8]
    let log: Int
    do throws(Errno) {
      status = try Path.status(path)
      folder = try Path.status(Path.parent(path))
      header =
        try status.map { (status) throws(Errno) in
          status.st_mode & S_IFMT == S_IFREG ? try Descriptor.open(path, O_RDONLY).prefix(100) : []
        } ?? []
      log = try Path.status(path + "-wal")?.st_size ?? 0
    } catch {
      throw .io(error, path)
    }
    guard folder != nil else { throw .unusable(.noFolder(path: Path.parent(path))) }
    guard let status else { return false }
    // An empty file is what a crash between creating and writing a store leaves; with bytes beside it, it had rows.
    if status.st_mode & S_IFMT == S_IFREG && status.st_size == 0 {
      let held = (try? Path.names(in: BlobFiles(beside: path).root + "/held")) ?? []
      if log == 0 && !held.isEmpty { throw .unusable(.damaged(path: path, words: "the file is empty")) }
      // Any other empty file is not ours to make a database of: only where a lock says that one was being made.
      guard (try? Path.status(path + ".lock")) ?? nil != nil else { throw .unusable(.notAStore(path: path)) }
      return true
    }
    func number(_ offset: Int) -> Int { header[offset..<offset + 4].reduce(0) { $0 << 8 | Int($1) } }
    // "Database File Format" (sqlite.org): the application id stands at byte 68. A store whose first transaction is
    // still in the log has none yet.
    guard header.count == 100, header.starts(with: "SQLite format 3\0".utf8),
      number(68) == Int(Schema.applicationID) || number(68) == 0
    else { throw .unusable(.notAStore(path: path)) }
    // With an empty log the file has every page its header counts (at 28; the page size at 16, where 1 is 65536).
    let page = Int(header[16]) << 8 | Int(header[17])
    let expected = number(28) * (page == 1 ? 65536 : page)
    if log == 0 && status.st_size < expected {
      throw .unusable(.damaged(path: path, words: "\(status.st_size) of \(expected) bytes are there"))
    }
    return true
  }

  private static func openWriter(_ path: String) throws(MarfaError) -> Connection {
    // This person's alone from the first moment; SQLite gives the log and its index the same mode.
    do throws(Errno) { _ = try Descriptor.open(path, O_RDWR | O_CREAT, mode: 0o600) } catch { throw .io(error, path) }
    let connection = try Connection(path: path, flags: SQLITE_OPEN_READWRITE)
    // The log, so that readers never wait for the writer nor the writer for them.
    try connection.execute("PRAGMA journal_mode=WAL")
    // A commit survives this process; `synchronize()` adds power loss where it is promised.
    try connection.execute("PRAGMA synchronous=NORMAL")
    try connection.execute("PRAGMA foreign_keys=ON")
    try connection.execute("PRAGMA temp_store=MEMORY")
    try connection.execute("PRAGMA cache_size=-8192")
    try connection.execute("PRAGMA journal_size_limit=67108864")
    try migrate(connection, path: path)
    return connection
  }

  private static func openReader(_ path: String, writable: Bool) throws(MarfaError) -> Connection {
    var connection: Connection
    do {
      connection = try Connection(path: path, flags: SQLITE_OPEN_READONLY)
      _ = try connection.first("SELECT count(*) FROM sqlite_schema") { $0.int(0) }
    } catch {
      // A folder nothing can be written in has no place for the log's index; with no log there, nothing is missed.
      guard case .store(let failure) = error,
        failure.code & 0xff == SQLITE_CANTOPEN || failure.code & 0xff == SQLITE_READONLY,
        !writable, ((try? Path.status(path + "-wal"))??.st_size ?? 0) == 0
      else { throw error }
      connection = try Connection(path: "file:\(percentEncoded(path))?immutable=1", flags: SQLITE_OPEN_READONLY)
    }
    try connection.execute("PRAGMA query_only=ON")
    try connection.execute("PRAGMA cache_size=-2048")
    return connection
  }

  private static func percentEncoded(_ path: String) -> String {
    var bytes: [UInt8] = []
    for byte in path.utf8 {
      if byte == UInt8(ascii: "?") || byte == UInt8(ascii: "#") || byte == UInt8(ascii: "%") {
        bytes += [UInt8(ascii: "%"), Hex.digit(byte >> 4), Hex.digit(byte & 15)]
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  private static func userVersion(_ connection: Connection) throws(MarfaError) -> Int {
    Int(try connection.first("PRAGMA user_version") { $0.int(0) } ?? 0)
  }

  /// Throws unless this is a store this program knows, or a database with nothing in it. (Other programs count their
  /// schemas in `user_version` too, and most leave the application id 0.)
  private static func identify(_ connection: Connection, path: String) throws(MarfaError) {
    let version = try userVersion(connection)
    if try connection.first("PRAGMA application_id", { _ in }, { $0.int(0) }) != Schema.applicationID {
      let tables = try connection.first("SELECT count(*) FROM sqlite_schema") { $0.int(0) }
      guard version == 0, tables == 0 else { throw .unusable(.notAStore(path: path)) }
    }
    guard version <= Schema.version else {
      throw .unusable(.newer(path: path, found: version, known: Schema.version))
    }
  }

  private static func checkSchema(_ connection: Connection, path: String) throws(MarfaError) {
    try identify(connection, path: path)
    let found = try userVersion(connection)
    if found < Schema.version {
      throw .unusable(.damaged(path: path, words: "schema \(found) needs its writer to bring it to \(Schema.version)"))
    }
  }

  private static func migrate(_ connection: Connection, path: String) throws(MarfaError) {
    try identify(connection, path: path)
    let found = try userVersion(connection)
    for version in found..<Schema.version {
      try connection.execute("BEGIN IMMEDIATE")
      do throws(MarfaError) {
        try connection.execute(Schema.migrations[version])
        try connection.execute("PRAGMA application_id=\(Schema.applicationID)")
        try connection.execute("PRAGMA user_version=\(version + 1)")
        try connection.execute("COMMIT")
      } catch {
        rollBack(connection)
        throw error
      }
    }
  }

  private static func explained(_ error: MarfaError, path: String) -> MarfaError {
    guard case .store(let failure) = error else { return error }
    return switch failure.code & 0xff {
    case SQLITE_NOTADB: .unusable(.notAStore(path: path))
    case SQLITE_CORRUPT: .unusable(.damaged(path: path, words: failure.message))
    case SQLITE_READONLY, SQLITE_CANTOPEN: .unusable(.readOnlyFolder(path: Path.parent(path)))
    default: error
    }
  }
}

/// What goes before every transaction of a store, in it: rows that are made late. All calls come under the writer's lock,
/// but for ``isEmpty``.
protocol StorePrologue: AnyObject, Sendable {
  /// True when there is nothing to do. Any thread.
  var isEmpty: Bool { get }
  /// Does it; with `all` what could still wait too, and otherwise only as much as there is time for until `isWanted`.
  func begin(_ connection: Connection, all: Bool, isWanted: () -> Bool) throws(MarfaError)
  /// The transaction is committed.
  func committed()
  /// It is not.
  func rolledBack()
}

/// Numbers for nodes: above every one there is, and every one this process has made.
final class NodeNumbers: Sendable {
  private let highest = Lock<Int64?>(.leaf, nil)

  /// The next. ``begin(above:)`` was called.
  func next() throws(MarfaError) -> Int64 {
    let number = highest.withLock { highest -> Int64? in
      highest = highest.map { $0 + 1 }
      return highest
    }
    guard let number else { throw .readingHandle }
    return number
  }

  func begin(above number: Int64) { highest.withLock { $0 = max($0 ?? 0, number) } }
}
