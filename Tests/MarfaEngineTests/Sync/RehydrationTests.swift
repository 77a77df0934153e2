import ContractServer
import Glibc
import Testing

@testable import MarfaEngine

@Suite("A hydration")
struct RehydrationTests {
  /// All that waits has been sent, and all that was told of it has been heard; answers the head of the log.
  private func caughtUp(_ shared: Shared, _ copy: WorkingCopy) throws -> Int64 {
    try copy.drained()
    let head = shared.server.head
    try eventually("it followed") { try copy.isAt(head) }
    return head
  }

  @Test("brings more edges than a row has room for")
  func manyEdges() throws {
    let shared = try Shared()
    let hub = try shared.server.change { device in
      let hub = try device.createNote("hub")
      for number in 0..<260 {
        let note = try device.createNote("\(number)")
        try device.createEdge("references", from: hub, to: note)
        if number < 120 { try device.createEdge("parent-of", from: hub, to: note) }
      }
      return hub
    }
    let copy = try shared.connected()
    let id = try #require(ItemID(hub))
    #expect(try copy.edges.from(id, type: "references").count == 260)
    #expect(try copy.names("hub").count == 120)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("shows nothing of the first one before all of it is here, and begins anew when it breaks off")
  func whole() throws {
    let shared = try Shared()
    try shared.server.change { device in
      let trip = try device.createNote("Sicily")
      for number in 0..<450 { try device.createNote("note \(number)") }
      try device.createFile("a.txt", [1], mime: "text/plain", attachedTo: trip)
    }
    // The second page drops, then the listing of edges stalls.
    shared.server.faults.add(Fault(.dropAfter(bytes: 100), path: "/items", holding: "cursor"))
    shared.server.faults.add(Fault(.stall(seconds: nil), path: "/edges", skip: 1))
    let copy = try shared.copy()
    try copy.mkdir("mine")
    try copy.connect(try shared.options())
    try eventually("it stands at the edges") {
      shared.server.requests.contains { $0.path == "/edges" && $0.status == nil }
    }
    #expect(try copy.hydration() == .inProgress)
    #expect(try copy.names() == ["mine"])
    #expect(try copy.status().items >= 0)
    // Written meanwhile, and renamed on the server after its page was read.
    try copy.mkdir("mine/too")
    try shared.server.change { device in
      let first = try #require(try device.items().first { $0.title == "note 3" })
      _ = try device.updateItem(first.id, ["title": "renamed"])
      try device.purge(try #require(try device.items().first { $0.title == "note 4" }).id)
    }
    shared.server.faults.release()
    try #require(copy.waitUntilLive(seconds: 60))
    try copy.drained()
    let names = try copy.names()
    #expect(names.count == 451)
    #expect(Set(names).isSuperset(of: ["Sicily", "mine", "renamed"]))
    #expect(!names.contains("note 3") && !names.contains("note 4"))
    #expect(try copy.names("Sicily") == ["a.txt"])
    #expect(try copy.names("mine") == ["too"])
    #expect(try shared.server.change { try $0.items() }.count == 453)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("runs again when the log is gone: the queue, the pins and the inode numbers stay, what is gone goes")
  func logRetired() throws {
    let shared = try Shared()
    let (trip, gone) = try shared.server.change { device in
      let trip = try device.createNote("Sicily")
      try device.createFile("a.txt", [1], mime: "text/plain", attachedTo: trip)
      return (trip, try device.createNote("Gone"))
    }
    let copy = try shared.connected()
    let id = try #require(ItemID(trip))
    try copy.store.write { (connection) throws(MarfaError) in try connection.setItem(id, pinned: true) }
    let numbers = try ["Sicily", "Sicily/a.txt"].map { try copy.node(at: $0)?.number }
    try copy.queue.pause()
    try copy.items.update(id, ["body": "mine"])
    try copy.mkdir("Sicily/new")
    shared.server.faults.add(Fault(.refuse(status: 503), path: "/events"))
    shared.server.cutStreams()
    try shared.server.change { device in
      try device.purge(gone)
      for number in 0..<5 { try device.createNote("later \(number)") }
    }
    try shared.server.retireEvents(keeping: 1)
    try eventually("it is hydrated again") {
      try copy.names().count == 6 && copy.hydration() == .complete && copy.serverStatus?.isOnline == true
    }
    #expect(try copy.items.get(try #require(ItemID(gone))) == nil)
    #expect(try ["Sicily", "Sicily/a.txt"].map { try copy.node(at: $0)?.number } == numbers)
    #expect(try copy.items.get(id)?.pinned == true)
    #expect(try copy.items.get(id)?.properties["body"] == "mine")
    #expect(try copy.names("Sicily") == ["a.txt", "new"])
    try copy.queue.resume()
    try copy.drained()
    #expect(try shared.item(id)?.properties["body"] == "mine")
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("leaves a file where it is that was detached and attached again to the same item meanwhile")
  func attachedAgain() throws {
    let shared = try Shared()
    let (trip, file) = try shared.server.change { device in
      let trip = try device.createNote("Sicily")
      return (trip, try device.createFile("a.txt", [1], mime: "text/plain", attachedTo: trip))
    }
    let copy = try shared.connected()
    shared.server.faults.add(Fault(.refuse(status: 503), path: "/events"))
    shared.server.cutStreams()
    try shared.server.change { device in
      for edge in try device.edges() where edge.source == file { try device.deleteEdge(edge.id) }
      try device.createEdge("attached-to", from: file, to: trip)
      try device.createNote("later")
    }
    try shared.server.retireEvents(keeping: 1)
    try eventually("it is hydrated again") {
      try copy.names().contains("later") && copy.hydration() == .complete && copy.serverStatus?.isOnline == true
    }
    #expect(try copy.names("Sicily") == ["a.txt"])
    #expect(try copy.names() == ["Sicily", "later"])
    try checkInvariants(copy)
  }

  @Test("takes what a server restored from a backup has, though its versions are older")
  func restored() throws {
    let shared = try Shared()
    let trip = try shared.server.change { try $0.createNote("Sicily") }
    let copy = try shared.connected()
    try shared.server.takeSnapshot()
    try shared.server.change { device in
      for number in 0..<4 { _ = try device.updateItem(trip, ["title": .string("later \(number)")]) }
      try device.createNote("lost")
    }
    try eventually("it followed") { try copy.names() == ["later 3", "lost"] }
    let number = try copy.node(at: "later 3")?.number
    try shared.server.restoreSnapshot()
    shared.server.cutStreams()
    try eventually("it is what the server has", seconds: 30) {
      try copy.names() == ["Sicily", "lost"] && copy.status().leftBehind == 1
    }
    #expect(try copy.items.get(try #require(ItemID(trip)))?.version == 1)
    #expect(try copy.node(at: "Sicily")?.number == number)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("leaves on this device what was here of what a server that was set back had taken, to be sent anew")
  func setBack() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.mkdir("before")
    try copy.write("before/old.txt", "old")
    try copy.drained()
    try shared.server.takeSnapshot()
    try copy.mkdir("after")
    try copy.mkdir("after/deep")
    try copy.mkdir("after/empty")
    try copy.write("after/deep/only.txt", "the only copy")
    try copy.write("before/new.txt", "new")
    try copy.move("before/old.txt", "after/old.txt")
    for path in ["after", "before/new.txt"] { try copy.items.setPinned(copy.id(at: path), true) }
    try copy.drained()
    try shared.server.change { _ = try $0.createFile("elsewhere.txt", [1]) }
    let head = shared.server.head
    try eventually("it followed") { try copy.isAt(head) }
    let number = try copy.node(at: "after/deep/only.txt")?.number
    try shared.server.restoreSnapshot()
    shared.server.cutStreams()
    let left = [
      "after/", "after/deep/", "after/deep/only.txt", "after/empty/", "before/", "before/new.txt", "before/old.txt",
    ]
    try eventually("it is what the server has, and what it had: \(copy.paths())", seconds: 30) {
      try copy.hydration() == .complete && copy.paths().sorted() == left
    }
    #expect(try copy.node(at: "after/deep/only.txt")?.number == number)
    #expect(try copy.text("after/deep/only.txt") == "the only copy")
    #expect(try copy.status().leftBehind == 5)
    #expect(try copy.facts(ofFile: #require(number))?.isLeftBehind == true)
    try checkInvariants(copy)
    // Anew under another name.
    try copy.move("after", "again")
    try copy.move("before/new.txt", "before/again.txt")
    try copy.drained()
    #expect(try copy.status().leftBehind == 0)
    let other = try shared.connected()
    #expect(
      try other.paths().sorted() == [
        "again/", "again/deep/", "again/deep/only.txt", "again/empty/", "before/", "before/again.txt", "before/old.txt",
      ])
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("leaves what a server that was set back had taken where it stands, changed as it is here since")
  func setBackWhileWriting() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try shared.server.takeSnapshot()
    try copy.mkdir("trip")
    for name in ["tagged", "renamed", "written", "left"] { try copy.write("trip/\(name)", "old \(name)") }
    _ = try caughtUp(shared, copy)
    try copy.queue.pause()
    try copy.items.addTag(copy.id(at: "trip/tagged"), "t")
    try copy.move("trip/renamed", "trip/moved")
    try copy.write("trip/written", "new")
    try copy.write("trip/made", "made")
    try copy.mkdir("trip/deep")
    try copy.write("trip/deep/made", "made too")
    try shared.server.restoreSnapshot()
    shared.server.cutStreams()
    let paths = [
      "trip/", "trip/deep/", "trip/deep/made", "trip/left", "trip/made", "trip/moved", "trip/tagged", "trip/written",
    ]
    try eventually("the copy is hydrated again", seconds: 30) {
      try copy.hydration() == .complete && copy.isAt(shared.server.head) && copy.status().leftBehind > 0
    }
    try copy.queue.resume()
    try copy.drained()
    #expect(try copy.paths().sorted() == paths)
    #expect(try copy.text("trip/written") == "new")
    #expect(try copy.text("trip/moved") == "old renamed")
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    try checkInvariants(copy)
    try copy.move("trip", "again")
    try copy.drained()
    let other = try shared.connected()
    #expect(try other.paths().sorted() == paths.map { "again" + $0.dropFirst(4) })
    shared.expectNoViolations()
  }

  @Test(
    "leaves what a server that was set back had taken, though it refuses writes before its stream says so",
    arguments: ["log ends before the cursor", "log has grown past the cursor"])
  func setBackUnnoticed(_ log: String) throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.write("known", "known")
    try copy.drained()
    try shared.server.takeSnapshot()
    try copy.mkdir("trip")
    for name in ["tagged", "renamed", "written", "left"] { try copy.write("trip/\(name)", "old \(name)") }
    var head = try caughtUp(shared, copy)
    // The stream, which ends with the old log, is not opened again before the writes are refused.
    shared.server.faults.add(Fault(.refuse(status: 503), path: "/events", count: nil))
    try shared.server.restoreSnapshot()
    if log != "log ends before the cursor" {
      while shared.server.head <= head {
        try shared.server.change { _ = try $0.createNote("of another device") }
      }
    }
    try copy.write("trip/written", "new")
    try copy.items.addTag(copy.id(at: "trip/tagged"), "t")
    try copy.move("trip/renamed", "trip/moved")
    try copy.move("known", "trip/known")
    try eventually("they are refused: \(copy.queueText)") {
      try copy.queue.counts().waiting == 0 && copy.queue.writes().count { $0.state == .refused } == 4
    }
    shared.server.faults.removeAll()
    // What the server refused is put back, but for bytes.
    let paths = ["known", "trip/", "trip/left", "trip/renamed", "trip/tagged", "trip/written"]
    try eventually("it is noticed: \(copy.queueText)", seconds: 30) {
      try copy.status().leftBehind == 5 && copy.hydration() == .complete
    }
    head = shared.server.head
    try eventually("it follows again") { try copy.isAt(head) }
    #expect(try copy.paths().filter { !$0.hasPrefix("of another") }.sorted() == paths)
    #expect(try copy.text("trip/written") == "new")
    #expect(try copy.text("trip/renamed") == "old renamed")
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test(
    "gives back as they were what a server that was set back had taken, when it is put forward again",
    arguments: [false, true])
  func putForward(again: Bool) async throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.mkdir("before")
    try copy.write("before/old", "old")
    try copy.drained()
    try shared.server.takeSnapshot("early")
    try copy.mkdir("after")
    try copy.mkdir("after/deep")
    try copy.write("after/deep/only", "the only copy")
    try copy.write("before/new", "new")
    try copy.write("before/old", "newer")
    try copy.move("before/old", "after/moved")
    let head = try caughtUp(shared, copy)
    let paths = try copy.paths().sorted()
    let ids = try paths.map { try copy.id(at: $0) }
    try shared.server.takeSnapshot("late")
    try shared.server.restoreSnapshot("early")
    shared.server.cutStreams()
    try eventually("it is noticed", seconds: 30) {
      try copy.hydration() == .complete && copy.status().leftBehind > 0
    }
    // What it took of a file that it has still stays beside that.
    let kept = "after/moved (before the server was set back)"
    #expect(try copy.text(kept) == "newer")
    try checkInvariants(copy)
    try shared.server.restoreSnapshot("late")
    shared.server.cutStreams()
    if again { try copy.hydrateAgain() }
    try eventually("all is as it was: \(copy.paths())", seconds: 30) {
      try copy.hydration() == .complete && copy.isAt(head) && copy.status().leftBehind == 1
        && copy.paths().filter { $0 != kept }.sorted() == paths
    }
    try eventually("the queue is empty: \(copy.queueText)") { try copy.queue.writes().isEmpty }
    #expect(try paths.map { try copy.id(at: $0) } == ids)
    #expect(try copy.text("after/deep/only") == "the only copy")
    let hash = try #require(try copy.item(at: "after/moved")?.blob)
    #expect(try await copy.blobs.withFile(hash) { try contents($0) } == Array("newer".utf8))
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("does not send again what nobody changed here of what a server that is put forward again has otherwise by then")
  func putForwardAndChanged() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try shared.server.takeSnapshot("early")
    for name in ["untouched", "written", "renamed"] { try copy.write(name, "old \(name)") }
    _ = try caughtUp(shared, copy)
    let ids = try ["untouched", "written", "renamed"].map { "\(try copy.id(at: $0))" }
    try shared.server.takeSnapshot("late")
    try shared.server.restoreSnapshot("early")
    shared.server.cutStreams()
    try eventually("it is noticed", seconds: 30) {
      try copy.hydration() == .complete && copy.status().leftBehind == 3
    }
    shared.server.faults.add(Fault(.refuse(status: 503), path: "/events", count: nil))
    shared.server.cutStreams()
    try copy.write("written", "new here")
    try shared.server.restoreSnapshot("late")
    try shared.server.change { device in
      for id in ids.prefix(2) { _ = try device.replaceBytes(id, Array("new there".utf8)) }
      _ = try device.updateItem(ids[2], ["title": "renamed there"])
    }
    shared.server.faults.removeAll()
    try copy.hydrateAgain()
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) && copy.status().leftBehind == 0 }
    try copy.drained()
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    try eventually("it is as it is there: \(copy.paths())") {
      try copy.paths().count == 4 && copy.names().contains("renamed there")
    }
    #expect(try copy.node(at: "untouched")?.blob == BlobHash(of: Array("new there".utf8)))
    #expect(try shared.item(#require(ItemID(ids[0])))?.version == 2)
    #expect(try shared.item(#require(ItemID(ids[2])))?.title == "renamed there")
    // Of what both changed both are kept.
    let texts = try shared.server.change { device in
      try device.items().compactMap(\.blob).map { String(decoding: try device.blobBytes($0), as: UTF8.self) }.sorted()
    }
    #expect(texts == ["new here", "new there", "new there", "old renamed"])
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test(
    "sends bytes again that a server was set back to before, though it took rows that name them since",
    arguments: ["new", "known"])
  func lostBytes(_ name: String) async throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.write("known", "known before")
    try copy.write("elsewhere", "held before")
    _ = try caughtUp(shared, copy)
    try shared.server.takeSnapshot()
    for number in 0..<6 { try copy.mkdir("d\(number)") }
    _ = try caughtUp(shared, copy)
    // The upload is answered, and what names it is not taken before the server is set back.
    let drops = ["POST", "PATCH"].map { method in
      shared.server.faults.add(Fault(.drop, method: method, path: "/items", count: nil))
    }
    try copy.write(name, "bytes of \(name)")
    try eventually("the bytes are there") { try !copy.queue.writes().contains { $0.kind == .uploadBlob } }
    shared.server.faults.add(Fault(.refuse(status: 503), path: "/events", count: nil))
    try shared.server.restoreSnapshot()
    for drop in drops { shared.server.faults.remove(drop) }
    copy.retryNow()
    try eventually("the row is there") { try copy.queue.writes().isEmpty }
    shared.server.faults.removeAll()
    // It can't say so of one of them at first.
    shared.server.faults.add(Fault(.refuse(status: 500), method: "HEAD", path: "/blobs"))
    copy.retryNow()
    let hash = BlobHash(of: Array("bytes of \(name)".utf8))
    try eventually("it is noticed") { try copy.status().leftBehind == 6 && copy.hydration() == .complete }
    try eventually("they are there again: \(copy.queueText)") {
      try copy.queue.writes().isEmpty
        && copy.store.read { (connection) throws(MarfaError) in try connection.blob(hash) }
          .map { $0.stored && !$0.doubted } == true
    }
    let other = try shared.connected()
    let text = try await other.blobs.withFile(hash) { String(decoding: try contents($0), as: UTF8.self) }
    #expect(text == "bytes of \(name)")
    // What it had before was asked for, and is not sent again.
    try eventually("the others are not in doubt") {
      try copy.store.read { (connection) throws(MarfaError) in
        try connection.first("SELECT count(*) FROM blobs WHERE doubted > 0") { $0.int(0) }
      } == 0
    }
    #expect(shared.server.requests.count { $0.path == "/blobs" && $0.method == "POST" } == 4)
    #expect(shared.server.violations.allSatisfy { $0.kind == .beforeItsUpload })
    try checkInvariants(copy)
  }

