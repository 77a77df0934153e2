import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

/// The two ways a command reaches a store: they must not differ.
enum Way: CaseIterable, Sendable {
  /// A mount is asked through its socket.
  case asked
  /// The program has opened the store itself.
  case opened
}

/// A store with commands on it, reached one way or the other.
struct Reached {
  let store: ControlStore
  private let served: Served?

  init(_ way: Way) throws {
    served = way == .asked ? try Served() : nil
    store = try served?.store ?? ControlStore()
  }

  func run(_ command: String, _ arguments: JSON.Object = [:]) throws -> JSON.Object {
    try served?.ask(command, arguments) ?? Commands(store.copy).run(ControlRequest(command, arguments))
  }
}

@Suite("A command on a store, mounted or not", .timeLimit(.minutes(1)))
struct CommandsTests {
  @Test("attach makes a file item that hangs on the item, and says what it queued", arguments: Way.allCases)
  func attach(way: Way) throws {
    let reached = try Reached(way)
    let note = try reached.store.note("Norway")
    let file = try reached.store.file("fjord.jpg", "deep")
    let result = try reached.run("attach", ["item": .string("\(note)"), "file": .string(file)])
    #expect(result["title"] == "fjord.jpg")
    #expect(result["mime_type"] == "image/jpeg")
    #expect(result["type"] == "core.file.image")
    #expect(result["size"] == 4)
    #expect(result["embed"] == "![[fjord.jpg]]")
    let id = try #require(result["id"]?.string.flatMap { ItemID($0) })
    #expect(try reached.store.copy.edges.to(note, type: Edge.attachedTo).map { $0.source } == [id])
    #expect(result["upload"]?.integer != nil && result["create"]?.integer != nil && result["attach"]?.integer != nil)
    #expect(try reached.store.copy.queue.counts().total == 4)
  }

  @Test("attach finds the item by the names that lead to it, and by its inode number", arguments: Way.allCases)
  func references(way: Way) throws {
    let reached = try Reached(way)
    let parent = try reached.store.note("Trips")
    let child = try reached.store.note("Norway/1")
    _ = try reached.store.copy.edges.create(from: parent, to: child, type: Edge.parentOf)
    let file = try reached.store.file("a.txt", "a")
    let byPath = try reached.run("attach", ["path": "/Trips//Norway\u{ff0f}1/", "file": .string(file)])
    #expect(byPath["item"] == .string("\(child)"))
    let name = Array("Trips".utf8)
    let node = try #require(try name.withUnsafeBytes { try reached.store.copy.tree.lookup(Node.root, $0) })
    let byNode = try reached.run("attach", ["node": .integer(node.number), "file": .string(file)])
    #expect(byNode["item"] == .string("\(parent)"))
  }

  @Test("attach takes title, types and tier as they are given", arguments: Way.allCases)
  func fields(way: Way) throws {
    let reached = try Reached(way)
    let note = try reached.store.note("Norway")
    let file = try reached.store.file("IMG_2044", "deep")
    let result = try reached.run(
      "attach",
      [
        "item": .string("\(note)"), "file": .string(file), "title": "The fjord", "mime": "image/x-own",
        "type": "core.file.own", "tier": "feed",
      ])
    #expect(result["title"] == "The fjord" && result["mime_type"] == "image/x-own")
    #expect(result["type"] == "core.file.own" && result["tier"] == "feed")
  }

  @Test("attach refuses what can't be, and queues nothing", arguments: Way.allCases)
  func refusals(way: Way) throws {
    let reached = try Reached(way)
    let note = try reached.store.note("Norway")
    let file = try reached.store.file("a.txt", "a")
    let empty = try reached.store.file("empty", "")
    let before = try reached.store.copy.queue.counts().total
    func code(_ arguments: JSON.Object) -> String? { failureCode { _ = try reached.run("attach", arguments) } }
    #expect(code(["item": .string("\(ItemID.mint())"), "file": .string(file)]) == "item_not_found")
    #expect(code(["path": "Norway/Nowhere", "file": .string(file)]) == "item_not_found")
    #expect(code(["node": 4711, "file": .string(file)]) == "item_not_found")
    #expect(code(["node": 1, "file": .string(file)]) == "not_an_item")
    #expect(code(["path": "/", "file": .string(file)]) == "not_an_item")
    #expect(code(["item": .string("\(note)"), "file": .string(empty)]) == "invalid")
    #expect(code(["item": .string("\(note)"), "file": .string(file + ".not")]) == "io")
    #expect(code(["item": .string("\(note)"), "file": .string(reached.store.directory.path)]) == "invalid")
    #expect(code(["item": .string("\(note)"), "file": .string(file), "type": "core.note"]) == "invalid")
    #expect(code(["item": .string("\(note)"), "file": .string(file), "mime": "text"]) == "invalid")
    #expect(try reached.store.copy.queue.counts().total == before)
  }

  @Test("A file is no item to attach to", arguments: Way.allCases)
  func fileAsItem(way: Way) throws {
    let reached = try Reached(way)
    let file = try reached.store.file("a.txt", "a")
    _ = try reached.run("add", ["file": .string(file)])
    #expect(failureCode { _ = try reached.run("attach", ["path": "a.txt", "file": .string(file)]) } == "not_an_item")
  }

  @Test("embed adds the file to the end of the item's text", arguments: Way.allCases)
  func embed(way: Way) throws {
    let reached = try Reached(way)
    let note = try reached.store.note("Norway")
    let file = try reached.store.file("fjord.jpg", "deep")
    let result = try reached.run("embed", ["item": .string("\(note)"), "file": .string(file)])
    #expect(result["edit"]?.integer != nil)
    #expect(try reached.store.copy.items.get(note)?.properties["body"] == "![[fjord.jpg]]")
  }

