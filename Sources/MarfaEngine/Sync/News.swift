/// What events told of rows while they were asked for. Events come in the server's order and answers when they will: an
/// answer that was made before an event and comes after it is older, though both name one version (a tag, the bin and
/// coming back from it move none).
final class News: Sendable {
  private struct Row {
    var watchers = 0
    var heard = 0
  }
  private let rows = Lock<[Bytes128: Row]>(.leaf, [:])

  /// Begins to listen for events about a row; answers what ``isHeard(_:since:)`` wants. Each is ended by ``unwatch(_:)``.
  func watch(_ row: Bytes128?) -> Int {
    guard let row else { return 0 }
    return rows.withLock { rows in
      rows[row, default: Row()].watchers += 1
      return rows[row]?.heard ?? 0
    }
  }

  func unwatch(_ row: Bytes128?) {
    guard let row else { return }
    rows.withLock { rows in
      guard let known = rows[row], known.watchers > 1 else {
        rows[row] = nil
        return
      }
      rows[row]?.watchers -= 1
    }
  }

  /// An event about a row is applied.
  func hear(_ row: Bytes128) { rows.withLock { $0[row]?.heard += 1 } }

  func isHeard(_ row: Bytes128?, since heard: Int) -> Bool {
    guard let row else { return false }
    return rows.withLock { ($0[row]?.heard ?? heard) != heard }
  }
}
