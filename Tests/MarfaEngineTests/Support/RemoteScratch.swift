import Glibc
import Testing

@testable import MarfaEngine

/// A working copy of bytes that are elsewhere.
final class RemoteScratch {
  let scratch: Scratch
  let source = MemorySource()

  init(_ settings: Fetcher.Settings = .quick) throws {
    var options = WorkingCopy.Options()
    options.fetching = settings
    scratch = try Scratch(options)
    try scratch.mkdir("D")
    try scratch.answer()
    connect()
  }

  var copy: WorkingCopy { scratch.copy }
  var blobs: Blobs { scratch.copy.blobs }

  func connect() { copy.connect(source) }

  func reopen() throws {
    try scratch.reopen()
    connect()
  }

  /// Killed, and started again.
  func crash() throws {
    copy.fetcher.alarm.close()
    try scratch.crash()
    connect()
  }

  /// A file whose bytes a server has, and nobody here.
  @discardableResult
  func remote(_ path: String, _ bytes: [UInt8], sized: Bool = true) throws -> BlobHash {
    let hash = source.add(bytes)
    try scratch.write(path, bytes)
    try scratch.answer()
    try copy.store.write { (connection) throws(MarfaError) in
      try connection.run("UPDATE blobs SET held = 0, held_at = NULL, read_at = NULL WHERE hash = ?1") {
        $0.hash(1, hash)
      }
      copy.blobStore.removeAfterCommit(hash)
      if !sized {
        try connection.run("UPDATE blobs SET size = NULL WHERE hash = ?1") { $0.hash(1, hash) }
        try connection.run("UPDATE nodes SET size = NULL WHERE hash = ?1") { $0.hash(1, hash) }
      }
    }
    copy.tree.settle()
    return hash
  }

  /// Nothing is under way any more.
  func settle() -> Bool {
    eventually { source.running == 0 && copy.fetcher.openCount == 0 }
  }
}

extension Fetcher.Settings {
  /// As usual, with everything that waits on purpose a hundred times as fast.
  static var quick: Fetcher.Settings {
    var settings = Fetcher.Settings()
    settings.flushDelay = 20_000_000
    settings.retryDelay = 2_000_000
    settings.refusalHolds = 20_000_000
    settings.roomRetry = 50_000_000
    settings.offlineFirst = 10_000_000
    settings.offlineLast = 300_000_000
    settings.second = 10_000_000
    settings.noteDelay = 2_000_000
    settings.readDelay = 2_000_000
    return settings
  }
}

func withRemote(
  _ settings: Fetcher.Settings = .quick, location: SourceLocation = #_sourceLocation,
  _ body: (RemoteScratch) throws -> Void
) throws {
  let remote = try RemoteScratch(settings)
  defer { remote.copy.close() }
  try body(remote)
  #expect(remote.settle(), "something is still under way", sourceLocation: location)
  try checkInvariants(remote.copy, location: location)
}

func withAsyncRemote(
  _ settings: Fetcher.Settings = .quick, location: SourceLocation = #_sourceLocation,
  _ body: (RemoteScratch) async throws -> Void
) async throws {
  let remote = try RemoteScratch(settings)
  defer { remote.copy.close() }
  try await body(remote)
  #expect(remote.settle(), "something is still under way", sourceLocation: location)
  try checkInvariants(remote.copy, location: location)
}

/// A read that was begun.
final class Read: Sendable {
  private let result = Lock<Result<[UInt8], MarfaError>?>(.leaf, nil)
  private let count = Lock<Int>(.leaf, 0)
  private let wait = Lock<RangeWait?>(.leaf, nil)

  init(_ reader: RangeReader, at offset: Int64, _ count: Int) {
    let wait = reader.read(at: offset, count: count) { [self] answer in
      self.count.withLock { $0 += 1 }
      let bytes: Result<[UInt8], MarfaError> =
        switch answer {
        case .failure(let error): .failure(error)
        case .success(.bytes(let bytes)): .success(bytes)
        case .success(.file(let file, let count)): .success(Read.contents(of: file, at: offset, count))
        }
      result.withLock { $0 = bytes }
    }
    self.wait.withLock { $0 = wait }
  }

  private static func contents(of file: Descriptor, at offset: Int64, _ count: Int) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    let read = bytes.withUnsafeMutableBytes { try? file.read(into: $0, at: offset) }
    return Array(bytes.prefix(read ?? 0))
  }

  /// It was answered.
  var isDone: Bool { result.withLock { $0 != nil } }
  /// How often.
  var answers: Int { count.withLock { $0 } }
  func cancel() { wait.withLock { $0 }?.cancel() }

  /// The answer, waited for.
  func get(location: SourceLocation = #_sourceLocation) throws -> [UInt8] {
    #expect(eventually { isDone }, "the read was never answered", sourceLocation: location)
    guard let result = result.withLock({ $0 }) else { throw MarfaError.canceled }
    return try result.get()
  }

  /// The failure, waited for.
  var failure: MarfaError? {
    _ = eventually { isDone }
    guard case .failure(let error)? = result.withLock({ $0 }) else { return nil }
    return error
  }
}
