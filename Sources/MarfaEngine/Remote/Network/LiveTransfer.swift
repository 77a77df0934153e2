import CCurl
import Glibc

/// A request on libcurl's hands: one easy handle, its callbacks and its limits of time. Lives on the network's thread only.
final class LiveTransfer {
  /// How far it is, which decides what limit of time applies.
  private enum Phase {
    /// It waits for a connection: libcurl's own limit for making one applies, none for waiting until one is free.
    case connecting
    case asking
    case answering
  }

  let easy: UnsafeMutableRawPointer
  private let request: HTTPRequest
  private let handler: any TransferHandler
  private let limits: NetworkLimits
  private let deadlines: Deadlines
  // libcurl keeps a pointer to it as long as the handle lives.
  private let words: UnsafeMutablePointer<CChar>
  private var headers: UnsafeMutablePointer<curl_slist>?

  private var phase = Phase.connecting
  private var deadline = Int64.max
  private var reader: HeadReader
  /// What ends it, when it is not libcurl's own failure.
  private var failure: NetworkFailure?
  /// The handler's wish; libcurl is paused only once more bytes come.
  private var isPaused = false
  private var libraryIsPaused = false
  private var heldResult: Result<Void, NetworkFailure>?
  private var isEnded = false

  private var sent: Int64 = 0
  private let sending: Int64
  /// Bytes since the idle limit began to run anew.
  private var sinceIdle = 0
  /// Bytes that have come and are handed on in one piece: libcurl brings a fast body in pieces so small that to take each
  /// by itself costs more than the bytes do.
  private var gathered: UnsafeMutableRawBufferPointer?
  private var gatheredCount = 0
  static let mostGathered = 256 << 10
  /// Libcurl's largest piece. A smaller one is the last there is for now.
  private static let largestPiece = Int(CURL_MAX_WRITE_SIZE)

  init(
    _ request: HTTPRequest, _ handler: any TransferHandler, _ limits: NetworkLimits, _ deadlines: Deadlines
  ) throws(NetworkFailure) {
    guard let easy = curl_easy_init() else { throw .unreachable("libcurl could not make a request") }
    self.easy = easy
    self.request = request
    self.handler = handler
    self.limits = limits
    self.deadlines = deadlines
    reader = HeadReader(limit: limits.headBytes)
    words = .allocate(capacity: Int(CURL_ERROR_SIZE))
    words.initialize(repeating: 0, count: Int(CURL_ERROR_SIZE))
    switch request.body {
    case .none: sending = 0
    case .bytes(let bytes): sending = Int64(bytes.count)
    case .file(_, let range, _): sending = Int64(range.count)
    }
    // From here on `deinit` frees what was made.
    try setUp()
  }

  deinit {
    assert(isEnded || phase == .connecting, "a transfer was dropped without its end")
    curl_easy_cleanup(easy)
    curl_slist_free_all(headers)
    words.deallocate()
    gathered?.deallocate()
  }

  // MARK: - The thread's calls

  /// libcurl is done with it.
  func result(of code: CURLcode) -> Result<Void, NetworkFailure> {
    if let failure { return .failure(failure) }
    if code == CURLE_OK {
      return phase == .answering ? .success(()) : .failure(.dropped("the answer had no head"))
    }
    var text = String(cString: words)
    if text.isEmpty { text = String(cString: curl_easy_strerror(code)) }
    return .failure(NetworkFailure(code, text))
  }

  /// The result, to be said now; `nil` while the handler is paused: it is said when it goes on.
  func hold(_ result: Result<Void, NetworkFailure>) -> Result<Void, NetworkFailure>? {
    guard isPaused else { return result }
    heldResult = result
    return nil
  }

