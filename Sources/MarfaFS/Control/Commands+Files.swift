import MarfaEngine

/// Files brought in: each request brings one, by its absolute path.
extension Commands {
  private static let attachmentKeys: Set<String> = ["file", "title", "mime", "type", "tier"]

  /// `attach`: a copy of a file is attached to an item.
  func attach(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    let arguments = try Arguments(arguments, allowed: Self.attachmentKeys.union(ItemReference.keys))
    let attachment = try attachment(arguments)
    let file = try arguments.path("file")
    let host = try ItemReference(arguments).resolve(in: copy)
    return try engine { () throws(MarfaError) in
      let attached = try copy.items.attach(to: host, file: file, attachment)
      return try describe(attached, host: host)
    }
  }

  /// `embed`: as `attach`, and the item's body shows the file at its end.
  func embed(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    let arguments = try Arguments(arguments, allowed: Self.attachmentKeys.union(ItemReference.keys))
    let attachment = try attachment(arguments)
    let file = try arguments.path("file")
    let host = try ItemReference(arguments).resolve(in: copy)
    let embedded: Embedded
    do {
      embedded = try copy.items.embed(file: file, in: host, attachment)
    } catch let failure as EmbedFailure {
      // The file is attached all the same: whoever asked must learn of it.
      var answer = CommandFailure(failure.reason)
      answer.message = "the file is attached, and not embedded: \(failure.reason)"
      answer.details = try engine { () throws(MarfaError) in try describe(failure.attached, host: host) }
      throw answer
    } catch let error as MarfaError {
      throw CommandFailure(error)
    } catch {
      throw CommandFailure(.store, "store", "\(error)")
    }
    return try engine { () throws(MarfaError) in
      var result = try describe(embedded.attached, host: host)
      result["edit"] = .integer(embedded.edit.number)
      return result
    }
  }

  /// `add`: a copy of a file becomes a file that hangs on no item.
  func add(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    let arguments = try Arguments(arguments, allowed: Self.attachmentKeys.union(["tags"]))
    let attachment = try attachment(arguments)
    let file = try arguments.path("file")
    let tags = try arguments.strings("tags")
    return try engine { () throws(MarfaError) in
      let added = try copy.items.addFile(file, attachment, tags: tags)
      var result = try describe(added.file, added.blob)
      result["upload"] = Self.optional(added.upload)
      result["create"] = .integer(added.create.number)
      result["tags"] = .array(try copy.items.get(added.file)?.tags.map { .string($0) } ?? [])
      return result
    }
  }

  private func attachment(_ arguments: Arguments) throws(CommandFailure) -> Attachment {
    let tier = try arguments.string("tier")
    let known = tier.flatMap { Tier(rawValue: $0) }
    if let tier, known == nil {
      throw CommandFailure(.usage, "bad_argument", "\"\(tier)\" is no tier: library or feed")
    }
    return Attachment(
      mimeType: try arguments.string("mime"), title: try arguments.string("title"),
      type: try arguments.string("type"), tier: known)
  }

  private func describe(_ attached: Attached, host: ItemID) throws(MarfaError) -> JSON.Object {
    var result = try describe(attached.file, attached.blob)
    result["item"] = .string("\(host)")
    result["edge"] = .string("\(attached.edge)")
    result["embed"] = .optional(attached.embed)
    result["upload"] = Self.optional(attached.upload)
    result["create"] = .integer(attached.create.number)
    result["attach"] = .integer(attached.attach.number)
    return result
  }

  private func describe(_ file: ItemID, _ blob: BlobHash) throws(MarfaError) -> JSON.Object {
    let item = try copy.items.get(file)
    return [
      "id": .string("\(file)"), "title": .string(item?.title ?? ""), "type": .string(item?.type ?? ""),
      "mime_type": .optional(item?.mimeType), "tier": .string(item?.tier.rawValue ?? ""),
      "hash": .string("\(blob)"), "size": try copy.blobs.size(blob).map { .integer($0) } ?? .null,
    ]
  }

  private static func optional(_ write: WriteID?) -> JSON { write.map { .integer($0.number) } ?? .null }
}
