/// Where bytes that are not here come from.
protocol ByteSource: AnyObject, Sendable {
  /// Asks for a range of a blob, or for the whole. Events come on the source's own thread and are handled quickly;
  /// ``BytesEvent/end(_:)`` comes exactly once, as the last, also after a cancel.
  func bytes(
    of hash: BlobHash, range: Range<Int64>?, _ handler: @escaping @Sendable (BytesEvent) -> BytesFlow
  ) -> any BytesTransfer

  /// Asks for the size alone, in bytes. `then` is called exactly once, on any thread.
  func size(of hash: BlobHash, _ then: @escaping @Sendable (Result<Int64, BytesFailure>) -> Void)
}

/// What a transfer brings.
enum BytesEvent {
  /// The answer begins: the size of the whole, where it says so; where its bytes begin; and whether the host sends the
  /// whole whatever was asked.
  case head(total: Int64?, offset: Int64, ignoresRange: Bool)
  /// The next bytes, valid until the handler returns.
  case bytes(UnsafeRawBufferPointer)
  /// It is over.
  case end(Result<Void, BytesFailure>)
}

/// What the source is to do after an event.
enum BytesFlow: Sendable {
  case goOn
  /// Take no more from the network until ``BytesTransfer/resume()``.
  case pause
  /// No more is wanted; the end still comes.
  case stop
}

/// A transfer under way. Any thread may call.
protocol BytesTransfer: AnyObject, Sendable {
  /// No more is wanted; the end still comes.
  func cancel()
  /// Goes on after ``BytesFlow/pause``. It may come from another thread before the source has done anything about the pause:
  /// then there is none.
  func resume()
}

/// Why a source brought not all that was asked for.
enum BytesFailure: Error, Equatable, Sendable {
  /// The server, or the link it gave, can't be reached.
  case unreachable(String)
  /// It sends nothing: a limit of time passed.
  case timedOut(String)
  /// It stopped sending part way.
  case stopped(String)
  /// It asks to be left alone for so long.
  case rateLimited(seconds: Int?)
  /// The server itself says that it holds no bytes by that hash.
  case absent
  /// The key is not accepted, or may not read these bytes.
  case credentialRefused(String)
  /// Anything else, in words.
  case failed(String)
  /// It was cancelled.
  case canceled
}
