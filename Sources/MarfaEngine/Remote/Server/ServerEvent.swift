/// One event of `GET /events` (contract "Events").
public struct ServerEvent: Sendable, Equatable {
  /// What the cursor becomes once this is applied; `nil` on the stream's own events. Decimal digits.
  public var id: String?
  /// `item.created`, `stream_live`, …, as the `event:` line has it.
  public var name: String
  /// What it carries, which is what it is treated by.
  public var content: Content
  /// Its data as it came.
  public var raw: JSON.Object

  /// What an event carries.
  public enum Content: Sendable, Equatable {
    /// The log's head, before anything else.
    case streamCursor(String)
    /// The replay is over; the cursor moves there when that is further on.
    case streamLive(String?)
    /// The log no longer reaches back to the cursor: hydrate again. The stream ends.
    case catchupTooOld(minRetained: String?)
    /// The cursor lies ahead of the log: hydrate again. The stream ends.
    case cursorAhead(head: String?)
    /// The stream ends; it is opened again from this cursor.
    case streamIncomplete(reason: String, cursor: String?)
    /// An item, with its tags and extensions where they came along.
    case item(ItemRow)
    /// The item is gone for good.
    case purged(ItemID)
    /// An edge; `edge.deleted` says by its name that it is gone.
    case edge(EdgeRow, sourceType: String?)
    /// An item's tags and extensions.
    case metadata(ItemID, ItemMetadata)
    /// A row that is not what the contract says: it moves the cursor and changes nothing.
    case unreadable(UnreadableRow)
    /// Nothing that is known here: it moves the cursor and changes nothing.
    case unknown
  }
}

/// Takes the events of a stream. All calls come on the network's thread and must not wait for anything.
public protocol EventHandler: AnyObject, Sendable {
  /// The next event. After `.pause` none comes until ``Transfer/resume()``; after `.stop` only the end.
  func event(_ event: ServerEvent) -> Flow
  /// The stream is over: once. A success is the server's own end of it (open it again from the stored cursor).
  func end(_ result: Result<Void, RemoteFailure>)
}
