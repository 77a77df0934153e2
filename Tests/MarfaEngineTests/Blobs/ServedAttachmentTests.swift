import ContractServer
import Testing

@testable import MarfaEngine

/// Attachments as a server has them, over its own sockets and links.
@Suite("The attachments of a server")
struct ServedAttachmentTests {
  /// Files of so many bytes each, attached to a note.
  @discardableResult
  private func attach(_ shared: Shared, _ sizes: [Int]) throws -> [BlobHash] {
    try shared.server.change { device in
      let trip = try device.createNote("Sicily")
      return try sizes.enumerated().map { number, size in
        let file = try device.createFile(
          "f\(number)", MemorySource.pattern(size, seed: UInt64(number + 1)), attachedTo: trip)
        return try #require(try device.item(file)?.blob.flatMap { BlobHash($0) })
      }
    }
  }

  private func attachments(_ copy: WorkingCopy) throws -> KeptAttachments {
    try #require(try copy.blobs.cache().attachments)
  }

  /// The sizes are asked for in the background.
  private func sized(_ copy: WorkingCopy) throws {
    try eventually("the sizes are known") {
      try attachments(copy).notHeldByReason.allSatisfy { $0.unstated == 0 }
    }
  }

  @Test("are fetched after a hydration and after a catch-up, and are there when it is not")
  func offline() async throws {
    let shared = try Shared()
    let first = try attach(shared, [1000, 300_000, 2000])
    let copy = try shared.connected()
    #expect(try attachments(copy).notHeld == 3)
    let fetched = try await copy.blobs.fetchKept()
    #expect(fetched.fetched == 3 && fetched.bytes == 303_000)
    #expect(fetched.attachments == (try attachments(copy)))
    #expect(fetched.attachments?.held == 3 && fetched.attachments?.heldBytes == 303_000)
    let second = try attach(shared, [5000, 6000]).last
    try eventually("it caught up") { try attachments(copy).notHeld == 2 }
    #expect(try await copy.blobs.fetchKept().fetched == 2)
    shared.expectNoViolations()
    shared.server.stop()
    for (hash, size, seed) in [(first[1], 300_000, 2), (try #require(second), 6000, 2)] {
      let bytes = try await copy.blobs.withFile(hash) { try contents($0) }
      #expect(bytes.elementsEqual(MemorySource.pattern(size, seed: UInt64(seed))))
    }
    try checkInvariants(copy)
  }

  /// Ways in which no attachment can be fetched.
  enum Way: CaseIterable, Sendable {
    case gone, wrong, failing, limited, dropped, cut, redirected

    var reason: NotHeldReason {
      switch self {
      case .gone: .absent
      case .wrong, .failing: .failed
      case .limited: .rateLimited
      case .dropped, .cut, .redirected: .unreachable
      }
    }

    var faults: [Fault] {
      func on(_ effect: Fault.Effect, skip: Int = 0, count: Int? = nil) -> Fault {
        Fault(effect, method: "GET", path: "/blobs", skip: skip, count: count)
      }
      return switch self {
      case .gone: [on(.refuse(status: 404, code: "blob_not_found"))]
      case .wrong: [on(.alter(at: 7))]
      case .failing: [on(.refuse(status: 400, code: "validation_error"))]
      case .limited: [on(.refuse(status: 429, code: "rate_limited", retryAfter: 61))]
      case .dropped: [on(.drop)]
      case .cut: [on(.dropAfter(bytes: 400), count: 1), on(.drop, skip: 1)]
      // The server answers, and leads to a host that does not.
      case .redirected: [on(.redirect(to: nil)), Fault(.drop, origin: .store, count: nil)]
      }
    }
  }

  @Test("that can't be fetched say why, with their number and bytes", arguments: Way.allCases)
  func reasons(way: Way) async throws {
    let shared = try Shared()
    try attach(shared, [1000, 2000, 3000])
    let copy = try shared.connected()
    try sized(copy)
    #expect(
      try attachments(copy).notHeldByReason == [
        KeptAttachments.NotHeld(reason: .notFetched, attachments: 3, bytes: 6000, unstated: 0)
      ])
    for fault in way.faults { shared.server.faults.add(fault) }
    let result = try await copy.blobs.fetchKept()
    #expect(result.fetched == 0 && result.bytes == 0)
    #expect(
      result.attachments?.notHeldByReason == [
        KeptAttachments.NotHeld(reason: way.reason, attachments: 3, bytes: 6000, unstated: 0)
      ])
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("are fetched when a wait that it asked for is over, and not before")
  func waitedOut() async throws {
    let shared = try Shared()
    try attach(shared, [1000, 2000, 3000])
    let copy = try shared.connected()
    try sized(copy)
    shared.server.faults.add(
      Fault(.refuse(status: 429, code: "rate_limited", retryAfter: 1), method: "GET", path: "/blobs"))
    #expect(try await copy.blobs.fetchKept().fetched == 3)
    #expect(shared.server.faults.waiting == 0)
    // Among them none that comes too early.
    shared.expectNoViolations()
  }

