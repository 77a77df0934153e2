import MarfaEngine

/// What a person does with the server and the queue.
extension Commands {
  /// `hydrate`: brings the whole list again. Answers at once, with how many times it was brought so far: `progress` says
  /// more when this one is through. One that is under way is not begun anew.
  func hydrate(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    _ = try Arguments(arguments, allowed: [])
    let link = try link()
    if link.hydrationProgress == nil { try engine { () throws(MarfaError) in try copy.hydrateAgain() } }
    return ["server": .string(link.origin), "hydrations": .integer(link.hydrations)]
  }

  /// `retry`: tries the network now, whatever it waits for.
  func retry(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    _ = try Arguments(arguments, allowed: [])
    let link = try link()
    copy.retryNow()
    return ["server": .string(link.origin)]
  }

  /// `pause`: sends nothing more until `resume`, or until the mount ends.
  func pause(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    _ = try Arguments(arguments, allowed: [])
    _ = try link()
    try engine { () throws(MarfaError) in try copy.queue.pause() }
    return try queueState()
  }

  /// `resume`: sends again.
  func resume(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    _ = try Arguments(arguments, allowed: [])
    _ = try link()
    try engine { () throws(MarfaError) in try copy.queue.resume() }
    return try queueState()
  }

  /// `release`: a write that is blocked, dead or was refused unsent goes again.
  func release(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    try withWrite(arguments) { (id) throws(MarfaError) in
      try copy.queue.release(id)
      return []
    }
  }

  /// `withdraw`: a write that has not gone out is taken back.
  func withdraw(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    try withWrite(arguments) { (id) throws(MarfaError) in try copy.queue.withdraw(id) }
  }

  /// `discard`: a write that is blocked, refused or dead is given up.
  func discard(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    try withWrite(arguments) { (id) throws(MarfaError) in try copy.queue.discard(id) }
  }

  /// `pin` and `unpin`: an item whose attachments are kept here.
  func pin(_ arguments: JSON.Object, _ pinned: Bool) throws(CommandFailure) -> JSON.Object {
    let arguments = try Arguments(arguments, allowed: ItemReference.keys)
    let id = try ItemReference(arguments).resolve(in: copy, filesToo: true)
    return try engine { () throws(MarfaError) in
      try copy.items.setPinned(id, pinned)
      let item = try copy.items.get(id)
      let keep = try copy.blobs.keep()
      return [
        "id": .string("\(id)"), "title": .string(item?.title ?? ""), "pinned": .bool(pinned),
        // A pinned file always stays; what is attached to a pinned item, as the store's `keep` has it.
        "attachments_kept": .bool(item?.blob != nil || keep != .none),
      ]
    }
  }

  /// How far sending and bringing are: for those who wait. Cheap enough to be asked twice a second.
  func progress(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    _ = try Arguments(arguments, allowed: [])
    var result = try serverState()
    for (key, value) in try queueState().members { result[key] = value }
    result["moving"] = .integer(try engine { () throws(MarfaError) in try copy.queue.moving() })
    result["bytes_sent"] = .integer(copy.serverStatus?.bytesSent ?? 0)
    return result
  }

  // MARK: - How it stands

  /// How the copy stands with its server: `server`, `connected`, `online`, `paused`, `hydration`, `trouble` …
  func serverState() throws(CommandFailure) -> JSON.Object {
    let (origin, hydration) = try engine { () throws(MarfaError) in
      (try copy.knownOrigin(), try copy.hydration())
    }
    var result: JSON.Object = ["server": .optional(origin)]
    guard let origin else { return result }
    result["hydration"] = .string(hydration.rawValue)
    if try !engine({ () throws(MarfaError) in try copy.wasHydrated() }) { result["first_hydration"] = true }
    let link = copy.serverStatus
    result["connected"] = .bool(link != nil)
    result["online"] = .bool(link?.isOnline ?? false)
    guard let link else {
      result["advice"] = .string(
        mount == nil
          ? "nothing is sent or brought while the store is not mounted"
          : copy.isReader
            ? "a reader asks no server: the mount that has the store open for writing does, when there is one"
            : "mount again with a key for \(origin): --key-file FILE, or MARFA_API_KEY")
      return result
    }
    result["paused"] = .bool(link.isPaused)
    result["hydrations"] = .integer(link.hydrations)
    result["key_refused"] = .bool(link.isKeyRefused)
    if let progress = link.hydrationProgress {
      result["hydrated_items"] = .integer(progress.items)
      result["hydrated_edges"] = .integer(progress.edges)
    }
    // While all is well, what was wrong before is nobody's concern.
    if !link.isOnline, let trouble = link.trouble { result["trouble"] = .string(trouble) }
    if let trouble = link.queueTrouble { result["queue_trouble"] = .string(trouble) }
    if link.isKeyRefused {
      result["advice"] = "mount again with a key the server accepts: --key-file FILE, or MARFA_API_KEY"
    } else if link.isPaused {
      result["advice"] = .string("sending is paused: \"\(CommandHint("resume", store: copy.path))\" goes on")
    }
    return result
  }

  private func queueState() throws(CommandFailure) -> JSON.Object {
    var result = try engine { () throws(MarfaError) in try copy.queue.counts() }.json
    result["paused"] = .bool(copy.serverStatus?.isPaused ?? false)
    return result
  }

  private func withWrite(
    _ arguments: JSON.Object, _ body: (WriteID) throws(MarfaError) -> [WriteID]
  ) throws(CommandFailure) -> JSON.Object {
    let arguments = try Arguments(arguments, allowed: ["write"])
    guard let number = try arguments.integer("write") else {
      throw CommandFailure(.usage, "missing_argument", "the argument \"write\" is missing")
    }
    let along: [WriteID]
    do throws(MarfaError) { along = try body(WriteID(number)) } catch {
      // Exit 4 is for what the queue won't do.
      if case .invalid(let words) = error { throw CommandFailure(.store, "queue_refused", words) }
      throw CommandFailure(error)
    }
    var result: JSON.Object = ["write": .integer(number)]
    if !along.isEmpty { result["along"] = .array(along.map { .integer($0.number) }) }
    result["queue"] = .object(try queueState())
    return result
  }

  /// The server, when there is one that is asked; why not, otherwise.
  func link() throws(CommandFailure) -> ServerStatus {
    if let status = copy.serverStatus { return status }
    guard mount != nil else {
      throw CommandFailure(
        .refused, "not_mounted",
        "\(copy.path) is not mounted for writing, so nothing is sent or brought. Mount it: "
          + "\(CommandHint(mounting: copy.path, at: "FOLDER"))")
    }
    if copy.isReader { throw CommandFailure(.readingHandle) }
    guard let origin = try engine({ () throws(MarfaError) in try copy.knownOrigin() }) else {
      throw CommandFailure(
        .store, "no_server", "\(copy.path) has no server; mount it with one: --server URL --key-file FILE")
    }
    throw CommandFailure(
      .credential, "no_key",
      "there is no key for \(origin). Unmount, and mount again with --key-file FILE, or with MARFA_API_KEY set")
  }
}
