import CLinux
import Glibc
import Testing

@testable import MarfaEngine

@Suite("A request")
struct RequestTests {
  private let network = Network()

  @Test("goes out as it is written, and its answer comes whole")
  func whole() throws {
    let server = try RawServer { request, connection in
      connection.reply(201, ["X-Twice: a", "x-twice:  b ", "Folded: one", " two"], request.body)
    }
    let taker = Taker()
    let headers = [(name: "X-Key", value: "v"), (name: "Empty", value: "")]
    network.start(HTTPRequest(.patch, server.url + "/a/../b?q=%2f", headers: headers, body: .bytes([1, 2, 3])), taker)
    #expect(taker.failure() == nil)
    #expect(taker.taken.bytes == [1, 2, 3])
    #expect(taker.taken.head?.status == 201)
    #expect(taker.taken.head?.all("x-twice") == ["a", "b"])
    #expect(taker.taken.head?["folded"] == "one two")
    #expect(taker.taken.head?.contentLength == 3)
    let request = try #require(server.requests.first)
    #expect(request.method == "PATCH")
    #expect(request.target == "/a/../b?q=%2f")
    #expect(request["x-key"] == "v")
    #expect(request["empty"] == "")
    #expect(request["expect"] == nil)
    #expect(request["authorization"] == nil)
  }

