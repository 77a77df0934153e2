import Testing

@testable import MarfaEngine

@Suite("What an answer to a write means")
struct JudgementTests {
  struct Row: Sendable, CustomTestStringConvertible {
    var words: String
    var kind = WriteKind.updateItem
    var failure: RemoteFailure
    var judgement: Judgement
    var testDescription: String { words }
  }

  private static func refusal(_ status: Int, _ code: String, _ details: JSON.Object = [:]) -> RemoteFailure {
    .refused(RemoteRefusal(status: status, code: code, message: "no", details: details))
  }

  private static func refused(_ code: String) -> Judgement { .verdict(.refused(Refusal(code: code, message: "no"))) }

  private static let copy = "01920000-0000-7000-8000-000000000001"

  static let refusals: [Row] = [
    Row(
      words: "401 blocks the key", failure: refusal(401, "unauthorized"),
      judgement: .verdict(.blocked(.credentialRefused(grant: nil)))),
    Row(
      words: "403 naming a grant blocks it", failure: refusal(403, "permission_denied", ["grant": "core.note:write"]),
      judgement: .verdict(.blocked(.credentialRefused(grant: "core.note:write")))),
    Row(words: "403 naming none is final", failure: refusal(403, "forbidden"), judgement: refused("forbidden")),
    Row(
      words: "a create's 403 whose details hold only its source blocks it", kind: .createItem,
      failure: refusal(403, "forbidden", ["source": "mail"]),
      judgement: .verdict(.blocked(.credentialRefused(grant: "source mail")))),
    Row(
      words: "a create's 403 whose details hold more is final", kind: .createItem,
      failure: refusal(403, "forbidden", ["source": "mail", "type": "x"]), judgement: refused("forbidden")),
    Row(
      words: "an update's 403 about a source is final", failure: refusal(403, "forbidden", ["source": "mail"]),
      judgement: refused("forbidden")),
    Row(
      words: "409 version_conflict blocks it", failure: refusal(409, "version_conflict"),
      judgement: .verdict(.blocked(.conflictUnresolved))),
    Row(
      words: "409 ancestor_unavailable blocks it", failure: refusal(409, "ancestor_unavailable"),
      judgement: .verdict(.blocked(.ancestorUnavailable))),
    Row(
      words: "422 idempotency_key_reused blocks it", failure: refusal(422, "idempotency_key_reused"),
      judgement: .verdict(.blocked(.keySpent))),
    Row(
      words: "422 idempotency_result_not_retained has it read back",
      failure: refusal(422, "idempotency_result_not_retained"), judgement: .doneUnread(nil)),
    Row(
      words: "409 idempotency_key_in_flight is counted", failure: refusal(409, "idempotency_key_in_flight"),
      judgement: .failure("the server still works on an earlier try (idempotency_key_in_flight)")),
    Row(words: "409 id_reused is final", failure: refusal(409, "id_reused"), judgement: refused("id_reused")),
    Row(
      words: "404 to a delete says that it is done", kind: .deleteItem, failure: refusal(404, "item_not_found"),
      judgement: .goneAlready),
    Row(words: "404 is final", failure: refusal(404, "item_not_found"), judgement: refused("item_not_found")),
    Row(words: "400 is final", failure: refusal(400, "validation_error"), judgement: refused("validation_error")),
    Row(words: "422 of another kind is final", failure: refusal(422, "other"), judgement: refused("other")),
    Row(words: "413 is final", failure: refusal(413, "too_large"), judgement: refused("too_large")),
    Row(
      words: "an answer that can't be read is counted", failure: .unreadable("x"),
      judgement: .failure("the server's answer can't be used: x")),
    Row(
      words: "another contract ends the pass", failure: .contractMismatch(named: ["1"]),
      judgement: .contractMismatch(["1"])),
    Row(
      words: "no contract on a success ends the pass", failure: .contractMismatch(named: []),
      judgement: .contractMismatch([])),
    Row(
      words: "bytes that can't be read now are not counted", kind: .uploadBlob, failure: .file(.io),
      judgement: .unsendable("the bytes can't be read: \(Errno.io)")),
    Row(words: "a cancelled call says nothing", failure: .canceled, judgement: .canceled),
  ]

  static let environmental: [RemoteFailure] =
    [.notConnected("x"), .unreachable("x"), .timedOut("x")]
    + [408, 425, 429, 500, 502, 503, 504].map { .busy(status: $0, retryAfter: 3, words: "") }
    + [400, 401, 403, 404, 409, 422, 502].map { .notTheServers(status: $0, retryAfter: nil) }

  @Test("is what the contract's table says of each refusal", arguments: refusals)
  func table(_ row: Row) {
    #expect(Judgement.of(row.kind, .failure(row.failure)) == row.judgement)
  }

  @Test(
    "is environmental when the network, a proxy or a busy server gave it, whatever the kind", arguments: environmental)
  func passes(_ failure: RemoteFailure) {
    for kind in WriteKind.allCases {
      #expect(Judgement.of(kind, .failure(failure)) == .environmental(failure))
    }
  }

  @Test("is accepted, merged or conflicted by what a success says of a difference")
  func successes() {
    func of(_ body: JSON.Object, replayed: Bool = false) -> Judgement {
      .of(.updateItem, .success(WriteAnswer(status: 200, replayed: replayed, body: body)))
    }
    #expect(of(["item": [:]]) == .verdict(.accepted))
    #expect(of(["item": [:], "acknowledged": true], replayed: true) == .verdict(.accepted))
    let resolution: JSON = ["fields": ["title"], "strategy": "last_writer_wins"]
    let read = Resolution(fields: ["title"], strategy: "last_writer_wins")
    #expect(of(["conflict_resolution": resolution]) == .verdict(.merged(read)))
    #expect(
      of(["conflict_resolution": resolution, "conflicted_copy_id": .string(Self.copy)])
        == .verdict(.conflicted(read, copy: ItemID(Self.copy) ?? .mint())))
    #expect(of(["conflict_resolution": resolution, "conflicted_copy_id": .null]) == .verdict(.merged(read)))
  }

  @Test("is a failure when an upload's answer names other bytes than were sent")
  func uploads() throws {
    let hash = try #require(BlobHash("sha256:" + String(repeating: "ab", count: 32)))
    let other = try #require(BlobHash("sha256:" + String(repeating: "cd", count: 32)))
    let right = Uploaded(hash: hash, mimeType: "text/x-other", size: 3)
    #expect(Judgement.of(upload: hash, .success(right)) == .verdict(.accepted))
    let wrong = Uploaded(hash: other, mimeType: "text/plain", size: 3)
    guard case .failure = Judgement.of(upload: hash, .success(wrong)) else {
      Issue.record("other bytes are taken for ours")
      return
    }
  }
}
