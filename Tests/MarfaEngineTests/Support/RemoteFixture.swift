@testable import MarfaEngine

/// A scripted server with a ``Server`` that asks it, with the key `the-key`.
struct RemoteFixture {
  static let key = "the-key"
  let raw: RawServer
  let network: Network
  let server: Server
  let cancellation = Cancellation()

  init(
    network limits: NetworkLimits = NetworkLimits(), _ serverLimits: ServerLimits = ServerLimits(), prefix: String = "",
    _ answer: @escaping @Sendable (RawServer.Request, RawServer.Connection) -> Void
  ) throws {
    raw = try RawServer(answer)
    network = Network(limits: limits)
    server = Server(
      origin: try Origin(raw.url + prefix), credential: try Credential(RemoteFixture.key), network: network,
      limits: serverLimits)
  }

  /// What a call failed with; `nil` when it didn't.
  func failure<T>(_ call: (Server) throws(RemoteFailure) -> T) -> RemoteFailure? {
    do throws(RemoteFailure) {
      _ = try call(server)
      return nil
    } catch {
      return error
    }
  }

  func bytes(_ hash: BlobHash, _ range: Range<Int64>? = nil) -> BytesTaker {
    let taker = BytesTaker()
    _ = server.bytes(of: hash, range: range, taker)
    return taker
  }
}

/// JSON of the contract's shapes.
enum Wire {
  static let id = "01890000-0000-7000-8000-000000000001"
  static let other = "01890000-0000-7000-8000-000000000002"
  static let edgeID = "01890000-0000-7000-8000-000000000003"
  static let hash = BlobHash(String(repeating: "ab", count: 32))

  static func item(_ more: String = "", id: String = Wire.id, version: String = "3", state: String = "active") -> String
  {
    """
    {"id":"\(id)","type":"core.note","properties":{"title":"T","body":"","unknown":[1.50]},"state":"\(state)",\
    "tier":"library","version":\(version),"schema_version":1,"created_at":"2026-01-01T00:00:00.000Z"\(more)}
    """
  }
  static func row(_ item: String = Wire.item()) -> String {
    #"{"item":\#(item),"metadata":{"item_id":"\#(id)","tags":["b","a","b"],"extensions":{"x":{"y":1}}}}"#
  }
  static func edge(version: String = "1", target: String = Wire.other) -> String {
    """
    {"id":"\(edgeID)","source_id":"\(id)","target_id":"\(target)","edge_type":"attached-to","properties":{},\
    "version":\(version),"created_at":"2026-01-01T00:00:00.000Z"}
    """
  }
}