  @Test("whose link leads nowhere say that it can't be reached, and are fetched on when it does again")
  func link() async throws {
    let shared = try Shared()
    let hash = try #require(try attach(shared, [20 << 20]).first)
    let copy = try shared.connected()
    try sized(copy)
    // The first blocks come from the server itself; once its link is here, they come by that.
    let reader = try copy.blobs.open(hash)
    var place: Int64 = 0
    try eventually("a block came by the link") {
      _ = try Read(reader, at: place, 10).get()
      place += 2 * Block.size
      return shared.server.stats["GET store"].requests > 0
    }
    reader.close()
    try eventually("nobody reads") { copy.fetcher.openCount == 0 }
    shared.server.faults.add(Fault(.drop, origin: .store, count: nil))
    let result = try await copy.blobs.fetchKept()
    #expect(result.fetched == 0)
    let kept = try #require(result.attachments)
    #expect(kept.notHeldByReason.map(\.reason) == [.unreachable])
    #expect(kept.partialBytes > 0 && kept.partialBytes < 20 << 20)
    shared.server.faults.removeAll()
    copy.retryNow()
    #expect(try await copy.blobs.fetchKept().fetched == 1)
    #expect(try copy.blobs.isHeld(hash))
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test("whose file item the copy does not hold are counted, and state no size")
  func notInCopy() throws {
    let shared = try Shared()
    try attach(shared, [1000, 2000])
    let copy = try shared.connected { $0.types = ["core.note"] }
    let kept = try attachments(copy)
    #expect(kept.held == 0 && kept.notHeld == 2 && kept.notHeldBytes == 0)
    #expect(
      kept.notHeldByReason == [KeptAttachments.NotHeld(reason: .notInCopy, attachments: 2, bytes: 0, unstated: 2)])
    shared.expectNoViolations()
  }

  @Test("are not fetched yet when they become some, whatever became of a fetch before")
  func notFetched() async throws {
    let shared = try Shared()
    let (trip, file) = try shared.server.change { device in
      (try device.createNote("Sicily"), try device.createFile("a.txt", [1, 2, 3], mime: "text/plain"))
    }
    let other = try #require(ItemID(try shared.server.change { try $0.createNote("Etna") }))
    let copy = try shared.connected()
    let hash = try #require(try copy.item(at: "a.txt")?.blob)
    shared.server.faults.add(
      Fault(.refuse(status: 404, code: "blob_not_found"), method: "GET", path: "/blobs", count: nil))
    await #expect(throws: MarfaError.notFetched(hash, .absent)) { try await copy.blobs.fetch(hash) }
    try eventually("it is said") { try copy.blobs.notHeld(hash)?.reason == .absent }
    try shared.server.change { _ = try $0.createEdge("attached-to", from: file, to: trip) }
    try eventually("it is attached") { try copy.names("Sicily") == ["a.txt"] }
    #expect(try attachments(copy).notHeldByReason.map(\.reason) == [.notFetched])
    #expect(try await copy.blobs.fetchKept().attachments?.notHeldByReason.map(\.reason) == [.absent])
    // It was one already.
    _ = try copy.edges.create(from: try #require(ItemID(file)), to: other, type: Edge.attachedTo)
    #expect(try attachments(copy).notHeldByReason.map(\.reason) == [.absent])
    try copy.drained()
    shared.expectNoViolations()
    try checkInvariants(copy)
  }

  @Test(
    "stop at the first the volume has no room for, and those behind it say so too",
    .enabled(if: SmallVolume.isAllowed, SmallVolume.needsRoot))
  func noRoom() async throws {
    let shared = try Shared()
    let sizes = [100_000] + (9...14).map { $0 << 20 }
    let hashes = try attach(shared, sizes)
    let volume = try SmallVolume(bytes: 8 << 20)
    let copy = try WorkingCopy(path: volume.path + "/store.db")
    defer { copy.close() }
    try copy.connect(try shared.options())
    try #require(copy.waitUntilLive(seconds: 60))
    try sized(copy)
    let result = try await copy.blobs.fetchKept()
    #expect(result.fetched == 1 && result.bytes == 100_000)
    let missing = sizes.dropFirst().reduce(0) { $0 + Int64($1) }
    #expect(
      result.attachments?.notHeldByReason == [
        KeptAttachments.NotHeld(reason: .noRoom, attachments: 6, bytes: missing, unstated: 0)
      ])
    let asked = shared.server.requests.filter { $0.method == "GET" }.map(\.target)
    for hash in hashes.dropFirst() { #expect(!asked.contains { $0.contains(hash.hex) }) }
    shared.expectNoViolations()
    try checkInvariants(copy)
  }
}