  /// Goes on after a pause; a result ends the transfer.
  func resume() -> Result<Void, NetworkFailure>? {
    guard isPaused else { return nil }
    switch handler.resumed() {
    case .pause: return nil
    case .stop: return .failure(.canceled)
    case .goOn: break
    }
    isPaused = false
    if let heldResult { return heldResult }
    idleFromNow()
    guard libraryIsPaused else { return nil }
    libraryIsPaused = false
    // It hands on what it had read already, from within this call.
    let code = marfa_curl_go_on(easy)
    return code == CURLE_OK && failure == nil ? nil : result(of: code)
  }

  /// Hands on what was gathered while libcurl worked; a result ends the transfer.
  func handOn() -> Result<Void, NetworkFailure>? {
    guard gatheredCount > 0 else { return nil }
    if case .stop = handGathered() { return .failure(.canceled) }
    return nil
  }

  /// The failure, when a limit of time has passed.
  func expired(at now: Int64) -> NetworkFailure? {
    guard !isPaused, deadline != .max else { return nil }
    guard deadline <= now else {
      deadlines.note(deadline)
      return nil
    }
    return switch phase {
    case .connecting: .timedOut("no connection within \(limits.connect.words)")
    case .asking where sent < sending: .timedOut("nothing could be sent for \(idle.words)")
    case .asking: .timedOut("no answer within \((request.firstByte ?? limits.firstByte).words)")
    case .answering: .timedOut("nothing came for \(idle.words)")
    }
  }

  /// Says the end. The handle is out of libcurl's hands.
  func end(_ result: Result<Void, NetworkFailure>) {
    isEnded = true
    gathered?.deallocate()
    gathered = nil
    handler.end(result)
  }

  // MARK: - Limits of time

  private var idle: Duration { request.idle ?? limits.idle }

  private func setDeadline(_ duration: Duration) {
    deadline = Monotonic.now + duration.nanoseconds
    deadlines.note(deadline)
  }

  private func idleFromNow() {
    sinceIdle = 0
    setDeadline(idle)
  }

  private func live(_ count: Int) {
    sinceIdle += count
    // Of a stream that keeps its own time any byte is life; of a body, a trickle is a stall.
    if sinceIdle >= (request.idle == nil ? limits.leastPerIdle : 1) { idleFromNow() }
  }

  // MARK: - libcurl's calls

  private func connected() {
    phase = .asking
    if sent < sending { idleFromNow() } else { setDeadline(request.firstByte ?? limits.firstByte) }
  }

  private func take(line: UnsafeRawBufferPointer) -> Bool {
    switch reader.take(line) {
    case .more: return true
    case .tooLarge:
      failure = .tooLarge
      return false
    case .head(let head):
      phase = .answering
      idleFromNow()
      if case .stop = handler.head(head) {
        failure = .canceled
        return false
      }
      return true
    }
  }

  private func take(bytes: UnsafeRawBufferPointer) -> Int {
    if bytes.isEmpty { return 0 }
    if isPaused {
      libraryIsPaused = true
      return marfa_curl_write_pause
    }
    guard phase == .answering else {
      failure = .dropped("the answer had no head")
      return 0
    }
    live(bytes.count)
    if gatheredCount == 0 && bytes.count < Self.largestPiece { return hand(bytes) == .stop ? 0 : bytes.count }
    if gatheredCount + bytes.count > Self.mostGathered {
      switch handGathered() {
      case .goOn: break
      case .pause:
        // These come again when it goes on.
        libraryIsPaused = true
        return marfa_curl_write_pause
      case .stop: return 0
      }
    }
    let gathered = gathered ?? .allocate(byteCount: Self.mostGathered, alignment: 16)
    self.gathered = gathered
    UnsafeMutableRawBufferPointer(rebasing: gathered[gatheredCount...]).copyMemory(from: bytes)
    gatheredCount += bytes.count
    return bytes.count
  }

  private func handGathered() -> Flow {
    guard let gathered else { return .goOn }
    let bytes = UnsafeRawBufferPointer(rebasing: gathered[..<gatheredCount])
    gatheredCount = 0
    return hand(bytes)
  }

