import COpenSSL

/// An incremental SHA-256 over OpenSSL, which uses the processor's own instructions.
package final class SHA256 {
  private let context: OpaquePointer
  /// OpenSSL's own, found once: a digest begun with `EVP_sha256()` looks for it anew, which costs more than a small file.
  // Safe: OpenSSL lets any thread use what was fetched, and it is never freed.
  nonisolated(unsafe) private static let algorithm = EVP_MD_fetch(nil, "SHA256", nil)

  /// Starts an empty digest. Fails only when OpenSSL cannot allocate or has no SHA-256 at all.
  package init() throws(MarfaError) {
    guard let context = EVP_MD_CTX_new() else { throw .io(Errno(12), "a digest could not be allocated") }
    self.context = context
    guard let algorithm = SHA256.algorithm, EVP_DigestInit_ex(context, algorithm, nil) == 1 else {
      throw .io(.io, "OpenSSL offers no SHA-256")
    }
  }

  deinit { EVP_MD_CTX_free(context) }

  /// Adds bytes.
  package func update(_ bytes: UnsafeRawBufferPointer) {
    EVP_DigestUpdate(context, bytes.baseAddress, bytes.count)
  }

  /// The hash of all that was added. The digest is spent.
  package func finish() -> BlobHash {
    withUnsafeTemporaryAllocation(byteCount: 32, alignment: 8) { out in
      EVP_DigestFinal_ex(context, out.baseAddress?.assumingMemoryBound(to: UInt8.self), nil)
      return BlobHash(fixed: UnsafeRawBufferPointer(out))
    }
  }
}
