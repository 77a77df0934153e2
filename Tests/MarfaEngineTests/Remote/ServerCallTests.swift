import CLinux
import Glibc
import Testing

@testable import MarfaEngine

@Suite("What the server is asked")
struct ServerCallTests {
  @Test("goes to the bound origin under its prefix, with the key; but not to say who it is")
  func requests() throws {
    let fixture = try RemoteFixture(prefix: "/marfa") { request, connection in
      switch request.target {
      case "/marfa/":
        connection.contract(200, #"{"name":"n","version":"1.2","instance_id":"i","contract":"0","features":["f"]}"#)
      case "/marfa/keys/current": connection.contract(200, #"{"type_permissions":{}}"#)
      case "/marfa/types":
        connection.contract(
          200, #"{"data":[{"id":"a.b","label":"L","fields":{},"display_hints":{"title_field":"t"}}],"next_cursor":"2"}"#
        )
      case "/marfa/types?cursor=2":
        connection.contract(
          200,
          #"{"data":[{"id":"a.c","parent":"a.b","label":"C","display_hints":{"title_field":"t","body_field":"b"}}],"next_cursor":null}"#
        )
      case "/marfa/edge-types": connection.contract(200, #"[{"id":"attached-to","cardinality":"many"}]"#)
      default: connection.contract(404)
      }
    }
    let server = fixture.server
    let instance = try server.instance(fixture.cancellation)
    #expect(instance.id == "i")
    #expect(instance.features == ["f"])
    #expect(try server.currentKey(fixture.cancellation)["type_permissions"] == [:])
    let types = try server.types(fixture.cancellation)
    #expect(types.map(\.id) == ["a.b", "a.c"])
    #expect(types.map(\.parent) == [nil, "a.b"])
    #expect(types.map(\.bodyField) == [nil, "b"])
    #expect(try server.edgeTypes(fixture.cancellation).map(\.id) == ["attached-to"])
    #expect(fixture.raw.requests.map { $0["authorization"] } == [nil] + [String](repeating: "Bearer the-key", count: 4))
  }

  @Test("of items comes as pages of whole rows")
  func items() throws {
    let edges = #","edges":{"attached-to":{"data":[\#(Wire.edge())],"next_cursor":"e2"}}"#
    let fixture = try RemoteFixture { request, connection in
      if request.target.hasPrefix("/items/") {
        connection.contract(404, #"{"error":{"code":"item_not_found","message":"no"}}"#)
      } else if request.target.contains("cursor=") {
        connection.contract(200, #"{"data":[],"next_cursor":null}"#)
      } else {
        connection.contract(200, #"{"data":[\#(Wire.row(Wire.item(edges)))],"next_cursor":"a b&c"}"#)
      }
    }
    let page = try fixture.server.items(type: "core.note", tier: .all, limit: 50, fixture.cancellation)
    #expect(page.nextCursor == "a b&c")
    let row = try #require(page.rows.first)
    #expect(row.id.description == Wire.id)
    #expect(row.version == 3)
    #expect(row.metadata?.tags == ["a", "b"])
    #expect(row.metadata?.extensions["x"] == ["y": 1])
    #expect(row.properties["unknown"] == .array([.number("1.50")]))
    #expect(row.rest.members.map(\.key) == ["schema_version", "created_at"])
    #expect(row.edges.map(\.type) == ["attached-to"])
    #expect(row.edges.first?.nextCursor == "e2")
    #expect(row.edges.first?.edges.first?.edge.target.description == Wire.other)
    #expect(try fixture.server.items(type: "x", tier: .feed, cursor: page.nextCursor, fixture.cancellation).rows == [])
    #expect(try fixture.server.item(row.id, fixture.cancellation) == nil)
    #expect(
      fixture.raw.requests.map(\.target) == [
        "/items?type=core.note&tier=all&state=any&include=edges%2Cmetadata&limit=50",
        "/items?type=x&tier=feed&state=any&include=edges%2Cmetadata&limit=200&cursor=a%20b%26c",
        "/items/\(Wire.id)?include=edges%2Cmetadata",
      ])
  }

  @Test("of edges comes by item, by what ends there, and by type")
  func edges() throws {
    let fixture = try RemoteFixture { _, connection in
      connection.contract(200, #"{"data":[\#(Wire.edge())],"next_cursor":null}"#)
    }
    let id = try #require(ItemID(Wire.id))
    #expect(try fixture.server.edges(of: id, type: "attached-to", cursor: "c", fixture.cancellation).rows.count == 1)
    #expect(try fixture.server.backrefs(of: id, fixture.cancellation).rows.count == 1)
    #expect(try fixture.server.edges(type: "parent-of", limit: 10, fixture.cancellation).rows.count == 1)
    #expect(
      fixture.raw.requests.map(\.target) == [
        "/items/\(Wire.id)/edges?edge_type=attached-to&limit=200&cursor=c", "/items/\(Wire.id)/backrefs?limit=200",
        "/edges?edge_type=parent-of&limit=10",
      ])
  }

  private static let hostileItems: [String] = [
    Wire.item(version: "0"), Wire.item(version: "-1"), Wire.item(version: "1.5"),
    Wire.item(version: "99999999999999999999"),
    Wire.item(version: "\"3\""), Wire.item(id: "x"), Wire.item(id: Wire.id.uppercased() + "A"),
    Wire.item(id: Wire.other),
    Wire.item(state: "gone"), Wire.item(",\"edges\":[]"), Wire.item(",\"edges\":{\"attached-to\":{}}"),
    Wire.item(",\"edges\":{\"attached-to\":{\"data\":[\(Wire.edge(version: "0"))]}}"),
    Wire.item(",\"edges\":{\"parent-of\":{\"data\":[\(Wire.edge())]}}"),
    Wire.item(",\"edges\":{\"attached-to\":{\"data\":[\(Wire.edge(target: "../x"))]}}"),
    "null", "[]", "{}", "7",
  ]

  @Test("passes over a row that is not what it must be, and says so", arguments: hostileItems)
  func hostileRows(item: String) throws {
    let fixture = try RemoteFixture { _, connection in
      connection.contract(200, #"{"data":[\#(Wire.row(item))],"next_cursor":null}"#)
    }
    let page = try fixture.server.items(type: "t", tier: .all, fixture.cancellation)
    #expect(page.unreadable.count == 1)
    // Of one whose edges alone are not what they must be, the rest is read.
    #expect(page.rows.count == (item.contains(",\"edges\":") ? 1 : 0))
    #expect(page.rows.allSatisfy { $0.edges.isEmpty && !$0.carriesEdges })
    guard
      case .unreadable = fixture.failure({ s throws(RemoteFailure) in
        try s.item(try Decode.id(.string(Wire.id), "id"), fixture.cancellation)
      })
    else { return #expect(Bool(false), "it was read") }
  }

  @Test("page by page ends with an error where a cursor repeats, and never goes round")
  func cursors() throws {
    let fixture = try RemoteFixture { request, connection in
      let next = request.target.contains("cursor=a") ? "b" : "a"
      connection.contract(200, #"{"data":[],"next_cursor":"\#(next)"}"#)
    }
    let failure = fixture.failure { server throws(RemoteFailure) in
      try Server.eachPage { (cursor) throws(RemoteFailure) in
        try server.edges(type: "t", cursor: cursor, fixture.cancellation)
      } _: { _ in
      }
    }
    #expect(failure == .unreadable("a page's cursor repeats"))
    #expect(fixture.raw.requests.count == 3)
    #expect(fixture.failure { s throws(RemoteFailure) in try s.types(fixture.cancellation) } == failure)
  }
}

@Suite("What the server is sent")
struct ServerWriteTests {
  @Test("goes out byte for byte, and again the same")
  func write() throws {
    let fixture = try RemoteFixture(prefix: "/p") { request, connection in
      if request.method == "DELETE" { return connection.contract(200, #"{"ok":true}"#) }
      connection.contract(201, Wire.row(), ["Idempotency-Replayed: true"])
    }
    let body = Array("{ \"a\" : 1.50 }".utf8)
    let write = WriteRequest(.patch, "/items/\(Wire.id)", query: "conflict=auto", idempotencyKey: "k-1", body: body)
    let answer = try fixture.server.send(write, fixture.cancellation)
    #expect(answer.status == 201)
    #expect(answer.replayed)
    #expect(answer.requestID == "r-1")
    #expect(answer.body["item"]?.object?["version"] == 3)
    _ = try fixture.server.send(write, fixture.cancellation)
    let tag = WriteRequest(.delete, "/items/\(Wire.id)/tags/" + Server.encoded("a/b c%é"))
    #expect(try fixture.server.send(tag, fixture.cancellation).replayed == false)
    let requests = fixture.raw.requests
    #expect(requests[0].body == body)
    #expect(requests[0].target == "/p/items/\(Wire.id)?conflict=auto")
    #expect(requests[0]["idempotency-key"] == "k-1")
    #expect(requests[0]["content-type"] == "application/json")
    #expect(requests[1].body == requests[0].body)
    #expect(requests[2].target == "/p/items/\(Wire.id)/tags/a%2Fb%20c%25%C3%A9")
    #expect(requests[2]["idempotency-key"] == nil)
    #expect(requests[2]["content-type"] == nil)
  }

  @Test("as a file streams, with its type, and the answer names it")
  func upload() throws {
    let hash = try #require(Wire.hash)
    let fixture = try RemoteFixture { _, connection in
      connection.contract(201, #"{"hash":"\#(hash)","mime_type":"text/x","size_bytes":300000}"#)
    }
    let folder = try TemporaryFolder()
    let bytes = [UInt8](repeating: 9, count: 300_000)
    let file = try Descriptor.open(folder.file("f", bytes), O_RDONLY)
    let last = Lock<Int64>(.leaf, 0)
    let uploaded = try fixture.server.upload(
      file, size: 300_000, mimeType: "text/plain", progress: { at in last.withLock { $0 = at } }, fixture.cancellation)
    #expect(uploaded == Uploaded(hash: hash, mimeType: "text/x", size: 300_000))
    #expect(last.withLock { $0 } == 300_000)
    _ = try fixture.server.upload(file, size: 300_000, mimeType: "a\r\nb: c", fixture.cancellation)
    #expect(fixture.raw.requests.map { $0["content-type"] } == ["text/plain", "application/octet-stream"])
    #expect(fixture.raw.requests.first?.body == bytes)
    #expect(fixture.raw.requests.first?["idempotency-key"] == nil)
    guard
      case .unreadable = fixture.failure({ s throws(RemoteFailure) in
        try s.upload(file, size: 5, mimeType: "a/b", fixture.cancellation)
      })
    else { return #expect(Bool(false), "another size was taken") }
  }

  @Test("as a question for a size is answered without the bytes, however many there are")
  func size() throws {
    let hash = try #require(Wire.hash)
    let there = hash.description
    let fixture = try RemoteFixture { request, connection in
      #expect(request.method == "HEAD")
      let isThere = request.target == "/blobs/\(there)"
      connection.write("HTTP/1.1 \(isThere ? 200 : 404) X\r\nX-Marfa-Contract: 0\r\nContent-Length: 5368709120\r\n\r\n")
    }
    #expect(try fixture.server.size(of: hash, fixture.cancellation) == 5_368_709_120)
    let other = try #require(BlobHash(String(repeating: "00", count: 32)))
    #expect(try fixture.server.size(of: other, fixture.cancellation) == nil)
    #expect(fixture.raw.connections == 1)
  }
}
