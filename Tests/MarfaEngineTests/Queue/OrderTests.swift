import ContractServer
import Testing

@testable import MarfaEngine

@Suite("Writes on their way")
struct OrderTests {
  private func patches(_ shared: Shared) -> [RequestRecord] { shared.server.requests.filter { $0.method == "PATCH" } }

  @Test("go one behind the other for one row, each on the version the one before was answered with")
  func oneRow() throws {
    var options = ServerOptions()
    options.link.roundTrip = 0.02
    let shared = try Shared(options)
    let copy = try shared.connected()
    let (item, _) = try copy.items.create(type: "core.note", properties: ["title": "0"])
    for number in 1...20 { try copy.items.update(item.id, ["title": .string("\(number)")]) }
    try copy.drained()
    #expect(try shared.item(item.id)?.title == "20")
    #expect(try shared.item(item.id)?.version == 21)
    #expect(try shared.server.change { try $0.items() }.count == 1)
    #expect(try copy.items.get(item.id)?.version == 21)
    shared.expectNoViolations()
  }

  @Test("keep an edit of a create that is merged on that create's version")
  func behindMerge() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.queue.pause()
    let (item, _) = try copy.items.create(type: "core.note", properties: ["title": "0", "body": "base"])
    try copy.items.update(item.id, ["title": "1"])
    try copy.items.update(item.id, ["title": "2"])
    // The create is done, and another device changes the row before the edits come.
    shared.server.faults.add(Fault(.stallBody(afterBytes: 1, seconds: nil), method: "POST"))
    try copy.queue.resume()
    try eventually("created") { try shared.item(item.id) != nil }
    try shared.server.change { _ = try $0.updateItem("\(item.id)", ["body": "theirs"]) }
    shared.server.faults.release()
    try copy.drained()
    #expect(try shared.item(item.id)?.title == "2")
    #expect(try shared.item(item.id)?.properties["body"] == "theirs")
    #expect(try copy.queue.writes().isEmpty)
    shared.expectNoViolations()
  }

  @Test("never make two rows when an answer is lost")
  func lostAnswers() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    for _ in 0..<12 { shared.server.faults.add(Fault(.applyAndDrop, method: "POST", skip: 1)) }
    let dir = try copy.mkdir("Sicily")
    for number in 0..<5 { try copy.write("Sicily/\(number).txt", "bytes \(number)") }
    try copy.drained()
    #expect(try shared.server.change { try $0.items() }.count == 6)
    #expect(try shared.server.change { try $0.edges() }.filter { $0.target == "\(dir)" }.count == 5)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("go again with the same key and bytes after the process was ended in the middle")
  func restarted() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    shared.server.faults.add(Fault(.stallBody(afterBytes: 1, seconds: nil), method: "POST", path: "/items"))
    try copy.write("a.txt", "bytes")
    try eventually("done and not answered") { try shared.server.change { try $0.items() }.count == 1 }
    let next = try shared.reopened(copy)
    #expect(try next.queue.writes().map(\.kind) == [.createItem])
    #expect(try next.queue.writes().first?.hasGoneOut == true)
    try next.connect(try shared.options())
    try next.drained()
    let creates = shared.server.requests.filter { $0.path == "/items" && $0.method == "POST" }
    #expect(creates.count == 2)
    #expect(Set(creates.map { "\($0.headers["idempotency-key"] ?? "") \($0.bodyHash?.hex ?? "")" }).count == 1)
    #expect(try shared.server.change { try $0.items() }.count == 1)
    shared.expectNoViolations()
    try checkInvariants(next)
  }

  @Test("never change one that has gone out: what is done meanwhile is another")
  func frozen() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    shared.server.faults.add(Fault(.stall(seconds: nil), method: "POST", path: "/items"))
    let dir = try copy.mkdir("Sicily")
    try eventually("it is out") { try copy.queue.writes().first?.state == .sending }
    try copy.move("Sicily", "Etna")
    #expect(try copy.queue.writes().map(\.kind) == [.createItem, .updateItem])
    shared.server.faults.release()
    try copy.drained()
    #expect(try shared.item(dir)?.title == "Etna")
    #expect(try shared.item(dir)?.version == 2)
    shared.expectNoViolations()
  }

  @Test("take a child out of a directory before the directory goes into the bin with all in it")
  func moveThenDelete() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.mkdir("old")
    try copy.mkdir("old/child")
    try copy.mkdir("new")
    try copy.drained()
    try copy.queue.pause()
    try copy.move("old/child", "new/child")
    try copy.rmdir("old")
    shared.server.faults.add(Fault(.delay(seconds: 0.3), method: "PATCH", path: "/edges"))
    try copy.queue.resume()
    try copy.drained()
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    #expect(try copy.paths() == ["new/", "new/child/"])
    #expect(try shared.item(copy.id(at: "new/child"))?.state == "active")
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("delete what is in a directory before the directory")
  func deleteTree() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.mkdir("a")
    try copy.mkdir("a/b")
    try copy.mkdir("a/b/c")
    try copy.drained()
    try copy.queue.pause()
    try copy.rmdir("a/b/c")
    try copy.rmdir("a/b")
    try copy.rmdir("a")
    for skip in 0..<2 { shared.server.faults.add(Fault(.delay(seconds: 0.2), method: "DELETE", skip: skip)) }
    try copy.queue.resume()
    try copy.drained()
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    #expect(try shared.server.change { try $0.items() }.allSatisfy { $0.state == "trashed" })
    shared.expectNoViolations()
  }

  @Test("turn a directory and the one in it around without a ring, and by way of the root without a second parent")
  func turnedAround() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.mkdir("a")
    try copy.mkdir("a/b")
    try copy.mkdir("c")
    try copy.drained()
    try copy.queue.pause()
    try copy.move("a/b", "b")
    try copy.move("a", "b/a")
    try copy.move("b/a", "a")
    try copy.move("a", "c/a")
    try copy.move("b", "c/a/b")
    shared.server.faults.add(Fault(.delay(seconds: 0.3), method: "DELETE", path: "/edges"))
    try copy.queue.resume()
    try copy.drained()
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    #expect(try copy.paths() == ["c/", "c/a/", "c/a/b/"])
    let other = try shared.connected()
    #expect(try other.paths() == ["c/", "c/a/", "c/a/b/"])
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("keep an event that came while an answer was on its way, though both name one version")
  func overtaken() throws {
    let shared = try Shared()
    let id = try shared.server.change { try $0.createNote("Sicily", body: "one") }
    let copy = try shared.connected()
    let item = try #require(ItemID(id))
    shared.server.faults.add(Fault(.stallBody(afterBytes: 1, seconds: nil), method: "PATCH"))
    try copy.items.update(item, ["body": "two"])
    try eventually("it was done") { try shared.item(item)?.version == 2 }
    try shared.server.change { device in
      try device.addTags(id, ["theirs"])
      try device.trash(id)
    }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    shared.server.faults.release()
    try copy.drained()
    #expect(try copy.items.get(item)?.state == .trashed)
    #expect(try copy.items.get(item)?.tags == ["theirs"])
    #expect(try copy.names() == [])
    shared.expectNoViolations()
  }

  @Test("put a thousand small files on a far server, as many at once as they may")
  func throughput() throws {
    var options = ServerOptions()
    options.link.roundTrip = 0.05
    let shared = try Shared(options)
    let copy = try shared.connected()
    let dir = try copy.mkdir("Sicily")
    try copy.drained()
    try copy.queue.pause()
    let count = 1000
    for number in 0..<count { try copy.write("Sicily/\(number).txt", "bytes \(number)") }
    try copy.queue.resume()
    try eventually("all are sent: \(copy.queueText)", seconds: 300) { try copy.queue.counts().waiting == 0 }
    #expect(try shared.server.change { try $0.edges() }.filter { $0.target == "\(dir)" }.count == count)
    // How many requests were under way at a time, over the time that any was.
    func parallel(_ requests: [RequestRecord]) -> (most: Int, mean: Double) {
      var moments: [(Double, Int)] = []
      for request in requests { moments += [(request.began, 1), (request.ended ?? request.began, -1)] }
      moments.sort { ($0.0, $0.1) < ($1.0, $1.1) }
      var (under, most, area, busy, last) = (0, 0, 0.0, 0.0, moments.first?.0 ?? 0)
      for (moment, step) in moments {
        if under > 0 {
          area += Double(under) * (moment - last)
          busy += moment - last
        }
        under += step
        most = max(most, under)
        last = moment
      }
      return (most, busy > 0 ? area / busy : 0)
    }
    let uploads = parallel(shared.server.requests.filter { $0.path == "/blobs" && $0.method == "POST" })
    // The server is done with a request a moment after the client is.
    #expect(uploads.mean > 2.5 && uploads.mean < 4.5, "\(uploads)")
    let writes = parallel(
      shared.server.requests.filter { ["/items", "/edges"].contains($0.path) && $0.method == "POST" })
    #expect(writes.mean < 8.5, "\(writes)")
    shared.expectNoViolations()
    try checkInvariants(copy)
  }
}
