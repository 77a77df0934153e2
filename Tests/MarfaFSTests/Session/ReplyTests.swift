import CFuse3
import CLinux
import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

/// A session of libfuse's with no kernel behind it: requests are bytes, and so are replies.
final class SocketSession {
  private let session: SessionHandle
  private let driver: Driver
  private let kernel: CInt
  private var last: UInt64 = 0

  init(_ filesystem: MemoryFileSystem) throws {
    var ends: [CInt] = [0, 0]
    try #require(socketpair(AF_UNIX, CInt(SOCK_SEQPACKET.rawValue), 0, &ends) == 0)
    kernel = ends[0]
    driver = Driver(filesystem, whenReady: {})
    session = try Library.makeSession(MountConfiguration(mountPoint: "", source: "test"), driver)
    // libfuse takes a descriptor that somebody else mounted.
    try Library.mount(session, on: "/dev/fd/\(ends[1])")
    // INIT: version 7.31, and a kernel that can do nothing.
    _ = send(26, node: 0, Self.words([7, 31, 131072, 0]))
    _ = receive()
  }

  deinit {
    Library.destroy(session, driver)
    close(kernel)
  }

  /// How many requests were not answered yet.
  var outstanding: Int { driver.outstanding }

  static func words(_ words: [UInt32]) -> [UInt8] { words.flatMap { word in withUnsafeBytes(of: word) { Array($0) } } }
  static func longs(_ words: [UInt64]) -> [UInt8] { words.flatMap { word in withUnsafeBytes(of: word) { Array($0) } } }

  /// Has a request processed, and returns its number.
  @discardableResult
  func send(_ operation: UInt32, node: UInt64, _ body: [UInt8]) -> UInt64 {
    last += 1
    let header =
      Self.words([40 + UInt32(body.count), operation]) + Self.longs([last, node]) + Self.words([0, 0, 1, 0])
    var message = header + body
    message.withUnsafeMutableBytes { bytes in
      var buffer = fuse_buf()
      buffer.size = bytes.count
      buffer.mem = bytes.baseAddress
      fuse_session_process_buf(session.raw, &buffer)
    }
    return last
  }

  /// The next reply: its request, its error and its bytes. `nil` when there is none.
  func receive() -> (request: UInt64, error: Int32, body: [UInt8])? {
    var message = [UInt8](repeating: 0, count: 1 << 16)
    let count = recv(kernel, &message, message.count, CInt(MSG_DONTWAIT))
    guard count >= 16 else { return nil }
    return message.withUnsafeBytes { bytes in
      (
        bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self), bytes.loadUnaligned(fromByteOffset: 4, as: Int32.self),
        Array(bytes[16..<count])
      )
    }
  }

  /// Asks for bytes of a file.
  func read(node: UInt64) -> UInt64 {
    send(15, node: node, Self.longs([node, 0]) + Self.words([4096, 0]) + Self.longs([0]) + Self.words([0, 0]))
  }

  /// Says that nobody waits for a request's answer any more.
  func interrupt(_ request: UInt64) { send(36, node: 0, Self.longs([request])) }
}