  private func hand(_ bytes: UnsafeRawBufferPointer) -> Flow {
    let flow = handler.bytes(bytes)
    switch flow {
    case .goOn: break
    case .pause: isPaused = true
    case .stop: failure = .canceled
    }
    return flow
  }

  private func give(into buffer: UnsafeMutableRawBufferPointer) -> Int {
    let count = min(buffer.count, Int(sending - sent))
    guard count > 0 else { return 0 }
    let target = UnsafeMutableRawBufferPointer(rebasing: buffer[..<count])
    switch request.body {
    case .none: return 0
    case .bytes(let bytes):
      bytes.withUnsafeBytes {
        target.copyMemory(from: UnsafeRawBufferPointer(rebasing: $0[Int(sent)...][..<(Int(sent) + count)]))
      }
    case .file(let file, let range, _):
      do throws(Errno) {
        // A file that has become shorter is not the file whose bytes are to be sent.
        guard try file.read(into: target, at: range.lowerBound + sent) == count else { throw .io }
      } catch {
        failure = .file(error)
        return marfa_curl_read_abort
      }
    }
    sent += Int64(count)
    live(count)
    if sent == sending && phase == .asking { setDeadline(request.firstByte ?? limits.firstByte) }
    if case .file(_, _, let progress?) = request.body { progress(sent) }
    return count
  }

  /// A connection kept from before was dead, and the body goes out again.
  private func seek(to offset: Int64) -> Bool {
    guard (0...sending).contains(offset) else { return false }
    sent = offset
    return true
  }

  // MARK: - Setting up

  private func setUp() throws(NetworkFailure) {
    guard let target = WebAddress(request.url) else { throw .unreachable("the address can't be used") }
    let context = Unmanaged.passUnretained(self).toOpaque()
    set(CURLOPT_ERRORBUFFER, UnsafeMutableRawPointer(words))
    set(CURLOPT_URL, request.url)
    set(CURLOPT_PROTOCOLS_STR, "http,https")
    set(CURLOPT_NOSIGNAL, 1)
    // A signed link is used as it is written, and no name or password can hide in it.
    set(CURLOPT_PATH_AS_IS, 1)
    set(CURLOPT_DISALLOW_USERNAME_IN_URL, 1)
    set(CURLOPT_FOLLOWLOCATION, 0)
    set(CURLOPT_SUPPRESS_CONNECT_HEADERS, 1)
    set(CURLOPT_HTTP_CONTENT_DECODING, 0)
    set(CURLOPT_TCP_KEEPALIVE, 1)
    set(CURLOPT_CONNECTTIMEOUT_MS, Int(clamping: limits.connect.nanoseconds / 1_000_000))
    set(CURLOPT_BUFFERSIZE, 256 << 10)
    set(CURLOPT_HTTP_VERSION, marfa_curl_http2_over_tls)
    set(CURLOPT_SSLVERSION, Int(CURL_SSLVERSION_TLSv1_2))
    // Requests that start together wait to see whether the first one's connection can carry them all.
    if target.scheme == .https { set(CURLOPT_PIPEWAIT, 1) }
    if let authorities = limits.authorities { set(CURLOPT_CAINFO, authorities) }
    // The surroundings may name a proxy; nothing on this machine is behind one.
    if target.isLoopback { set(CURLOPT_PROXY, "") }
    setMethod()
    try setHeaders()
    setCallbacks(context)
  }

  private func setMethod() {
    switch request.method {
    case .get: break
    case .head: set(CURLOPT_NOBODY, 1)
    case .post, .put, .patch, .delete: set(CURLOPT_CUSTOMREQUEST, request.method.rawValue)
    }
    switch (request.body, request.method) {
    case (.none, .get), (.none, .head), (.none, .delete): return
    case (.file, _): set(CURLOPT_UPLOAD_BUFFERSIZE, 256 << 10)
    case (.none, _), (.bytes, _): break
    }
    set(CURLOPT_UPLOAD, 1)
    marfa_curl_set_offset(easy, CURLOPT_INFILESIZE_LARGE, curl_off_t(sending))
  }

