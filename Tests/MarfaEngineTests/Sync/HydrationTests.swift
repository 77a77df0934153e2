import ContractServer
import Testing

@testable import MarfaEngine

@Suite("A copy that meets its server")
struct HydrationTests {
  @Test("has every item, edge and tag of what it declared")
  func whole() throws {
    let shared = try Shared()
    let (trip, photo) = try shared.server.change { device in
      let trip = try device.createNote("Sicily", tags: ["travel"])
      let day = try device.createNote("Etna")
      try device.createEdge("parent-of", from: trip, to: day)
      let photo = try device.createFile("etna.jpg", [1, 2, 3], mime: "image/jpeg", attachedTo: day)
      try device.createFile("loose.txt", [4, 5], mime: "text/plain")
      return (trip, photo)
    }
    let copy = try shared.connected()
    #expect(try copy.names() == ["Sicily", "loose.txt"])
    #expect(try copy.names("Sicily") == ["Etna"])
    #expect(try copy.names("Sicily/Etna") == ["etna.jpg"])
    let item = try #require(try ItemID(trip).flatMap { try copy.items.get($0) })
    #expect(item.tags == ["travel"])
    #expect(item.version == 1)
    let file = try #require(try ItemID(photo).flatMap { try copy.items.get($0) })
    #expect(file.type == "core.file.image")
    #expect(try copy.hydration() == .complete)
    shared.expectNoViolations()
  }

  @Test("counts no attachments from the start of a hydration until one completes")
  func uncounted() throws {
    let shared = try Shared()
    try shared.server.change { device in
      let trip = try device.createNote("Sicily")
      try device.createFile("a.txt", [1], mime: "text/plain", attachedTo: trip)
    }
    let copy = try shared.connected()
    #expect(try copy.blobs.cache().attachments?.notHeld == 1)
    // One breaks off, and the next stands still.
    shared.server.faults.add(Fault(.drop, path: "/items"))
    shared.server.faults.add(Fault(.stall(seconds: nil), path: "/items", skip: 1))
    try copy.hydrateAgain()
    try eventually("it stands at the items") {
      shared.server.faults.waiting == 0
        && shared.server.requests.contains { $0.path == "/items" && $0.status == nil && $0.ended == nil }
    }
    let cache = try copy.blobs.cache()
    #expect(cache.attachments == nil && cache.held == 0 && cache.heldUnreadable == nil)
    shared.server.faults.release()
    try eventually("it is whole again") { try copy.blobs.cache().attachments?.notHeld == 1 }
    shared.expectNoViolations()
  }

  @Test("passes over a row that it can't understand, says so, and loses nothing of it")
  func passedOver() throws {
    let shared = try Shared()
    let (kept, other, gone) = try shared.server.change { device in
      (try device.createNote("Kept"), try device.createNote("Other"), try device.createNote("Gone"))
    }
    let photo = try shared.server.change { try $0.createFile("f", [1], attachedTo: kept) }
    let copy = try shared.connected()
    #expect(try copy.names() == ["Gone", "Kept", "Other"])
    let catchUp = { (page: [String]) throws in
      let fault = shared.server.faults.add(
        Fault(
          .body(#"{"data":[\#(page.joined(separator: ","))],"next_cursor":null}"#), path: "/items", holding: "core.note"
        ))
      let before = copy.serverStatus?.hydrations ?? 0
      try copy.hydrateAgain()
      try eventually("it is brought again") {
        copy.serverStatus?.hydrations ?? 0 > before && copy.serverStatus?.isOnline == true
      }
      shared.server.faults.remove(fault)
    }
    // One is fine, one has a version that is none, one is not there any more.
    try catchUp([
      Wire.row(Wire.item(id: Wire.id)), #"{"item":\#(Wire.item(id: kept, version: "\"3\"")),"metadata":{}}"#,
    ])
    // No event took the others away: they are left here, on this device only.
    #expect(try copy.names() == ["Gone", "Kept", "Other", "T"], "\(other) and \(gone)")
    #expect(try copy.status().leftBehind == 2)
    #expect(try copy.names("Kept") == ["f"], "\(photo)")
    #expect(try copy.status().passedOver == 1)
    #expect(try copy.hydration() == .complete)
    // One that does not even say which it is may be any of those that did not come.
    try catchUp([#"{"item":{"title":"?"},"metadata":{}}"#, "7"])
    #expect(try copy.names() == ["Gone", "Kept", "Other", "T"])
    #expect(try copy.status().passedOver == 2)
    try copy.hydrateAgain()
    try eventually("all is well again") {
      try copy.names() == ["Gone", "Kept", "Other", "T"] && copy.status().passedOver == 0
        && copy.status().leftBehind == 1
    }
    shared.expectNoViolations()
  }

  @Test("shows what another device does, as it is done")
  func events() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    #expect(try copy.names() == [])
    let trip = try shared.server.change { try $0.createNote("Sicily") }
    try eventually("the note is here") { try copy.names() == ["Sicily"] }
    let photo = try shared.server.change { device in
      try device.updateItem(trip, ["title": "Sicily 2026"])
      return try device.createFile("etna.jpg", [1, 2, 3], mime: "image/jpeg", attachedTo: trip)
    }
    try eventually("renamed, with its file") { try copy.names("Sicily 2026") == ["etna.jpg"] }
    try shared.server.change { try $0.trash(photo) }
    try eventually("the file is gone") { try copy.names("Sicily 2026") == [] }
    try shared.server.change { try $0.restore(photo) }
    try eventually("the file is back") { try copy.names("Sicily 2026") == ["etna.jpg"] }
    try shared.server.change { try $0.purge(trip) }
    try eventually("the file stands alone") { try copy.names() == ["etna.jpg"] }
    shared.expectNoViolations()
  }

  @Test("sends what it made before it met it, and what it makes after")
  func sends() throws {
    let shared = try Shared()
    let copy = try shared.copy()
    let (before, _) = try copy.items.create(type: "core.note", properties: ["title": "Before"])
    let file = try shared.folder.file("a.txt", "bytes")
    let attached = try copy.items.attach(to: before.id, file: file)
    try copy.connect(try shared.options())
    try #require(copy.waitUntilLive(seconds: 60))
    try copy.drained()
    #expect(try shared.item(before.id)?.title == "Before")
    #expect(try shared.item(attached.file)?.blob == "\(attached.blob)")
    #expect(try shared.server.change { try $0.edge("\(attached.edge)") }?.target == "\(before.id)")
    #expect(try copy.names("Before") == ["a.txt"])
    #expect(try copy.items.get(before.id)?.version == 1)
    try copy.items.update(before.id, ["title": "After"])
    try copy.items.addTag(before.id, "seen")
    try copy.drained()
    #expect(try shared.item(before.id)?.title == "After")
    #expect(try shared.item(before.id)?.tags == ["seen"])
    try eventually("it has the answer's version") { try copy.items.get(before.id)?.version == 2 }
    try copy.items.delete(before.id)
    try copy.drained()
    #expect(try shared.item(before.id)?.state == "trashed")
    #expect(try copy.names() == ["a.txt"])
    shared.expectNoViolations()
  }
}
