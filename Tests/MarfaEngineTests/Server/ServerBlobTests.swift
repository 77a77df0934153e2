import ContractServer
import Testing

@testable import MarfaEngine

/// Contract "Blobs".
@Suite("Blobs of the tests' server")
struct ServerBlobTests {
  private let bytes = (0..<100_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }

  /// A server with one file item of `bytes`, and their hash.
  private func withFile(_ change: (inout ServerOptions) -> Void = { _ in }) throws -> (ServerFixture, String) {
    let fixture = try ServerFixture(change)
    try fixture.server.change { _ = try $0.createFile("f", bytes, mime: "image/png") }
    return (fixture, BlobHash(of: bytes).description)
  }

  private func link(_ fixture: ServerFixture, _ hash: String, ttl: String = "") throws -> String {
    try #require(try fixture.ask("GET", "/blobs/\(hash)/url\(ttl)").json["url"]?.string)
  }

  /// A request to an absolute address, without a credential.
  private func ask(_ method: String = "GET", _ url: String, range: String? = nil, _ more: [String: String] = [:]) throws
    -> RawClient.Response
  {
    let target = String(url.dropFirst(7).drop { $0 != "/" })
    var headers = more
    headers["Range"] = range
    return try #require(try RawClient(url).ask(method, target, headers))
  }

  @Test("an upload is answered with its hash; the same bytes again with the same and the first MIME type")
  func upload() throws {
    let fixture = try ServerFixture()
    let first = try fixture.upload(bytes, mime: "image/png")
    #expect(first.status == 201)
    #expect(first.json["hash"]?.string == BlobHash(of: bytes).description)
    #expect(first.json["size_bytes"] == 100_000)
    let again = try fixture.upload(bytes, mime: "text/plain")
    #expect(again.status == 201)
    #expect(again.json["hash"] == first.json["hash"])
    #expect(again.json["mime_type"] == "image/png")
    #expect(try fixture.upload([]).status == 400)
    #expect(try fixture.upload(bytes, mime: "multipart/form-data; boundary=x").status == 400)
    #expect(fixture.violations.isEmpty)
  }

  @Test(
    "a range is answered as the contract says",
    arguments: [
      (nil, 200, nil, 100_000), ("bytes=0-0", 206, "bytes 0-0/100000", 1),
      ("bytes=99990-200000", 206, "bytes 99990-99999/100000", 10), ("bytes=99999-", 206, "bytes 99999-99999/100000", 1),
      ("bytes=100000-", 416, "bytes */100000", nil), ("bytes=-5", 200, nil, 100_000),
      ("bytes=0-1,5-6", 200, nil, 100_000), ("items=0-1", 200, nil, 100_000),
    ] as [(String?, Int, String?, Int?)])
  func ranges(_ range: String?, _ status: Int, _ contentRange: String?, _ count: Int?) throws {
    let (fixture, hash) = try withFile()
    let asked = range.map { ["Range": $0] } ?? [:]
    for answer in [
      try fixture.ask("GET", "/blobs/\(hash)", nil, asked), try ask("GET", try link(fixture, hash), range: range),
    ] {
      #expect(answer.status == status)
      #expect(answer["content-range"] == contentRange)
      if let count {
        let first = contentRange.map { Int($0.split(separator: " ")[1].split(separator: "-")[0]) ?? 0 } ?? 0
        #expect(answer.body == Array(bytes[first..<first + count]))
      }
    }
    #expect(fixture.violations.isEmpty)
  }

  @Test("HEAD tells the size, and the hash in its tag")
  func head() throws {
    let (fixture, hash) = try withFile()
    let answer = try fixture.ask("HEAD", "/blobs/\(hash)")
    #expect(answer.status == 200)
    #expect(answer["content-length"] == "100000")
    #expect(answer["accept-ranges"] == "bytes")
    #expect(answer["etag"] == "\"\(hash)\"")
  }

  @Test("a blob is read only through a row, the bin's too, an earlier version not")
  func readable() throws {
    let fixture = try ServerFixture()
    let hash = BlobHash(of: bytes).description
    _ = try fixture.upload(bytes)
    #expect(try fixture.ask("GET", "/blobs/\(hash)").code == "blob_not_found")
    let file = ItemID.mint().description
    _ = try fixture.write(
      "POST", "/items",
      [
        "id": .string(file), "type": "core.file.image",
        "properties": ["blob_ref": .string(hash), "mime_type": "image/png"],
      ])
    #expect(try fixture.ask("GET", "/blobs/\(hash)").status == 200)
    _ = try fixture.write("DELETE", "/items/\(file)")
    #expect(try fixture.ask("GET", "/blobs/\(hash)").status == 200)
    _ = try fixture.write("POST", "/items/\(file)/restore")
    _ = try fixture.upload([9])
    _ = try fixture.write(
      "PATCH", "/items/\(file)?conflict=auto",
      ["version": 1, "properties": ["blob_ref": .string(BlobHash(of: [9]).description)]])
    #expect(try fixture.ask("GET", "/blobs/\(hash)").code == "blob_not_found")
    #expect(fixture.violations.isEmpty)
  }