  private func setHeaders() throws(NetworkFailure) {
    for (name, value) in request.headers {
      let isName = !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f && $0 != UInt8(ascii: ":") }
      guard isName, value.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f }) else {
        throw .unreachable("a header can't be sent")
      }
      headers = curl_slist_append(headers, value.isEmpty ? "\(name);" : "\(name): \(value)")
    }
    // Not to wait for leave to send the body.
    headers = curl_slist_append(headers, "Expect:")
    marfa_curl_set_list(easy, CURLOPT_HTTPHEADER, headers)
  }

  private func setCallbacks(_ context: UnsafeMutableRawPointer) {
    for option in [CURLOPT_WRITEDATA, CURLOPT_HEADERDATA, CURLOPT_READDATA, CURLOPT_SEEKDATA, CURLOPT_PREREQDATA] {
      set(option, context)
    }
    marfa_curl_set_data(easy, CURLOPT_WRITEFUNCTION) { bytes, size, count, context in
      LiveTransfer.of(context)?.take(bytes: UnsafeRawBufferPointer(start: bytes, count: size * count)) ?? 0
    }
    marfa_curl_set_data(easy, CURLOPT_HEADERFUNCTION) { bytes, size, count, context in
      let goesOn = LiveTransfer.of(context)?.take(line: UnsafeRawBufferPointer(start: bytes, count: size * count))
      return goesOn == true ? size * count : 0
    }
    marfa_curl_set_data(easy, CURLOPT_READFUNCTION) { bytes, size, count, context in
      LiveTransfer.of(context)?.give(into: UnsafeMutableRawBufferPointer(start: bytes, count: size * count))
        ?? marfa_curl_read_abort
    }
    marfa_curl_set_seek(easy) { context, offset, origin in
      origin == SEEK_SET && LiveTransfer.of(context)?.seek(to: Int64(offset)) == true ? 0 : 1
    }
    marfa_curl_set_prerequest(easy) { context, _, _, _, _ in
      LiveTransfer.of(context)?.connected()
      return 0
    }
  }

  private static func of(_ context: UnsafeMutableRawPointer?) -> LiveTransfer? {
    // Safe: libcurl calls back only while the thread, which holds the transfer, is in one of its functions.
    context.map { Unmanaged<LiveTransfer>.fromOpaque($0).takeUnretainedValue() }
  }

  private func set(_ option: CURLoption, _ value: Int) { marfa_curl_set_long(easy, option, value) }
  private func set(_ option: CURLoption, _ value: String) { marfa_curl_set_text(easy, option, value) }
  private func set(_ option: CURLoption, _ value: UnsafeMutableRawPointer) {
    marfa_curl_set_pointer(easy, option, value)
  }
}

extension NetworkFailure {
  /// libcurl's code in our terms.
  init(_ code: CURLcode, _ words: String) {
    switch code {
    case CURLE_OPERATION_TIMEDOUT: self = .timedOut(words)
    case CURLE_SSL_CONNECT_ERROR, CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER,
      CURLE_SSL_CACERT_BADFILE, CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS, CURLE_SSL_PINNEDPUBKEYNOTMATCH:
      self = .tls(words)
    case CURLE_GOT_NOTHING, CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_PARTIAL_FILE, CURLE_HTTP2, CURLE_HTTP2_STREAM,
      CURLE_WEIRD_SERVER_REPLY, CURLE_SEND_FAIL_REWIND, CURLE_BAD_CONTENT_ENCODING, CURLE_WRITE_ERROR,
      CURLE_UNSUPPORTED_PROTOCOL:
      self = .dropped(words)
    case CURLE_COULDNT_CONNECT, CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY, CURLE_URL_MALFORMAT:
      self = .unreachable(words)
    // Something may have gone out.
    default: self = .dropped(words)
    }
  }
}
