import CLinux
import ContractServer
import Foundation
import MarfaEngine
import Testing

@Suite("What changes elsewhere shows in a mount", .serialized, .enabled(if: Machine.canMount, Machine.needsMount))
struct EventTests {
  @Test("by its names: those that came, went or changed, looked up before or not")
  func names() throws {
    let served = try Served()
    try served.withMount { mount in
      // The kernel remembers that there is nothing, and what the listing was.
      #expect(!isThere(mount.point + "/Sicily") && !isThere(mount.point + "/Etna"))
      #expect(try listing(mount.point).isEmpty)
      let trip = try served.server.change { try $0.createNote("Sicily") }
      #expect(eventually { isThere(mount.point + "/Sicily") })
      #expect(try listing(mount.point) == [Array("Sicily".utf8)])
      #expect(!isThere(mount.point + "/Sicily/etna.jpg"))
      let photo = try served.server.change { try $0.createFile("etna.jpg", [1, 2], attachedTo: trip) }
      #expect(eventually { isThere(mount.point + "/Sicily/etna.jpg") })
      try served.server.change { device in
        try device.updateItem(trip, ["title": "Etna"])
        try device.updateItem(photo, ["title": "crater.jpg"])
      }
      #expect(eventually { isThere(mount.point + "/Etna/crater.jpg") })
      #expect(eventually { !isThere(mount.point + "/Sicily") && !isThere(mount.point + "/Etna/etna.jpg") })
      #expect(try mount.names() == ["./Etna", "./Etna/crater.jpg"])
      try served.server.change { try $0.trash(photo) }
      #expect(eventually { !isThere(mount.point + "/Etna/crater.jpg") })
      #expect(try listing(mount.point + "/Etna").isEmpty)
      try served.server.change { try $0.restore(photo) }
      #expect(eventually { isThere(mount.point + "/Etna/crater.jpg") })
    }
  }

  @Test("by its attributes")
  func attributes() throws {
    let served = try Served()
    try served.withMount { mount in
      let trip = try served.server.change { try $0.createNote("Sicily", tags: ["travel"]) }
      #expect(eventually { (try? mount.attribute("user.xdg.tags", of: "Sicily")) == "travel" })
      try served.server.change { try $0.addTags(trip, ["2026"]) }
      #expect(eventually { (try? mount.attribute("user.xdg.tags", of: "Sicily")) == "2026,travel" })
      #expect(try mount.attribute("user.marfa.hydration", of: ".") == "complete")
      #expect(try mount.attribute("user.marfa.server", of: ".") == served.server.url)
    }
  }

  @Test("by its bytes: whoever has the old ones open reads them on, whoever opens the file has the new ones")
  func bytes() throws {
    let served = try Served()
    try served.withMount { mount in
      let path = mount.point + "/x/f"
      // Both stay here, so that nothing is to be fetched.
      let texts = [String(repeating: "old ", count: 5000), String(repeating: "the other ", count: 7000)]
      try mount.shell("mkdir x")
      for (name, text) in zip(["f", "old", "new"], [texts[0]] + texts) {
        try text.write(toFile: "\(mount.point)/x/\(name)", atomically: false, encoding: .utf8)
      }
      try mount.send()
      let id = try #require(try mount.attribute("user.marfa.id", of: "x/f"))
      var inode = stat()
      #expect(lstat(path, &inode) == 0)
      for round in 1...20 {
        let (before, after) = (texts[(round + 1) % 2], texts[round % 2])
        let open = try File(path, O_RDONLY)
        #expect(try open.text(1 << 17) == before)
        _ = try served.server.change { try $0.replaceBytes(id, Array(after.utf8)) }
        #expect(eventually { (try? mount.text("x/f")) == after }, "round \(round)")
        var status = stat()
        #expect(lstat(path, &status) == 0)
        #expect(Int(status.st_size) == after.utf8.count && status.st_ino == inode.st_ino)
        #expect(try open.text(1 << 17) == before, "round \(round)")
        #expect(try open.size == before.utf8.count)
      }
    }
  }

  @Test("a thousand times over, never an older version than promised")
  func often() throws {
    let served = try Served()
    try served.withMount { mount in
      try mount.shell("mkdir x; printf even > x/f; cp x/f x/g; printf odd > x/h")
      try mount.send()
      let id = try #require(try mount.attribute("user.marfa.id", of: "x/f"))
      for round in 1...200 {
        let text = round % 2 == 0 ? "even" : "odd"
        _ = try served.server.change { try $0.replaceBytes(id, Array(text.utf8)) }
        let hash = try served.server.item(id)?.blob
        // The event has come when the attribute says so; from then on, nothing else is read.
        #expect(eventually { (try? mount.attribute("user.marfa.hash", of: "x/f")) == hash })
        #expect(try mount.text("x/f") == text, "round \(round)")
        #expect(try File(mount.point + "/x/f", O_RDONLY).size == text.utf8.count)
      }
    }
  }

  @Test("but what is being written here stays when its item goes", arguments: [false, true])
  func writing(purged: Bool) throws {
    let served = try Served()
    try served.withMount { mount in
      mount.expectedWarnings = ["went from the server while it was being written"]
      try mount.shell("mkdir x; echo one > x/f; echo one > x/other")
      try mount.send()
      let id = try #require(try mount.attribute("user.marfa.id", of: "x/f"))
      let other = try #require(try mount.attribute("user.marfa.id", of: "x/other"))
      let file = try File(mount.point + "/x/f", O_RDWR)
      try file.write("what the person writes\n")
      try served.server.change { device in
        for id in [id, other] { try purged ? device.purge(id) : device.trash(id) }
      }
      #expect(eventually { !isThere(mount.point + "/x/other") }, "what nobody writes goes")
      #expect(isThere(mount.point + "/x/f"))
      try file.write("and more\n", at: 23)
      try file.close()
      #expect(try mount.text("x/f") == "what the person writes\nand more\n")
      try mount.send()
      let next = try #require(try mount.attribute("user.marfa.id", of: "x/f"))
      #expect(next != id)
      #expect(try served.server.item(next)?.blob == mount.attribute("user.marfa.hash", of: "x/f"))
      let host = try mount.attribute("user.marfa.id", of: "x")
      #expect(try served.server.change { try $0.edges() }.contains { $0.source == next && $0.target == host })
      try mount.remount(served.again)
      #expect(try mount.text("x/f") == "what the person writes\nand more\n")
    }
  }

  @Test(
    "with the true length, whatever becomes of the first question about it",
    arguments: [
      Fault.Effect.drop, .delay(seconds: 0.5), .refuse(status: 503), .refuse(status: 502, contract: nil),
      .refuse(status: 429, retryAfter: 1),
    ])
  func lengths(effect: Fault.Effect) throws {
    let served = try Served()
    try served.withMount { mount in
      served.server.faults.add(Fault(effect, method: "HEAD", count: 1))
      let trip = try served.server.change { try $0.createNote("Sicily") }
      for name in ["one", "two"] {
        _ = try served.server.change { try $0.createFile(name, Array("\(name) file".utf8), attachedTo: trip) }
      }
      #expect(eventually { (try? listing(mount.point + "/Sicily").count) == 2 })
      #expect(try mount.shell("cd Sicily; find . -type f -printf '%f %s\\n' | sort").output == "one 8\ntwo 8\n")
    }
  }
}
