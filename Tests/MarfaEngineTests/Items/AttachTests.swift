import ContractServer
import Glibc
import Testing

@testable import MarfaEngine

@Suite("A file attached to an item")
struct AttachTests {
  @Test("is three writes: the upload, a file item naming the bytes, and an edge from the file to the item")
  func writes() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      try scratch.answer()
      let attached = try scratch.copy.items.attach(to: host.id, file: scratch.folder.file("a.txt", "one"))
      #expect(
        try scratch.queue() == [
          "1 upload \"one\"", "2 create file \"a.txt\" of \"one\" <- 1", "3 attach \"a.txt\" to \"N\" <- 2",
        ])
      let writes = try scratch.writes()
      #expect(attached.upload == writes[0].id)
      #expect(attached.create == writes[1].id)
      #expect(attached.attach == writes[2].id)
      #expect(writes[0].blob == attached.blob)
      #expect(writes[1].item == attached.file)
      #expect(writes[2].edge == attached.edge)
      let edge = try #require(try scratch.copy.edges.get(attached.edge))
      #expect(edge.source == attached.file && edge.target == host.id && edge.type == "attached-to")
      #expect(try scratch.read("N/a.txt") == "one")
      #expect(try scratch.list() == ["N"])
      try scratch.answer()
    }
  }

  @Test("takes what is unset from the file itself")
  func unset() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      let attached = try scratch.copy.items.attach(to: host.id, file: scratch.folder.file("photo.JPG", "not really"))
      let item = try #require(try scratch.copy.items.get(attached.file))
      #expect(item.title == "photo.JPG")
      #expect(item.mimeType == "image/jpeg")
      #expect(item.type == "core.file.image")
      #expect(item.tier == .library)
      #expect(item.blob == attached.blob)
      try scratch.answer()
    }
  }

  @Test("bears the MIME type, title, type and tier it is given")
  func set() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      let attached = try scratch.copy.items.attach(
        to: host.id, file: scratch.folder.file("a.txt", "one"),
        Attachment(mimeType: "application/x-thing", title: "The thing/2", type: "core.file.thing", tier: .feed))
      let item = try #require(try scratch.copy.items.get(attached.file))
      #expect(item.title == "The thing/2")
      #expect(item.mimeType == "application/x-thing")
      #expect(item.type == "core.file.thing")
      #expect(item.tier == .feed)
      #expect(try scratch.list("N") == ["The thing\u{ff0f}2"])
      try scratch.answer()
    }
  }

  @Test("can be attached to a second item, and hangs on both")
  func second() throws {
    try withScratch { scratch in
      let one = try scratch.copy.items.create(type: "core.note", properties: ["title": "A"]).item
      let two = try scratch.copy.items.create(type: "core.note", properties: ["title": "B"]).item
      let attached = try scratch.copy.items.attach(to: one.id, file: scratch.folder.file("a.txt", "one"))
      _ = try scratch.copy.edges.create(from: attached.file, to: two.id, type: Edge.attachedTo)
      #expect(try scratch.existing("A/a.txt").number == scratch.existing("B/a.txt").number)
      #expect(try scratch.existing("A/a.txt").links == 2)
      try scratch.answer()
    }
  }

  @Test("has a verdict for each of its writes: an edge that is refused leaves the file item and its bytes")
  func verdicts() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    let host = try copy.items.create(type: "core.note", properties: ["title": "N"]).item
    try copy.drained()
    shared.server.faults.add(Fault(.refuse(status: 400, code: "validation_error"), method: "POST", path: "/edges"))
    let attached = try copy.items.attach(to: host.id, file: shared.folder.file("a.txt", "one"))
    try eventually("the edge is refused: \(copy.queueText)") { try copy.queue.counts().byState[.refused] == 1 }
    #expect(try copy.queue.writes().map(\.id) == [attached.attach])
    #expect(try shared.item(attached.file)?.blob == "\(attached.blob)")
    #expect(try shared.server.change { try $0.blobs() }["\(attached.blob)"] == 3)
    #expect(try shared.server.change { try $0.edge("\(attached.edge)") } == nil)
    #expect(try copy.names() == ["N", "a.txt"])
    try copy.queue.discard(attached.attach)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("whose bytes an earlier write sends is sent by that one, and by none where the server has them")
  func sameBytes() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      let path = try scratch.folder.file("a.txt", "one")
      let upload = try #require(try scratch.copy.items.attach(to: host.id, file: path).upload)
      #expect(try scratch.copy.items.attach(to: host.id, file: path).upload == upload)
      #expect(try scratch.copy.items.addFile(path).upload == upload)
      #expect(try scratch.writes().filter { $0.kind == .uploadBlob }.map(\.id) == [upload])
      #expect(try scratch.list("N") == ["a.txt", "a (2).txt"])
      try scratch.answer()
      #expect(try scratch.copy.items.attach(to: host.id, file: path).upload == nil)
      #expect(try scratch.queue().count == 2)
      try scratch.answer()
    }
  }

  @Test("is a copy: the original stays and may change")
  func original() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      let path = try scratch.folder.file("a.txt", "one")
      let before = try #require(try Path.status(path))
      _ = try scratch.copy.items.attach(to: host.id, file: path)
      let after = try #require(try Path.status(path))
      #expect(before.st_ino == after.st_ino && before.st_nlink == after.st_nlink)
      #expect(before.st_mtim.tv_nsec == after.st_mtim.tv_nsec)
      try scratch.folder.file("a.txt", "another")
      #expect(try scratch.read("N/a.txt") == "one")
    }
  }

  @Test("survives the process before anything is sent")
  func survives() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      _ = try scratch.copy.items.attach(to: host.id, file: scratch.folder.file("a.txt", "one"))
      let queue = try scratch.queue()
      try scratch.reopen()
      #expect(try scratch.queue() == queue)
      #expect(try scratch.read("N/a.txt") == "one")
      try scratch.answer()
    }
  }
}