  @Test(
    "of every method is sent as that method", arguments: [HTTPRequest.Method.get, .head, .post, .put, .patch, .delete])
  func methods(method: HTTPRequest.Method) throws {
    let server = try RawServer { request, connection in
      if request.method == "HEAD" {
        connection.write("HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n")
      } else {
        connection.reply(200)
      }
    }
    let taker = Taker()
    network.start(HTTPRequest(method, server.url), taker)
    #expect(taker.failure() == nil)
    #expect(server.requests.map(\.method) == [method.rawValue])
    #expect(server.requests.first?.body == [])
    if method == .head { #expect(taker.taken.head?.contentLength == 77) }
  }

  @Test("is answered once, however many are under way and whenever they are cancelled")
  func races() throws {
    let server = try RawServer { request, connection in
      usleep(UInt32.random(in: 0..<3000))
      connection.reply(200, [], [UInt8](repeating: 7, count: 40_000))
    }
    let takers = (0..<200).map { _ in Taker() }
    let transfers = takers.map { network.start(HTTPRequest(.get, server.url), $0) }
    let queue = WorkQueue(name: "test-cancel", threads: 4)
    for _ in 0..<300 {
      let transfer = transfers[Int.random(in: 0..<transfers.count)]
      queue.post {
        usleep(UInt32.random(in: 0..<200))
        transfer.cancel()
        transfer.resume()
      }
    }
    var complete = 0
    for taker in takers {
      let failure = taker.failure()
      #expect(failure == nil || failure == .canceled)
      if failure == nil {
        complete += 1
        #expect(taker.taken.bytes.count == 40_000)
      }
    }
    queue.close()
    #expect(complete > 0)
    // A later cancel finds nothing to end.
    for transfer in transfers { transfer.cancel() }
    let last = Taker()
    network.start(HTTPRequest(.get, server.url), last)
    #expect(last.failure() == nil)
    #expect(takers.allSatisfy { $0.taken.ends == 1 })
  }

  @Test("shares connections with others, and opens no more than the limit")
  func connections() throws {
    var limits = NetworkLimits()
    limits.connectionsPerHost = 3
    let network = Network(limits: limits)
    let server = try RawServer { _, connection in connection.reply(200, [], [1]) }
    let takers = (0..<50).map { _ in Taker() }
    for taker in takers { network.start(HTTPRequest(.get, server.url), taker) }
    for taker in takers { #expect(taker.failure() == nil) }
    #expect((1...3).contains(server.connections))
  }

  @Test("is answered when the network is closed, before and after")
  func closing() throws {
    let server = try RawServer { _, connection in connection.waitForEnd() }
    let taker = Taker()
    network.start(HTTPRequest(.get, server.url), taker)
    #expect(comesTrue { server.requests.count == 1 })
    network.close()
    #expect(taker.failure() == .shutDown)
    let late = Taker()
    network.start(HTTPRequest(.get, server.url), late).cancel()
    #expect(late.failure() == .shutDown)
    #expect(!network.perform {})
    network.close()
  }

  @Test(
    "with what no request can hold fails before anything is sent",
    arguments: [
      ("http://127.0.0.1/a b", "ok"), ("ftp://127.0.0.1/", "ok"), ("http://user:secret@127.0.0.1/", "ok"),
      ("file:///etc/passwd", "ok"),
      ("http:///", "ok"), ("http://127.0.0.1:1/", "a\r\nX-More: b"), ("http://127.0.0.1:1/", "a\nb"), ("", "ok"),
    ])
  func unsendable(url: String, value: String) {
    let taker = Taker()
    network.start(HTTPRequest(.get, url, headers: [("X-Value", value)]), taker)
    guard case .unreachable(let words) = taker.failure() else { return #expect(Bool(false), "it was sent") }
    #expect(!words.contains("secret"))
    #expect(taker.taken.head == nil)
  }

  @Test("to where nobody listens says so")
  func nobody() throws {
    var port = 0
    do { port = try RawServer { _, _ in }.port }
    let taker = Taker()
    network.start(HTTPRequest(.get, "http://127.0.0.1:\(port)/"), taker)
    guard case .unreachable = taker.failure() else { return #expect(Bool(false), "somebody answered") }
  }

  @Test("goes again on a new connection when the one kept was dead")
  func deadConnection() throws {
    let server = try RawServer { request, connection in
      connection.reply(200, [], request.body)
      if request.target == "/first" { connection.close() }
    }
    for path in ["/first", "/second"] {
      let taker = Taker()
      network.start(HTTPRequest(.post, server.url + path, body: .bytes(Array(path.utf8))), taker)
      #expect(taker.failure() == nil)
      #expect(taker.text == path)
    }
  }

  @Test("is never led elsewhere by an answer")
  func redirect() throws {
    let other = try RawServer { _, connection in connection.reply(200) }
    let server = try RawServer { _, connection in connection.reply(302, ["Location: \(other.url)/x"]) }
    let taker = Taker()
    network.start(HTTPRequest(.get, server.url, headers: [("Authorization", "Bearer k")]), taker)
    #expect(taker.failure() == nil)
    #expect(taker.taken.head?.status == 302)
    #expect(other.requests.isEmpty)
  }
}

@Suite("An answer")
struct AnswerTests {
  private func network(_ change: (inout NetworkLimits) -> Void = { _ in }) -> Network {
    var limits = NetworkLimits()
    change(&limits)
    return Network(limits: limits)
  }

  @Test("may be interim before it is real, and have trailers after it")
  func interim() throws {
    let server = try RawServer { _, connection in
      connection.write(
        "HTTP/1.1 103 Early\r\nX-A: early\r\n\r\nHTTP/1.1 200 OK\r\nX-A: real\r\nTransfer-Encoding: chunked\r\n\r\n")
      connection.write("3\r\nabc\r\n2\r\nde\r\n0\r\nX-A: late\r\n\r\n")
    }
    let network = network()
    let taker = Taker()
    network.start(HTTPRequest(.get, server.url), taker)
    #expect(taker.failure() == nil)
    #expect(taker.taken.head?.all("x-a") == ["real"])
    #expect(taker.text == "abcde")
  }

  @Test("that does not come is given up after the limit, and not before its body is sent")
  func firstByte() throws {
    let network = network { $0.firstByte = .milliseconds(300) }
    let server = try RawServer { _, connection in connection.waitForEnd() }
    let taker = Taker()
    let start = Monotonic.now
    network.start(HTTPRequest(.post, server.url, body: .bytes([1])), taker)
    #expect(taker.failure() == .timedOut("no answer within 300 ms"))
    #expect(Monotonic.now - start >= 300_000_000)
  }

  @Test("whose head trickles is given up all the same")
  func tricklingHead() throws {
    let network = network { $0.firstByte = .milliseconds(300) }
    let server = try RawServer { _, connection in
      connection.write("HTTP/1.1 200 OK\r\n")
      while connection.write("X: y\r\n") { usleep(20_000) }
    }
    let taker = Taker()
    network.start(HTTPRequest(.get, server.url), taker)
    #expect(taker.failure() == .timedOut("no answer within 300 ms"))
  }

  @Test("whose body stalls or only trickles is given up", arguments: [false, true])
  func stall(trickles: Bool) throws {
    let network = network { $0.idle = .milliseconds(300) }
    let server = try RawServer { _, connection in
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\nabc")
      while trickles, connection.write("x") { usleep(20_000) }
      connection.waitForEnd()
    }
    let taker = Taker()
    network.start(HTTPRequest(.get, server.url), taker)
    #expect(taker.failure() == .timedOut("nothing came for 300 ms"))
    #expect(taker.text.hasPrefix("abc"))
  }

  @Test("may take longer as a whole than any limit, as long as it comes")
  func slowBody() throws {
    let network = network {
      $0.idle = .milliseconds(1500)
      $0.firstByte = .milliseconds(1500)
    }
    let server = try RawServer { _, connection in
      connection.write("HTTP/1.1 200 OK\r\nContent-Length: 40960\r\n\r\n")
      for _ in 0..<20 {
        connection.write([UInt8](repeating: 1, count: 2048))
        usleep(100_000)
      }
    }
    let taker = Taker()
    network.start(HTTPRequest(.get, server.url), taker)
    #expect(taker.failure() == nil)
    #expect(taker.taken.bytes.count == 40960)
  }

  @Test(
    "that ends before it is whole is no answer",
    arguments: [
      "", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "nonsense\r\n\r\n",
    ])
  func dropped(answer: String) throws {
    let network = network()
    let server = try RawServer { _, connection in
      connection.write(answer)
      connection.close()
    }
    let taker = Taker()
    network.start(HTTPRequest(.get, server.url), taker)
    guard case .dropped = taker.failure() else { return #expect(Bool(false), "it was taken for whole") }
  }

  @Test("whose head is too large ends there")
  func head() throws {
    let network = network { $0.headBytes = 4096 }
    let server = try RawServer { _, connection in
      connection.write("HTTP/1.1 200 OK\r\n")
      while connection.write("X-Filler: \(String(repeating: "y", count: 500))\r\n") {}
    }
    let taker = Taker()
    network.start(HTTPRequest(.get, server.url), taker)
    #expect(taker.failure() == .tooLarge)
    #expect(taker.taken.head == nil)
  }

  @Test("ends where its taker says stop, at the head or in the body", arguments: [true, false])
  func stop(atHead: Bool) throws {
    let network = network()
    let server = try RawServer { _, connection in
      connection.write("HTTP/1.1 200 OK\r\n\r\n")
      while connection.write([UInt8](repeating: 1, count: 10_000)) {}
    }
    let taker = Taker(head: { _ in atHead ? .stop : .goOn }, bytes: { _ in .stop })
    network.start(HTTPRequest(.get, server.url), taker)
    #expect(taker.failure() == .canceled)
    #expect(taker.taken.bytes.isEmpty == atHead)
  }

  @Test("waits while its taker pauses, longer than any limit, and then comes whole and in order")
  func pause() throws {
    let network = network { $0.idle = .milliseconds(200) }
    let body = (0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 &* 31 >> 3) }
    let server = try RawServer { _, connection in connection.reply(200, [], body) }
    let pauses = Lock<Int>(.leaf, 0)
    let taker = Taker(bytes: { _ in
      pauses.withLock { count in
        count += 1
        return count % 40 == 1 ? .pause : .goOn
      }
    })
    let transfer = network.start(HTTPRequest(.get, server.url), taker)
    #expect(comesTrue { taker.taken.bytes.count > 0 })
    usleep(500_000)  // Longer than the limit, which must not pass meanwhile.
    let paused = taker.taken.bytes.count
    #expect(paused <= LiveTransfer.mostGathered, "one piece")
    #expect(taker.taken.ends == 0)
    #expect(
      comesTrue {
        transfer.resume()
        return taker.taken.ends == 1
      })
    #expect(taker.failure() == nil)
    #expect(taker.taken.bytes == body)
  }

  @Test("paused at its last bytes says its end when it goes on; cancelled meanwhile, that", arguments: [true, false])
  func pauseAtEnd(goesOn: Bool) throws {
    let network = network()
    let server = try RawServer { _, connection in connection.reply(200, [], [1, 2, 3]) }
    let taker = Taker(bytes: { _ in .pause })
    let transfer = network.start(HTTPRequest(.get, server.url), taker)
    #expect(comesTrue { taker.taken.bytes.count == 3 })
    let other = Taker()
    network.start(HTTPRequest(.get, server.url), other)
    #expect(other.failure() == nil)
    #expect(taker.taken.ends == 0)
    if goesOn { transfer.resume() } else { transfer.cancel() }
    #expect(taker.failure() == (goesOn ? nil : .canceled))
  }
}

@Suite("A file sent")
struct SendingTests {
  @Test("streams from the disk with its length, and tells how far it is")
  func stream() throws {
    let network = Network()
    let folder = try TemporaryFolder()
    let bytes = (0..<5_000_000).map { UInt8(truncatingIfNeeded: $0 &* 7 >> 2) }
    let file = try Descriptor.open(folder.file("f", bytes), O_RDONLY)
    let server = try RawServer { _, connection in connection.reply(201) }
    let progress = Lock<[Int64]>(.leaf, [])
    let taker = Taker()
    network.start(
      HTTPRequest(
        .post, server.url,
        body: .file(file, 1000..<Int64(bytes.count), progress: { at in progress.withLock { $0.append(at) } })),
      taker)
    #expect(taker.failure() == nil)
    let request = try #require(server.requests.first)
    #expect(request.body.count == bytes.count - 1000)
    #expect(request.body == Array(bytes[1000...]))
    #expect(request["content-length"] == "\(bytes.count - 1000)")
    #expect(request["transfer-encoding"] == nil)
    #expect(request["expect"] == nil)
    let told = progress.withLock { $0 }
    #expect(told == told.sorted())
    #expect(told.last == Int64(bytes.count - 1000))
    #expect(told.count > 10)
  }

  @Test("that has become shorter is not sent as if it were whole")
  func shorter() throws {
    let network = Network()
    let folder = try TemporaryFolder()
    let file = try Descriptor.open(folder.file("f", "0123456789"), O_RDONLY)
    let server = try RawServer { _, connection in connection.reply(201) }
    let taker = Taker()
    network.start(HTTPRequest(.post, server.url, body: .file(file, 0..<100_000, progress: nil)), taker)
    #expect(taker.failure() == .file(.io))
    #expect(server.requests.isEmpty)
  }

  @Test("to a server that takes nothing is given up")
  func stuck() throws {
    var limits = NetworkLimits()
    limits.idle = .milliseconds(400)
    let network = Network(limits: limits)
    let folder = try TemporaryFolder()
    let path = folder.path + "/large"
    let file = try Descriptor.open(path, O_RDWR | O_CREAT, mode: 0o600)
    try file.truncate(to: 1 << 30)
    // Its connections are taken by the kernel and never read.
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(listener) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    var size = socklen_t(MemoryLayout<sockaddr_in>.size)
    let isReady = withUnsafeMutablePointer(to: &address) { pointer in
      pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(listener, $0, size) == 0 && listen(listener, 5) == 0 && getsockname(listener, $0, &size) == 0
      }
    }
    #expect(isReady)
    let taker = Taker()
    let url = "http://127.0.0.1:\(UInt16(bigEndian: address.sin_port))/"
    network.start(HTTPRequest(.post, url, body: .file(file, 0..<(1 << 30), progress: nil)), taker)
    #expect(taker.failure() == .timedOut("nothing could be sent for 400 ms"))
  }
}
