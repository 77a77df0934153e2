import ContractServer
import Testing

@testable import MarfaEngine

@Suite("What went elsewhere while this device was at it")
struct GoneElsewhereTests {
  /// A file in a folder, both made by another device.
  private func attached(_ shared: Shared) throws -> (trip: String, file: String) {
    try shared.server.change { device in
      let trip = try device.createNote("Sicily")
      return (trip, try device.createFile("a.txt", [1], attachedTo: trip))
    }
  }

  private func gone(_ shared: Shared, _ copy: WorkingCopy) throws {
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    try copy.drained()
    try eventually("it read back what it owes") {
      try copy.store.read { (connection) throws(MarfaError) in try connection.owed(limit: 1) }.isEmpty
    }
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    let edges = Set(try shared.server.change { try $0.edges() }.map(\.id))
    #expect(
      try copy.store.read { (connection) throws(MarfaError) in try connection.allEdges() }
        .filter { !edges.contains("\($0.id)") } == [])
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  /// Two writes of a file whose answers are lost, and told again only once the file has been purged.
  @Test(
    "does not come back with the repeated answer to a write that was done before", arguments: ["event", "hydration"])
  func repeated(way: String) throws {
    let shared = try Shared()
    let trip = try shared.server.change { try $0.createNote("Sicily") }
    let copy = try shared.connected()
    shared.server.faults.add(Fault(.applyAndDrop, method: "POST", path: "/edges"))
    shared.server.faults.add(Fault(.refuse(status: 503), method: "POST", path: "/edges", skip: 1, count: nil))
    try copy.write("Sicily/a.txt", "ours")
    try eventually("it is drawn there") { try shared.server.change { try $0.edges() }.count == 1 }
    try copy.queue.pause()
    let file = try copy.id(at: "Sicily/a.txt")
    try shared.server.change { try $0.purge("\(file)") }
    if way == "hydration" {
      try shared.server.retireEvents(keeping: 0)
      shared.server.cutStreams()
    }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) && copy.hydration() == .complete }
    shared.server.faults.removeAll()
    try copy.queue.resume()
    try gone(shared, copy)
    #expect(try copy.names("Sicily") == [])
    #expect(try shared.item(#require(ItemID(trip)))?.state == "active")
  }

  @Test(
    "leaves the bytes that were refused before it was heard where they are, and sends them when it comes back",
    arguments: [false, true])
  func refusedFirst(replacedMeanwhile: Bool) throws {
    let shared = try Shared()
    let (_, file) = try attached(shared)
    let copy = try shared.connected()
    shared.server.faults.add(Fault(.refuse(status: 503), path: "/events", count: nil))
    shared.server.cutStreams()
    try shared.server.change { try $0.trash(file) }
    try copy.write("Sicily/a.txt", "ours")
    try eventually("it is refused") { try copy.queue.writes().map(\.state) == [.refused] }
    shared.server.faults.removeAll()
    copy.retryNow()
    var head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    #expect(try copy.paths() == ["Sicily/", "Sicily/a.txt"])
    #expect(try copy.text("Sicily/a.txt") == "ours")
    #expect(try copy.node(at: "Sicily/a.txt")?.item == nil)
    try shared.server.change { device in
      try device.restore(file)
      if replacedMeanwhile { _ = try device.replaceBytes(file, Array("theirs".utf8)) }
    }
    head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) && copy.node(at: "Sicily/a.txt")?.item == ItemID(file) }
    try copy.drained()
    try eventually("nothing stays in the queue") { try copy.queue.writes().isEmpty }
    let texts = try shared.server.change { device in
      try device.items().compactMap(\.blob).map { String(decoding: try device.blobBytes($0), as: UTF8.self) }.sorted()
    }
    #expect(texts == (replacedMeanwhile ? ["ours", "theirs"] : ["ours"]))
    try eventually("both are shown") { try copy.names("Sicily").count + copy.names().count == texts.count + 1 }
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("takes its edges along, of which one is being taken away here")
  func edgeOfPurged() throws {
    let shared = try Shared()
    let (trip, file) = try attached(shared)
    let copy = try shared.connected()
    try copy.queue.pause()
    try copy.move("Sicily/a.txt", "a.txt")
    try shared.server.change { device in
      try device.purge(trip)
      try device.purge(file)
    }
    try copy.queue.resume()
    try gone(shared, copy)
    #expect(try copy.names() == [])
  }

  @Test("goes from the folder once bytes that were written here before it went are answered")
  func trashedBehindBytes() throws {
    let shared = try Shared()
    let id = try shared.server.change { try $0.createFile("a.txt", [1]) }
    let copy = try shared.connected()
    shared.server.faults.add(Fault(.stallBody(afterBytes: 1, seconds: nil), method: "PATCH"))
    try copy.write("a.txt", "ours")
    let item = try #require(ItemID(id))
    try eventually("it was done") { try shared.item(item)?.version == 2 }
    try shared.server.change { try $0.trash(id) }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    #expect(try copy.names() == ["a.txt"])
    shared.server.faults.release()
    try gone(shared, copy)
    #expect(try copy.names() == [])
  }

  @Test("needs no removing here any more: nothing stays in the queue", arguments: [true, false])
  func removedTwice(isPurged: Bool) throws {
    let shared = try Shared()
    let (trip, file) = try attached(shared)
    let copy = try shared.connected()
    try copy.queue.pause()
    try copy.unlink("Sicily/a.txt")
    try copy.rmdir("Sicily")
    try shared.server.change { device in
      if isPurged {
        try device.purge(file)
        try device.purge(trip)
      } else {
        try device.trash(file)
        try device.trash(trip)
      }
    }
    try copy.queue.resume()
    try gone(shared, copy)
    #expect(try copy.names() == [])
    // What another device takes out of the bin is shown again.
    guard !isPurged else { return }
    try shared.server.change { device in
      try device.restore(trip)
      try device.restore(file)
    }
    try eventually("they are back, where they were") { try copy.paths() == ["Sicily/", "Sicily/a.txt"] }
  }

  @Test("and comes back is an item again where the person has put it meanwhile")
  func movedMeanwhile() throws {
    let shared = try Shared()
    let file = try shared.server.change { try $0.createFile("a.txt", Array("base".utf8)) }
    let copy = try shared.connected()
    try copy.mkdir("Sicily")
    try copy.drained()
    try copy.queue.pause()
    try copy.write("a.txt", "ours")
    try copy.move("a.txt", "Sicily/a.txt")
    try shared.server.change { try $0.trash(file) }
    // Were the edge refused first, the file would stand in the root again.
    shared.server.faults.add(Fault(.delay(seconds: 0.5), method: "POST", path: "/edges"))
    try copy.queue.resume()
    try copy.drained()
    #expect(try copy.node(at: "Sicily/a.txt")?.item == nil)
    try shared.server.change { try $0.restore(file) }
    try eventually("it is an item again") { try copy.node(at: "Sicily/a.txt")?.item != nil }
    try copy.drained()
    for write in try copy.queue.writes() where write.state == .refused { try copy.queue.discard(write.id) }
    try gone(shared, copy)
    #expect(try copy.paths() == ["Sicily/", "Sicily/a.txt"])
    #expect(try copy.text("Sicily/a.txt") == "ours")
    let other = try shared.connected()
    #expect(try other.paths() == copy.paths())
  }
}
