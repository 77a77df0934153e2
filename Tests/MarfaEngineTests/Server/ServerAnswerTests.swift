import ContractServer
import Testing

@testable import MarfaEngine

/// Contract "Requests and answers", as the tests' server keeps it.
@Suite("What every answer of the tests' server has")
struct ServerAnswerTests {
  @Test("the identity needs no credential and names the contract")
  func identity() throws {
    let fixture = try ServerFixture()
    let answer = try #require(try fixture.client.ask("GET", "/"))
    #expect(answer.status == 200)
    #expect(answer["x-marfa-contract"] == "0")
    #expect(answer["x-request-id"] != nil)
    #expect(answer.json["contract"] == 0)
    #expect(answer.json["instance_id"]?.string == fixture.server.instanceID)
  }

  @Test(
    "a request that is not the contract's is refused in the envelope",
    arguments: [
      ("GET", "/items?colour=red", 400, "invalid_request"), ("GET", "/items?type=", 400, "invalid_request"),
      ("GET", "/items?tags=", 400, "invalid_request"), ("GET", "/items?filter=", 400, "invalid_request"),
      ("GET", "/items?limit=201", 400, "invalid_request"), ("GET", "/items?cursor=mine", 400, "invalid_request"),
      ("GET", "/items?type=core.nothing", 400, "unknown_type"), ("GET", "/edges", 400, "invalid_request"),
      ("GET", "/edges?edge_type=nothing", 400, "unknown_edge_type"), ("GET", "/nothing", 404, "not_found"),
      ("GET", "/items/019a0000-0000-7000-8000-000000000000", 404, "item_not_found"),
      ("GET", "/blobs/sha256:\(String(repeating: "a", count: 64))", 404, "blob_not_found"),
      ("DELETE", "/edges/019a0000-0000-7000-8000-000000000000", 404, "edge_not_found"),
      ("POST", "/items", 400, "invalid_request"),
    ])
  func refusals(_ method: String, _ target: String, _ status: Int, _ code: String) throws {
    let fixture = try ServerFixture()
    let answer = try fixture.ask(method, target)
    #expect(answer.status == status)
    #expect(answer.code == code)
    #expect(answer["x-error-code"] == code)
    #expect(answer["x-marfa-contract"] == "0")
    #expect(answer.json["error"]?.object?["message"]?.string != nil)
  }

  @Test("a key nobody gave out is 401, and names the contract")
  func unknownKey() throws {
    let fixture = try ServerFixture()
    fixture.key = "guessed"
    let answer = try fixture.ask("GET", "/items")
    #expect(answer.status == 401)
    #expect(answer.code == "unauthorized")
    #expect(answer["x-marfa-contract"] == "0")
  }

  @Test("requests stand under the path prefix; beside it nothing is the server's")
  func prefix() throws {
    let fixture = try ServerFixture { $0.prefix = "/marfa" }
    #expect(try fixture.ask("GET", "/types").status == 200)
    #expect(try fixture.client.ask("GET", "/marfa")?.status == 200)
    let beside = try #require(try fixture.client.ask("GET", "/types"))
    #expect(beside.status == 404)
    #expect(beside["x-marfa-contract"] == nil)
  }

  @Test("the catalogue lists types with their fields, hints and merge policies")
  func types() throws {
    let fixture = try ServerFixture()
    let types = try fixture.ask("GET", "/types").data.compactMap(\.object)
    let note = try #require(types.first { $0["id"] == "core.note" })
    #expect(note["fields"]?.object?["body"]?.object?["required"] == true)
    #expect(note["display_hints"]?.object?["body_field"] == "body")
    #expect(note["merge_policy"]?.object?["fields"]?.object?["body"] == "keep_both_copies")
    #expect(types.first { $0["id"] == "acme.scan" }?["parent"] == "core.file")
    let edgeTypes = try fixture.ask("GET", "/edge-types").data.compactMap(\.object)
    #expect(edgeTypes.first { $0["id"] == "parent-of" }?["cardinality"] == "one_to_many")
  }

  @Test("a server stopped and started again has the same rows at the same place")
  func restart() throws {
    let fixture = try ServerFixture()
    let id = try fixture.createNote()
    let (url, key) = (fixture.server.url, fixture.server.key)
    fixture.server.stop()
    fixture.client.close()
    // Refused, or taken by a listener on its way out and let go: nobody answers.
    #expect(((try? fixture.client.ask("GET", "/")) ?? nil) == nil)
    try fixture.server.start()
    #expect(fixture.server.url == url)
    #expect(try fixture.ask("GET", "/items/\(id)").status == 200)
    // A port that is taken is said to be.
    var taken = ServerOptions()
    taken.port = try #require(UInt16(url.split(separator: ":")[2]))
    #expect(throws: ServerRefusal.self) { try ContractServer(folder: fixture.folder.path + "/other", taken) }
    // And one made anew on the folder.
    fixture.server.stop()
    let again = try ContractServer(folder: fixture.folder.path + "/server")
    defer { again.stop() }
    #expect(again.key == key)
    #expect(try again.item(id)?.title == "A note")
    #expect(again.head == 1)
  }
}