@Suite("A reply", .timeLimit(.minutes(1))) struct ReplyTests {
  @Test("carries what was asked for, and then nothing is owed")
  func lookup() throws {
    let filesystem = MemoryFileSystem()
    let node = filesystem.addFile("f", [1, 2, 3])
    let session = try SocketSession(filesystem)
    let request = session.send(1, node: 1, Array("f".utf8) + [0])
    let reply = try #require(session.receive())
    #expect(reply.request == request && reply.error == 0)
    #expect(reply.body.prefix(8).elementsEqual(SocketSession.longs([node])))
    #expect(session.outstanding == 0)
  }

  @Test("that says a name is not there is remembered by the kernel, or is plain ENOENT")
  func noEntry() throws {
    let remembering = try SocketSession(MemoryFileSystem(timeout: 60))
    remembering.send(1, node: 1, Array("f".utf8) + [0])
    let entry = try #require(remembering.receive())
    #expect(entry.error == 0 && entry.body.prefix(8).allSatisfy { $0 == 0 })
    let forgetful = try SocketSession(MemoryFileSystem(timeout: 0))
    forgetful.send(1, node: 1, Array("f".utf8) + [0])
    #expect(forgetful.receive()?.error == -ENOENT)
  }

  @Test("that is parked can be given by another thread, once")
  func parked() throws {
    let filesystem = MemoryFileSystem()
    let node = filesystem.addFile("f", Array("park".utf8))
    let session = try SocketSession(filesystem)
    let request = session.read(node: node)
    #expect(session.receive() == nil && session.outstanding == 1)
    let answered = try within(seconds: 5) { (filesystem.answerParked(.noData), filesystem.answerParked(.noData)) }
    #expect(answered == (1, 0))
    let reply = try #require(session.receive())
    #expect(reply.request == request && reply.error == -ENODATA)
    #expect(session.outstanding == 0 && session.receive() == nil)
  }

  @Test("that is parked is told of an interrupt, whether it comes before the handler is set or after")
  func interrupted() throws {
    let filesystem = MemoryFileSystem()
    let node = filesystem.addFile("f", Array("park".utf8))
    let session = try SocketSession(filesystem)
    let request = session.read(node: node)
    session.interrupt(request)
    let reply = try #require(session.receive())
    #expect(reply.request == request && reply.error == -EINTR)

    // An interrupt that overtakes its request is kept by libfuse until the request comes.
    session.interrupt(request + 3)
    let late = session.read(node: node)
    #expect(late == request + 3)
    let answers = [session.receive(), session.receive()].compactMap { $0 }
    #expect(answers.contains { $0.request == late && $0.error == -EINTR })
    #expect(session.outstanding == 0)
  }

  @Test("that nobody waits for any more is taken back by nobody after it was given")
  func interruptedTooLate() throws {
    let filesystem = MemoryFileSystem()
    let node = filesystem.addFile("f", Array("park".utf8))
    let session = try SocketSession(filesystem)
    let request = session.read(node: node)
    #expect(filesystem.answerParked(.noData) == 1)
    session.interrupt(request)
    #expect(session.receive()?.error == -ENODATA)
    #expect(session.receive() == nil)
  }

  #if !DEBUG
    @Test("that is dropped is EIO, so that no program hangs for it")
    func dropped() throws {
      let filesystem = MemoryFileSystem()
      let node = filesystem.addFile("f", Array("park".utf8))
      let session = try SocketSession(filesystem)
      _ = session.read(node: node)
      filesystem.state.update { $0.parked = [] }
      #expect(session.receive()?.error == -EIO)
      #expect(session.outstanding == 0)
    }
  #elseif compiler(>=6.2)
    @Test("that is dropped is a defect, and ends a debug build")
    func dropped() async {
      await #expect(processExitsWith: .failure) {
        let filesystem = MemoryFileSystem()
        let node = filesystem.addFile("f", Array("park".utf8))
        let session = try SocketSession(filesystem)
        _ = session.read(node: node)
        filesystem.state.update { $0.parked = [] }
        exit(0)
      }
    }
  #endif
}

@Suite("The buffer of a listing") struct DirectoryBufferTests {
  @Test("takes what fits, says so when no more does, and is used again")
  func full() {
    let buffer = DirectoryBuffer()
    let name = Array("a name".utf8)
    for _ in 0..<2 {
      buffer.reset(size: 100)
      #expect(buffer.isEmpty)
      var count = 0
      while name.withUnsafeBytes({ buffer.append(name: $0, inode: 7, mode: S_IFREG, offset: Int64(count)) }) {
        count += 1
      }
      // 24 bytes and the name, rounded up to eight.
      #expect(count == 3)
      #expect(buffer.bytes.count == 96)
    }
  }

  @Test("has no room before it is given some")
  func noRoom() {
    let buffer = DirectoryBuffer()
    #expect([1].withUnsafeBytes { buffer.append(name: $0, inode: 7, mode: S_IFREG, offset: 1) } == false)
    #expect(buffer.bytes.isEmpty)
  }

  @Test("leaves out a name for which the kernel would fail the whole listing", arguments: [0, 1025])
  func badName(count: Int) {
    let buffer = DirectoryBuffer()
    buffer.reset(size: 4096)
    let name = [UInt8](repeating: 97, count: count)
    #expect(name.withUnsafeBytes { buffer.append(name: $0, inode: 7, mode: S_IFREG, offset: 1) })
    #expect(buffer.isEmpty)
  }
}

