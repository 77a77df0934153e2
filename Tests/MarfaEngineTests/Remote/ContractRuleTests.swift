import Testing

@testable import MarfaEngine

@Suite("Whose an answer is")
struct ContractRuleTests {
  typealias Case = (status: Int, contracts: [String], judgement: Contract.Judgement)

  @Test(
    "is judged by its headers",
    arguments: [
      (200, ["0"], .success), (204, ["0", " 0"], .success), (200, [], .mismatch(named: [])),
      (200, ["1"], .mismatch(named: ["1"])),
      (200, ["0", "1"], .mismatch(named: ["0", "1"])), (200, ["0, 1"], .mismatch(named: ["0", "1"])),
      (200, ["0,0"], .success),
      (200, [""], .mismatch(named: [""])), (404, ["0"], .refusal), (500, ["0"], .refusal), (404, [], .notTheServers),
      (401, [], .notTheServers), (502, [], .notTheServers), (404, ["1"], .mismatch(named: ["1"])),
      (503, ["0", "2"], .mismatch(named: ["0", "2"])), (302, [], .notTheServers), (302, ["0"], .redirect),
      (302, ["9"], .mismatch(named: ["9"])), (999, ["0"], .notTheServers),
    ] as [Case])
  func judged(row: Case) {
    let head = HTTPHead(status: row.status, headers: row.contracts.map { (Contract.header, $0) })
    #expect(Contract.judge(head) == row.judgement)
  }

  @Test(
    "of another contract is told without waiting for its body, and nothing of that is read", arguments: [200, 404, 500])
  func mismatch(status: Int) throws {
    let fixture = try RemoteFixture { _, connection in
      connection.write("HTTP/1.1 \(status) X\r\nX-Marfa-Contract: 7\r\nContent-Length: 100\r\n\r\n")
      connection.waitForEnd()
    }
    #expect(
      fixture.failure { s throws(RemoteFailure) in try s.currentKey(fixture.cancellation) }
        == .contractMismatch(named: ["7"]))
  }

  @Test(
    "says what a failure is",
    arguments: [
      (
        401, true, "",
        RemoteFailure.refused(RemoteRefusal(status: 401, code: "c", message: "m", details: ["d": 1], requestID: "r-1"))
      ),
      (401, false, "", .notTheServers(status: 401, retryAfter: nil)),
      (404, false, "", .notTheServers(status: 404, retryAfter: nil)),
      (503, false, "Retry-After: 7", .notTheServers(status: 503, retryAfter: 7)),
      (408, true, "", .busy(status: 408, retryAfter: nil, words: "m")),
      (425, true, "", .busy(status: 425, retryAfter: nil, words: "m")),
      (429, true, "Retry-After: 12", .busy(status: 429, retryAfter: 12, words: "m")),
      (429, true, "Retry-After: 99999999999999999999999", .busy(status: 429, retryAfter: 3600, words: "m")),
      (429, true, "Retry-After: -3", .busy(status: 429, retryAfter: nil, words: "m")),
      (429, true, "Retry-After: soon", .busy(status: 429, retryAfter: nil, words: "m")),
      (503, true, "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT", .busy(status: 503, retryAfter: 0, words: "m")),
      (500, true, "Retry-After: Fri, 01 Jan 2100 00:00:00 GMT", .busy(status: 500, retryAfter: 3600, words: "m")),
    ])
  func failures(status: Int, isOurs: Bool, header: String, failure: RemoteFailure) throws {
    let fixture = try RemoteFixture { _, connection in
      let headers = header.isEmpty ? [] : [header]
      let body = #"{"error":{"code":"c","message":"m","details":{"d":1}}}"#
      if isOurs {
        connection.contract(status, body, headers)
      } else {
        connection.reply(status, headers, Array(body.utf8))
      }
    }
    #expect(fixture.failure { s throws(RemoteFailure) in try s.currentKey(fixture.cancellation) } == failure)
  }

  @Test("stays a refusal when its body is too long, cut off or no envelope, by the code in its head")
  func refusalBodies() throws {
    let fixture = try RemoteFixture { request, connection in
      let head = "HTTP/1.1 409 X\r\nX-Marfa-Contract: 0\r\nX-Error-Code: id_reused\r\n"
      switch request.target {
      case "/keys/current":
        connection.write(head + "\r\n")
        while connection.write([UInt8](repeating: 0x20, count: 10_000)) {}
      case "/types":
        connection.write(head + "Content-Length: 50\r\n\r\n{")
        connection.close()
      default: connection.write(head + "Content-Length: 7\r\n\r\n<html/>")
      }
    }
    let refusal = RemoteFailure.refused(RemoteRefusal(status: 409, code: "id_reused"))
    #expect(fixture.failure { s throws(RemoteFailure) in try s.currentKey(fixture.cancellation) } == refusal)
    #expect(fixture.failure { s throws(RemoteFailure) in try s.types(fixture.cancellation) } == refusal)
    #expect(fixture.failure { s throws(RemoteFailure) in try s.edgeTypes(fixture.cancellation) } == refusal)
  }

  @Test("of a path that is no request's makes one look at the address")
  func wrongPath() {
    func words(_ code: String) -> String { "\(RemoteFailure.refused(RemoteRefusal(status: 404, code: code)))" }
    #expect(words("not_found").hasSuffix("; check the server's address"))
    #expect(!words("item_not_found").contains("address"))
  }

  @Test("without any reason can't be read")
  func nameless() throws {
    let fixture = try RemoteFixture { _, connection in connection.contract(400, "[]") }
    #expect(
      fixture.failure { s throws(RemoteFailure) in try s.currentKey(fixture.cancellation) } == .namelessRefusal(400))
  }

  @Test("of this contract leads nowhere: a redirect is not followed, with or without the key")
  func redirect() throws {
    let other = try RawServer { _, connection in connection.contract(200) }
    let fixture = try RemoteFixture { _, connection in connection.contract(307, "{}", ["Location: \(other.url)/"]) }
    guard case .unreadable = fixture.failure({ s throws(RemoteFailure) in try s.currentKey(fixture.cancellation) })
    else {
      return #expect(Bool(false), "the redirect was taken for an answer")
    }
    #expect(other.requests.isEmpty)
  }
}

