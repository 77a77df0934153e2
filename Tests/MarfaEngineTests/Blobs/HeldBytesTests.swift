import Glibc
import Testing

@testable import MarfaEngine

@Suite("Bytes that are held")
struct HeldBytesTests {
  @Test("are kept once, however many files show them")
  func once() throws {
    try withScratch { scratch in
      for name in ["a", "b", "c"] { try scratch.write(name, "same") }
      let hash = try #require(try scratch.item("a")?.blob)
      #expect(try scratch.copy.blobs.cache().held == 4)
      #expect(try scratch.queue().filter { $0.contains("upload") } == ["1 upload \"same\""])
      try scratch.unlink("a")
      try scratch.write("b", "other")
      #expect(isThere(scratch.copy.blobStore.files.held(hash)))
      try scratch.unlink("c")
      scratch.copy.tree.settle()
      #expect(!isThere(scratch.copy.blobStore.files.held(hash)))
      try scratch.answer()
    }
  }

  @Test("are queued once, an item's create waiting on another's upload")
  func oneUpload() throws {
    try withScratch { scratch in
      try scratch.write("a", "same")
      try scratch.write("b", "same")
      #expect(
        try scratch.queue() == [
          "1 upload \"same\"", "2 create file \"a\" of \"same\" <- 1", "3 create file \"b\" of \"same\" <- 1",
        ])
      try scratch.unlink("a")
      #expect(try scratch.queue() == ["1 upload \"same\"", "2 create file \"b\" of \"same\" <- 1"])
      try scratch.answer()
      try scratch.write("c", "same")
      #expect(try scratch.queue() == ["1 create file \"c\" of \"same\""])
      try scratch.answer()
    }
  }

  @Test("stay where they are while a closure has them, though their file is removed meanwhile")
  func pinned() async throws {
    try await withAsyncScratch { scratch in
      try scratch.write("f", "one")
      let hash = try #require(try scratch.item("f")?.blob)
      let path = try await scratch.copy.blobs.withFile(hash) { path in
        try scratch.unlink("f")
        #expect(try contents(path) == Array("one".utf8))
        #expect(try !scratch.copy.blobs.isHeld(hash))
        return path
      }
      scratch.copy.tree.settle()
      #expect(!isThere(path))
      #expect(try scratch.queue() == [])
    }
  }

  @Test("stay through a closure inside a closure, and until the last")
  func pinnedTwice() async throws {
    try await withAsyncScratch { scratch in
      try scratch.write("f", "one")
      let hash = try #require(try scratch.item("f")?.blob)
      try await scratch.copy.blobs.withFile(hash) { path in
        try await scratch.copy.blobs.withFile(hash) { _ in try scratch.unlink("f") }
        #expect(isThere(path))
      }
      scratch.copy.tree.settle()
      #expect(!isThere(scratch.copy.blobStore.files.held(hash)))
    }
  }

  @Test("stay when they are wanted anew before the closure ends")
  func wantedAnew() async throws {
    try await withAsyncScratch { scratch in
      try scratch.write("f", "one")
      let hash = try #require(try scratch.item("f")?.blob)
      try await scratch.copy.blobs.withFile(hash) { _ in
        try scratch.unlink("f")
        try scratch.write("g", "one")
      }
      #expect(try scratch.read("g") == "one")
    }
  }

  @Test("go with a closure that throws, too, and its error comes through")
  func thrown() async throws {
    struct Failure: Error {}
    try await withAsyncScratch { scratch in
      try scratch.write("f", "one")
      let hash = try #require(try scratch.item("f")?.blob)
      await #expect(throws: Failure.self) {
        try await scratch.copy.blobs.withFile(hash) { _ in
          try scratch.unlink("f")
          throw Failure()
        }
      }
      scratch.copy.tree.settle()
      #expect(!isThere(scratch.copy.blobStore.files.held(hash)))
    }
  }

  @Test("under a staged name go on being written in place until they are sealed")
  func adopted() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.answer()
      let staged = try scratch.open("D/f")
      try staged.append(Array("one".utf8))
      let node = try #require(try scratch.tree.adopt(staged, mtime: .now, durably: true))
      #expect(node.content == .staged(staged.id))
      #expect(node.size == 3)
      #expect(try scratch.queue() == [])
      try staged.append(Array(" two".utf8))
      #expect(try String(decoding: contents(staged.path), as: UTF8.self) == "one two")
      try scratch.close(staged)
      #expect(try scratch.read("D/f") == "one two")
      #expect(try scratch.queue().count == 3)
      try scratch.answer()
    }
  }

  @Test("of an item stay the item's until the ones synced after them are sealed")
  func adoptedOver() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      let old = try #require(try scratch.item("f")?.blob)
      let staged = try scratch.open("f")
      try staged.append(Array("two".utf8))
      _ = try scratch.tree.adopt(staged, mtime: .now, durably: false)
      #expect(try scratch.item("f")?.blob == old)
      #expect(try scratch.queue() == ["1 upload \"one\"", "2 create file \"f\" of \"one\" <- 1"])
      try scratch.close(staged)
      #expect(try scratch.item("f")?.blob != old)
      scratch.copy.tree.settle()
      #expect(!isThere(scratch.copy.blobStore.files.held(old)))
      try scratch.answer()
    }
  }

  @Test("survive power loss when asked to")
  func synchronized() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      try scratch.tree.synchronize(try #require(try scratch.item("f")?.blob))
      try scratch.tree.synchronize()
      let absent = try #require(BlobHash(BlobHashTests.empty))
      #expect(throws: MarfaError.bytesAbsent(absent)) { try scratch.tree.synchronize(absent) }
    }
  }
}