  @Test("An embed whose text can't be changed says that the file is attached all the same", arguments: Way.allCases)
  func halfEmbedded(way: Way) throws {
    let reached = try Reached(way)
    let note = try reached.store.note("Norway")
    let file = try reached.store.file("fjord.jpg", "deep")
    _ = try reached.run("attach", ["item": .string("\(note)"), "file": .string(file)])
    do {
      _ = try reached.run("embed", ["item": .string("\(note)"), "file": .string(file)])
      Issue.record("a title that two attachments have can't name one")
    } catch let failure as CommandFailure {
      #expect(failure.code == "not_named_alone" && failure.kind == .refused)
      #expect(failure.message.hasPrefix("the file is attached, and not embedded"))
      let id = try #require(failure.details["id"]?.string.flatMap { ItemID($0) })
      #expect(try reached.store.copy.items.get(id) != nil)
    }
  }

  @Test("add makes a file that hangs on nothing, with its tags", arguments: Way.allCases)
  func add(way: Way) throws {
    let reached = try Reached(way)
    let file = try reached.store.file("scan.pdf", "%PDF")
    let result = try reached.run("add", ["file": .string(file), "tags": ["inbox", "2026", "inbox"]])
    #expect(result["tags"] == ["2026", "inbox"])
    let again = try reached.run("add", ["file": .string(file)])
    #expect(
      again["upload"] == result["upload"] && again["upload"] != .null, "the write that sends them is queued already")
    #expect(failureCode { _ = try reached.run("add", ["file": .string(file), "tags": [""]]) } == "invalid")
  }

  @Test("budget shows what is chosen and chooses it for good", arguments: Way.allCases)
  func budget(way: Way) throws {
    let reached = try Reached(way)
    #expect(try reached.run("budget")["budget_setting"] == "default")
    #expect(try reached.run("budget", ["set": "524288000"])["budget_setting"] == "524288000")
    #expect(try reached.run("budget", ["set": "keep-all"])["budget"] == .null)
    #expect(try reached.store.copy.blobs.cache().setting == .keepAll)
    #expect(failureCode { _ = try reached.run("budget", ["set": "-1"]) } == "bad_argument")
  }

  @Test("queue tells the writes in order, and whether there are more", arguments: Way.allCases)
  func queue(way: Way) throws {
    let reached = try Reached(way)
    for number in 1...5 { _ = try reached.store.note("note \(number)") }
    let first = try reached.run("queue", ["limit": 2])
    #expect(first["total"] == 5 && first["queued"] == 5 && first["more"] == true)
    let writes = try #require(first["writes"]?.array).compactMap { $0.object }
    #expect(writes.map { $0["title"] } == ["note 1", "note 2"])
    #expect(writes.map { $0["kind"] } == ["create_item", "create_item"])
    let rest = try reached.run("queue", ["after": writes[1]["write"] ?? .null])
    #expect(rest["writes"]?.array?.count == 3 && rest["more"] == false)
    #expect(try reached.run("queue", ["limit": 0])["writes"] == [])
  }

  @Test("status tells of everything, and of the mount where there is one", arguments: Way.allCases)
  func status(way: Way) throws {
    let reached = try Reached(way)
    let note = try reached.store.note("Norway")
    let file = try reached.store.file("fjord.jpg", "deep")
    _ = try reached.run("attach", ["item": .string("\(note)"), "file": .string(file)])
    let status = try reached.run("status")
    #expect(status["store"] == .string(reached.store.path))
    #expect(status["items"] == 2 && status["files"] == 1 && status["local_files"] == 0)
    #expect(status["queue"]?.object?["total"] == 4 && status["queue"]?.object?["bytes"] == 4)
    #expect(status["cache_held"] == 4 && status["kept_held"] == 1 && status["kept_not_held"] == 0)
    #expect(status["not_held"] == [:] && status["recovered"] == [] && status["keep"] == "attached")
    switch way {
    case .asked:
      #expect(status["mode"] == "writer")
      #expect(status["mount"]?.object?["mount_point"] == "/mnt/trip")
      #expect(status["mount"]?.object?["log"] == "/var/log/marfa.log")
      #expect(status["mount"]?.object?["since"] == "1970-01-01T00:00:00.000Z")
    case .opened: #expect(status["mode"] == .null && status["mount"] == .null)
    }
  }

  @Test("A reader shows everything and changes nothing")
  func reader() throws {
    let store = try ControlStore()
    let note = try store.note("Norway")
    let file = try store.file("a.txt", "a")
    let reader = try WorkingCopy(path: store.path)
    defer { reader.close() }
    let commands = Commands(reader)
    #expect(try commands.run(ControlRequest("status"))["items"] == 1)
    #expect(try commands.run(ControlRequest("queue"))["total"] == 1)
    for request in [
      ControlRequest("attach", ["item": .string("\(note)"), "file": .string(file)]),
      ControlRequest("add", ["file": .string(file)]), ControlRequest("budget", ["set": "default"]),
    ] {
      #expect(failureCode { _ = try commands.run(request) } == "reading_handle")
    }
  }

  @Test("A store that is not mounted can't be unmounted")
  func notMounted() throws {
    let store = try ControlStore()
    #expect(failureCode { _ = try Commands(store.copy).run(ControlRequest("unmount")) } == "not_mounted")
  }
}