@Suite("An answer of the server")
struct RemoteAnswerTests {
  @Test(
    "that is no JSON, too large, too deep or too many is unreadable",
    arguments: [
      "", "{", "[1]", "{\"a\":1}x", String(repeating: "[", count: 1000) + String(repeating: "]", count: 1000),
      "{\"a\":[" + String(repeating: "0,", count: 5000) + "0]}",
      "{\"a\":\"" + String(repeating: "x", count: 40_000) + "\"}",
    ])
  func unreadable(body: String) throws {
    var limits = ServerLimits()
    limits.answerBytes = 30_000
    limits.answerValues = 1000
    let fixture = try RemoteFixture(limits) { request, connection in
      if request.target == "/keys/current" { return connection.contract(200, body) }
      // Without a length, so that the bound is met on the way.
      connection.write("HTTP/1.1 200 OK\r\nX-Marfa-Contract: 0\r\n\r\n" + body)
      connection.close()
    }
    for path in ["/keys/current", "/"] {
      let failure = fixture.failure { s throws(RemoteFailure) in
        path == "/" ? try s.instance(fixture.cancellation).raw : try s.currentKey(fixture.cancellation)
      }
      guard case .unreadable = failure else {
        Issue.record("\(path) was read: \(String(describing: failure))")
        continue
      }
    }
  }

  @Test("that is endless is stopped at the limit")
  func endless() throws {
    var limits = ServerLimits()
    limits.answerBytes = 1 << 20
    let fixture = try RemoteFixture(limits) { _, connection in
      connection.write("HTTP/1.1 200 OK\r\nX-Marfa-Contract: 0\r\n\r\n")
      while connection.write([UInt8](repeating: 0x20, count: 65536)) {}
    }
    #expect(
      fixture.failure { s throws(RemoteFailure) in try s.currentKey(fixture.cancellation) }
        == .unreadable("it is larger than 1 MiB"))
  }

  @Test("is no longer waited for once cancelled, before or meanwhile")
  func cancel() throws {
    let fixture = try RemoteFixture { _, connection in connection.waitForEnd() }
    let (server, cancellation, raw) = (fixture.server, fixture.cancellation, fixture.raw)
    let results = Lock<[RemoteFailure]>(.leaf, [])
    let queue = WorkQueue(name: "test-calls", threads: 8)
    for _ in 0..<8 {
      queue.post {
        do throws(RemoteFailure) { _ = try server.types(cancellation) } catch { results.withLock { $0.append(error) } }
      }
    }
    #expect(comesTrue { raw.requests.count == 8 })
    cancellation.cancel()
    queue.wait()
    #expect(results.withLock { $0 } == [RemoteFailure](repeating: .canceled, count: 8))
    #expect(fixture.failure { s throws(RemoteFailure) in try s.types(cancellation) } == .canceled)
    #expect(raw.requests.count == 8)
    queue.close()
  }

  @Test("that does not come, is cut off, or can't be asked for is environmental")
  func environment() throws {
    var limits = NetworkLimits()
    limits.firstByte = .milliseconds(200)
    let fixture = try RemoteFixture(network: limits) { request, connection in
      if request.target == "/types" { return connection.waitForEnd() }
      connection.write("HTTP/1.1 200 OK\r\nX-Marfa-Contract: 0\r\nContent-Length: 99\r\n\r\n{")
      connection.reset()
    }
    #expect(
      fixture.failure { s throws(RemoteFailure) in try s.types(fixture.cancellation) }
        == .timedOut("no answer within 200 ms"))
    guard case .unreachable = fixture.failure({ s throws(RemoteFailure) in try s.currentKey(fixture.cancellation) })
    else {
      return #expect(Bool(false), "a part was taken for the whole")
    }
  }
}
