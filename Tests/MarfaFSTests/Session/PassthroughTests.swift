import CLinux
import Glibc
import Testing

@testable import MarfaEngine
@testable import MarfaFS

extension MountTests {
  @Suite(
    "whose held files the kernel reads by itself", .serialized,
    .enabled(if: PassingMount.isPossible, "needs root, and a kernel that passes files through (Linux 6.9)"))
  struct Passing {}
}

/// A working copy mounted in this process, whose held files are passed through.
private final class PassingMount {
  let directory: TemporaryDirectory
  let folder: TemporaryDirectory
  let copy: WorkingCopy
  let backing: BackingFiles
  let source = MemorySource()
  private let session: MountSession
  var path: String { directory.path }

  /// Whether it can be here.
  static let isPossible: Bool = {
    guard mountingIsPossible, let mount = try? PassingMount() else { return false }
    defer { mount.end() }
    return mount.backing.isInUse
  }()

  init() throws {
    directory = try TemporaryDirectory()
    folder = try TemporaryDirectory()
    copy = try WorkingCopy(path: folder.path + "/store.db")
    copy.connect(source)
    backing = BackingFiles(wanted: true, probe: copy.path + ".lock")
    let invalidator = Invalidator()
    let ready = Monitor(false)
    session = try MountSession.mount(
      MountConfiguration(mountPoint: directory.path, source: "test"),
      FileSystem(copy, invalidator: invalidator, backing: backing), invalidator: invalidator, backing: backing,
      whenReady: { ready.update { $0 = true } })
    try #require(ready.wait(until: .after(seconds: 5)) { $0 ? true : nil } == true)
  }

  func end() {
    session.requestStop()
    _ = session.wait(seconds: 10)
    copy.close()
  }

  /// Makes a file, and waits until nobody has it open any more: the kernel says so a moment after the close.
  @discardableResult
  func make(_ name: String, _ bytes: [UInt8]) throws -> String {
    let path = path + "/" + name
    let file = try Descriptor.open(path, O_WRONLY | O_CREAT | O_EXCL, mode: 0o644)
    try write(bytes, to: file)
    // The release is sent when the descriptor goes; the next open that is passed through shows that it was heard.
    withExtendedLifetime(file) {}
    return path
  }

  /// Opens a file for reading, again until the kernel reads it by itself.
  func openPassing(_ path: String) throws -> Descriptor {
    var found: Descriptor?
    let before = backing.count
    _ = eventually {
      guard let file = try? Descriptor.open(path, O_RDONLY), backing.count > before else { return false }
      found = file
      return true
    }
    return try #require(found, "\(path) is not passed through")
  }

  func settles(at count: Int) -> Bool { eventually { backing.count == count } }
}

private func withPassing(_ body: (PassingMount) throws -> Void) throws {
  let mount = try PassingMount()
  defer { mount.end() }
  try body(mount)
}

private func write(_ bytes: [UInt8], to file: Descriptor, at offset: Int = 0) throws {
  let count = bytes.withUnsafeBytes { pwrite(file.raw, $0.baseAddress, $0.count, off_t(offset)) }
  guard count == bytes.count else { throw Errno.last }
}

private func bytes(of file: Descriptor, at offset: Int = 0, count: Int) throws -> [UInt8] {
  var found = [UInt8](repeating: 0, count: count)
  let size = try found.withUnsafeMutableBytes { try file.read(into: $0, at: Int64(offset)) }
  return Array(found.prefix(size))
}

private func contents(_ path: String) throws -> [UInt8] {
  let file = try Descriptor.open(path, O_RDONLY)
  return try bytes(of: file, count: Int(try file.status().st_size) + 10)
}

/// Whether they are the same, told by the system: a million bytes at a time, and where they differ is nobody's wish.
private func isSame(_ one: some Collection<UInt8>, _ other: some Collection<UInt8>) -> Bool {
  guard one.count == other.count, !one.isEmpty else { return one.count == other.count }
  return one.withContiguousStorageIfAvailable { one in
    other.withContiguousStorageIfAvailable { memcmp(one.baseAddress!, $0.baseAddress!, one.count) == 0 }
  }! ?? false
}