@Suite("An attach that is refused")
struct AttachRefusedTests {
  /// Nothing is written: no row, no file.
  private func expectNothing(_ scratch: Scratch, location: SourceLocation = #_sourceLocation) throws {
    #expect(try scratch.queue() == [], sourceLocation: location)
    #expect(try Path.names(in: scratch.copy.blobsFolder + "/staged") == [], sourceLocation: location)
    #expect(try scratch.copy.blobs.cache().held == 0, sourceLocation: location)
    try checkInvariants(scratch.copy, location: location)
  }

  @Test("for an item that is not there leaves nothing behind")
  func noItem() throws {
    try withScratch { scratch in
      let path = try scratch.folder.file("a.txt", "one")
      let id = ItemID.mint()
      #expect(throws: MarfaError.itemNotFound(id)) { try scratch.copy.items.attach(to: id, file: path) }
      try expectNothing(scratch)
      #expect(throws: MarfaError.itemNotFound(id)) { try scratch.copy.items.embed(file: path, in: id) }
      try expectNothing(scratch)
    }
  }

  @Test("for a file that is missing, empty or none leaves nothing behind")
  func noFile() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      try scratch.answer()
      let empty = try scratch.folder.file("empty", "")
      for path in [scratch.folder.path + "/missing", empty, scratch.folder.path, "/dev/null", ""] {
        #expect(throws: MarfaError.self) { try scratch.copy.items.attach(to: host.id, file: path) }
        #expect(throws: MarfaError.self) { try scratch.copy.items.addFile(path) }
        #expect(throws: MarfaError.self) { try scratch.copy.blobs.put(file: path) }
        try expectNothing(scratch)
      }
    }
  }

  @Test("for a type that is no file's or a MIME type that is none leaves nothing behind")
  func invalid() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      try scratch.answer()
      let path = try scratch.folder.file("a.txt", "one")
      for attachment in [
        Attachment(type: "core.note"), Attachment(type: ""), Attachment(mimeType: "text"), Attachment(mimeType: ""),
        Attachment(mimeType: "a/b/c"),
      ] {
        #expect(throws: MarfaError.self) { try scratch.copy.items.attach(to: host.id, file: path, attachment) }
        try expectNothing(scratch)
      }
    }
  }

  @Test("by a reader is refused as that")
  func reader() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      let path = try scratch.folder.file("a.txt", "one")
      let reader = try WorkingCopy(path: scratch.copy.path)
      defer { reader.close() }
      #expect(throws: MarfaError.readingHandle) { try reader.items.attach(to: host.id, file: path) }
      #expect(throws: MarfaError.readingHandle) { try reader.items.embed(file: path, in: host.id) }
      #expect(throws: MarfaError.readingHandle) { try reader.items.addFile(path) }
      #expect(throws: MarfaError.readingHandle) { try reader.blobs.put(file: path) }
    }
  }
}

