/// The writes that wait (contract "The queue").
public struct Queue: Sendable {
  let copy: WorkingCopy

  /// The waiting writes in order, behind `after`, at most `limit`.
  public func writes(after: WriteID? = nil, limit: Int = 1000) throws(MarfaError) -> [QueuedWrite] {
    try copy.store.snapshot { (connection) throws(MarfaError) in try connection.queue(after: after, limit: limit) }
  }

  /// The waiting writes about an item, in order.
  public func writes(about item: ItemID) throws(MarfaError) -> [QueuedWrite] {
    try copy.store.snapshot { (connection) throws(MarfaError) in try connection.queue(about: item) }
  }

  /// The write that sends these bytes, when one waits.
  public func upload(of blob: BlobHash) throws(MarfaError) -> QueuedWrite? {
    try copy.store.read { (connection) throws(MarfaError) in try connection.upload(of: blob) }
  }

  /// The place of a write, from 1.
  public func position(_ id: WriteID) throws(MarfaError) -> Int {
    try copy.store.read { (connection) throws(MarfaError) in try connection.queuePosition(id) }
  }

  /// How many writes stand where.
  public func counts() throws(MarfaError) -> QueueCounts {
    try copy.store.read { (connection) throws(MarfaError) in try connection.queueCounts() }
  }
}
