/// What is known of bytes before the first of them.
public struct BytesHead: Sendable, Equatable {
  /// The size of the whole blob, when the answer tells it.
  public var total: Int64?
  /// Where in the blob the first byte delivered stands.
  public var offset: Int64
  /// True when a range was asked for and the host answers with the whole: ``offset`` is 0, and the caller decides.
  public var ignoresRange: Bool

  public init(total: Int64?, offset: Int64, ignoresRange: Bool) {
    self.total = total
    self.offset = offset
    self.ignoresRange = ignoresRange
  }
}

/// Why bytes did not come, or not all of them.
public enum RangeFailure: Error, Equatable, Sendable {
  /// The server, or the link's host, can't be reached or can't answer now. The words are for a person.
  case unreachable(String)
  /// A limit of time passed: no connection, no answer, or no more of its bytes.
  case timedOut(String)
  /// Fewer bytes came than were promised.
  case stoppedPartWay(String)
  /// Asked to come back later, in so many seconds when it said so.
  case rateLimited(seconds: Int?)
  /// The server itself has no such bytes (or this key may not read them).
  case absent
  /// Nothing there by that range; the blob's size, when the answer tells it.
  case pastEnd(size: Int64?)
  /// Refused for another reason, or answered with something else than was asked.
  case refused(String)
  /// The server does not take the key, or not for this.
  case credentialRefused
  /// An answer of another contract.
  case mismatch(named: [String])
  /// ``Transfer/cancel()``, `.stop`, or the network was closed.
  case canceled
}

/// Takes a blob's bytes. All calls come on the network's thread and must not wait for anything.
public protocol BytesHandler: AnyObject, Sendable {
  /// Once, before any bytes.
  func head(_ head: BytesHead) -> Flow
  /// The next bytes in order, lent for the call. No more than were promised.
  func bytes(_ bytes: UnsafeRawBufferPointer) -> Flow
  /// Once; a success means that every promised byte was given.
  func end(_ result: Result<Void, RangeFailure>)
}