@Suite("A file embedded in an item")
struct EmbedTests {
  @Test("is the writes of an attach, and an edit that adds its embed to the end of the body")
  func writes() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N", "body": "Text."]).item
      try scratch.answer()
      let embedded = try scratch.copy.items.embed(file: scratch.folder.file("a.txt", "one"), in: host.id)
      #expect(embedded.attached.embed == "![[a.txt]]")
      #expect(
        try scratch.queue() == [
          "1 upload \"one\"", "2 create file \"a.txt\" of \"one\" <- 1", "3 attach \"a.txt\" to \"N\" <- 2",
          "4 update \"N\": body \"Text.\\n\\n![[a.txt]]\" @1",
        ])
      #expect(try scratch.writes()[3].id == embedded.edit)
      try scratch.answer()
      #expect(try scratch.copy.items.get(host.id)?.version == 2)
    }
  }

  @Test(
    "stands at the end of whatever is there",
    arguments: [("", "![[f]]"), ("a", "a\n\n![[f]]"), ("a\n", "a\n\n![[f]]"), ("a\n\n", "a\n\n\n![[f]]")])
  func separator(before: String, after: String) throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N", "body": .string(before)])
        .item
      _ = try scratch.copy.items.embed(file: scratch.folder.file("f", "one"), in: host.id)
      #expect(try scratch.copy.items.get(host.id)?.properties["body"] == .string(after))
      try scratch.answer()
    }
  }

  @Test("can follow another, one after the other")
  func twice() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      for name in ["a", "b"] { _ = try scratch.copy.items.embed(file: scratch.folder.file(name, name), in: host.id) }
      #expect(try scratch.copy.items.get(host.id)?.properties["body"] == "![[a]]\n\n![[b]]")
      try scratch.answer()
    }
  }

  @Test("by several at once stands there for each: none writes over another's")
  func together() async throws {
    try await withAsyncScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      let names = (1...8).map { "f\($0)" }
      let paths = try names.map { try scratch.folder.file($0, $0) }
      let items = scratch.copy.items
      try await withThrowingTaskGroup(of: Void.self) { group in
        for path in paths { group.addTask { _ = try items.embed(file: path, in: host.id) } }
        try await group.waitForAll()
      }
      let body = try #require(try items.get(host.id)?.properties["body"]?.string)
      #expect(body.split(separator: "\n").map { String($0) }.sorted() == names.map { "![[\($0)]]" })
      try scratch.answer()
    }
  }

  @Test("is replaced, and not merged, by an edit that was made of the body before")
  func replaced() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N", "body": "Text."]).item
      try scratch.answer()
      let embedded = try scratch.copy.items.embed(file: scratch.folder.file("a.txt", "one"), in: host.id)
      let edit = try scratch.copy.items.update(host.id, ["body": "Text, and more."])
      #expect(try scratch.writes().suffix(2).map(\.id) == [embedded.edit, edit])
      #expect(try scratch.copy.items.get(host.id)?.properties["body"] == "Text, and more.")
      #expect(try scratch.read("N/a.txt") == "one")
      try scratch.answer()
      #expect(try scratch.copy.items.get(host.id)?.properties["body"] == "Text, and more.")
    }
  }

  @Test(
    "where another device changed the body first is answered as the type's policy says: a note's copy has the other body",
    arguments: [("core.note", ["theirs"] as [JSON]), ("core.task", [])])
  func conflicted(type: String, copies: [JSON]) throws {
    let shared = try Shared()
    let id = try shared.server.change { try $0.createItem(type, ["title": "N", "body": "base"]) }
    let host = try #require(ItemID(id))
    let copy = try shared.connected()
    try copy.queue.pause()
    _ = try copy.items.embed(file: shared.folder.file("a.txt", "one"), in: host)
    try shared.server.change { _ = try $0.updateItem(id, ["body": "theirs"]) }
    let head = shared.server.head
    try eventually("it heard") { try copy.isAt(head) }
    #expect(try copy.queue.writes().last?.baseVersion == 1)
    try copy.queue.resume()
    try copy.drained()
    #expect(try shared.item(host)?.properties["body"] == "base\n\n![[a.txt]]")
    let others = try shared.server.change { try $0.items() }.filter { $0.tags == ["conflicted-copy"] }
    #expect(others.map { $0.properties["body"] } == copies)
    try eventually("all are here") { try copy.names().count == 1 + copies.count }
    #expect(try copy.names("N") == ["a.txt"])
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("has the references edge that the body draws beside its own, and stays attached when the body lets it go")
  func references() throws {
    let shared = try Shared()
    let id = try shared.server.change { try $0.createNote("N") }
    let host = try #require(ItemID(id))
    let copy = try shared.connected()
    let attached = try copy.items.embed(file: shared.folder.file("a.txt", "one"), in: host).attached
    try copy.drained()
    // A server reads the body; the tests' one has it said.
    let reference = try shared.server.change { try $0.createEdge("references", from: id, to: "\(attached.file)") }
    try eventually("the reference is here") {
      try copy.edges.from(host, type: "references").map(\.target) == [attached.file]
    }
    #expect(try copy.edges.to(host, type: Edge.attachedTo).map(\.id) == [attached.edge])
    try copy.items.update(host, ["body": ""])
    try copy.drained()
    try shared.server.change { try $0.deleteEdge(reference) }
    try eventually("the reference is gone") { try copy.edges.from(host, type: "references").isEmpty }
    #expect(try copy.edges.to(host, type: Edge.attachedTo).map(\.id) == [attached.edge])
    #expect(try copy.names("N") == ["a.txt"])
    #expect(try shared.server.change { try $0.edge("\(attached.edge)") } != nil)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("goes into the field that the server's catalogue calls the body of the item's type")
  func catalogue() throws {
    let shared = try Shared()
    let (task, place) = try shared.server.change { device in
      (
        try device.createItem("core.task", ["title": "T", "body": "Buy"]),
        try device.createItem("acme.place", ["title": "P"])
      )
    }
    let copy = try shared.connected()
    let path = try shared.folder.file("a.txt", "one")
    _ = try copy.items.embed(file: path, in: try #require(ItemID(task)))
    let id = try #require(ItemID(place))
    #expect(try failure { try copy.items.embed(file: path, in: id) }.reason == .noBody(type: "acme.place"))
    try copy.drained()
    #expect(try shared.item(try #require(ItemID(task)))?.properties["body"] == "Buy\n\n![[a.txt]]")
    #expect(try copy.names("P") == ["a.txt"])
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("in an item that has no body fails with the attachment, whose writes stay queued")
  func noBody() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "org.example.trip", properties: ["title": "N"]).item
      try scratch.answer()
      let path = try scratch.folder.file("a.txt", "one")
      let failure = try failure { try scratch.copy.items.embed(file: path, in: host.id) }
      #expect(failure.reason == .noBody(type: "org.example.trip"))
      #expect(try scratch.copy.items.get(failure.attached.file)?.title == "a.txt")
      #expect(
        try scratch.writes().map(\.id) == [failure.attached.upload, failure.attached.create, failure.attached.attach])
      #expect(try scratch.read("N/a.txt") == "one")
      try scratch.answer()
    }
  }

  @Test("under a title that can't name it alone fails with the attachment, whose writes stay queued")
  func notAlone() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N", "body": "b"]).item
      let path = try scratch.folder.file("a.txt", "one")
      _ = try scratch.copy.items.attach(to: host.id, file: path)
      try scratch.answer()
      let failure = try failure { try scratch.copy.items.embed(file: path, in: host.id) }
      #expect(failure.reason == .notNamedAlone(title: "a.txt"))
      #expect(failure.attached.embed == nil)
      #expect(try scratch.copy.items.get(host.id)?.properties["body"] == "b")
      #expect(try scratch.queue().count == 2)
      try scratch.answer()
    }
  }

  private func failure(_ body: () throws -> Embedded) throws -> EmbedFailure {
    do {
      _ = try body()
    } catch let failure as EmbedFailure {
      return failure
    }
    throw MarfaError.invalid("nothing failed")
  }
}

