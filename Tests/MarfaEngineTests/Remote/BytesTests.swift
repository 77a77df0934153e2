import Testing

@testable import MarfaEngine

@Suite("Bytes asked for by their hash")
struct BytesTests {
  private static let content = Array("0123456789abcdefghij".utf8)
  private let hash: BlobHash

  init() throws { hash = try #require(Wire.hash) }

  /// The range a request names, answered as a host that knows ranges does.
  private static func serve(_ request: RawServer.Request, _ connection: RawServer.Connection, _ headers: [String] = [])
  {
    guard let range = request["range"]?.dropFirst("bytes=".count).split(separator: "-").compactMap({ Int($0) }),
      range.count == 2
    else { return connection.reply(200, headers, content) }
    let end = min(range[1], content.count - 1)
    guard range[0] <= end else { return connection.reply(416, headers + ["Content-Range: bytes */\(content.count)"]) }
    connection.reply(
      206, headers + ["Content-Range: bytes \(range[0])-\(end)/\(content.count)"], Array(content[range[0]...end]))
  }

  private static let contract = "X-Marfa-Contract: 0"

  /// A server whose links lead to `host`, good for `seconds`; the origin serves bytes itself too.
  private func fixture(host: String, seconds: Int = 3600) throws -> RemoteFixture {
    let links = Lock<Int>(.leaf, 0)
    return try RemoteFixture { request, connection in
      guard request.target.hasSuffix("/url") else { return Self.serve(request, connection, [Self.contract]) }
      let number = links.withLock { count in
        count += 1
        return count
      }
      connection.contract(200, #"{"url":"\#(host)/o%2Fb?sig=a%20b&n=\#(number)","expires_in":\#(seconds)}"#)
    }
  }

  /// Has the fixture ask for a link: the first request never does.
  private func warm(_ fixture: RemoteFixture) {
    #expect(fixture.bytes(hash, 0..<4).failure() == nil)
    #expect(fixture.bytes(hash, 4..<8).failure() == nil)
    let cameTrue = comesTrue {
      let before = fixture.raw.requests.count
      #expect(fixture.bytes(hash, 0..<1).failure() == nil)
      return fixture.raw.requests.count == before
    }
    #expect(cameTrue)
  }

  @Test("come from the origin first, and by its link from then on: as it was given, without the key")
  func route() throws {
    let store = try RawServer { request, connection in Self.serve(request, connection) }
    let fixture = try fixture(host: store.url)
    let first = fixture.bytes(hash, 2..<6)
    #expect(first.failure() == nil)
    #expect(first.text == "2345")
    #expect(first.taken.heads == [BytesHead(total: 20, offset: 2, ignoresRange: false)])
    #expect(fixture.raw.requests.map(\.target) == ["/blobs/\(hash)"], "one round trip, and no link yet")
    #expect(fixture.raw.requests.first?["authorization"] == "Bearer the-key")
    warm(fixture)
    let last = fixture.bytes(hash, 16..<64)
    #expect(last.failure() == nil)
    #expect(last.text == "ghij")
    let whole = fixture.bytes(hash)
    #expect(whole.failure() == nil)
    #expect(whole.taken.bytes == Self.content)
    #expect(fixture.raw.requests.filter { $0.target.hasSuffix("/url") }.count == 1)
    #expect(!store.requests.isEmpty)
    for request in store.requests {
      #expect(request.target == "/o%2Fb?sig=a%20b&n=1")
      #expect(request["authorization"] == nil)
      #expect(!request.headers.contains { $0.value.contains(RemoteFixture.key) })
    }
  }

  @Test("wait for no connection to the link's host, when they are few: the origin gives them meanwhile")
  func connectionAhead() throws {
    let isOpen = Lock<Bool>(.leaf, false)
    let store = try RawServer { request, connection in
      while !isOpen.withLock({ $0 }) { sleepMilliseconds(1) }
      Self.serve(request, connection)
    }
    let fixture = try fixture(host: store.url)
    for _ in 0..<2 { #expect(fixture.bytes(hash, 2..<6).failure() == nil) }
    #expect(comesTrue { fixture.raw.requests.contains { $0.target.hasSuffix("/url") } })
    // Its host is asked for one byte, once, and does not answer.
    let cameTrue = comesTrue {
      #expect(fixture.bytes(hash, 2..<6).failure() == nil)
      return store.requests.count == 1
    }
    #expect(cameTrue)
    for _ in 0..<10 { #expect(fixture.bytes(hash, 2..<6).failure() == nil) }
    #expect(store.requests.map { $0["range"] } == ["bytes=0-0"])
    isOpen.withLock { $0 = true }
    let isReached = comesTrue {
      #expect(fixture.bytes(hash, 2..<6).failure() == nil)
      return store.requests.contains { $0["range"] == "bytes=2-5" }
    }
    #expect(isReached)
    #expect(store.requests.count { $0["range"] == "bytes=0-0" } == 1)
    #expect(store.connections == 1, "by the connection that was made")
  }

  @Test("have one renewal of an expired link, shared by all who wait for it")
  func renewal() throws {
    let store = try RawServer { request, connection in Self.serve(request, connection) }
    let links = Lock<Int>(.leaf, 0)
    let fixture = try RemoteFixture { request, connection in
      guard request.target.hasSuffix("/url") else { return Self.serve(request, connection, [Self.contract]) }
      let number = links.withLock { count in
        count += 1
        return count
      }
      // The first is over at once; the second comes late, so that many wait for it.
      if number == 2 { sleepMilliseconds(200) }
      connection.contract(200, #"{"url":"\#(store.url)/\#(number)","expires_in":\#(number == 1 ? 0 : 3600)}"#)
    }
    #expect(fixture.bytes(hash, 0..<1).failure() == nil)
    #expect(fixture.bytes(hash, 0..<1).failure() == nil)
    #expect(comesTrue { links.withLock { $0 } == 1 })
    let asked = fixture.raw.requests.count
    // Until that answer is in, requests go to the origin; from then on they wait for the second link.
    let cameTrue = comesTrue {
      #expect(fixture.bytes(hash, 0..<1).failure() == nil)
      return links.withLock { $0 } == 2
    }
    #expect(cameTrue)
    #expect(fixture.raw.requests.count >= asked)
    let takers = (0..<20).map { _ in fixture.bytes(hash, 3..<5) }
    for taker in takers {
      #expect(taker.failure() == nil)
      #expect(taker.text == "34")
    }
    #expect(links.withLock { $0 } == 2)
    #expect(Set(store.requests.map(\.target)) == ["/2"])
  }

  @Test("take a fresh link once where the host refuses the one at hand", arguments: [401, 403])
  func freshLink(status: Int) throws {
    let store = try RawServer { request, connection in
      if request.target.hasSuffix("n=1"), request["range"] != "bytes=0-0" { return connection.reply(status) }
      Self.serve(request, connection)
    }
    let fixture = try fixture(host: store.url)
    warm(fixture)
    let takers = (0..<5).map { _ in fixture.bytes(hash, 3..<6) }
    for taker in takers {
      #expect(taker.failure() == nil)
      #expect(taker.text == "345")
      #expect(taker.taken.heads.count == 1)
    }
    #expect(fixture.raw.requests.filter { $0.target.hasSuffix("/url") }.count == 2)
  }

  @Test("are had from the origin where the link's host refuses a fresh link as well", arguments: [401, 403])
  func uselessLinks(status: Int) throws {
    let store = try RawServer { request, connection in
      if request["range"] == "bytes=0-0" { Self.serve(request, connection) } else { connection.reply(status) }
    }
    let isBusy = Lock(.leaf, false)
    let fixture = try RemoteFixture { request, connection in
      if request.target.hasSuffix("/url") {
        return connection.contract(200, #"{"url":"\#(store.url)/x","expires_in":3600}"#)
      }
      guard isBusy.withLock({ $0 }) else { return Self.serve(request, connection, [Self.contract]) }
      connection.contract(429, #"{"error":{"code":"slow","message":"no"}}"#, ["Retry-After: 5"])
    }
    warm(fixture)
    let taker = fixture.bytes(hash, 3..<6)
    #expect(taker.failure() == nil)
    #expect(taker.text == "345")
    let asked = store.requests.count
    // For a while nobody tries a link again: the origin's answer is the answer.
    isBusy.withLock { $0 = true }
    #expect(fixture.bytes(hash, 3..<6).failure() == .rateLimited(seconds: 5))
    #expect(store.requests.count == asked)
  }

  @Test("whose every link is refused give the reason, and are not called absent", arguments: [401, 403, 404, 500])
  func refusedLink(status: Int) throws {
    let store = try RawServer { request, connection in
      if request["range"] == "bytes=0-0" { Self.serve(request, connection) } else { connection.reply(status) }
    }
    // The origin leads there itself.
    let fixture = try RemoteFixture { request, connection in
      if request.target.hasSuffix("/url") {
        return connection.contract(200, #"{"url":"\#(store.url)/x","expires_in":3600}"#)
      }
      connection.reply(302, [Self.contract, "Location: \(store.url)/x"])
    }
    switch fixture.bytes(hash, 3..<6).failure() {
    case .refused(let words):
      #expect(status != 500)
      #expect(words.contains("\(status)"))
      #expect(!words.contains("sig="))
    case .unreachable: #expect(status == 500)
    case let other: Issue.record("\(String(describing: other))")
    }
  }

  @Test("follow the link where it leads on, three times and never with the key")
  func redirects() throws {
    let last = try RawServer { request, connection in Self.serve(request, connection) }
    let store = try RawServer { request, connection in
      switch request.target {
      case "/3": connection.reply(307, ["Location: \(last.url)/end?x=%41"], [1, 2, 3])
      case "/4": connection.reply(302, ["Location: 3"])
      case "/endless": connection.reply(302, ["Location: /endless"])
      case "/file": connection.reply(302, ["Location: file:///etc/passwd"])
      default:
        connection.reply(
          301,
          ["Location: /\(request["range"] == "bytes=9-9" ? "endless" : request["range"] == "bytes=8-8" ? "file" : "4")"]
        )
      }
    }
    let fixture = try fixture(host: store.url)
    _ = fixture.bytes(hash, 0..<1).failure()
    _ = fixture.bytes(hash, 0..<1).failure()
    let cameTrue = comesTrue {
      let taker = fixture.bytes(hash, 5..<8)
      #expect(taker.failure() == nil)
      #expect(taker.text == "567")
      return !last.requests.isEmpty
    }
    #expect(cameTrue)
    #expect(last.requests.first?.target == "/end?x=%41")
    #expect(last.requests.first?["range"] == "bytes=5-7")
    #expect(fixture.bytes(hash, 9..<10).failure() == .refused("the link leads on more than 3 times"))
    #expect(fixture.bytes(hash, 8..<9).failure() == .refused("the link leads where it can't be followed"))
    for request in store.requests + last.requests { #expect(request["authorization"] == nil) }
  }

  @Test("follow the origin's own redirect without the key, and a proxy's not at all")
  func originRedirect() throws {
    let store = try RawServer { request, connection in Self.serve(request, connection) }
    let fixture = try RemoteFixture { request, connection in
      let isOurs = request["range"] == "bytes=1-2"
      connection.reply(302, (isOurs ? [Self.contract] : []) + ["Location: \(store.url)/x"])
    }
    let taker = fixture.bytes(hash, 1..<3)
    #expect(taker.failure() == nil)
    #expect(taker.text == "12")
    guard case .unreachable = fixture.bytes(hash, 4..<5).failure() else {
      return #expect(Bool(false), "it was followed")
    }
    #expect(store.requests.map { $0["authorization"] } == [nil])
  }

  @Test("from a host that ignores ranges come whole, and say so")
  func ignored() throws {
    let fixture = try RemoteFixture { _, connection in connection.reply(200, [Self.contract], Self.content) }
    let taker = fixture.bytes(hash, 5..<6)
    #expect(taker.failure() == nil)
    #expect(taker.taken.heads == [BytesHead(total: 20, offset: 0, ignoresRange: true)])
    #expect(taker.taken.bytes == Self.content)
  }

  @Test("say why they do not come")
  func failures() throws {
    let fixture = try RemoteFixture { request, connection in
      let head = "HTTP/1.1 206 X\r\n\(Self.contract)\r\n"
      switch request["range"] {
      case "bytes=0-0": connection.contract(404, #"{"error":{"code":"blob_not_found","message":"no"}}"#)
      case "bytes=1-1": connection.contract(401, #"{"error":{"code":"unauthorized","message":"no"}}"#)
      case "bytes=2-2": connection.contract(429, #"{"error":{"code":"slow","message":"no"}}"#, ["Retry-After: 5"])
      case "bytes=3-3": connection.contract(400, #"{"error":{"code":"bad","message":"no"}}"#)
      case "bytes=4-4": connection.reply(404)
      case "bytes=5-5": connection.reply(206, ["X-Marfa-Contract: 1"], [1])
      case "bytes=6-9":
        connection.write(head + "Content-Range: bytes 6-9/20\r\nContent-Length: 4\r\n\r\n67")
        connection.close()
      case "bytes=7-9":
        connection.write(head + "Content-Range: bytes 7-9/20\r\n\r\n78")
        connection.close()
      case "bytes=8-9":
        connection.write(head + "Content-Range: bytes 8-9/20\r\n\r\n89abc")
        connection.close()
      case "bytes=9-9": connection.reset()
      default: Self.serve(request, connection, [Self.contract])
      }
    }
    #expect(fixture.bytes(hash, 0..<1).failure() == .absent)
    #expect(fixture.bytes(hash, 1..<2).failure() == .credentialRefused)
    #expect(fixture.bytes(hash, 2..<3).failure() == .rateLimited(seconds: 5))
    guard case .refused = fixture.bytes(hash, 3..<4).failure() else { return #expect(Bool(false)) }
    guard case .unreachable = fixture.bytes(hash, 4..<5).failure() else { return #expect(Bool(false)) }
    #expect(fixture.bytes(hash, 5..<6).failure() == .mismatch(named: ["1"]))
    let partial = fixture.bytes(hash, 6..<10)
    guard case .stoppedPartWay = partial.failure() else { return #expect(Bool(false)) }
    #expect(partial.text == "67")
    #expect(fixture.bytes(hash, 7..<10).failure() == .stoppedPartWay("2 of 3 bytes came"))
    let more = fixture.bytes(hash, 8..<10)
    #expect(more.failure() == .refused("more bytes came than were promised"))
    #expect(more.taken.bytes.count <= 2)
    guard case .unreachable = fixture.bytes(hash, 9..<10).failure() else { return #expect(Bool(false)) }
    #expect(fixture.bytes(hash, 40..<50).failure() == .pastEnd(size: 20))
    #expect(fixture.bytes(hash, 5..<5).failure() == .refused("a range without bytes"))
  }

  @Test("that stall part way say so; cancelled, that, wherever they are")
  func stallAndCancel() throws {
    var limits = NetworkLimits()
    limits.idle = .milliseconds(300)
    limits.firstByte = .seconds(20)
    let fixture = try RemoteFixture(network: limits) { request, connection in
      if request["range"] == "bytes=0-9" {
        connection.write(
          "HTTP/1.1 206 X\r\n\(Self.contract)\r\nContent-Range: bytes 0-9/20\r\nContent-Length: 10\r\n\r\n012")
      }
      connection.waitForEnd()
    }
    let stalled = fixture.bytes(hash, 0..<10)
    #expect(stalled.failure() == .timedOut("nothing came for 300 ms"))
    // One before its head, many at any moment.
    let takers = (0..<50).map { _ in BytesTaker() }
    let transfers = takers.map { fixture.server.bytes(of: hash, range: 1..<2, $0) }
    for transfer in transfers.shuffled() {
      transfer.cancel()
      transfer.cancel()
    }
    for taker in takers { #expect(taker.failure() == .canceled) }
    fixture.network.close()
    #expect(takers.allSatisfy { $0.taken.ends == 1 })
    #expect(fixture.bytes(hash, 0..<1).failure() == .canceled)
  }

  @Test("pause and go on, and stop where their taker stops")
  func flow() throws {
    let large = [UInt8](repeating: 5, count: 500_000)
    let fixture = try RemoteFixture { _, connection in connection.reply(200, [Self.contract], large) }
    let taker = BytesTaker { _ in .pause }
    let transfer = fixture.server.bytes(of: hash, range: nil, taker)
    #expect(
      comesTrue {
        transfer.resume()
        return taker.taken.ends == 1
      })
    #expect(taker.failure() == nil)
    #expect(taker.taken.bytes == large)
    let stopping = BytesTaker { _ in .stop }
    _ = fixture.server.bytes(of: hash, range: nil, stopping)
    #expect(stopping.failure() == .canceled)
  }

  @Test(
    "have links that lead nowhere refused",
    arguments: [
      #"{"url":"ftp://h/x","expires_in":5}"#, #"{"url":"http://u:p@h/x","expires_in":5}"#,
      #"{"url":"http://h/a b","expires_in":5}"#,
      #"{"url":"","expires_in":5}"#, #"{"expires_in":5}"#, #"{"url":"http://h/x"}"#,
      #"{"url":"http://h/x","expires_in":-1}"#,
      #"{"url":"http://h/x","expires_in":"5"}"#,
    ])
  func badLinks(answer: String) throws {
    let object = try #require(try JSON(reading: answer).object)
    let origin = try Origin("https://o/p")
    #expect { try Links.link(object, origin) } throws: { error in
      if case RemoteFailure.unreadable = error { true } else { false }
    }
    let relative = try Links.link(["url": "/p/blobs/x/fetch?s=1", "expires_in": 99_999_999], origin)
    #expect(relative.address.text == "https://o/p/blobs/x/fetch?s=1")
    #expect(relative.goodUntil <= Monotonic.now + 604_800 * 1_000_000_000)
  }
}
