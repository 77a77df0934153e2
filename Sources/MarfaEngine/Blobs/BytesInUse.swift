/// Bytes that somebody reads: their file stays where it is until this goes.
public final class BytesInUse: Sendable {
  private let hash: BlobHash
  private let blobs: BlobStore

  init(_ hash: BlobHash, in blobs: BlobStore) {
    self.hash = hash
    self.blobs = blobs
    blobs.pin(hash)
  }

  deinit { blobs.unpin(hash) }
}
