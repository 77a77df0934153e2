import ContractServer
import Testing

@testable import MarfaEngine

@Suite("A write that a person takes back off the queue")
struct PersonTakesBackTests {
  private func write(_ copy: WorkingCopy, _ kind: WriteKind, _ path: String) throws -> WriteID {
    let item = try copy.id(at: path)
    return try #require(try copy.queue.writes().first { $0.kind == kind && $0.item == item }).id
  }

  @Test("takes what was made in its directory along: all of it stays, on this device only, and nothing of it is sent")
  func directory() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    try copy.queue.pause()
    try copy.mkdir("Private")
    try copy.mkdir("Private/deep")
    try copy.write("Private/diary.txt", "secret")
    try copy.write("Private/deep/more.txt", "secret too")
    try copy.write("other.txt", "for all")
    try copy.queue.withdraw(write(copy, .createItem, "Private"))
    let paths = ["Private/", "Private/deep/", "Private/deep/more.txt", "Private/diary.txt", "other.txt"]
    #expect(try copy.paths().sorted() == paths)
    for path in paths.dropLast() { #expect(try copy.node(at: path)?.item == nil, "\(path)") }
    try copy.queue.resume()
    try copy.drained()
    #expect(try copy.paths().sorted() == paths)
    #expect(try copy.text("Private/diary.txt") == "secret")
    #expect(try shared.server.change { try $0.items().map(\.title) } == ["other.txt"])
    #expect(shared.server.requests.filter { $0.method == "POST" && $0.path == "/blobs" }.count == 1)
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("may be taken back, and is changed in place, while no connection to the server is made")
  func unconnected() throws {
    let shared = try Shared()
    let copy = try shared.connected()
    shared.server.stop()
    try copy.mkdir("Sicily")
    try eventually("it is tried: \(String(describing: copy.serverStatus))") {
      copy.serverStatus?.queueTrouble != nil
    }
    try eventually("it is as if it had not been") { try copy.queue.writes().first?.hasGoneOut == false }
    try copy.queue.pause()
    try eventually("nothing is on its way") { try copy.queue.counts().byState[.sending] ?? 0 == 0 }
    try copy.move("Sicily", "Etna")
    #expect(try copy.queue.writes().map(\.kind) == [.createItem])
    try copy.queue.withdraw(write(copy, .createItem, "Etna"))
    #expect(try copy.queue.writes().isEmpty)
    #expect(try copy.names() == ["Etna"])
    try checkInvariants(copy)
  }
}
