extension Server {
  /// `GET /`, without the key.
  public func instance(_ cancellation: Cancellation) throws(RemoteFailure) -> Instance { throw .canceled }
  /// `GET /keys/current`: the key's grants.
  public func currentKey(_ cancellation: Cancellation) throws(RemoteFailure) -> JSON.Object { throw .canceled }
  public func types(_ cancellation: Cancellation) throws(RemoteFailure) -> [ItemTypeRow] { throw .canceled }
  public func edgeTypes(_ cancellation: Cancellation) throws(RemoteFailure) -> [EdgeTypeRow] { throw .canceled }
  /// A page of items of a type (exactly that type's listing), in any state, with metadata and edges.
  public func items(
    type: String, tier: TierFilter, cursor: String? = nil, limit: Int = 200, _ cancellation: Cancellation
  ) throws(RemoteFailure) -> Page<ItemRow> { throw .canceled }
  public func item(_ id: ItemID, _ cancellation: Cancellation) throws(RemoteFailure) -> ItemRow? { throw .canceled }
  public func edges(
    of item: ItemID, type: String? = nil, cursor: String? = nil, limit: Int = 200, _ cancellation: Cancellation
  ) throws(RemoteFailure) -> Page<EdgeRow> { throw .canceled }
  public func backrefs(
    of item: ItemID, type: String? = nil, cursor: String? = nil, limit: Int = 200, _ cancellation: Cancellation
  ) throws(RemoteFailure) -> Page<EdgeRow> { throw .canceled }
  public func edges(type: String, cursor: String? = nil, limit: Int = 200, _ cancellation: Cancellation)
    throws(RemoteFailure) -> Page<EdgeRow>
  { throw .canceled }
  public func eachPage<Row>(
    from cursor: String? = nil, _ fetch: (String?) throws(RemoteFailure) -> Page<Row>,
    _ body: ([Row]) throws(RemoteFailure) -> Void
  ) throws(RemoteFailure) { throw .canceled }
  public func send(_ write: WriteRequest, _ cancellation: Cancellation) throws(RemoteFailure) -> WriteAnswer {
    throw .canceled
  }
  public func upload(
    _ file: Descriptor, size: Int64, mimeType: String, progress: (@Sendable (Int64) -> Void)? = nil,
    _ cancellation: Cancellation
  ) throws(RemoteFailure) -> Uploaded { throw .canceled }
  public func size(of hash: BlobHash, _ cancellation: Cancellation) throws(RemoteFailure) -> Int64? { throw .canceled }
  public func events(after cursor: String?, _ handler: any EventHandler) -> Transfer {
    Transfer(cancel: {}, resume: {})
  }
  public func bytes(of hash: BlobHash, range: Range<Int64>?, _ handler: any BytesHandler) -> Transfer {
    Transfer(cancel: {}, resume: {})
  }
}
final class Links: Sendable {}
public final class Network: Sendable {
  public init(limits: NetworkLimits = NetworkLimits()) {}
  @discardableResult
  public func start(_ request: HTTPRequest, _ handler: any TransferHandler) -> Transfer {
    Transfer(cancel: {}, resume: {})
  }
  @discardableResult
  public func perform(_ work: @escaping @Sendable () -> Void) -> Bool { false }
  public func close() {}
}