private let size = 3 << 20

extension MountTests.Passing {
  @Test("are read right: in order, anywhere, past their end, and mapped")
  func reading() throws {
    try withPassing { mount in
      let wanted = MemorySource.pattern(size + 123)
      let path = try mount.make("f", wanted)
      let file = try mount.openPassing(path)
      #expect(mount.backing.count == 1)
      #expect(try isSame(contents(path), wanted))
      for offset in [0, 1, 4095, 1 << 20, size - 1, size + 100] {
        #expect(try isSame(bytes(of: file, at: offset, count: 5000), wanted[offset...].prefix(5000)))
      }
      #expect(try bytes(of: file, at: size + 123, count: 10).isEmpty)
      let memory = mmap(nil, wanted.count, PROT_READ, MAP_SHARED, file.raw, 0)
      let mapped = try #require(memory == MAP_FAILED ? nil : memory)
      defer { munmap(mapped, wanted.count) }
      #expect(isSame(UnsafeRawBufferPointer(start: mapped, count: wanted.count), wanted))
      #expect(lseek(file.raw, 0, Int32(SEEK_END)) == off_t(wanted.count))
      #expect(try run(["cmp", path, path]).status == 0)
    }
  }

  @Test("are one file to the kernel, however many threads have one open, and none when all have closed it")
  func threads() throws {
    try withPassing { mount in
      let wanted = MemorySource.pattern(size)
      let path = try mount.make("f", wanted)
      _ = try mount.openPassing(path)
      let most = Monitor(0)
      let failed = Monitor<[String]>([])
      let left = Monitor(12)
      for thread in 0..<12 {
        let backing = mount.backing
        startThread(named: "opener") {
          for round in 0..<150 {
            let offset = (thread * 150 + round) * 1601
            let found = Result { () throws -> [UInt8] in
              let file = try Descriptor.open(path, O_RDONLY)
              let count = backing.count
              most.update { $0 = max($0, count) }
              return try bytes(of: file, at: offset, count: 1601)
            }
            if (try? found.get().elementsEqual(wanted[offset..<offset + 1601])) != true {
              failed.update { $0.append("\(thread) \(round): \(found)") }
            }
          }
          left.update { $0 -= 1 }
        }
      }
      #expect(left.wait(until: .after(seconds: 60)) { $0 == 0 ? true : nil } == true)
      #expect(failed.read { $0 } == [])
      #expect(most.read { $0 } == 1)
      #expect(mount.settles(at: 0))
    }
  }

  @Test("leave nothing with the kernel when they were opened and closed thousands of times")
  func leaks() throws {
    try withPassing { mount in
      let paths = try (0..<4).map { try mount.make("f\($0)", MemorySource.pattern(size, seed: UInt64($0))) }
      var kept: [Descriptor] = []
      for round in 0..<4000 {
        let file = try Descriptor.open(paths[round % 4], O_RDONLY)
        if round % 500 == 0 { kept.append(file) }
      }
      #expect(mount.backing.count <= 4)
      kept = []
      #expect(mount.settles(at: 0))
    }
  }

  @Test("are read through us while they are small, or a database that several programs share")
  func left() throws {
    try withPassing { mount in
      let small = try mount.make("small", MemorySource.pattern(1000))
      let base = Array("SQLite format 3\0".utf8) + MemorySource.pattern(size)
      let database = try mount.make("database", base)
      let big = try mount.make("big", MemorySource.pattern(size))
      let passing = try mount.openPassing(big)
      let files = try [small, database].map { try Descriptor.open($0, O_RDONLY) }
      #expect(mount.backing.count == 1)
      #expect(try isSame(contents(database), base))
      withExtendedLifetime((files, passing)) {}
    }
  }