  @Test("that waits for a write's answer, which does not come, keeps no copy from being closed")
  func closedMeanwhile() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    shared.server.faults.add(Fault(.stall(seconds: nil), method: "POST", path: "/items"))
    try copy.mkdir("stalled")
    try eventually("it is on its way") { try copy.queue.writes().contains { $0.state == .sending } }
    try copy.hydrateAgain()
    try eventually("a hydration waits") { copy.serverStatus?.hydrationProgress != nil }
    let began = Monotonic.now
    copy.close()
    #expect(Monotonic.now - began < 10_000_000_000)
  }

  @Test(
    "keeps beside a file what a server that was set back had taken of it, whatever waits, and whatever it was brought to since",
    arguments: ["renamed here", "written elsewhere"])
  func laterBytes(_ meanwhile: String) throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.write("d.txt", "draft")
    try copy.drained()
    try shared.server.takeSnapshot()
    try copy.write("d.txt", "the finished text")
    try copy.mkdir("more")
    _ = try caughtUp(shared, copy)
    try copy.queue.pause()
    if meanwhile == "renamed here" { try copy.move("d.txt", "e.txt") }
    try shared.server.restoreSnapshot()
    if meanwhile == "written elsewhere" {
      let id = try "\(copy.id(at: "d.txt"))"
      try shared.server.change { device in
        let hash = try device.putBlob(Array("from another".utf8), mime: "text/plain")
        _ = try device.updateItem(id, ["blob_ref": .string(hash)])
      }
    }
    shared.server.cutStreams()
    let kept =
      meanwhile == "renamed here" ? "e (before the server was set back).txt" : "d (before the server was set back).txt"
    try eventually("it is kept: \(copy.paths())", seconds: 30) { try copy.paths().contains(kept) }
    #expect(try copy.text(kept) == "the finished text")
    try eventually("they are counted") { try copy.status().leftBehind == 2 }
  }

  @Test(
    "sends edits of versions that a server that was set back knows no more as edits of what it has",
    arguments: ["wait meanwhile", "go out before that is noticed"])
  func editsOfLostVersions(_ meanwhile: String) throws {
    let shared = try Shared()
    let copy = try shared.connected()
    for name in ["A", "B"] { try copy.mkdir(name) }
    try copy.mkdir("A/moved")
    try copy.write("d.txt", "draft")
    try copy.drained()
    try shared.server.takeSnapshot()
    try copy.write("d.txt", "the finished text")
    try copy.move("A/moved", "B/moved")
    try copy.mkdir("more")
    _ = try caughtUp(shared, copy)
    let edits = {
      try copy.write("d.txt", "the text after that")
      try copy.move("B/moved", "A/moved")
      try copy.move("A/moved", "B/moved again")
    }
    if meanwhile == "wait meanwhile" {
      try copy.queue.pause()
      try edits()
      try shared.server.restoreSnapshot()
      shared.server.cutStreams()
    } else {
      shared.server.faults.add(Fault(.refuse(status: 503), path: "/events", count: nil))
      try shared.server.restoreSnapshot()
      try edits()
      try eventually("the server would not settle them") {
        let blocked = try copy.queue.writes().filter { $0.state == .blocked }
        return blocked.contains { $0.kind == .updateItem } && blocked.contains { $0.kind == .updateEdge }
      }
      shared.server.faults.removeAll()
    }
    try eventually("it is noticed", seconds: 30) {
      try copy.hydration() == .complete && copy.isAt(shared.server.head) && copy.status().leftBehind > 0
    }
    try copy.queue.resume()
    try copy.drained()
    #expect(try copy.queue.writes().isEmpty, "\(copy.queueText)")
    #expect(try copy.text("d.txt") == "the text after that")
    let other = try shared.connected()
    #expect(try other.paths().sorted() == ["A/", "B/", "B/moved again/", "d.txt"])
    #expect(try other.node(at: "d.txt")?.blob == BlobHash(of: Array("the text after that".utf8)))
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("leaves here what its list does not have and no event took away, and with it what was said of a file")
  func untold() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try shared.server.takeSnapshot()
    try copy.mkdir("N")
    try copy.write("N/thesis.txt", "months of work")
    try copy.items.addTag(copy.id(at: "N/thesis.txt"), "mine")
    let head = try caughtUp(shared, copy)
    try shared.server.restoreSnapshot()
    while shared.server.head <= head { try shared.server.change { _ = try $0.createNote("of another device") } }
    shared.server.cutStreams()
    let next = shared.server.head
    try eventually("it follows, and has not noticed") { try copy.isAt(next) && copy.serverStatus?.isOnline == true }
    try copy.hydrateAgain()
    try eventually("it is left here: \(copy.paths())", seconds: 30) { try copy.status().leftBehind == 2 }
    #expect(try copy.text("N/thesis.txt") == "months of work")
    try copy.move("N", "again")
    try copy.drained()
    #expect(try copy.item(at: "again/thesis.txt")?.tags == ["mine"])
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("runs again at once when a person wants it, though no event comes")
  func wanted() throws {
    let shared = try Shared()
    try shared.server.change { _ = try $0.createNote("Sicily") }
    let copy = try shared.connected()
    let before = shared.server.stats["GET /types"].requests
    try copy.hydrateAgain()
    try eventually("it ran", seconds: 20) { shared.server.stats["GET /types"].requests > before }
    try eventually("and is complete") { try copy.hydration() == .complete }
    #expect(try copy.names() == ["Sicily"])
    shared.expectNoViolations()
  }

  @Test("is not run without a pause when the log never reaches to the cursor it was just given")
  func neverReaches() throws {
    let shared = try Shared()
    shared.server.faults.add(Fault(.cursorAhead, path: "/events", skip: 1, count: nil))
    let copy = try shared.copy()
    try copy.connect(try shared.options { $0.waits = (0.2, 1) })
    usleep(1_500_000)
    #expect(shared.server.stats["GET /types"].requests <= 6)
    copy.close()
  }

  @Test("brings ten thousand items without the memory growing with them")
  func bounded() throws {
    func peak(_ count: Int) throws -> Int {
      let shared = try Shared()
      try shared.server.change { device in
        for number in 0..<count {
          _ = try device.createNote("note \(number)", body: String(repeating: "text ", count: 400))
        }
      }
      let child = try Child.start("hydrate", shared.folder.path + "/child.db", shared.server.url, shared.server.key)
      let (status, output) = try child.wait()
      #expect(status == 0, "\(output)")
      let words = try #require(output.split(separator: "\n").first { $0.hasPrefix("items ") }).split(separator: " ")
      #expect(words[1] == "\(count)")
      shared.expectNoViolations()
      return Int(words[3]) ?? .max
    }
    // Twenty megabytes of text more.
    let (few, many) = (try peak(500), try peak(10_000))
    #expect(many - few < 24 << 10, "\(few) and \(many) KiB")
  }
}
