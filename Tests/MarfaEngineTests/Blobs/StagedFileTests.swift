import Glibc
import Testing

@testable import MarfaEngine

/// What sha256sum says of bytes, in a file of their own.
private func sum(_ bytes: [UInt8]) throws -> String {
  let folder = try TemporaryFolder()
  return String(try Program.run(["sha256sum", folder.file("f", bytes)]).output.prefix(64))
}

/// Bytes of no period a mistake could hide in: a block of noise, each time with its number in front.
private func pattern(_ count: Int, _ seed: Int = 1) -> [UInt8] {
  var state = UInt64(truncatingIfNeeded: seed) &* 0x9e37_79b9_7f4a_7c15 | 1
  let block = (0..<8192).map { _ in
    state ^= state << 13
    state ^= state >> 7
    state ^= state << 17
    return UInt8(truncatingIfNeeded: state >> 32)
  }
  var bytes: [UInt8] = []
  var number: UInt8 = 0
  while bytes.count < count {
    bytes.append(number)
    bytes += block
    number &+= 1
  }
  return Array(bytes.prefix(count))
}

@Suite("Bytes hashed behind their writer")
struct StagedFileTests {
  private static let mebibyte = 1 << 20

  /// A staged file of a copy of its own; afterwards it must hash to what sha256sum says of `expected`.
  private func staged(
    location: SourceLocation = #_sourceLocation, _ body: (StagedFile) throws -> [UInt8]
  ) throws {
    try withScratch { scratch in
      let staged = try scratch.tree.stage(for: 0)
      let expected = try body(staged)
      let (hash, size) = try staged.finish()
      #expect(size == Int64(expected.count), sourceLocation: location)
      #expect(try hash.hex == sum(expected), sourceLocation: location)
      #expect(staged.size == Int64(expected.count), sourceLocation: location)
      scratch.tree.discard(staged)
    }
  }

  @Test(
    "have the right hash when they come in order", arguments: [1, 4096, 1 << 20, (5 << 20) + 17],
    [4096, 131_072, 1_000_003])
  func inOrder(count: Int, piece: Int) throws {
    try staged { staged in
      let bytes = pattern(count)
      for start in stride(from: 0, to: count, by: piece) {
        try staged.write(Array(bytes[start..<min(start + piece, count)]), at: Int64(start))
      }
      return bytes
    }
  }

  @Test("have it when they come backwards")
  func backwards() throws {
    try staged { staged in
      let bytes = pattern(4 * Self.mebibyte)
      for start in stride(from: 0, to: bytes.count, by: 65536).reversed() {
        try staged.write(Array(bytes[start..<start + 65536]), at: Int64(start))
      }
      return bytes
    }
  }

  @Test("have it when what the digest has had is written over", arguments: [0, 1, 1 << 20, (6 << 20) - 1])
  func overwritten(offset: Int) throws {
    try staged { staged in
      var bytes = pattern(6 * Self.mebibyte)
      for start in stride(from: 0, to: bytes.count, by: 65536) {
        try staged.write(Array(bytes[start..<start + 65536]), at: Int64(start))
      }
      bytes[offset] ^= 0xff
      try staged.write([bytes[offset]], at: Int64(offset))
      return bytes
    }
  }

  @Test("have it with holes, which are zeroes")
  func holes() throws {
    try staged { staged in
      let piece = pattern(4096)
      try staged.write(piece, at: 3 << 20)
      try staged.write(piece, at: 1 << 20)
      var bytes = [UInt8](repeating: 0, count: (3 << 20) + 4096)
      bytes.replaceSubrange(3 << 20..<(3 << 20) + 4096, with: piece)
      bytes.replaceSubrange(1 << 20..<(1 << 20) + 4096, with: piece)
      return bytes
    }
  }