  @Test(
    "can be opened for writing while they are read: who opens them then reads what was written, who had them open what they had",
    arguments: [O_WRONLY | O_APPEND, O_RDWR, O_WRONLY | O_TRUNC, O_RDWR | O_CREAT])
  func written(flags: CInt) throws {
    try withPassing { mount in
      var wanted = MemorySource.pattern(size)
      let old = wanted
      let path = try mount.make("f", wanted)
      let reader = try mount.openPassing(path)
      let inode = try reader.status().st_ino
      for round in 0..<3 {
        let writer = try Descriptor.open(path, flags, mode: 0o644)
        #expect(try writer.status().st_ino == inode)
        if flags & O_TRUNC != 0 { wanted = [] }
        let piece = Array("round \(round)".utf8)
        let offset = flags & O_APPEND != 0 ? wanted.count : 100 * round
        try write(piece, to: writer, at: offset)
        if wanted.count < offset + piece.count {
          wanted += [UInt8](repeating: 0, count: offset + piece.count - wanted.count)
        }
        wanted.replaceSubrange(offset..<offset + piece.count, with: piece)
        // While the writer is there, and when it has closed.
        #expect(try isSame(contents(path), wanted))
        let between = try Descriptor.open(path, O_RDONLY)
        #expect(try Int(between.status().st_size) == wanted.count)
        withExtendedLifetime(writer) {}
      }
      #expect(try isSame(contents(path), wanted))
      #expect(try isSame(bytes(of: reader, count: size + 100), old))
      #expect(try Int(reader.status().st_size) == size)
      #expect(try run(["stat", "-c", "%s", path]).output == "\(wanted.count)\n")
    }
  }

  @Test("show what one handle writes to every handle opened since the first that could write")
  func together() throws {
    try withPassing { mount in
      let path = try mount.make("f", MemorySource.pattern(size))
      let former = try mount.openPassing(path)
      let writer = try Descriptor.open(path, O_RDWR)
      let reader = try Descriptor.open(path, O_RDONLY)
      let memory = mmap(nil, size, PROT_READ, MAP_SHARED, reader.raw, 0)
      let mapped = try #require(memory == MAP_FAILED ? nil : memory)
      defer { munmap(mapped, size) }
      _ = mapped.load(fromByteOffset: 5000, as: UInt8.self)
      try write(Array("written".utf8), to: writer, at: 5000)
      #expect(try bytes(of: reader, at: 5000, count: 7) == Array("written".utf8))
      #expect(UnsafeRawBufferPointer(start: mapped + 5000, count: 7).elementsEqual("written".utf8))
      withExtendedLifetime(former) {}
    }
  }

  @Test("keep the bytes of a mapping that outlives its handle, while another program maps and writes them")
  func mappings() throws {
    try withPassing { mount in
      let old = MemorySource.pattern(size)
      let path = try mount.make("f", old)
      var file: Descriptor? = try mount.openPassing(path)
      let memory = mmap(nil, size, PROT_READ, MAP_SHARED, try #require(file).raw, 0)
      let former = try #require(memory == MAP_FAILED ? nil : memory)
      defer { munmap(former, size) }
      file = nil
      #expect(mount.settles(at: 0))
      let writer = try Descriptor.open(path, O_RDWR)
      let shared = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED, writer.raw, 0)
      let changed = try #require(shared == MAP_FAILED ? nil : shared)
      for offset in stride(from: 0, to: size, by: 4096) {
        changed.storeBytes(of: 77, toByteOffset: offset, as: UInt8.self)
      }
      #expect(msync(changed, size, MS_SYNC) == 0)
      #expect(munmap(changed, size) == 0)
      var wanted = old
      for offset in stride(from: 0, to: size, by: 4096) { wanted[offset] = 77 }
      #expect(try isSame(contents(path), wanted))
      #expect(isSame(UnsafeRawBufferPointer(start: former, count: size), old))
      // What is held is never written, by no way.
      withExtendedLifetime(writer) {}
      for line in try run(["find", mount.folder.path + "/store.db.blobs/held", "-type", "f"]).output.split(
        separator: "\n")
      {
        let name = line.split(separator: "/").suffix(2).joined()
        let sum = try run(["sha256sum", String(line)]).output
        #expect(sum.contains(name) || sum.hasPrefix(String(line.split(separator: "/").last ?? "")), "\(line) \(sum)")
      }
    }
  }

