@testable import MarfaEngine

/// Takes a transfer and keeps what came, for a test to look at.
final class Taker: TransferHandler {
  struct Taken {
    var head: HTTPHead?
    var bytes: [UInt8] = []
    var ends = 0
  }
  private let state = Lock<Taken>(.leaf, Taken())
  private let done = OneShot<Result<Void, NetworkFailure>>()
  private let onHead: @Sendable (HTTPHead) -> Flow
  private let onBytes: @Sendable (Int) -> Flow

  init(
    head: @escaping @Sendable (HTTPHead) -> Flow = { _ in .goOn },
    bytes: @escaping @Sendable (Int) -> Flow = { _ in .goOn }
  ) {
    onHead = head
    onBytes = bytes
  }

  func head(_ head: HTTPHead) -> Flow {
    state.withLock { $0.head = head }
    return onHead(head)
  }

  func bytes(_ bytes: UnsafeRawBufferPointer) -> Flow {
    state.withLock { $0.bytes.append(contentsOf: bytes) }
    return onBytes(bytes.count)
  }

  func end(_ result: Result<Void, NetworkFailure>) {
    let isFirst = state.withLock { state in
      state.ends += 1
      return state.ends == 1
    }
    if isFirst { done.fulfil(result) }
  }

  var taken: Taken { state.withLock { $0 } }
  var text: String { String(decoding: taken.bytes, as: UTF8.self) }
  /// The failure it ended with; `nil` for a success. Waits for the end.
  func failure() -> NetworkFailure? { if case .failure(let failure) = done.wait() { failure } else { nil } }
}

/// Takes a blob's bytes.
final class BytesTaker: BytesHandler {
  struct Taken {
    var heads: [BytesHead] = []
    var bytes: [UInt8] = []
    var ends = 0
  }
  private let state = Lock<Taken>(.leaf, Taken())
  private let done = OneShot<Result<Void, RangeFailure>>()
  private let onBytes: @Sendable (Int) -> Flow

  init(bytes: @escaping @Sendable (Int) -> Flow = { _ in .goOn }) { onBytes = bytes }

  func head(_ head: BytesHead) -> Flow {
    state.withLock { $0.heads.append(head) }
    return .goOn
  }

  func bytes(_ bytes: UnsafeRawBufferPointer) -> Flow {
    state.withLock { $0.bytes.append(contentsOf: bytes) }
    return onBytes(bytes.count)
  }

  func end(_ result: Result<Void, RangeFailure>) {
    let isFirst = state.withLock { state in
      state.ends += 1
      return state.ends == 1
    }
    if isFirst { done.fulfil(result) }
  }

  var taken: Taken { state.withLock { $0 } }
  var text: String { String(decoding: taken.bytes, as: UTF8.self) }
  func failure() -> RangeFailure? { if case .failure(let failure) = done.wait() { failure } else { nil } }
}

/// Takes events.
final class EventTaker: EventHandler {
  private let state = Lock<[ServerEvent]>(.leaf, [])
  private let done = OneShot<Result<Void, RemoteFailure>>()
  private let onEvent: @Sendable (ServerEvent) -> Flow

  init(_ onEvent: @escaping @Sendable (ServerEvent) -> Flow = { _ in .goOn }) { self.onEvent = onEvent }

  func event(_ event: ServerEvent) -> Flow {
    state.withLock { $0.append(event) }
    return onEvent(event)
  }

  func end(_ result: Result<Void, RemoteFailure>) { done.fulfil(result) }

  var names: [String] { state.withLock { $0.map(\.name) } }
  var events: [ServerEvent] { state.withLock { $0 } }
  func failure() -> RemoteFailure? { if case .failure(let failure) = done.wait() { failure } else { nil } }
}
