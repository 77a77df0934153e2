import ContractServer
import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

/// A store that follows a server, with its commands answered through the socket.
private final class Following: Sendable {
  let served: Served
  let server: ContractServer
  let copy: WorkingCopy

  init() throws {
    served = try Served()
    copy = served.store.copy
    server = try ContractServer(folder: served.store.directory.path + "/server")
  }

  deinit { server.stop() }

  /// Connects, and waits until the copy has caught up.
  func connect() throws {
    var options = RemoteOptions(try Origin(server.url), credential: try Credential(server.key))
    options.waits = (shortest: 0.05, longest: 0.4)
    try copy.connect(options)
    #expect(copy.waitUntilLive(seconds: 60))
  }

  func ask(_ command: String, _ arguments: JSON.Object = [:]) throws -> JSON.Object {
    try served.ask(command, arguments)
  }

  /// Asks until the answer is so.
  func eventually(_ command: String, _ holds: (JSON.Object) -> Bool) throws -> JSON.Object {
    let end = Deadline.after(seconds: 60)
    while true {
      let answer = try ask(command)
      if holds(answer) || end.hasPassed { return answer }
      usleep(10_000)
    }
  }
}

@Suite("A command about the server", .timeLimit(.minutes(2)))
struct ServerCommandsTests {
  @Test("says why there is none to ask, and what to do", arguments: Way.allCases)
  func none(way: Way) throws {
    let reached = try Reached(way)
    for command in ["hydrate", "retry", "pause", "resume"] {
      #expect(
        failureCode { _ = try reached.run(command) } == (way == .asked ? "no_server" : "not_mounted"), "\(command)")
    }
    let progress = try reached.run("progress")
    #expect(progress["server"] == .null && progress["moving"] == 0 && progress["total"] == 0)
  }

  @Test("says that a store knows its server and has no key for it")
  func keyless() throws {
    let following = try Following()
    try following.connect()
    let path = following.copy.path
    let reader = try WorkingCopy(path: path)
    defer { reader.close() }
    let status = try Commands(reader).run(ControlRequest("status"))
    #expect(status["server"] == .string(following.server.url) && status["connected"] == false)
    #expect(status["online"] == false && status["hydration"] == "complete")
    #expect(status["advice"]?.string?.contains("not mounted") == true)
  }

  @Test("status tells that it is online, and when it is not, why")
  func online() throws {
    let following = try Following()
    try following.connect()
    var status = try following.ask("status")
    #expect(status["server"] == .string(following.server.url))
    #expect(status["connected"] == true && status["online"] == true && status["trouble"] == nil)
    following.server.stop()
    status = try following.eventually("status") { $0["trouble"] != nil }
    #expect(status["online"] == false)
    #expect(status["trouble"]?.string?.contains("can't be reached") == true, "\(status)")
    try following.server.start()
    _ = try following.ask("retry")
    status = try following.eventually("status") { $0["online"] == true }
    #expect(status["online"] == true)
  }

  @Test("status tells that the key is not accepted")
  func badKey() throws {
    let following = try Following()
    var options = RemoteOptions(try Origin(following.server.url), credential: try Credential("mk_wrong"))
    options.waits = (shortest: 0.05, longest: 0.4)
    try following.copy.connect(options)
    let status = try following.eventually("status") { $0["key_refused"] == true }
    #expect(status["key_refused"] == true && status["advice"]?.string?.contains("--key-file") == true)
  }

  @Test("hydrate brings the list again, though the stream is silent")
  func hydrate() throws {
    let following = try Following()
    try following.connect()
    let begun = try following.ask("hydrate")
    #expect(begun["hydrations"] == 1)
    let progress = try following.eventually("progress") { ($0["hydrations"]?.integer ?? 0) > 1 }
    #expect(progress["hydrations"] == 2)
    #expect(try following.eventually("status") { $0["online"] == true }["online"] == true)
  }

  @Test("pause keeps everything here until resume")
  func pause() throws {
    let following = try Following()
    try following.connect()
    #expect(try following.ask("pause")["paused"] == true)
    let advice = try following.ask("status")["advice"]?.string
    #expect(advice == "sending is paused: \"marfa-mount resume \(following.copy.path)\" goes on")
    let note = try following.served.store.note("Norway")
    #expect(try following.ask("progress")["moving"] == 1)
    #expect(try following.server.item("\(note)") == nil)
    #expect(try following.ask("resume")["paused"] == false)
    #expect(try following.eventually("progress") { $0["total"] == 0 }["total"] == 0)
    #expect(try following.server.item("\(note)")?.title == "Norway")
  }

  @Test("queue tells which write waits for which")
  func awaiting() throws {
    let following = try Following()
    let note = try following.served.store.note("Norway")
    let file = try following.served.store.file("a.txt", "a")
    _ = try following.ask("attach", ["item": .string("\(note)"), "file": .string(file)])
    let rows = try #require(try following.ask("queue")["writes"]?.array).compactMap { $0.object }
    #expect(rows.map { $0["kind"] } == ["create_item", "upload_blob", "create_item", "create_edge"])
    #expect(rows.map { $0["reason"] ?? .null } == [.null, .null, "awaiting_dependency", "awaiting_dependency"])
    #expect(rows[2]["awaits"] == rows[1]["write"] && rows[0]["awaits"] == nil)
  }

  @Test("a refused write says why, is not released, and is discarded")
  func refused() throws {
    let following = try Following()
    following.server.faults.add(
      Fault(.refuse(status: 422, code: "no_such_type"), method: "POST", path: "/items", count: nil))
    try following.connect()
    _ = try following.served.store.note("Norway")
    let queue = try following.eventually("queue") { $0["refused"] == 1 }
    let row = try #require(queue["writes"]?.array?.first?.object)
    #expect(row["reason"] == "no_such_type" && row["verdict"] == "refused", "\(row)")
    let write = row["write"] ?? .null
    #expect(row["advice"]?.string?.contains("--store \(following.copy.path)\" gives it up") == true, "\(row)")
    #expect(row["advice"]?.string?.contains("write 1: On demand; ") == true, "\(row)")
    #expect(try following.ask("progress")["moving"] == 0)
    #expect(failureCode { _ = try following.ask("release", ["write": write]) } == "queue_refused")
    #expect(failureCode { _ = try following.ask("withdraw", ["write": write]) } == "queue_refused")
    _ = try following.ask("discard", ["write": write])
    #expect(try following.ask("progress")["total"] == 0)
    #expect(failureCode { _ = try following.ask("discard", ["write": 4711]) } == "queue_refused")
    #expect(failureCode { _ = try following.ask("discard") } == "missing_argument")
  }

  @Test("a blocked write and what waits for it do not move, and go when they are released")
  func blocked() throws {
    let following = try Following()
    let fault = following.server.faults.add(
      Fault(
        .refuse(status: 403, code: "forbidden", details: ["grant": "core.note:write"]), method: "POST", path: "/items",
        count: nil))
    try following.connect()
    let note = try following.served.store.note("Norway")
    _ = try following.copy.items.update(note, ["title": "Norway 2"])
    let progress = try following.eventually("progress") { $0["blocked"] == 1 }
    #expect(progress["moving"] == 0, "\(progress)")
    let row = try #require(try following.ask("queue")["writes"]?.array?.first?.object)
    #expect(row["reason"] == "credential_refused" && row["grant"] == "core.note:write", "\(row)")
    following.server.faults.remove(fault)
    _ = try following.ask("release", ["write": row["write"] ?? .null])
    #expect(try following.eventually("progress") { $0["total"] == 0 }["total"] == 0)
    #expect(try following.server.item("\(note)")?.title == "Norway 2")
  }
}

