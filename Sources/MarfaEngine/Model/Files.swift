/// What an attach sets on the file item. **A field left unset takes the file's own** (seed "Attach a file").
public struct Attachment: Sendable, Equatable {
  /// The MIME type; unset: by the name and the content.
  public var mimeType: String?
  /// The title; unset: the file's name.
  public var title: String?
  /// The item type; unset: by the MIME type.
  public var type: String?
  /// The tier; unset: `library`.
  public var tier: Tier?

  /// All fields unset unless given.
  public init(mimeType: String? = nil, title: String? = nil, type: String? = nil, tier: Tier? = nil) {
    self.mimeType = mimeType
    self.title = title
    self.type = type
    self.tier = tier
  }
}

/// What an attach queued: three writes, each with its own verdict.
public struct Attached: Sendable, Equatable {
  /// The file item.
  public var file: ItemID
  /// The `attached-to` edge.
  public var edge: EdgeID
  /// The bytes.
  public var blob: BlobHash
  /// The write that sends the bytes, an earlier one of the queue where it already does; `nil` when the server has them.
  public var upload: WriteID?
  /// The write that creates the file item.
  public var create: WriteID
  /// The write that draws the edge.
  public var attach: WriteID
  /// The text that embeds the file in a body, `![[title]]`; `nil` when the title can't name the file alone.
  public var embed: String?
}

/// What an embed queued: the attach, and the edit of the body.
public struct Embedded: Sendable, Equatable {
  /// The attachment.
  public var attached: Attached
  /// The write that edits the item's body.
  public var edit: WriteID
}

/// What `addFile` queued.
public struct Added: Sendable, Equatable {
  /// The file item, attached to nothing.
  public var file: ItemID
  /// The bytes.
  public var blob: BlobHash
  /// The write that sends the bytes; `nil` as in ``Attached/upload``.
  public var upload: WriteID?
  /// The write that creates the file item.
  public var create: WriteID
}

/// The body step of an embed failed; the attachment stands and its writes stay queued.
public struct EmbedFailure: Error, Sendable, Equatable {
  /// The attachment that was made.
  public var attached: Attached
  /// Why the body could not be edited.
  public var reason: MarfaError
}

/// How much of what was fetched stays on this device (seed "Files on the device").
public enum FileBudget: Sendable, Equatable {
  /// The larger of 2 GiB and a tenth of the volume, held to what leaves a twentieth of the volume free.
  case `default`
  /// That many bytes.
  case bytes(Int64)
  /// No budget: every file fetched stays.
  case keepAll
}

/// Which attachments are outside the budget.
public enum KeepSetting: String, Sendable, CaseIterable {
  /// Those of every item held (the default, and the seed's rule).
  case attached
  /// Those of pinned items only.
  case pinned
  /// None.
  case none
}

/// What the cache holds, read with no request.
public struct FileCache: Sendable, Equatable {
  /// The budget chosen.
  public var setting: FileBudget
  /// The bytes it allows now; `nil` for ``FileBudget/keepAll``.
  public var budget: Int64?
  /// The bytes of the files kept; `nil` with the reason in `heldUnreadable`.
  public var held: Int64?
  /// Why the files kept could not be counted.
  public var heldUnreadable: String?
  /// True when the volume couldn't be read, so the default budget is 2 GiB.
  public var volumeUnreadable: Bool
  /// Why the files fetched last couldn't be kept out of backups. Linux has no such mark: always `nil` here.
  public var backupMarkFailure: String?
  /// The attachments the copy keeps; `nil` when they can't be counted.
  public var attachments: KeptAttachments?
}

/// The attachments of the items a copy holds.
public struct KeptAttachments: Sendable, Equatable {
  /// How many are here whole.
  public var held: Int
  /// Their bytes.
  public var heldBytes: Int64
  /// The bytes of partial files.
  public var partialBytes: Int64
  /// How many are not here whole.
  public var notHeld: Int
  /// The bytes those state.
  public var notHeldBytes: Int64
  /// Those not held, by why; each reason once, in the order of ``NotHeldReason``.
  public var notHeldByReason: [NotHeld]

  /// The attachments not held for one reason.
  public struct NotHeld: Sendable, Equatable {
    /// Why.
    public var reason: NotHeldReason
    /// How many.
    public var attachments: Int
    /// The bytes they state.
    public var bytes: Int64
    /// How many state no size.
    public var unstated: Int
  }
}

/// Why an attachment's bytes are not here.
public enum NotHeldReason: String, Sendable, CaseIterable {
  /// No fetch was asked for since the file became an attachment.
  case notFetched = "not_fetched"
  /// The volume had no room for it, or for an attachment before it in the same fetch.
  case noRoom = "no_room"
  /// The server, or the link it gave, couldn't be reached, or stopped sending part way.
  case unreachable
  /// The server asked for a longer wait than a fetch makes.
  case rateLimited = "rate_limited"
  /// The server holds no bytes by that hash.
  case absent
  /// The fetch failed otherwise.
  case failed
  /// The copy holds the edge but not its file item.
  case notInCopy = "not_in_copy"
}

/// What a fetch of the kept attachments brought.
public struct KeptFetch: Sendable, Equatable {
  /// How many files were fetched.
  public var fetched: Int
  /// Their bytes.
  public var bytes: Int64
  /// The attachments after it.
  public var attachments: KeptAttachments?
}
