/// The kinds of write the contract has ("The queue").
public enum WriteKind: String, Sendable, CaseIterable {
  case createItem = "create_item"
  case updateItem = "update_item"
  case deleteItem = "delete_item"
  case restoreItem = "restore_item"
  case transitionItem = "transition_item"
  case createEdge = "create_edge"
  case updateEdge = "update_edge"
  case deleteEdge = "delete_edge"
  case replaceMetadata = "replace_metadata"
  case mergeMetadata = "merge_metadata"
  case addTag = "add_tag"
  case removeTag = "remove_tag"
  case writeExtension = "write_extension"
  case deleteExtension = "delete_extension"
  case uploadBlob = "upload_blob"
}

/// What became of a write: exactly six (contract "Verdicts").
public enum Verdict: Sendable, Equatable {
  /// The server took it as it was sent.
  case accepted
  /// The server took it and settled a difference without a copy.
  case merged(Resolution)
  /// As merged, and a sibling item holds the value that lost.
  case conflicted(Resolution, copy: ItemID)
  /// No retry changes it; its content is kept until it is discarded.
  case refused(Refusal)
  /// It waits for something a person or another write has to do.
  case blocked(Blocked)
  /// It failed for the fifth time, neither by the surroundings nor by a final answer.
  case dead(String)

  /// The contract's word for it.
  public var word: String {
    switch self {
    case .accepted: "accepted"
    case .merged: "merged"
    case .conflicted: "conflicted"
    case .refused: "refused"
    case .blocked: "blocked"
    case .dead: "dead"
    }
  }
}

/// `conflict_resolution` of an answer: which fields, and by which rule.
public struct Resolution: Sendable, Equatable {
  /// The fields both sides changed.
  public var fields: [String]
  /// The rule's name.
  public var strategy: String
  /// Wraps both.
  public init(fields: [String], strategy: String) {
    self.fields = fields
    self.strategy = strategy
  }
}

/// A final refusal: the server's code and words, or the write it waited on.
public struct Refusal: Sendable, Equatable {
  /// `error.code`, or `dependency_refused` when it was never sent.
  public var code: String
  /// Words for a person.
  public var message: String
  /// The refused or dead write this one waited on.
  public var becauseOf: WriteID?
  /// Wraps all three.
  public init(code: String, message: String, becauseOf: WriteID? = nil) {
    self.code = code
    self.message = message
    self.becauseOf = becauseOf
  }
}

/// Why a write is blocked: the contract's five reasons.
public enum Blocked: Sendable, Equatable {
  /// The key is not accepted (the whole queue parks), or lacks this grant.
  case credentialRefused(grant: String?)
  /// The idempotency key was used for something else.
  case keySpent
  /// The version it was based on is gone.
  case ancestorUnavailable
  /// The server will not settle the difference itself.
  case conflictUnresolved
  /// What it names has not been answered yet.
  case awaitingDependency(WriteID?)

  /// The contract's word for it.
  public var word: String {
    switch self {
    case .credentialRefused: "credential_refused"
    case .keySpent: "key_spent"
    case .ancestorUnavailable: "ancestor_unavailable"
    case .conflictUnresolved: "conflict_unresolved"
    case .awaitingDependency: "awaiting_dependency"
    }
  }
}

/// Where a queued write stands. An accepted one leaves the queue.
public enum WriteState: String, Sendable, CaseIterable {
  /// It waits for its turn, or for the settling time to pass.
  case queued
  /// It has gone out and no answer came yet. From its first sending on, its body never changes.
  case sending
  case blocked
  case refused
  case dead
}

/// A write that waits in the queue.
public struct QueuedWrite: Sendable, Equatable {
  /// Its place and identity.
  public var id: WriteID
  /// What it does.
  public var kind: WriteKind
  /// The item it is about; `nil` for an upload or an edge write.
  public var item: ItemID?
  /// The edge it is about.
  public var edge: EdgeID?
  /// The bytes it sends.
  public var blob: BlobHash?
  /// What it says, in the shape of the request's body.
  public var body: JSON.Object
  /// The version it was read at; an update must have one.
  public var baseVersion: Int64?
  /// The `Idempotency-Key`, minted when it was queued. An upload carries none.
  public var idempotencyKey: String?
  /// The creates and uploads it names, which must be answered first.
  public var dependsOn: [WriteID]
  /// The write ahead of it to the same row or edge.
  public var follows: WriteID?
  /// Where it stands.
  public var state: WriteState
  /// Why, when it is blocked, refused or dead.
  public var verdict: Verdict?
  /// True from the first time it went out: its body never changes then.
  public var hasGoneOut: Bool
  /// The server told of its row, by an event or a hydration, since it first went out: its answer may be the older of
  /// the two, a repeated one long so.
  var isOvertaken: Bool
  /// When it was queued.
  public var queuedAt: Timestamp
  /// It is not sent before this moment: an editor's next step may still change it.
  public var notBefore: Timestamp
  /// The write that has to be answered before this one goes, when ``Queue`` was asked and there is one.
  public var awaits: WriteID?

  /// What became of it so far: its verdict, or that it waits for another (contract, `awaiting_dependency`), which passes
  /// by itself.
  public var standing: Verdict? { verdict ?? awaits.map { .blocked(.awaitingDependency($0)) } }
}
