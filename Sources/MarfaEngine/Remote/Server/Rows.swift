/// An item as the server has it (contract "Shapes").
public struct ItemRow: Sendable, Equatable {
  public var id: ItemID
  public var type: String
  /// Everything it says, members nobody here knows included.
  public var properties: JSON.Object
  public var state: ItemState
  public var tier: Tier
  /// At least 1.
  public var version: Int64
  /// Every other member of the item as it came: `schema_version`, `source`, its times, and what nobody here knows.
  public var rest: JSON.Object
  /// `nil` when the answer carried none.
  public var metadata: ItemMetadata?
  /// The edges it draws, by type, as far as the answer carried them; empty when it carried none.
  public var edges: [EdgeBlock]
  /// Whether the answer carried `edges` at all.
  public var carriesEdges: Bool

  /// True for one in the bin.
  public var isTrashed: Bool { state == .trashed }
}

/// An item's tags and extensions.
public struct ItemMetadata: Sendable, Equatable {
  /// Sorted, each once.
  public var tags: [String]
  /// By namespace.
  public var extensions: JSON.Object
}

/// The edges of one type that an item draws, as its row carries them: the first ones, and where the rest is.
public struct EdgeBlock: Sendable, Equatable {
  public var type: String
  public var edges: [EdgeRow]
  /// Continues ``Server/edges(of:type:cursor:limit:_:)``; `nil` when these are all.
  public var nextCursor: String?
}

/// An edge as the server has it.
public struct EdgeRow: Sendable, Equatable {
  public var id: EdgeID
  public var source: ItemID
  public var target: ItemID
  public var type: String
  public var properties: JSON.Object
  /// At least 1.
  public var version: Int64
  /// Every other member as it came.
  public var rest: JSON.Object

  /// As the engine keeps it.
  public var edge: Edge {
    Edge(id: id, source: source, target: target, type: type, properties: properties, version: version)
  }
}

/// A type of the server's catalogue.
public struct ItemTypeRow: Sendable, Equatable {
  public var id: String
  public var parent: String?
  public var label: String
  /// `display_hints.title_field`.
  public var titleField: String?
  /// `display_hints.body_field`.
  public var bodyField: String?
  /// The row as it came.
  public var raw: JSON.Object
}

/// A type of edges.
public struct EdgeTypeRow: Sendable, Equatable {
  /// `attached-to`, `parent-of`, ….
  public var id: String
  /// The row as it came.
  public var raw: JSON.Object
}

/// One page of a listing. It can be short or empty and still not be the last.
public struct Page<Row: Sendable>: Sendable {
  public var rows: [Row]
  /// Those that are not what the contract says; only a listing that is read as far as it can be has any.
  public var unreadable: [UnreadableRow] = []
  /// Continues the listing; `nil` on the last page.
  public var nextCursor: String?
}

extension Page: Equatable where Row: Equatable {}

/// What `GET /` says of a server.
public struct Instance: Sendable, Equatable {
  public var name: String
  public var version: String
  public var id: String
  public var features: [String]
  /// As it came.
  public var raw: JSON.Object
}

/// Which tiers a listing covers.
public enum TierFilter: String, Sendable, CaseIterable {
  case library, feed, all
}

/// A write as it goes out. A retry is this value again, byte for byte (contract: the idempotency record matches on method,
/// path, query as written and body bytes).
public struct WriteRequest: Sendable, Equatable {
  public var method: HTTPRequest.Method
  /// Starts with `/`, encoded (``Server/encoded(_:)``), without the origin's prefix.
  public var path: String
  /// Without its `?`, encoded; `nil` for none.
  public var query: String?
  /// Sent as `Idempotency-Key`.
  public var idempotencyKey: String?
  /// JSON text; `nil` sends no body.
  public var body: [UInt8]?

  public init(
    _ method: HTTPRequest.Method, _ path: String, query: String? = nil, idempotencyKey: String? = nil,
    body: [UInt8]? = nil
  ) {
    self.method = method
    self.path = path
    self.query = query
    self.idempotencyKey = idempotencyKey
    self.body = body
  }
}

/// A write's success.
public struct WriteAnswer: Sendable, Equatable {
  /// 200 to 299.
  public var status: Int
  /// True when it comes from the idempotency record: the write was done earlier.
  public var replayed: Bool
  public var body: JSON.Object
  public var requestID: String?
}

/// An upload's answer. The MIME type may be another than was sent: the first upload fixed it.
public struct Uploaded: Sendable, Equatable {
  public var hash: BlobHash
  public var mimeType: String
  public var size: Int64
}
