import ContractServer
import Testing

@testable import MarfaEngine

@Suite("A queue in bad surroundings")
struct EnvironmentTests {
  @Test(
    "gives nothing up and counts nothing, whatever passes by itself",
    arguments: [
      Fault.Effect.refuse(status: 500), .refuse(status: 503), .refuse(status: 408), .refuse(status: 425),
      .refuse(status: 429), .refuse(status: 401, contract: nil), .refuse(status: 404, contract: nil),
      .refuse(status: 422, contract: nil), .refuse(status: 503, contract: nil), .drop, .applyAndDrop,
      .dropAfter(bytes: 3), .contract(["1"]), .contract([]), .contract(["0", "1"]),
    ])
  func passes(_ effect: Fault.Effect) throws {
    let shared = try Shared()
    let copy = try shared.connected { $0.waits = (0.01, 0.02) }
    for method in ["POST", "PATCH"] { shared.server.faults.add(Fault(effect, method: method, count: 12)) }
    let dir = try copy.mkdir("Sicily")
    try copy.write("Sicily/a.txt", "bytes")
    try copy.items.update(dir, ["body": "two"])
    try copy.drained()
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    #expect(shared.server.faults.waiting < 2)
    #expect(try shared.item(dir)?.properties["body"] == "two")
    #expect(try shared.server.change { try $0.items() }.count == 2)
    #expect(try shared.server.change { try $0.edges() }.count == 1)
    // Every retry of a write is the same bytes under the same key.
    var sent: [String: Set<String>] = [:]
    for request in shared.server.requests {
      guard let key = request.headers["idempotency-key"] else { continue }
      sent[key, default: []].insert("\(request.method) \(request.target) \(request.bodyHash?.hex ?? "")")
    }
    #expect(sent.values.allSatisfy { $0.count == 1 })
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("waits as long as the server asks")
  func retryAfter() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    shared.server.faults.add(Fault(.refuse(status: 429, code: "rate_limited", retryAfter: 2), method: "POST"))
    try copy.mkdir("Sicily")
    try eventually("refused once") { shared.server.requests.contains { $0.status == 429 } }
    try eventually("it says why nothing is sent") { copy.serverStatus?.queueTrouble != nil }
    try copy.drained()
    let posts = shared.server.requests.filter { $0.method == "POST" }
    #expect(posts.count == 2)
    #expect(posts[1].began - posts[0].began >= 2)
    shared.expectNoViolations()
  }

  @Test("waits as long as the longest of several answers asks")
  func longestRetryAfter() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.queue.pause()
    for number in 0..<8 { try copy.mkdir("\(number)") }
    // One fails at once, and the one that asks for a wait answers after it.
    shared.server.faults.add(Fault(.refuse(status: 503), method: "POST"))
    shared.server.faults.add(Fault(.delay(seconds: 0.3), method: "POST", skip: 1))
    shared.server.faults.add(Fault(.refuse(status: 429, retryAfter: 2), method: "POST", skip: 1))
    try copy.queue.resume()
    try copy.drained()
    let limited = try #require(shared.server.requests.first { $0.status == 429 })
    let end = try #require(limited.ended)
    #expect(!shared.server.requests.contains { $0.method == "POST" && $0.began > end && $0.began < end + 1.9 })
    shared.expectNoViolations()
  }

  @Test("sends everything but bytes while the server has no room for them, and tries those seldom")
  func noRoomThere() throws {
    let shared = try Shared()
    let copy = try shared.connected { $0.waits = (0.2, 60) }
    shared.server.faults.add(Fault(.refuse(status: 507, code: "quota"), method: "POST", path: "/blobs", count: nil))
    for number in 0..<20 { try copy.write("\(number).txt", "bytes \(number)") }
    try eventually("it is told") { shared.server.requests.contains { $0.status == 507 } }
    for number in 0..<40 { try copy.mkdir("d\(number)") }
    try eventually("the folders are there") { try shared.server.change { try $0.items() }.count == 40 }
    // Twice as long each time: 0.2, 0.4, 0.8 …
    #expect(shared.server.requests.count { $0.status == 507 } <= 4 + 6)
    try eventually("all else is answered") { try copy.queue.counts().waiting == 40 }
    #expect(try copy.queue.writes().allSatisfy { $0.state == .queued || $0.state == .sending })
    #expect(copy.serverStatus?.queueTrouble?.holdsText("has no room for more (507") == true)
    #expect(try copy.text("7.txt") == "bytes 7")
    shared.server.faults.removeAll()
    copy.retryNow()
    try copy.drained()
    #expect(try shared.server.change { try $0.items() }.count == 60)
    #expect(copy.serverStatus?.queueTrouble == nil)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("sends an upload that broke off once more, and nothing else of it", arguments: [false, true])
  func brokenUpload(restarted: Bool) throws {
    let size = 20 << 20
    let shared = try Shared()
    var copy = try shared.connected()
    let broken = Int64(size * 6 / 10)
    let effect: Fault.Effect = restarted ? .slow(bytesPerSecond: 10e6) : .dropRequest(afterBytes: broken)
    shared.server.faults.add(Fault(effect, method: "POST", path: "/blobs"))
    let staged = try copy.open("film.mkv")
    try staged.append([UInt8](repeating: 7, count: size))
    try copy.close(staged)
    let hash = try #require(try copy.node(at: "film.mkv")?.blob)
    if restarted {
      try eventually("it is half way") { copy.uploadProgress(of: hash).map { $0 > 5 << 20 } ?? false }
      copy = try shared.reopened(copy)
      try copy.connect(try shared.options())
    }
    try copy.drained()
    let uploads = shared.server.requests.filter { $0.path == "/blobs" }
    #expect(uploads.count == 2)
    #expect(uploads.last?.status == 201)
    #expect(shared.server.stats.received < Int64(size) + broken + (4 << 20))
    #expect(try shared.server.change { try $0.items() }.first?.blob != nil)
    shared.expectNoViolations()
  }

  @Test("sends other files on while the server never answers one")
  func oneHangs() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    shared.server.faults.add(Fault(.neverAnswer, method: "POST", path: "/blobs"))
    for number in 0..<6 { try copy.write("\(number).txt", "bytes \(number)") }
    try eventually("the others are there") { try shared.server.change { try $0.items() }.count == 5 }
    shared.server.faults.release()
    shared.expectNoViolations()
  }

  @Test("does not drop one write when the server is there again after a while away")
  func away() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    shared.server.stop()
    let dir = try copy.mkdir("Sicily")
    for number in 0..<20 { try copy.write("Sicily/\(number).txt", "bytes \(number)") }
    try copy.move("Sicily/3.txt", "3.txt")
    try copy.unlink("Sicily/4.txt")
    try eventually("it knows") { copy.serverStatus?.queueTrouble != nil }
    try shared.server.start()
    try copy.drained()
    #expect(try shared.server.change { try $0.edges() }.filter { $0.target == "\(dir)" }.count == 18)
    #expect(try copy.queue.writes().isEmpty)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }
}