  @Test("can be cut, grown, emptied, renamed over and removed while they are read")
  func changed() throws {
    try withPassing { mount in
      let old = MemorySource.pattern(size)
      let path = try mount.make("f", old)
      let reader = try mount.openPassing(path)
      for length in [100, 0, 5000, size * 2] {
        #expect(try run(["truncate", "-s", "\(length)", path]).status == 0)
        #expect(try run(["stat", "-c", "%s", path]).output == "\(length)\n")
        #expect(try contents(path).count == length)
      }
      #expect(truncate(path, 10) == 0)
      #expect(try contents(path).count == 10)

      let other = MemorySource.pattern(size, seed: 9)
      let second = try mount.make("g", other)
      let otherReader = try mount.openPassing(second)
      #expect(rename(second, path) == 0)
      #expect(try isSame(contents(path), other))
      #expect(unlink(path) == 0)
      #expect(try isSame(bytes(of: otherReader, count: size), other))
      #expect(try otherReader.status().st_nlink == 0)
      try mount.make("f", [1, 2, 3])
      #expect(try contents(path) == [1, 2, 3])
      #expect(try isSame(bytes(of: reader, count: size), old))
    }
  }

  @Test("show a change through one name under the other at once")
  func names() throws {
    try withPassing { mount in
      let path = try mount.make("f", MemorySource.pattern(size))
      let other = mount.path + "/g"
      #expect(link(path, other) == 0)
      #expect(try run(["stat", "-c", "%s", other]).output == "\(size)\n")
      let reader = try mount.openPassing(other)
      let writer = try Descriptor.open(path, O_WRONLY | O_APPEND)
      try write([1, 2, 3], to: writer, at: size)
      var status = stat()
      #expect(stat(other, &status) == 0 && Int(status.st_size) == size + 3)
      #expect(try isSame(contents(other).suffix(3), [1, 2, 3]))
      withExtendedLifetime((reader, writer)) {}
    }
  }

  @Test("tell the rights they have by every handle, whoever changed them by which")
  func rights() throws {
    try withPassing { mount in
      let path = try mount.make("f", MemorySource.pattern(size))
      let former = try mount.openPassing(path)
      let writer = try Descriptor.open(path, O_RDWR)
      func modes() throws -> [mode_t] {
        var named = stat()
        _ = stat(path, &named)
        return try [former.status(), writer.status(), named].map { $0.st_mode & 0o777 }
      }
      #expect(chmod(path, 0o600) == 0)
      #expect(try modes() == [0o600, 0o600, 0o600])
      #expect(fchmod(former.raw, 0o640) == 0)
      #expect(eventually { (try? modes()) == [0o640, 0o640, 0o640] })
      #expect(fchmod(writer.raw, 0o644) == 0)
      #expect(try modes() == [0o644, 0o644, 0o644])
    }
  }

  @Test("may be read with O_DIRECT, in any pieces, beside one that is passed through")
  func direct() throws {
    try withPassing { mount in
      let wanted = MemorySource.pattern(size)
      let path = try mount.make("f", wanted)
      let passing = try mount.openPassing(path)
      let direct = try Descriptor.open(path, O_RDONLY | marfa_o_direct)
      #expect(try isSame(bytes(of: direct, at: 17, count: 1000), wanted[17..<1017]))
      #expect(try isSame(bytes(of: passing, at: 17, count: 1000), wanted[17..<1017]))
    }
  }