@Suite("The text that embeds a file")
struct EmbedTextTests {
  @Test("is its title in brackets", arguments: ["a.txt", "with space", "漢字", "!important", "a/b", ".hidden"])
  func text(title: String) throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      let attached = try scratch.copy.items.attach(
        to: host.id, file: scratch.folder.file("f", "one"), Attachment(title: title))
      #expect(attached.embed == "![[\(title)]]")
      #expect(try scratch.copy.items.embedText(of: attached.file, in: host.id) == "![[\(title)]]")
    }
  }

  @Test(
    "is none for a title that would not be read as one", arguments: ["", ".", "..", "a]b", "a[b", "a|b", "a#b", "a\nb"])
  func none(title: String) throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      let attached = try scratch.copy.items.attach(
        to: host.id, file: scratch.folder.file("f", "one"), Attachment(title: title))
      #expect(attached.embed == nil)
      #expect(try scratch.copy.items.embedText(of: attached.file, in: host.id) == nil)
    }
  }

  @Test(
    "is none while another attachment of the item has the title, and is there again afterwards",
    arguments: ["a.txt", "no extension", "a/b.txt", String(repeating: "long ", count: 80) + ".txt", "…"])
  func shared(title: String) throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      let path = try scratch.folder.file("f", "one")
      let first = try scratch.copy.items.attach(to: host.id, file: path, Attachment(title: title))
      let second = try scratch.copy.items.attach(to: host.id, file: path, Attachment(title: title))
      #expect(first.embed == "![[\(title)]]")
      #expect(second.embed == nil)
      #expect(try scratch.copy.items.embedText(of: first.file, in: host.id) == nil)
      try scratch.copy.items.delete(first.file)
      #expect(try scratch.copy.items.embedText(of: second.file, in: host.id) == "![[\(title)]]")
    }
  }

  @Test("is none when the other is called something else in the folder, but has the title")
  func renamedElsewhere() throws {
    try withScratch { scratch in
      let host = try scratch.copy.items.create(type: "core.note", properties: ["title": "N"]).item
      let first = try scratch.copy.items.attach(to: host.id, file: scratch.folder.file("a", "one"))
      try scratch.mkdir("M")
      let other = try scratch.copy.items.attach(
        to: try #require(try scratch.item("M")?.id), file: scratch.folder.file("a", "two"))
      try scratch.link("M/a", "N/quite another name")
      #expect(try scratch.copy.items.get(other.file)?.title == "a")
      #expect(try scratch.copy.items.embedText(of: first.file, in: host.id) == nil)
      try scratch.answer()
    }
  }

  @Test("is there for a title another item's attachment has")
  func elsewhere() throws {
    try withScratch { scratch in
      let one = try scratch.copy.items.create(type: "core.note", properties: ["title": "A"]).item
      let two = try scratch.copy.items.create(type: "core.note", properties: ["title": "B"]).item
      let path = try scratch.folder.file("f", "one")
      #expect(try scratch.copy.items.attach(to: one.id, file: path).embed == "![[f]]")
      #expect(try scratch.copy.items.attach(to: two.id, file: path).embed == "![[f]]")
    }
  }
}