@Suite("The answer to INIT") struct GreetingTests {
  /// The reply as the kernel gets it, and whether it passes files through then.
  private func answer(
    flags: UInt32, error: Int32 = 0, unique: UInt64 = 1, size: Int = 64, offered: UInt64, passthrough: Bool = false
  ) -> (words: [UInt32], passes: Bool?) {
    var passes: Bool?
    var header = [UInt8](repeating: 0, count: 16)
    var body = [UInt8](repeating: 0, count: size)
    header.withUnsafeMutableBytes { header in
      header.storeBytes(of: error, toByteOffset: 4, as: Int32.self)
      header.storeBytes(of: unique, toByteOffset: 8, as: UInt64.self)
      body.withUnsafeMutableBytes { body in
        body.storeBytes(of: flags, toByteOffset: 12, as: UInt32.self)
        let parts = [
          iovec(iov_base: header.baseAddress, iov_len: header.count),
          iovec(iov_base: body.baseAddress, iov_len: body.count),
        ]
        passes = parts.withUnsafeBufferPointer {
          Greeting.complete($0, offered: offered, passthrough: passthrough)
        }
      }
    }
    return (body.withUnsafeBytes { Array($0.bindMemory(to: UInt32.self)) }, passes)
  }

  /// The first of the reply's two words of flags.
  private func reply(flags: UInt32, error: Int32 = 0, unique: UInt64 = 1, size: Int = 64, offered: UInt64) -> UInt32 {
    answer(flags: flags, error: error, unique: unique, size: size, offered: offered).words[3]
  }

  @Test("is completed by what the kernel offers, and by nothing else")
  func complete() {
    #expect(reply(flags: 1, offered: .max) == 1 | 1 << 18 | 1 << 28)
    #expect(reply(flags: 1, offered: 1 << 18) == 1 | 1 << 18)
    #expect(reply(flags: 1, offered: 0) == 1)
  }

  @Test("is left alone when it is an error, a notice or something else")
  func alone() {
    #expect(reply(flags: 1, error: -EPROTO, offered: .max) == 1)
    #expect(reply(flags: 1, unique: 0, offered: .max) == 1)
    #expect(reply(flags: 1, size: 24, offered: .max) == 1)
  }

  @Test("asks for passthrough when it is wanted and offered, and says then how deep filesystems may be stacked")
  func passthrough() {
    let offered: UInt64 = 1 << 30 | 1 << 37
    let asked = answer(flags: 1, offered: offered, passthrough: true)
    #expect(asked.passes == true && asked.words[3] == 1 | 1 << 30)
    #expect(asked.words[8] == 1 << 5 && asked.words[9] == 1)
    for (offered, isWanted) in [(offered, false), (1 << 37, true), (1 << 30, true), (0, true)] {
      let other = answer(flags: 1, offered: offered, passthrough: isWanted)
      #expect(other.passes == false && other.words[3] == 1)
      #expect(other.words[8] == 0 && other.words[9] == 0)
    }
    let refused = answer(flags: 1, error: -EPROTO, offered: offered, passthrough: true)
    #expect(refused.passes == nil && refused.words.allSatisfy { $0 == 0 || $0 == 1 })
  }

  @Test("is to a request that is read no further than it reaches")
  func offer() {
    let header = SocketSession.words([0, 26, 0, 0, 0, 0, 0, 0, 0, 0])
    // 0 for none: an optional integer in an expectation trips the address sanitizer inside the testing library.
    func offer(_ body: [UInt32]) -> UInt64 {
      (header + SocketSession.words(body)).withUnsafeBytes { Greeting.offer(in: $0) ?? 0 }
    }
    #expect(offer([7, 36, 0, 5, 6]) == 6 << 32 | 5)
    #expect(offer([7, 22, 0, 5]) == 5)
    #expect(offer([7, 1]) == 0)
    let other = [UInt8](repeating: 255, count: 64)
    #expect(other.withUnsafeBytes { Greeting.offer(in: $0) ?? 0 } == 0)
  }
}
