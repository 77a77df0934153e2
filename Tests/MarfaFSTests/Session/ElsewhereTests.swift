import Glibc
import Testing

@testable import MarfaEngine
@testable import MarfaFS

extension MountTests {
  @Suite("of bytes that are elsewhere", .serialized) struct Elsewhere {}
}

/// A working copy mounted in this process, whose bytes a double of the server has.
private final class ElsewhereMount {
  let directory: TemporaryDirectory
  let folder: TemporaryDirectory
  let copy: WorkingCopy
  let source = MemorySource()
  private let session: MountSession
  var path: String { directory.path }

  init(patience: Int64?) throws {
    directory = try TemporaryDirectory()
    folder = try TemporaryDirectory()
    var options = WorkingCopy.Options()
    options.fetching.flushDelay = 20_000_000
    options.fetching.retryDelay = 2_000_000
    options.fetching.refusalHolds = 20_000_000
    options.fetching.offlineFirst = 300_000_000
    options.fetching.noteDelay = 2_000_000
    if let patience { options.fetching.patience = patience }
    copy = try WorkingCopy(path: folder.path + "/store.db", options: options)
    copy.connect(source)
    let invalidator = Invalidator()
    let ready = Monitor(false)
    session = try MountSession.mount(
      MountConfiguration(mountPoint: directory.path, source: "test"), FileSystem(copy, invalidator: invalidator),
      invalidator: invalidator, whenReady: { ready.update { $0 = true } })
    try #require(ready.wait(until: .after(seconds: 5)) { $0 ? true : nil } == true)
  }

  func end() {
    session.requestStop()
    _ = session.wait(seconds: 10)
    copy.close()
  }

  /// A file in the root whose bytes only the server has.
  func remote(_ name: String, _ bytes: [UInt8], sized: Bool = true) throws {
    let hash = source.add(bytes)
    let item = Item(
      id: .mint(), type: "core.file",
      properties: ["blob_ref": .string(hash.description), "mime_type": "application/x-test", "title": .string(name)],
      state: .active, tier: .library, version: 1, tags: [], pinned: false)
    try copy.change { (change) throws(MarfaError) in
      try change.connection.insertItem(item)
      try change.show(item)
      if sized { _ = try change.connection.setSize(hash, Int64(bytes.count)) }
    }
  }

  func shell(_ script: String) throws -> Outcome { try run(["sh", "-c", "cd \(path) && \(script)"]) }
}

private func withElsewhere(patience: Int64? = nil, _ body: (ElsewhereMount) throws -> Void) throws {
  let mount = try ElsewhereMount(patience: patience)
  defer { mount.end() }
  try body(mount)
}

private func contents(_ path: String) throws -> [UInt8] {
  let file = try Descriptor.open(path, O_RDONLY)
  return try file.prefix(Int(try file.status().st_size))
}

extension MountTests.Elsewhere {
  @Test("reads a file's head and tail for about that, and the whole right")
  func reading() throws {
    try withElsewhere { mount in
      let bytes = MemorySource.pattern(20 << 20)
      try mount.remote("f", bytes)
      let head = try mount.shell("head -c 4096 f | sha256sum; tail -c 4096 f | sha256sum; stat -c %s f")
      #expect(head.output.hasPrefix(MemorySource.hash(Array(bytes.prefix(4096))).hex))
      #expect(head.output.contains(MemorySource.hash(Array(bytes.suffix(4096))).hex))
      #expect(head.output.hasSuffix("\(20 << 20)\n"))
      #expect(mount.source.sent <= 256 << 10)
      let attributes = try mount.shell(
        "getfattr --only-values -n user.marfa.held f; echo; getfattr --only-values -n user.marfa.held_bytes f; sleep 1.1; stat -c ' %b' f"
      )
      let parts = attributes.output.split(whereSeparator: { $0 == " " || $0 == "\n" })
      #expect(parts.first == "partial")
      #expect(parts.count == 3 && parts[1] == "\(mount.source.sent)" && parts[2] == "\(mount.source.sent / 512)")
      #expect(try contents(mount.path + "/f").elementsEqual(bytes))
      #expect(try mount.shell("getfattr --only-values -n user.marfa.held f").output == "yes")
    }
  }

  @Test("maps a file into memory")
  func mapping() throws {
    try withElsewhere { mount in
      let bytes = MemorySource.pattern(8 << 20)
      try mount.remote("f", bytes)
      let file = try Descriptor.open(mount.path + "/f", O_RDONLY)
      let memory = mmap(nil, bytes.count, PROT_READ, MAP_PRIVATE, file.raw, 0)
      let mapped = try #require(memory == MAP_FAILED ? nil : memory)
      defer { munmap(mapped, bytes.count) }
      for offset in [7 << 20, 123_456, 4 << 20, 0, (8 << 20) - 1] {
        #expect(mapped.load(fromByteOffset: offset, as: UInt8.self) == bytes[offset])
      }
    }
  }

  @Test("fetches the whole before a write changes it, and nothing when it is emptied first")
  func writing() throws {
    try withElsewhere { mount in
      var bytes = MemorySource.pattern(300_000)
      try mount.remote("f", bytes)
      try mount.remote("g", MemorySource.pattern(300_000, seed: 2))
      try mount.remote("h", MemorySource.pattern(300_000, seed: 3))
      #expect(try mount.shell("printf new > g && cat g").output == "new")
      #expect(mount.source.sent == 0)
      #expect(try mount.shell("printf xyz | dd of=f bs=1 seek=1000 conv=notrunc status=none").status == 0)
      bytes.replaceSubrange(1000..<1003, with: Array("xyz".utf8))
      #expect(try contents(mount.path + "/f").elementsEqual(bytes))
      #expect(mount.source.sent == 300_000)
      #expect(try mount.shell("truncate -s 10 h && stat -c %s h").output == "10\n")
      #expect(try contents(mount.path + "/h") == Array(MemorySource.pattern(300_000, seed: 3).prefix(10)))
    }
  }