  @Test("have it when they are cut, grown and written again", arguments: [0, 100, 3 << 20, 5 << 20, 7 << 20])
  func truncated(length: Int) throws {
    try staged { staged in
      let bytes = pattern(5 * Self.mebibyte)
      for start in stride(from: 0, to: bytes.count, by: 65536) {
        try staged.write(Array(bytes[start..<start + 65536]), at: Int64(start))
      }
      try staged.truncate(to: Int64(length))
      var expected = Array(bytes.prefix(length))
      expected += [UInt8](repeating: 0, count: length - expected.count)
      let tail = pattern(70_000, 9)
      try staged.append(tail)
      return expected + tail
    }
  }

  @Test("have it when they are cut in the middle and grown by length alone")
  func regrown() throws {
    try staged { staged in
      try staged.append(pattern(4 * Self.mebibyte))
      try staged.truncate(to: 1000)
      try staged.truncate(to: 2_500_000)
      return Array(pattern(4 * Self.mebibyte).prefix(1000)) + [UInt8](repeating: 0, count: 2_499_000)
    }
  }

  @Test("have it when many write at once, each its own part", arguments: [1, 2, 3])
  func concurrent(round: Int) async throws {
    let scratch = try Scratch()
    defer { scratch.copy.close() }
    let staged = try scratch.tree.stage(for: 0)
    let bytes = pattern(8 * Self.mebibyte, round)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<8 {
        group.addTask {
          // Interleaved: no writer's part is in order for itself.
          for piece in stride(from: writer * 65536, to: bytes.count, by: 8 * 65536) {
            try staged.write(Array(bytes[piece..<piece + 65536]), at: Int64(piece))
          }
        }
      }
      try await group.waitForAll()
    }
    #expect(try staged.finish().hash.hex == sum(bytes))
    scratch.tree.discard(staged)
  }

  @Test("have it when many write over one another's, whoever was last")
  func overlapping() async throws {
    let scratch = try Scratch()
    defer { scratch.copy.close() }
    let staged = try scratch.tree.stage(for: 0)
    try await withThrowingTaskGroup(of: Void.self) { group in
      for writer in 0..<4 {
        group.addTask {
          let bytes = pattern(65536, writer)
          for piece in 0..<64 { try staged.write(bytes, at: Int64(piece * 65536)) }
        }
      }
      try await group.waitForAll()
    }
    let (hash, size) = try staged.finish()
    #expect(size == 4 << 20)
    #expect(try hash.hex == sum(contents(staged.path)))
    scratch.tree.discard(staged)
  }

  @Test("are hashed anew for what is written after they were finished")
  func goesOn() throws {
    try withScratch { scratch in
      let staged = try scratch.tree.stage(for: 0)
      var bytes = pattern(3 * Self.mebibyte)
      try staged.append(bytes)
      #expect(try staged.finish().hash.hex == sum(bytes))
      #expect(try staged.finish().hash.hex == sum(bytes))
      let more = pattern(3 * Self.mebibyte, 2)
      try staged.append(more)
      bytes += more
      bytes[5] = 0
      try staged.write([0], at: 5)
      #expect(try staged.finish().hash.hex == sum(bytes))
      scratch.tree.discard(staged)
    }
  }

  @Test("copied from another file are that file's, as far as is wanted", arguments: [1, 65536, 3_000_000])
  func copied(limit: Int) throws {
    try staged { staged in
      let folder = try TemporaryFolder()
      let bytes = pattern(3_000_000)
      try staged.copy(from: Descriptor.open(folder.file("source", bytes), O_RDONLY), limit: Int64(limit))
      let more = pattern(100, 3)
      try staged.append(more)
      return bytes.prefix(limit) + more
    }
  }

  @Test("shorter on the disk than what was written to them are refused")
  func shorter() throws {
    try withScratch { scratch in
      let staged = try scratch.tree.stage(for: 0)
      try staged.append(pattern(10_000))
      try staged.descriptor.truncate(to: 500)
      #expect(throws: MarfaError.self) { try staged.finish() }
      scratch.tree.discard(staged)
    }
  }
}
