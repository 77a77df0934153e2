import CSQLite
import Glibc

/// One SQLite connection, lent by ``Store`` for the length of a closure and never used by two threads at once (opened
/// without SQLite's own mutexes because our lock serialises).
///
/// SQL stands as a literal where it is used; each literal is prepared once per connection and found again by its
/// address.
final class Connection {
  private let database: OpaquePointer
  private var statements: [UnsafePointer<UInt8>: OpaquePointer] = [:]
  /// Where nodes get their numbers: the one writing connection's.
  var nodeNumbers: NodeNumbers?

  /// Opens the file. `READONLY`, `READWRITE` or `READWRITE|CREATE` in `flags`.
  init(path: String, flags: Int32) throws(MarfaError) {
    var opened: OpaquePointer?
    let code = sqlite3_open_v2(
      path, &opened, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_URI, nil)
    guard let opened else {
      throw .store(StoreFailure(code: code, message: "out of memory", doing: "opening the store"))
    }
    guard code == SQLITE_OK else {
      let failure = StoreFailure(
        code: code, message: String(cString: sqlite3_errmsg(opened)), doing: "opening the store")
      sqlite3_close_v2(opened)
      throw .store(failure)
    }
    database = opened
    // A checkpoint or another process's reader holds a lock for milliseconds: wait, don't fail.
    sqlite3_busy_timeout(database, 10_000)
    _ = marfa_db_defensive(database)
  }

  deinit {
    for statement in statements.values { sqlite3_finalize(statement) }
    sqlite3_close_v2(database)
  }

  /// Runs statements that take no values and whose rows nobody reads.
  func execute(_ sql: String) throws(MarfaError) {
    let code = sqlite3_exec(database, sql, nil, nil, nil)
    guard code == SQLITE_OK else { throw failure(code, doing: String(sql.prefix(60))) }
  }

  /// Runs a statement for its effect; answers how many rows it changed.
  @discardableResult
  func run(_ sql: StaticString, _ bind: (Binder) -> Void = { _ in }) throws(MarfaError) -> Int {
    let statement = try prepared(sql)
    defer { reset(statement) }
    bind(Binder(statement: statement))
    while true {
      switch sqlite3_step(statement) {
      case SQLITE_ROW: continue
      case SQLITE_DONE: return Int(sqlite3_changes(database))
      case let code: throw failure(code, doing: "\(sql)")
      }
    }
  }

  /// The first row of a query, decoded; `nil` without one.
  func first<T>(_ sql: StaticString, _ bind: (Binder) -> Void = { _ in }, _ decode: (Row) -> T) throws(MarfaError)
    -> T?
  {
    let statement = try prepared(sql)
    defer { reset(statement) }
    bind(Binder(statement: statement))
    switch sqlite3_step(statement) {
    case SQLITE_ROW: return decode(Row(statement: statement))
    case SQLITE_DONE: return nil
    case let code: throw failure(code, doing: "\(sql)")
    }
  }

  /// Every row of a query, decoded.
  func all<T>(_ sql: StaticString, _ bind: (Binder) -> Void = { _ in }, _ decode: (Row) -> T) throws(MarfaError)
    -> [T]
  {
    var rows: [T] = []
    try each(sql, bind) { row in
      rows.append(decode(row))
      return true
    }
    return rows
  }

  /// Hands each row to `body` until it answers false. The row is valid only inside.
  func each(_ sql: StaticString, _ bind: (Binder) -> Void = { _ in }, _ body: (Row) -> Bool) throws(MarfaError) {
    let statement = try prepared(sql)
    defer { reset(statement) }
    bind(Binder(statement: statement))
    while true {
      switch sqlite3_step(statement) {
      case SQLITE_ROW: if !body(Row(statement: statement)) { return }
      case SQLITE_DONE: return
      case let code: throw failure(code, doing: "\(sql)")
      }
    }
  }

  /// Has `body` called after each commit with the number of pages in the log (sqlite.org, "Write-Ahead Log Commit
  /// Hook"), instead of SQLite's own checkpoints. `context` must outlive the connection.
  func onCommit(
    _ context: UnsafeMutableRawPointer,
    _ body:
      @escaping @convention(c) (
        UnsafeMutableRawPointer?, OpaquePointer?, UnsafePointer<CChar>?, Int32
      ) -> Int32
  ) {
    sqlite3_wal_hook(database, body, context)
  }

  /// The row id of the last insert.
  var lastInsertedRow: Int64 { sqlite3_last_insert_rowid(database) }

  /// True outside a transaction.
  var isAutocommit: Bool { sqlite3_get_autocommit(database) != 0 }

  private func prepared(_ sql: StaticString) throws(MarfaError) -> OpaquePointer {
    let key = sql.utf8Start
    if let statement = statements[key] {
      precondition(sqlite3_stmt_busy(statement) == 0, "already running: \(sql)")
      return statement
    }
    var statement: OpaquePointer?
    let code = key.withMemoryRebound(to: CChar.self, capacity: sql.utf8CodeUnitCount) { text in
      sqlite3_prepare_v3(
        database, text, Int32(sql.utf8CodeUnitCount), UInt32(SQLITE_PREPARE_PERSISTENT), &statement, nil)
    }
    guard code == SQLITE_OK, let statement else { throw failure(code, doing: "\(sql)") }
    statements[key] = statement
    return statement
  }

