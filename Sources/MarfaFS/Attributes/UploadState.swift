import MarfaEngine

/// What is to be known of a file that is in no store: it changes without a commit.
struct FileNow {
  /// Something written is not committed.
  var isBeingWritten = false
  /// A program has it open.
  var isOpen = false
  /// Its length.
  var size: Int64 = 0
  /// Bytes of its upload that have gone out; `nil` while it is not being sent.
  var sent: Int64?
  /// Why a write waits that could go.
  var link: LinkState

  init(link: LinkState) { self.link = link }
}

/// How a copy stands with its server, as far as writes that wait are concerned: in words for a person.
struct LinkState {
  /// Why nothing is sent, and what to do; `nil` when a write waits for nothing but its turn.
  var words: String?
  /// The store's path, for what is told to do.
  var store: String

  /// `origin` is the server that the store knows.
  init(_ copy: WorkingCopy, origin: String?) {
    store = copy.path
    if let status = copy.serverStatus {
      words =
        status.isPaused
        ? "sending is paused; \"\(CommandHint("resume", store: store))\" goes on"
        : status.queueTrouble ?? (status.isOnline ? nil : status.trouble)
      if words == nil && status.hydrationProgress != nil {
        words = "nothing is sent while the list of what is there is brought"
      }
    } else if copy.isReader {
      words = "waits for the process that has the store open for writing"
    } else if let origin {
      words = "waits for \(origin): mount the store with a key for it (--key-file FILE or MARFA_API_KEY)"
    } else {
      words = "waits for a server: the store has none yet; mount it with --server URL"
    }
  }
}

/// Where a file stands on its way to the server: the attributes `upload`, `upload_progress` and `upload_detail`.
struct UploadState: Equatable {
  /// `stored`, `local`, `writing`, `queued`, `sending`, `blocked:REASON`, `refused:CODE` or `dead`.
  var state: String
  /// `sent/total`.
  var progress: String?
  /// In words, with what to do.
  var detail: String?
  /// The place in the queue.
  var position: Int?

  private init(_ state: String, _ detail: String? = nil) {
    self.state = state
    self.detail = detail
  }

  init(_ facts: FileFacts, _ now: FileNow) {
    self = UploadState.standing(facts, now)
  }

  /// Of a file or directory whose item the server would not have, or that waited on what it would not have.
  init(refused cause: QueuedWrite, store: String) {
    self.init(cause.word, cause.explained(store: store))
  }

  /// Of a file or directory that the server had before it was set back.
  static let leftBehind = UploadState(
    "local",
    "the server was set back and knows it no more: it stays on this device; rename it, or the topmost such folder, and it is sent anew"
  )

  private static func standing(_ facts: FileFacts, _ now: FileNow) -> UploadState {
    if now.isBeingWritten { return UploadState("writing", "a program has it open for writing") }
    if case .staged = facts.node.content {
      return UploadState("writing", "it is sealed when its last writer closes it")
    }
    if let cause = facts.refusal { return UploadState(refused: cause, store: now.link.store) }
    if facts.isLeftBehind { return UploadState.leftBehind }
    if facts.node.content == .empty {
      return UploadState("local", "an empty file stays on this device: the server holds no empty bytes")
    }
    guard facts.item != nil else {
      return UploadState(
        "local",
        "it stays on this device, for its name or its folder's, or because it was left here; moved to an ordinary name it is sent"
      )
    }
    guard
      let (write, position) = facts.upload.map({ ($0, facts.uploadPosition) })
        ?? facts.waiting.map({ ($0.write, $0.position) })
    else { return UploadState("stored") }
    var state = UploadState(write.word)
    state.position = position
    if write.kind == .uploadBlob { state.progress = "\(now.sent ?? 0)/\(facts.node.size ?? 0)" }
    switch write.state {
    case .queued:
      state.detail =
        now.link.words
        ?? (facts.upload == nil ? facts.awaited.map { "waits for the answer to write \($0)" } : nil)
        ?? "waits for its turn"
    case .sending: break
    case .dead, .blocked, .refused: state.detail = write.explained(store: now.link.store)
    }
    return state
  }
}

extension QueuedWrite {
  /// Where it stands, in one word.
  var word: String {
    switch (state, verdict) {
    case (.blocked, .blocked(let why)): "blocked:\(why.word)"
    case (.refused, .refused(let why)): "refused:\(why.code)"
    default: state.rawValue
    }
  }

  /// Why it does not move, and what to do about it; `nil` for one that does.
  func explained(store: String) -> String? {
    func hint(_ command: String) -> String { "\"\(CommandHint(command, "\(id)", store: store))\"" }
    return switch verdict {
    case nil, .accepted, .merged, .conflicted: nil
    case .refused(let why):
      why.becauseOf.map { "\(Self.clause(why.message)); see to write \($0)" }
        ?? "the server refused write \(id): \(Self.clause(why.message.isEmpty ? why.code : why.message)); "
        + "\(hint("discard")) gives it up, and what it said stays on this device"
    case .dead(let words):
      "write \(id) failed \(Self.ceiling) times: \(words); \(hint("release")) tries it again, "
        + "\(hint("discard")) gives it up"
    case .blocked(let why): "\(why.explained); \(hint("release")) tries it again"
    }
  }

  /// A server's sentence as a part of ours: without its full stop.
  private static func clause(_ message: String) -> Substring {
    message.hasSuffix(".") && !message.hasSuffix("..") ? message.dropLast() : message[...]
  }

  /// How often a write fails before it is dead (contract, "dead").
  private static var ceiling: Int { 5 }
}

extension Blocked {
  /// In words.
  var explained: String {
    switch self {
    case .credentialRefused(let grant?): "the key may not do this (it lacks \(grant)); give the store another key"
    case .credentialRefused(nil):
      "the server does not accept the key; mount again with another (--key-file FILE or MARFA_API_KEY)"
    case .keySpent: "the server knows its key from another write"
    case .ancestorUnavailable: "the version it was made from is gone from the server"
    case .conflictUnresolved: "it was changed elsewhere too, and the server does not settle the difference"
    case .awaitingDependency(let write):
      write.map { "waits for the answer to write \($0)" } ?? "waits for the answer to another write"
    }
  }
}
