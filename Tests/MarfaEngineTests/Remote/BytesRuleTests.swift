import Testing

@testable import MarfaEngine

@Suite("What an answer means to who asked for bytes")
struct BytesRuleTests {
  private static func head(_ status: Int, _ lines: [(String, String)], contract: String? = nil) -> HTTPHead {
    let own = contract.map { [(name: Contract.header, value: $0)] } ?? []
    return HTTPHead(status: status, headers: own + lines.map { (name: $0.0, value: $0.1) })
  }
  private func judge(_ head: HTTPHead, _ asked: BytesRules.Asked, _ range: Range<Int64>? = 10..<20) -> BytesRules.Step {
    BytesRules.judge(head, asked, range, limits: ServerLimits())
  }
  private static let elsewhere = BytesRules.Asked.link(isOrigins: false)

  @Test(
    "of a part is the part that was asked for, or nothing",
    arguments: [
      (
        "bytes 10-19/100", "10",
        BytesRules.Step.deliver(BytesHead(total: 100, offset: 10, ignoresRange: false), promised: 10)
      ),
      ("BYTES 10-19/*", "10", .deliver(BytesHead(total: nil, offset: 10, ignoresRange: false), promised: 10)),
      ("bytes 10-14/15", "5", .deliver(BytesHead(total: 15, offset: 10, ignoresRange: false), promised: 5)),
      ("bytes 10-14/100", "5", .fail(.refused("another part came than was asked for"))),
      ("bytes 10-14/*", "5", .fail(.refused("another part came than was asked for"))),
      ("bytes 0-9/100", "10", .fail(.refused("another part came than was asked for"))),
      ("bytes 10-29/100", "20", .fail(.refused("another part came than was asked for"))),
      ("bytes 10-19/100", "11", .fail(.refused("another part came than was asked for"))),
      ("bytes 10-19/15", "10", .fail(.refused("a part came that does not say which"))),
      ("bytes 19-10/100", "10", .fail(.refused("a part came that does not say which"))),
      ("bytes */100", "10", .fail(.refused("a part came that does not say which"))),
      ("items 10-19/100", "10", .fail(.refused("a part came that does not say which"))),
      ("bytes 10-99999999999999999999/*", "10", .fail(.refused("a part came that does not say which"))),
      ("bytes -10-19/100", "10", .fail(.refused("a part came that does not say which"))),
    ] as [(String, String, BytesRules.Step)])
  func parts(range: String, length: String, step: BytesRules.Step) {
    let lines = [("content-range", range), ("content-length", length)]
    #expect(judge(Self.head(206, lines), Self.elsewhere) == step)
    #expect(judge(Self.head(206, lines, contract: "0"), .origin) == step)
  }

  @Test("of the whole says so, and a part is none where the whole was asked for")
  func whole() {
    let head = Self.head(200, [("content-length", "50")], contract: "0")
    #expect(judge(head, .origin) == .deliver(BytesHead(total: 50, offset: 0, ignoresRange: true), promised: 50))
    #expect(judge(head, .origin, nil) == .deliver(BytesHead(total: 50, offset: 0, ignoresRange: false), promised: 50))
    let unknown = Self.head(200, [])
    #expect(
      judge(unknown, Self.elsewhere, nil)
        == .deliver(BytesHead(total: nil, offset: 0, ignoresRange: false), promised: nil))
    let part = Self.head(206, [("content-range", "bytes 0-1/2")])
    #expect(judge(part, Self.elsewhere, nil) == .fail(.refused("a part came where the whole was asked for")))
    let compressed = Self.head(200, [("content-encoding", "gzip")])
    #expect(judge(compressed, Self.elsewhere) == .fail(.refused("the bytes come compressed, which was not asked for")))
  }

  @Test("is absence only from the server itself")
  func absence() {
    #expect(judge(Self.head(404, [], contract: "0"), .origin) == .refusal)
    #expect(RangeFailure(.refused(RemoteRefusal(status: 404, code: "blob_not_found"))) == .absent)
    #expect(judge(Self.head(404, [], contract: "0"), .link(isOrigins: true)) == .fail(.absent))
    #expect(judge(Self.head(404, []), .link(isOrigins: true)) == .fail(.refused("the link's host answered 404")))
    #expect(judge(Self.head(404, [], contract: "0"), Self.elsewhere) == .fail(.refused("the link's host answered 404")))
    guard case .fail(.unreachable) = judge(Self.head(404, []), .origin) else {
      return #expect(Bool(false), "a proxy's 404 was taken for the server's")
    }
  }

  @Test("is told apart by status and by who gave it")
  func others() {
    #expect(judge(Self.head(200, []), .origin) == .fail(.mismatch(named: [])))
    #expect(judge(Self.head(206, [], contract: "3"), Self.elsewhere) == .fail(.mismatch(named: ["3"])))
    #expect(judge(Self.head(403, []), Self.elsewhere) == .linkRefused(403))
    #expect(judge(Self.head(401, [], contract: "0"), .link(isOrigins: true)) == .linkRefused(401))
    #expect(judge(Self.head(401, [], contract: "0"), .origin) == .refusal)
    #expect(RangeFailure(.refused(RemoteRefusal(status: 401, code: "x"))) == .credentialRefused)
    let past = [("content-range", "bytes */7")]
    #expect(judge(Self.head(416, past), Self.elsewhere) == .fail(.pastEnd(size: 7)))
    #expect(judge(Self.head(416, past, contract: "0"), .origin) == .fail(.pastEnd(size: 7)))
    #expect(judge(Self.head(416, []), Self.elsewhere) == .fail(.pastEnd(size: nil)))
    #expect(judge(Self.head(429, [("retry-after", "9")]), Self.elsewhere) == .fail(.rateLimited(seconds: 9)))
    #expect(judge(Self.head(429, [("retry-after", "9")]), .origin) == .fail(.rateLimited(seconds: 9)))
    #expect(judge(Self.head(302, [("location", "/x")]), Self.elsewhere) == .redirect("/x"))
    #expect(judge(Self.head(302, [("location", "/x")], contract: "0"), .origin) == .redirect("/x"))
    for step in [
      judge(Self.head(302, []), Self.elsewhere), judge(Self.head(304, [("location", "/x")]), Self.elsewhere),
      judge(Self.head(204, []), Self.elsewhere), judge(Self.head(400, []), Self.elsewhere),
    ] {
      guard case .fail(.refused) = step else { return #expect(Bool(false), "\(step)") }
    }
    for step in [
      judge(Self.head(503, []), Self.elsewhere), judge(Self.head(408, []), Self.elsewhere),
      judge(Self.head(302, [("location", "/x")]), .origin), judge(Self.head(503, []), .origin),
    ] {
      guard case .fail(.unreachable) = step else { return #expect(Bool(false), "\(step)") }
    }
  }
}