@Suite("A command on a write or an item, mounted or not", .timeLimit(.minutes(1)))
struct WriteCommandsTests {
  @Test("withdraw takes a write back, and what it made stays here", arguments: Way.allCases)
  func withdraw(way: Way) throws {
    let reached = try Reached(way)
    _ = try reached.store.note("Norway")
    let write = try #require(try reached.run("queue")["writes"]?.array?.first?.object?["write"])
    #expect(failureCode { _ = try reached.run("discard", ["write": write]) } == "queue_refused")
    #expect(failureCode { _ = try reached.run("release", ["write": write]) } == "queue_refused")
    _ = try reached.run("withdraw", ["write": write])
    #expect(try reached.run("queue")["total"] == 0)
  }

  @Test("pin and unpin take an item by its id and by its names, a file too", arguments: Way.allCases)
  func pin(way: Way) throws {
    let reached = try Reached(way)
    let note = try reached.store.note("Norway")
    let file = try reached.store.file("a.txt", "a")
    let id = try #require(
      try reached.run("attach", ["item": .string("\(note)"), "file": .string(file)])["id"]?.string.flatMap {
        ItemID($0)
      })
    #expect(try reached.run("pin", ["item": .string("\(note)")])["pinned"] == true)
    #expect(try reached.store.copy.items.get(note)?.pinned == true)
    #expect(try reached.run("pin", ["path": "Norway/a.txt"])["title"] == "a.txt")
    #expect(try reached.store.copy.items.get(id)?.pinned == true)
    #expect(try reached.run("unpin", ["path": "Norway"])["pinned"] == false)
    #expect(try reached.store.copy.items.get(note)?.pinned == false)
    #expect(failureCode { _ = try reached.run("pin", ["path": "/"]) } == "not_an_item")
    #expect(failureCode { _ = try reached.run("pin", ["item": .string("\(ItemID.mint())")]) } == "item_not_found")
    #expect(try reached.run("queue")["total"] == 4, "pinning is of this device only")
  }
}