  private func reset(_ statement: OpaquePointer) {
    // Its code only repeats the step's.
    sqlite3_reset(statement)
    sqlite3_clear_bindings(statement)
  }

  private func failure(_ code: Int32, doing: String) -> MarfaError {
    .store(StoreFailure(code: code, message: String(cString: sqlite3_errmsg(database)), doing: doing))
  }
}

@available(*, unavailable) extension Connection: Sendable {}

/// Binds a statement's values, counted from 1.
struct Binder {
  fileprivate let statement: OpaquePointer

  func null(_ index: Int32) { sqlite3_bind_null(statement, index) }
  func int(_ index: Int32, _ value: Int64) { sqlite3_bind_int64(statement, index, value) }
  func int(_ index: Int32, _ value: Int64?) { if let value { int(index, value) } else { null(index) } }
  func bool(_ index: Int32, _ value: Bool) { sqlite3_bind_int64(statement, index, value ? 1 : 0) }
  func time(_ index: Int32, _ value: Timestamp) { int(index, value.nanoseconds) }
  func text(_ index: Int32, _ value: String) {
    var value = value
    value.withUTF8 { bytes in
      bytes.withMemoryRebound(to: CChar.self) { chars in
        // An empty text has no address, and a NULL pointer would bind NULL.
        _ =
          chars.isEmpty
          ? marfa_bind_text(statement, index, "", 0)
          : marfa_bind_text(statement, index, chars.baseAddress, Int32(chars.count))
      }
    }
  }
  func text(_ index: Int32, _ value: String?) { if let value { text(index, value) } else { null(index) } }
  func blob(_ index: Int32, _ bytes: [UInt8]) {
    bytes.withUnsafeBytes { _ = marfa_bind_blob_copy(statement, index, $0.baseAddress, Int32($0.count)) }
  }
  /// Bytes that outlive the step: no copy is made.
  func blob(_ index: Int32, lent bytes: UnsafeRawBufferPointer) {
    _ = marfa_bind_blob(statement, index, bytes.baseAddress, Int32(bytes.count))
  }
  func id(_ index: Int32, _ id: ItemID) { bytes(index, id.bytes) }
  func id(_ index: Int32, _ id: ItemID?) { if let id { self.id(index, id) } else { null(index) } }
  func id(_ index: Int32, _ id: EdgeID) { bytes(index, id.bytes) }
  func id(_ index: Int32, _ id: EdgeID?) { if let id { self.id(index, id) } else { null(index) } }
  func hash(_ index: Int32, _ hash: BlobHash) {
    var words = (
      hash.high.high.bigEndian, hash.high.low.bigEndian, hash.low.high.bigEndian, hash.low.low.bigEndian
    )
    withUnsafeBytes(of: &words) { _ = marfa_bind_blob_copy(statement, index, $0.baseAddress, 32) }
  }
  func hash(_ index: Int32, _ hash: BlobHash?) { if let hash { self.hash(index, hash) } else { null(index) } }

  func bytes(_ index: Int32, _ value: Bytes128) {
    var words = (value.high.bigEndian, value.low.bigEndian)
    withUnsafeBytes(of: &words) { _ = marfa_bind_blob_copy(statement, index, $0.baseAddress, 16) }
  }
}

/// The current row of a query, columns counted from 0.
struct Row {
  fileprivate let statement: OpaquePointer

  func isNull(_ column: Int32) -> Bool { sqlite3_column_type(statement, column) == SQLITE_NULL }
  func int(_ column: Int32) -> Int64 { sqlite3_column_int64(statement, column) }
  func optionalInt(_ column: Int32) -> Int64? { isNull(column) ? nil : int(column) }
  func bool(_ column: Int32) -> Bool { int(column) != 0 }
  func time(_ column: Int32) -> Timestamp { Timestamp(nanoseconds: int(column)) }
  func text(_ column: Int32) -> String {
    guard let text = sqlite3_column_text(statement, column) else { return "" }
    return String(
      decoding: UnsafeBufferPointer(start: text, count: Int(sqlite3_column_bytes(statement, column))), as: UTF8.self)
  }
  func optionalText(_ column: Int32) -> String? { isNull(column) ? nil : text(column) }
  /// Valid until the next step.
  func lentBlob(_ column: Int32) -> UnsafeRawBufferPointer {
    UnsafeRawBufferPointer(
      start: sqlite3_column_blob(statement, column), count: Int(sqlite3_column_bytes(statement, column)))
  }
  func blob(_ column: Int32) -> [UInt8] { Array(lentBlob(column)) }
  func itemID(_ column: Int32) -> ItemID? { Bytes128(bytes: lentBlob(column)).map(ItemID.init(bytes:)) }
  func edgeID(_ column: Int32) -> EdgeID? { Bytes128(bytes: lentBlob(column)).map(EdgeID.init(bytes:)) }
  func hash(_ column: Int32) -> BlobHash? { BlobHash(bytes: lentBlob(column)) }
}