  @Test(
    "says with its own error what stands in the way",
    arguments: [
      (BytesFailure.absent, ENODATA), (.credentialRefused("no"), EACCES), (.rateLimited(seconds: 3000), EBUSY),
      (.unreachable("no route"), ENETUNREACH),
    ])
  func failing(failure: BytesFailure, code: CInt) throws {
    try withElsewhere { mount in
      try mount.remote("f", MemorySource.pattern(300_000))
      mount.source.answer { _, _ in MemorySource.Answer(failure: failure) }
      let file = try Descriptor.open(mount.path + "/f", O_RDONLY)
      #expect(throws: Errno(code)) { try file.prefix(10) }
    }
  }

  @Test("says that the time is up when bytes stop coming, though the kernel asks again for what it read ahead")
  func stalled() throws {
    try withElsewhere(patience: 200_000_000) { mount in
      let bytes = MemorySource.pattern(1 << 20)
      try mount.remote("f", bytes)
      mount.source.answer { _, asked in MemorySource.Answer(isSilent: (asked.range?.lowerBound ?? 0) > 400_000) }
      let file = try Descriptor.open(mount.path + "/f", O_RDONLY)
      #expect(try file.prefix(10) == Array(bytes.prefix(10)))
      var buffer = [UInt8](repeating: 0, count: 4096)
      #expect(throws: Errno(ETIMEDOUT)) {
        try buffer.withUnsafeMutableBytes { try file.read(into: $0, at: 500_000) }
      }
    }
  }

  @Test("never gives a whole file that does not hash to its name")
  func wrong() throws {
    try withElsewhere { mount in
      let bytes = MemorySource.pattern(300_000)
      try mount.remote("f", bytes)
      mount.source.answer { number, _ in MemorySource.Answer(isWrong: number < 3) }
      #expect(throws: Errno(EBADMSG)) { try contents(mount.path + "/f") }
      mount.source.answer { _, _ in MemorySource.Answer() }
      var found: [UInt8] = []
      for _ in 0..<100 where found.isEmpty { found = (try? contents(mount.path + "/f")) ?? [] }
      // Not as two arrays: a difference of so many elements takes a quarter of an hour to be told.
      #expect(found.elementsEqual(bytes))
    }
  }

  @Test("ends the wait of a program that is interrupted, while others go on")
  func interrupted() throws {
    try withElsewhere { mount in
      try mount.remote("f", MemorySource.pattern(300_000))
      try mount.remote("g", MemorySource.pattern(1000, seed: 2))
      mount.source.answer { _, asked in
        MemorySource.Answer(isSilent: (asked.range?.upperBound ?? 0) > 1000)
      }
      let program = try Program(["cat", mount.path + "/f"])
      for _ in 0..<10_000 where mount.source.running == 0 { usleep(1000) }
      #expect(try mount.shell("cat g | wc -c").output == "1000\n")
      kill(program.pid, SIGTERM)
      #expect(try program.wait(seconds: 10).status == 128 + SIGTERM)
    }
  }

  @Test("waits for a length nobody knows when a file is asked about, and never in a listing")
  func unsized() throws {
    try withElsewhere { mount in
      mount.source.holdSizes()
      let bytes = MemorySource.pattern(123_456)
      try mount.remote("f", bytes, sized: false)
      #expect(try mount.shell("ls -U").output == "f\n")
      mount.source.releaseSizes()
      #expect(try mount.shell("stat -c %s f").output == "123456\n")
      #expect(try contents(mount.path + "/f").elementsEqual(bytes))
    }
  }

  @Test("fetches and lets go of a file when its attribute is set")
  func held() throws {
    try withElsewhere { mount in
      let bytes = MemorySource.pattern(300_000)
      try mount.remote("f", bytes)
      let held = "getfattr --only-values -n user.marfa.held f"
      #expect(try mount.shell("setfattr -n user.marfa.held -v yes f && \(held)").output == "yes")
      #expect(mount.source.sent == 300_000)
      // A file just closed is open for as long as the kernel takes to say so.
      let letGo = "for i in $(seq 100); do setfattr -n user.marfa.held -v no f 2>/dev/null && break; sleep 0.1; done"
      #expect(try mount.shell("\(letGo); \(held)").output == "no")
      #expect(try contents(mount.path + "/f").elementsEqual(bytes))
      #expect(try mount.shell("printf mine > own; setfattr -n user.marfa.held -v no own").status != 0)
    }
  }

  @Test("reads on with the bytes it opened when the file is replaced")
  func version() throws {
    try withElsewhere { mount in
      let bytes = MemorySource.pattern(1 << 20)
      try mount.remote("f", bytes)
      let file = try Descriptor.open(mount.path + "/f", O_RDONLY)
      #expect(try file.prefix(10) == Array(bytes.prefix(10)))
      #expect(try mount.shell("printf other > g && mv g f && cat f").output == "other")
      var found = [UInt8](repeating: 0, count: bytes.count)
      #expect(try found.withUnsafeMutableBytes { try file.read(into: $0, at: 0) } == bytes.count)
      #expect(found.elementsEqual(bytes))
    }
  }
}
