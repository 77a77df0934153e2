/// What an answer to a write means. Judging reads no clock, no store and no socket (contract, "Verdicts").
enum Judgement: Equatable, Sendable {
  /// One of the six. The queue does what it says.
  case verdict(Verdict)
  /// The server did it earlier and no longer has the answer: the row is to be read. It carries the row once that is done.
  case doneUnread(Tree.Change.Answered?)
  /// A delete of what is gone there already, another device's doing: what it asks for is so, and nothing is left to keep.
  case goneAlready
  /// It passes by itself: tried again without limit, never counted. It ends the pass.
  case environmental(RemoteFailure)
  /// Neither environmental nor final: counted, and the fifth time the write is dead.
  case failure(String)
  /// The other side speaks another contract: no verdict, not counted; it ends the pass.
  case contractMismatch([String])
  /// This device can't send it now, though its bytes are there: it stays as it is, uncounted, and others go on.
  case unsendable(String)
  /// The call was cancelled: the write stays as it is.
  case canceled

  /// How often a write may fail so (contract, "dead").
  static let ceiling = 5

  /// Judges what came of sending a write.
  static func of(_ kind: WriteKind, _ result: Result<WriteAnswer, RemoteFailure>) -> Judgement {
    switch result {
    case .success(let answer): .verdict(verdict(of: answer))
    case .failure(let failure): judge(kind, failure)
    }
  }

  /// Judges what came of an upload: its answer must name the bytes that were sent.
  static func of(upload hash: BlobHash, _ result: Result<Uploaded, RemoteFailure>) -> Judgement {
    switch result {
    case .success(let uploaded):
      uploaded.hash == hash
        ? .verdict(.accepted)
        : .failure("the server took the bytes for others: it answered \(uploaded.hash)")
    case .failure(let failure): judge(.uploadBlob, failure)
    }
  }

  private static func verdict(of answer: WriteAnswer) -> Verdict {
    guard let settled = answer.body["conflict_resolution"]?.object else { return .accepted }
    let resolution = Resolution(
      fields: settled["fields"]?.array?.compactMap { $0.string } ?? [], strategy: settled["strategy"]?.string ?? "")
    let copy = answer.body["conflicted_copy_id"] ?? settled["conflicted_copy_id"]
    guard let id = copy?.string.flatMap({ ItemID($0) }) else { return .merged(resolution) }
    return .conflicted(resolution, copy: id)
  }

  private static func judge(_ kind: WriteKind, _ failure: RemoteFailure) -> Judgement {
    switch failure {
    case .notConnected, .unreachable, .timedOut, .notTheServers, .busy: .environmental(failure)
    case .contractMismatch(let named): .contractMismatch(named)
    case .unreadable(let words): .failure("the server's answer can't be used: \(words)")
    case .file(let error): .unsendable("the bytes can't be read: \(error)")
    case .canceled: .canceled
    case .refused(let refusal): judge(kind, refusal)
    }
  }

  private static func judge(_ kind: WriteKind, _ refusal: RemoteRefusal) -> Judgement {
    let final = Judgement.verdict(.refused(Refusal(code: refusal.code, message: refusal.message)))
    switch (refusal.status, refusal.code) {
    case (401, _): return .verdict(.blocked(.credentialRefused(grant: nil)))
    case (404, _) where kind == .deleteItem || kind == .deleteEdge: return .goneAlready
    case (403, _):
      if let grant = refusal.details["grant"] {
        return .verdict(.blocked(.credentialRefused(grant: grant.string ?? grant.text)))
      }
      // The key may create, but not as this source.
      if kind == .createItem, refusal.details.members.count == 1, let source = refusal.details["source"] {
        return .verdict(.blocked(.credentialRefused(grant: "source \(source.string ?? source.text)")))
      }
      return final
    case (409, "version_conflict"): return .verdict(.blocked(.conflictUnresolved))
    case (409, "ancestor_unavailable"): return .verdict(.blocked(.ancestorUnavailable))
    case (409, "idempotency_key_in_flight"):
      return .failure("the server still works on an earlier try (\(refusal.code))")
    case (422, "idempotency_key_reused"): return .verdict(.blocked(.keySpent))
    case (422, "idempotency_result_not_retained"): return .doneUnread(nil)
    default: return final
    }
  }
}
