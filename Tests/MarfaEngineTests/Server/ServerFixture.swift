import ContractServer
import Testing

@testable import MarfaEngine

/// A contract server in a folder of its own, and a client that speaks as its first key.
final class ServerFixture {
  let folder: TemporaryFolder
  let server: ContractServer
  let client: RawClient
  var key: String
  private var writes = 0

  init(_ change: (inout ServerOptions) -> Void = { _ in }) throws {
    folder = try TemporaryFolder()
    var options = ServerOptions()
    change(&options)
    server = try ContractServer(folder: folder.path + "/server", options)
    client = try RawClient(server.url)
    key = server.key
  }

  deinit { server.stop() }

  /// The path prefix requests stand under.
  private var prefix: String { String(server.url.dropFirst("http://".count).drop { $0 != "/" }) }

  /// A request with the key; `json` is sent as JSON.
  @discardableResult
  func ask(_ method: String, _ target: String, _ json: JSON.Object? = nil, _ headers: [String: String] = [:]) throws
    -> RawClient.Response
  {
    var headers = headers
    headers["Authorization"] = "Bearer \(key)"
    if json != nil { headers["Content-Type"] = "application/json" }
    let body = json.map { Array(JSON.object($0).text.utf8) } ?? (method == "POST" ? [] : nil)
    return try #require(try client.ask(method, prefix + target, headers, body: body), "no answer")
  }

  /// A write under a fresh idempotency key, or the one given.
  @discardableResult
  func write(_ method: String, _ target: String, _ json: JSON.Object? = nil, under idempotencyKey: String? = nil) throws
    -> RawClient.Response
  {
    writes += 1
    return try ask(method, target, json, ["Idempotency-Key": idempotencyKey ?? "write-\(writes)"])
  }

  @discardableResult
  func upload(_ bytes: [UInt8], mime: String = "image/png") throws -> RawClient.Response {
    let headers = ["Authorization": "Bearer \(key)", "Content-Type": mime]
    return try #require(try client.ask("POST", prefix + "/blobs", headers, body: bytes))
  }

  /// The create of a note, and its id.
  static func note(_ title: String = "A note", body: String = "") -> (id: String, body: JSON.Object) {
    let id = ItemID.mint().description
    return (
      id,
      [
        "id": .string(id), "type": "core.note", "tier": "library",
        "properties": ["title": .string(title), "body": .string(body)],
      ]
    )
  }

  /// A note made over the wire.
  func createNote(_ title: String = "A note", body: String = "") throws -> String {
    let note = ServerFixture.note(title, body: body)
    try #require(try write("POST", "/items", note.body).status == 201)
    return note.id
  }

  /// An edge drawn over the wire.
  func createEdge(_ type: String, from source: String, to target: String, id: String? = nil) throws
    -> RawClient.Response
  {
    try write(
      "POST", "/edges",
      [
        "id": .string(id ?? EdgeID.mint().description), "source_id": .string(source), "target_id": .string(target),
        "edge_type": .string(type),
      ])
  }

  /// An event stream of the key's, opened after `cursor`.
  func events(after cursor: Int64? = nil) throws -> RawClient {
    let stream = try RawClient(server.url)
    var headers = ["Authorization": "Bearer \(key)"]
    if let cursor { headers["Last-Event-ID"] = String(cursor) }
    try stream.send("GET", prefix + "/events", headers)
    let head = try #require(try stream.receive())
    try #require(head.status == 200)
    return stream
  }

  var violations: [Violation.Kind] { server.violations.map(\.kind) }
}