@Suite("A file added")
struct AddFileTests {
  @Test("is the upload and a file item attached to nothing, then a write for each tag")
  func writes() throws {
    try withScratch { scratch in
      let added = try scratch.copy.items.addFile(scratch.folder.file("a.txt", "one"), tags: ["blue", "wide", "blue"])
      #expect(
        try scratch.queue() == [
          "1 upload \"one\"", "2 create file \"a.txt\" of \"one\" <- 1", "3 tag \"a.txt\" blue <- 2",
          "4 tag \"a.txt\" wide <- 2 after 3",
        ])
      #expect(try scratch.writes().prefix(2).map(\.id) == [added.upload, added.create])
      #expect(try scratch.copy.edges.from(added.file, type: Edge.attachedTo) == [])
      #expect(try scratch.item("a.txt")?.tags == ["blue", "wide"])
      #expect(try scratch.list() == ["a.txt"])
      try scratch.answer()
    }
  }

  @Test("with an empty tag is refused, and nothing is written")
  func emptyTag() throws {
    try withScratch { scratch in
      let path = try scratch.folder.file("a.txt", "one")
      #expect(throws: MarfaError.self) { try scratch.copy.items.addFile(path, tags: ["a", ""]) }
      #expect(try scratch.queue() == [])
    }
  }

  @Test("under a name that is taken is numbered")
  func numbered() throws {
    try withScratch { scratch in
      let path = try scratch.folder.file("a.txt", "one")
      for _ in 1...3 { _ = try scratch.copy.items.addFile(path) }
      #expect(try scratch.list() == ["a.txt", "a (2).txt", "a (3).txt"])
      try scratch.answer()
    }
  }
}