  @Test("a reference lends its read only if its writer had the bytes when it wrote the row")
  func lending() throws {
    let fixture = try ServerFixture {
      $0.keys = [
        APIKey("one", secret: "K1", types: ["core.note": .write]),
        APIKey("two", secret: "K2", types: ["core.file": .write]),
      ]
    }
    let hash = BlobHash(of: bytes).description
    _ = try fixture.upload(bytes)
    fixture.key = "K2"
    let create: JSON.Object = [
      "id": .string(ItemID.mint().description), "type": "core.file",
      "properties": ["blob_ref": .string(hash), "mime_type": "image/png"],
    ]
    #expect(try fixture.write("POST", "/items", create).status == 201)
    #expect(try fixture.ask("GET", "/blobs/\(hash)").code == "blob_not_found")
    // Uploading now does not mend the row; a row written after it lends.
    _ = try fixture.upload(bytes)
    #expect(try fixture.ask("GET", "/blobs/\(hash)").code == "blob_not_found")
    var second = create
    second["id"] = .string(ItemID.mint().description)
    _ = try fixture.write("POST", "/items", second)
    #expect(try fixture.ask("GET", "/blobs/\(hash)").status == 200)
  }

  @Test("an object store's link names no contract, promises no HEAD, and is 403 when over or altered")
  func storeLinks() throws {
    let (fixture, hash) = try withFile()
    let url = try link(fixture, hash)
    #expect(url.hasPrefix(fixture.server.storeURL))
    let answer = try ask("GET", url, range: "bytes=5-9")
    #expect(answer.status == 206)
    #expect(answer.all("x-marfa-contract").isEmpty)
    #expect(answer.body == Array(bytes[5...9]))
    #expect(try ask("HEAD", url).status == 403)
    #expect(fixture.violations.isEmpty)
    let encodedAnew = url.replacing("%2f", with: "%2F")
    #expect(try ask("GET", encodedAnew).status == 403)
    #expect(fixture.violations == [.linkAltered])
    try fixture.server.expireLinks()
    #expect(try ask("GET", url).status == 403)
  }

  @Test("an instance's link names the contract, answers HEAD, outlives nothing, and is 401 when over")
  func instanceLinks() throws {
    let (fixture, hash) = try withFile { $0.links = .instance }
    let url = try link(fixture, hash)
    #expect(url.hasPrefix(fixture.server.url + "/blobs/"))
    #expect(try ask("GET", url)["x-marfa-contract"] == "0")
    #expect(try ask("HEAD", url)["content-length"] == "100000")
    try fixture.server.expireLinks()
    let over = try ask("GET", url)
    #expect(over.status == 401)
    #expect(over["x-marfa-contract"] == "0")
  }

  @Test("a link's life is asked for and held to a week")
  func life() throws {
    let (fixture, hash) = try withFile()
    #expect(try fixture.ask("GET", "/blobs/\(hash)/url").json["expires_in"] == 3600)
    #expect(try fixture.ask("GET", "/blobs/\(hash)/url?ttl=5").json["expires_in"] == 5)
    #expect(try fixture.ask("GET", "/blobs/\(hash)/url?ttl=9999999").json["expires_in"] == 604_800)
    #expect(try fixture.ask("GET", "/blobs/\(hash)/url?ttl=none").status == 400)
  }

  @Test("a credential at a link or where a redirect leads is noted")
  func credentials() throws {
    let (fixture, hash) = try withFile()
    let credential = ["Authorization": "Bearer \(fixture.server.key)"]
    _ = try ask("GET", try link(fixture, hash), credential)
    _ = try ask("GET", fixture.server.elsewhereURL, credential)
    #expect(fixture.violations == [.credentialElsewhere, .credentialElsewhere])
    #expect(fixture.server.requests.allSatisfy { !"\($0.headers)".contains(fixture.server.key) })
  }

  @Test("bytes on the wire are counted by kind")
  func counting() throws {
    let (fixture, hash) = try withFile()
    let url = try link(fixture, hash)
    fixture.server.forgetRecords()
    _ = try ask("GET", url, range: "bytes=0-4095")
    _ = try ask("GET", url, range: "bytes=90000-")
    #expect(fixture.server.stats["GET store"].requests == 2)
    #expect(fixture.server.stats.blobBytesSent == 4096 + 10_000)
    _ = try fixture.upload(bytes)
    #expect(fixture.server.stats["POST /blobs"].received == 100_000)
  }
}
