/// Reads ranges of a blob's bytes, here or not. While it is open the bytes stay: no trim, eviction or other fetch takes
/// them. Any thread may call. Close it, or let it go.
public final class RangeReader: Sendable {
  /// Which bytes.
  public let hash: BlobHash
  private let source: Source
  private let isOpen = Lock<Bool>(.leaf, true)
  private let whenClosed: @Sendable () -> Void

  private enum Source {
    case held(Descriptor, size: Int64)
    case fetched(BlobFetch, reader: Int)
  }

  /// A reader of held bytes.
  init(_ hash: BlobHash, held: Descriptor, size: Int64, whenClosed: @escaping @Sendable () -> Void) {
    self.hash = hash
    self.whenClosed = whenClosed
    source = .held(held, size: size)
  }

  /// A reader of bytes that are fetched.
  init(_ fetch: BlobFetch, whenClosed: @escaping @Sendable () -> Void) {
    hash = fetch.hash
    self.whenClosed = whenClosed
    source = .fetched(fetch, reader: fetch.addReader())
  }

  deinit { close() }

  /// Reads `count` bytes, fewer only where the blob ends. `then` is called exactly once: before this returns when the
  /// bytes are here or can't be had, otherwise when they are, on a thread that must not be kept. The answer can be
  /// stopped being waited for through what is returned; `nil` when it has been given.
  @discardableResult
  public func read(
    at offset: Int64, count: Int, then: @escaping @Sendable (Result<RangeBytes, MarfaError>) -> Void
  ) -> RangeWait? {
    guard offset >= 0, count >= 0 else {
      then(.failure(.invalid("a range begins at 0 or behind")))
      return nil
    }
    switch source {
    case .held(let descriptor, let size):
      then(.success(.file(descriptor, count: Int(max(0, min(Int64(count), size - offset))))))
      return nil
    case .fetched(let fetch, let reader):
      return fetch.read(reader, at: offset, count: count, then: then)
    }
  }

  /// Nothing more is read; what was fetched ahead for it is wanted no more.
  public func close() {
    let closes = isOpen.withLock { isOpen in
      defer { isOpen = false }
      return isOpen
    }
    guard closes else { return }
    whenClosed()
    // The fetch has a pin of its own: with it goes the last, and what the budget wants back may go.
    if case .fetched(let fetch, let reader) = source { fetch.removeReader(reader) }
  }
}

/// The bytes of a range.
public enum RangeBytes: Sendable {
  /// They stand in this file, at their own offset.
  case file(Descriptor, count: Int)
  /// They are here: the volume takes no more.
  case bytes([UInt8])
}

/// A read that waits.
public struct RangeWait: Sendable {
  let fetch: BlobFetch
  let id: Int

  /// Stops waiting: `then` is called with ``MarfaError/canceled``, unless it has been.
  public func cancel() { fetch.cancel(waiter: id) }
}
