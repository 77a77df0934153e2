import ContractServer
import Testing

@testable import MarfaEngine

@Suite("A write that is blocked")
struct BlockedTests {
  private func note(_ shared: Shared) throws -> (copy: WorkingCopy, id: ItemID) {
    let id = try shared.server.change { try $0.createNote("Sicily", body: "one") }
    return (try shared.connected(), try #require(ItemID(id)))
  }

  private func state(_ copy: WorkingCopy, _ id: WriteID) throws -> (WriteState, Verdict?)? {
    try copy.queue.writes().first { $0.id == id }.map { ($0.state, $0.standing) }
  }

  @Test(
    "says which of the reasons it is, keeps its place, and goes again under a fresh key when it is released",
    arguments: [
      (409, "version_conflict", Blocked.conflictUnresolved), (409, "ancestor_unavailable", .ancestorUnavailable),
      (422, "idempotency_key_reused", .keySpent),
    ])
  func reasons(_ status: Int, _ code: String, _ reason: Blocked) throws {
    let shared = try Shared()
    let (copy, id) = try note(shared)
    shared.server.faults.add(Fault(.refuse(status: status, code: code), method: "PATCH"))
    let write = try copy.items.update(id, ["body": "two"])
    let behind = try copy.items.update(id, ["title": "Etna"])
    try eventually("blocked: \(copy.queueText)") { try state(copy, write)?.1 == .blocked(reason) }
    #expect(try state(copy, behind)?.1 == .blocked(.awaitingDependency(write)))
    #expect(try copy.items.get(id)?.title == "Etna")
    #expect(try shared.item(id)?.version == 1)
    try copy.queue.release(write)
    try copy.drained()
    #expect(try shared.item(id)?.properties["body"] == "two")
    #expect(try shared.item(id)?.title == "Etna")
    let keys = shared.server.requests.filter { $0.method == "PATCH" }.map { $0.headers["idempotency-key"] ?? "" }
    #expect(Set(keys).count == 3)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("can be discarded, with what waits on it, and shows the server's row again")
  func discarded() throws {
    let shared = try Shared()
    let (copy, id) = try note(shared)
    shared.server.faults.add(Fault(.refuse(status: 409, code: "version_conflict"), method: "PATCH"))
    let write = try copy.items.update(id, ["title": "Etna"])
    try copy.items.update(id, ["body": "two"])
    try eventually("blocked") { try state(copy, write)?.0 == .blocked }
    try copy.queue.discard(write)
    #expect(try copy.queue.writes().isEmpty)
    #expect(try copy.items.get(id)?.title == "Sicily")
    #expect(try copy.items.get(id)?.properties["body"] == "one")
    #expect(try copy.names() == ["Sicily"])
    try checkInvariants(copy)
    shared.expectNoViolations()
  }

  @Test("parks the whole queue when the key is refused, and goes on under its own key with a good one")
  func credential() throws {
    let shared = try Shared()
    let (copy, id) = try note(shared)
    shared.server.faults.add(Fault(.refuse(status: 401, code: "unauthorized"), method: "PATCH", count: nil))
    shared.server.faults.add(Fault(.refuse(status: 401, code: "unauthorized"), method: "POST", count: nil))
    let write = try copy.items.update(id, ["body": "two"])
    try eventually("blocked") { try state(copy, write)?.1 == .blocked(.credentialRefused(grant: nil)) }
    for number in 0..<40 { try copy.mkdir("dir \(number)") }
    try eventually("it has been tried again") { shared.server.requests.filter { $0.status == 401 }.count > 3 }
    // Few of the others were tried: the queue is parked.
    #expect(try copy.queue.counts().byState[.blocked] ?? 0 <= 4)
    let next = try shared.reopened(copy)
    #expect(try state(next, write)?.0 == .blocked)
    shared.server.faults.removeAll()
    try next.connect(try shared.options())
    try next.drained()
    #expect(try shared.item(id)?.properties["body"] == "two")
    #expect(try next.names().count == 41)
    let keys = shared.server.requests.filter { $0.method == "PATCH" }.map { $0.headers["idempotency-key"] ?? "" }
    #expect(Set(keys).count == 1)
    shared.expectNoViolations()
  }

  @Test("waits for a grant and goes again under its own key, and others pass it meanwhile")
  func grant() throws {
    var options = ServerOptions()
    options.keys.append(
      APIKey("guest", secret: "mk_test_guest", types: ["core.note": .write, "core.task": .read], edges: [:]))
    let shared = try Shared(options)
    let copy = try shared.copy()
    let (task, write) = try copy.items.create(type: "core.task", properties: ["title": "Task"])
    let (note, _) = try copy.items.create(type: "core.note", properties: ["title": "Note"])
    try copy.connect(try shared.options(key: "mk_test_guest") { $0.types = ["core.note", "core.task"] })
    try eventually("the note is there") { try shared.item(note.id) != nil }
    try eventually("blocked: \(copy.queueText)") {
      if case .blocked(.credentialRefused(grant: _?))? = try state(copy, write)?.1 { true } else { false }
    }
    let next = try shared.reopened(copy)
    try next.connect(try shared.options())
    try next.drained()
    #expect(try shared.item(task.id)?.title == "Task")
    let creates = shared.server.requests.filter { $0.method == "POST" && $0.path == "/items" }
    // Each key has its own record; what was sent is the same.
    #expect(Set(creates.map { $0.headers["idempotency-key"] ?? "" }).count == 2)
    shared.expectNoViolations()
  }

  @Test("is listed as one that waits for another while it does")
  func awaiting() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.queue.pause()
    try copy.write("a.txt", "bytes")
    let writes = try copy.queue.writes()
    #expect(writes.map(\.kind) == [.uploadBlob, .createItem])
    #expect(writes.map(\.standing) == [nil, .blocked(.awaitingDependency(writes[0].id))])
    try copy.queue.resume()
    try copy.drained()
    shared.expectNoViolations()
  }

  @Test("is paused and resumed by a person, and the copy follows its server meanwhile")
  func paused() throws {
    let shared = try Shared()
    let (copy, id) = try note(shared)
    try copy.queue.pause()
    #expect(copy.serverStatus?.isPaused == true)
    let write = try copy.items.update(id, ["body": "two"])
    try shared.server.change { _ = try $0.updateItem("\(id)", ["title": "Etna"]) }
    try eventually("it follows") { try copy.items.get(id)?.title == "Etna" }
    #expect(!shared.server.requests.contains { $0.method == "PATCH" })
    try copy.queue.withdraw(write)
    #expect(try copy.items.get(id)?.properties["body"] == "one")
    #expect(try copy.items.get(id)?.title == "Etna")
    try copy.queue.resume()
    try copy.items.update(id, ["body": "three"])
    try copy.drained()
    #expect(try shared.item(id)?.properties["body"] == "three")
    shared.expectNoViolations()
  }
}
