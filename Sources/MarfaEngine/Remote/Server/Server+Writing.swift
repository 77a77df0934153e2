extension Server {
  /// Sends a write exactly as it is given and waits for its answer.
  public func send(_ write: WriteRequest, _ cancellation: Cancellation) throws(RemoteFailure) -> WriteAnswer {
    var headers: [(name: String, value: String)] = []
    if write.body != nil { headers.append(("Content-Type", "application/json")) }
    if let key = write.idempotencyKey { headers.append(("Idempotency-Key", key)) }
    let answer = try call(
      request(
        write.method, write.path, query: write.query, headers: headers, body: write.body.map { .bytes($0) } ?? .none),
      cancellation)
    return WriteAnswer(
      status: answer.head.status, replayed: answer.head["idempotency-replayed"]?.lowercased() == "true",
      body: answer.body.isEmpty && answer.head.status == 204 ? [:] : try object(answer),
      requestID: answer.head.requestID)
  }

  /// `POST /blobs`: sends bytes from a file, as they are read, and waits for the answer. `progress` is told how many were
  /// handed on, on the network's thread. Whether the hash is the one expected is the caller's to check.
  public func upload(
    _ file: Descriptor, size: Int64, mimeType: String, progress: (@Sendable (Int64) -> Void)? = nil,
    _ cancellation: Cancellation
  ) throws(RemoteFailure) -> Uploaded {
    guard size > 0 else { throw .unreadable("an empty file has no bytes to send") }
    let isSendable = !mimeType.isEmpty && mimeType.utf8.allSatisfy { $0 >= 0x20 && $0 < 0x7f }
    var request = request(
      .post, "/blobs", headers: [("Content-Type", isSendable ? mimeType : "application/octet-stream")],
      body: .file(file, 0..<size, progress: progress))
    // The server has to put away what it got before it can answer: a second for every 32 MiB more.
    request.firstByte = network.limits.firstByte + .seconds(size >> 25)
    let answer = try object(try call(request, cancellation))
    guard let hash = BlobHash(try Decode.text(answer["hash"], "an upload's hash")) else {
      throw .unreadable("an upload's hash is no hash")
    }
    let stated = answer["size_bytes"]?.integer
    guard stated == nil || stated == size else { throw .unreadable("an upload's size is not what was sent") }
    return Uploaded(
      hash: hash, mimeType: try Decode.optionalText(answer["mime_type"], "an upload's MIME type") ?? mimeType,
      size: size)
  }

  /// `HEAD /blobs/{hash}`: how large a blob is; `nil` when the server itself has none of that name.
  public func size(of hash: BlobHash, _ cancellation: Cancellation) throws(RemoteFailure) -> Int64? {
    do throws(RemoteFailure) {
      let answer = try call(request(.head, "/blobs/\(hash)"), cancellation)
      guard let size = answer.head.contentLength else { throw .unreadable("it states no size") }
      return size
    } catch {
      // A HEAD has no body to say why, and not every server says it in a header.
      switch error {
      case .refused(let refusal) where refusal.status == 404: return nil
      case .unreadable where error == .namelessRefusal(404): return nil
      default: throw error
      }
    }
  }
}