  @Test("fail nobody who opens them, when many read and write them at once")
  func crowd() throws {
    try withPassing { mount in
      let failed = Monitor<[String]>([])
      let met = Monitor(0)
      for round in 0..<40 {
        let path = try mount.make("f", MemorySource.pattern(1_100_000, seed: UInt64(round)))
        let left = Monitor(6)
        let backing = mount.backing
        for thread in 0..<6 {
          startThread(named: "crowd") {
            do {
              for step in 0..<12 {
                let file = try Descriptor.open(path, thread < 2 ? O_RDWR : O_RDONLY)
                if thread < 2 {
                  if backing.count > 0 { met.update { $0 += 1 } }
                  try write([UInt8](repeating: 7, count: 100), to: file, at: (thread * 12 + step) * 100)
                } else {
                  _ = try bytes(of: file, at: step * 50_000, count: 5000)
                }
              }
            } catch {
              failed.update { $0.append("round \(round), thread \(thread): \(error)") }
            }
            left.update { $0 -= 1 }
          }
        }
        #expect(left.wait(until: .after(seconds: 60)) { $0 == 0 ? true : nil } == true)
        #expect(isSame(try contents(path).prefix(2400), [UInt8](repeating: 7, count: 2400)), "round \(round)")
        #expect(unlink(path) == 0)
      }
      #expect(failed.read { $0 } == [])
      #expect(met.read { $0 } > 0, "writers and those whose reads are passed through did meet")
      #expect(mount.settles(at: 0))
    }
  }

  @Test("are what a program last wrote, whatever is open and opened and closed in which order", arguments: 0..<8)
  func anyOrder(seed: Int) throws {
    try withPassing { mount in
      final class Content {
        var bytes: [UInt8]
        init(_ bytes: [UInt8]) { self.bytes = bytes }
      }
      struct Reading {
        var file: Descriptor
        var content: Content
        var opened: [UInt8]
        /// Somebody could write when it was opened, so it sees what is written.
        var follows: Bool
      }
      var wanted = Content(MemorySource.pattern(1_100_000, seed: UInt64(seed)))
      let path = try mount.make("f", wanted.bytes)
      var readers: [Reading] = []
      var writers: [Descriptor] = []
      var random = SystemRandom(seed: UInt64(seed) + 1)
      var passed = 0
      for step in 0..<300 {
        switch random.next(9) {
        case 0...2:
          let file = try Descriptor.open(path, O_RDONLY)
          readers.append(
            Reading(file: file, content: wanted, opened: wanted.bytes, follows: !writers.isEmpty))
          passed = max(passed, mount.backing.count)
        case 3: if !readers.isEmpty { readers.remove(at: random.next(readers.count)) }
        // Most of the time nobody writes.
        case 4 where random.next(3) == 0: writers.append(try Descriptor.open(path, O_RDWR))
        case 5: if !writers.isEmpty { writers.remove(at: random.next(writers.count)) }
        case 6:
          guard let writer = writers.last else { continue }
          let piece = [UInt8](repeating: UInt8(step % 251), count: 1 + random.next(3000))
          let offset = random.next(1_000_000)
          try write(piece, to: writer, at: offset)
          wanted.bytes.replaceSubrange(offset..<offset + piece.count, with: piece)
        case 7:
          guard random.next(10) == 0 else { continue }
          // Anew: what is written in place once is read through us from then on.
          writers = []
          wanted = Content(MemorySource.pattern(1_100_000, seed: UInt64(seed * 1000 + step)))
          try mount.make("new", wanted.bytes)
          #expect(rename(mount.path + "/new", path) == 0)
        default: break
        }
        #expect(try isSame(contents(path), wanted.bytes), "step \(step)")
        for reader in readers where random.next(4) == 0 {
          let offset = random.next(1_000_000)
          let found = try bytes(of: reader.file, at: offset, count: 4000)
          let isNow = isSame(found, reader.content.bytes[offset..<offset + 4000])
          let isThen = isSame(found, reader.opened[offset..<offset + 4000])
          #expect(isNow || isThen && !reader.follows, "step \(step)")
        }
      }
      #expect(passed > 0)
      readers = []
      writers = []
      #expect(mount.settles(at: 0))
    }
  }
}

/// Numbers that are the same in every run.
private struct SystemRandom {
  private var state: UInt64
  init(seed: UInt64) { state = seed &* 0x9E37_79B9_7F4A_7C15 | 1 }
  mutating func next(_ limit: Int) -> Int {
    state ^= state << 13
    state ^= state >> 7
    state ^= state << 17
    return Int(state % UInt64(limit))
  }
}
