import CSQLite
import MarfaEngine

/// A value of a row or a statement.
enum Value: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral {
  case null
  case int(Int64)
  case text(String)

  init(stringLiteral value: String) { self = .text(value) }
  init(integerLiteral value: Int64) { self = .int(value) }
  init(_ value: String?) { self = value.map { .text($0) } ?? .null }
  init(_ value: Int64) { self = .int(value) }
  init(_ value: Bool) { self = .int(value ? 1 : 0) }

  var text: String { if case .text(let text) = self { text } else { "" } }
  var optionalText: String? { if case .text(let text) = self { text } else { nil } }
  var int: Int64 { if case .int(let int) = self { int } else { 0 } }
  var bool: Bool { int != 0 }
}

/// The server's SQLite file. One thread at a time: whoever holds ``Books``.
final class Database {
  private let handle: OpaquePointer
  private var statements: [String: OpaquePointer] = [:]

  /// Opens or makes the file.
  init(path: String) throws(ServerRefusal) {
    var opened: OpaquePointer?
    let code = sqlite3_open_v2(
      path, &opened, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nil)
    guard code == SQLITE_OK, let opened else {
      sqlite3_close_v2(opened)
      throw .broken("the server's database \(path) cannot be opened: \(code)")
    }
    handle = opened
    // It has to survive this process, not the machine's power.
    try execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF")
    // Another server of the folder may just be ending.
    sqlite3_busy_timeout(handle, 10_000)
  }

  deinit {
    for statement in statements.values { sqlite3_finalize(statement) }
    sqlite3_close_v2(handle)
  }

  /// Runs statements without values.
  func execute(_ sql: String) throws(ServerRefusal) {
    guard sqlite3_exec(handle, sql, nil, nil, nil) == SQLITE_OK else { throw failure(sql) }
  }

  /// Runs a statement with its values (`?1` …) and answers its rows.
  @discardableResult
  func rows(_ sql: String, _ values: Value...) throws(ServerRefusal) -> [[Value]] { try rows(sql, values) }

  /// The first row of a query.
  func row(_ sql: String, _ values: Value...) throws(ServerRefusal) -> [Value]? { try rows(sql, values).first }

  /// Runs a statement with its values and answers its rows.
  func rows(_ sql: String, _ values: [Value]) throws(ServerRefusal) -> [[Value]] {
    let statement = try prepared(sql)
    defer {
      sqlite3_reset(statement)
      sqlite3_clear_bindings(statement)
    }
    for (index, value) in values.enumerated() {
      let place = Int32(index + 1)
      switch value {
      case .null: sqlite3_bind_null(statement, place)
      case .int(let int): sqlite3_bind_int64(statement, place, int)
      case .text(let text): marfa_bind_text(statement, place, text, Int32(text.utf8.count))
      }
    }
    var rows: [[Value]] = []
    while true {
      switch sqlite3_step(statement) {
      case SQLITE_DONE: return rows
      case SQLITE_ROW:
        var row: [Value] = []
        for column in 0..<sqlite3_column_count(statement) {
          switch sqlite3_column_type(statement, column) {
          case SQLITE_NULL: row.append(.null)
          case SQLITE_INTEGER: row.append(.int(sqlite3_column_int64(statement, column)))
          default:
            let bytes = UnsafeBufferPointer(
              start: sqlite3_column_text(statement, column), count: Int(sqlite3_column_bytes(statement, column)))
            row.append(.text(String(decoding: bytes, as: UTF8.self)))
          }
        }
        rows.append(row)
      default: throw failure(sql)
      }
    }
  }

  /// How many rows the last statement changed.
  var changes: Int { Int(sqlite3_changes(handle)) }
  /// The row id of the last insert.
  var lastRow: Int64 { sqlite3_last_insert_rowid(handle) }

  private func prepared(_ sql: String) throws(ServerRefusal) -> OpaquePointer {
    if let statement = statements[sql] { return statement }
    var statement: OpaquePointer?
    guard sqlite3_prepare_v2(handle, sql, -1, &statement, nil) == SQLITE_OK, let statement else {
      throw failure(sql)
    }
    statements[sql] = statement
    return statement
  }

  private func failure(_ sql: String) -> ServerRefusal {
    .broken("\(String(cString: sqlite3_errmsg(handle))) (\(sql.prefix(80)))")
  }
}

@available(*, unavailable) extension Database: Sendable {}
