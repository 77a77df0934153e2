import Glibc
import MarfaEngine

/// Files whose bytes are not all here. A worker never waits for the network: the reply is parked, and given from whichever
/// thread has the answer; an interrupt ends the wait.
extension FileSystem {
  /// A file asked about directly waits so many seconds for its length to be learnt.
  private static let sizeLimit = 5.0

  // MARK: - Reading

  /// Reads through the handle's own reader, so that each has its place.
  @inline(never)
  func readElsewhere(
    _ handle: Handle, _ hash: BlobHash, _ offset: Int64, _ size: Int, _ reply: consuming DataReply
  ) {
    let reader: RangeReader
    do throws(MarfaError) { reader = try handle.reader(hash, copy.blobs) } catch { return reply.fail(error.errno) }
    let parked = reply.park()
    let wait = reader.read(at: offset, count: size) { [self] result in answer(parked, offset, result) }
    if let wait { parked.whenInterrupted { _ in wait.cancel() } }
  }

  private func answer(_ parked: ParkedReply<DataAnswer>, _ offset: Int64, _ result: Result<RangeBytes, MarfaError>) {
    guard let reply = parked.take() else { return }
    switch result {
    case .success(.file(let descriptor, let count)):
      reply.file(descriptor: descriptor.raw, offset: offset, count: count)
      withExtendedLifetime(descriptor) {}
    case .success(.bytes(let bytes)):
      let lent = Lent(bytes)
      reply.bytes(lent.buffer)
      withExtendedLifetime(lent) {}
    case .failure(let error): reply.fail(error.errno)
    }
  }

  // MARK: - Changing

  /// Goes on once all bytes of an open file are here, on a thread that may take its time; `finally` follows in any case.
  func whenWhole<Answer>(
    _ hash: BlobHash, _ file: OpenFile, _ reply: consuming Reply<Answer>,
    finally: @escaping @Sendable () -> Void = {}, then body: @escaping @Sendable (consuming Reply<Answer>) -> Void
  ) {
    let parked = reply.park()
    let fetch = copy.blobs.fetch(hash) { [later] result in
      later.post {
        defer { finally() }
        guard let reply = parked.take() else { return }
        do throws(MarfaError) {
          try result.get()
          try file.arrived(hash)
        } catch {
          return reply.fail(error.errno)
        }
        body(reply)
      }
    }
    parked.whenInterrupted { _ in fetch.cancel() }
  }

  /// A write to a file whose bytes are not all here: they are fetched, and then it is written. What is to be written is
  /// taken over meanwhile, as it is gone when this returns.
  func writeElsewhere(
    _ file: OpenFile, _ hash: BlobHash, _ source: WriteSource, at offset: Int64, _ reply: consuming WriteReply
  ) {
    var bytes = [UInt8](repeating: 0, count: source.size)
    let copied = bytes.withUnsafeMutableBytes { buffer in
      Result { () throws(Errno) in try source.copy(into: buffer) }
    }
    do throws(Errno) { bytes.removeLast(bytes.count - (try copied.get())) } catch { return reply.fail(error) }
    let written = bytes
    whenWhole(hash, file, reply) { (reply: consuming WriteReply) in
      do throws(MarfaError) {
        let count = try file.write(written.count, at: offset) { (descriptor) throws(Errno) in
          let result = written.withUnsafeBytes { buffer in
            let count = pwrite(descriptor, buffer.baseAddress, buffer.count, off_t(offset))
            return count < 0 ? Result<Int, Errno>.failure(.last) : .success(count)
          }
          return try result.get()
        }
        reply.written(count)
      } catch {
        reply.fail(error.errno)
      }
    }
  }

  // MARK: - Lengths

  /// Goes on once the length of an open file is known; the file is let go when it can't be.
  func whenSized(
    _ hash: BlobHash, _ file: OpenFile, _ reply: consuming OpenReply,
    _ body: @escaping @Sendable (consuming OpenReply) -> Void
  ) {
    let parked = reply.park()
    copy.blobs.size(hash, waiting: Self.sizeLimit) { [self] result in
      guard let reply = parked.take() else { return files.release(file) }
      switch result {
      case .success(let size):
        file.learnt(hash, size: size)
        body(reply)
      case .failure(let error):
        files.release(file)
        reply.fail(error.errno)
      }
    }
    parked.whenInterrupted { parked in parked.take()?.fail(Errno(EINTR)) }
  }

  /// Attributes of a file whose length nobody knows: it is asked for, and shown as 0 when it does not come in time.
  func getattr(_ node: Node, sizeOf hash: BlobHash, _ reply: consuming AttributeReply) {
    let parked = reply.park()
    copy.blobs.size(hash, waiting: Self.sizeLimit) { [self] result in
      guard let reply = parked.take() else { return }
      var node = node
      if case .success(let size) = result { node.size = size }
      reply.attributes(status(of: node), timeout: attributeTimeout(node))
    }
    parked.whenInterrupted { parked in parked.take()?.fail(Errno(EINTR)) }
  }

  // MARK: - Held or not

  /// `user.marfa.held`: `yes` fetches the whole, `no` lets it go where that is allowed.
  func setHeld(_ value: [UInt8], _ node: UInt64, _ reply: consuming DoneReply) {
    let word = String(decoding: value, as: UTF8.self)
    guard word == "yes" || word == "no" else { return reply.fail(.invalid) }
    do throws(MarfaError) {
      guard let facts = try copy.facts(ofFile: number(node)), facts.node.kind == .file else {
        throw .file(.notPermitted)
      }
      guard let hash = facts.blob else {
        // Empty, or being written: all there is, is here.
        if word == "no" { throw .file(.notPermitted) }
        reply.done()
        return
      }
      if word == "no" {
        // What can't be for good is said first: a file that was closed just now may still be open to us.
        try copy.blobs.checkLetGo(hash)
        if files.find(node) != nil { throw .file(Errno(EBUSY)) }
        try copy.blobs.letGo(hash)
        forgetAttributes(number(node))
      }
      if word == "no" || facts.isHeld {
        reply.done()
        return
      }
      // "yes" is a promise that they are here afterwards.
      if let refusal = try copy.blobs.refusalToStay(hash) { throw refusal }
      let parked = reply.park()
      let fetch = copy.blobs.fetch(hash) { [blobs = copy.blobs] result in
        switch result {
        case .success where (try? blobs.notStaying([hash]).isEmpty) == false: parked.take()?.fail(.noSpace)
        case .success: parked.take()?.done()
        case .failure(let error): parked.take()?.fail(error.errno)
        }
      }
      parked.whenInterrupted { _ in fetch.cancel() }
    } catch {
      reply.fail(error.errno)
    }
  }
}
