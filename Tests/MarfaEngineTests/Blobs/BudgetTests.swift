import Testing

@testable import MarfaEngine

@Suite("The file budget")
struct BudgetTests {
  private static let gib: Int64 = 1 << 30

  @Test("by default is the larger of 2 GiB and a tenth of the volume")
  func byDefault() {
    let large = VolumeRoom(total: 100 * Self.gib, available: 90 * Self.gib)
    #expect(BlobStore.allowance(.default, volume: large, held: 0) == 10 * Self.gib)
    let small = VolumeRoom(total: 10 * Self.gib, available: 9 * Self.gib)
    #expect(BlobStore.allowance(.default, volume: small, held: 0) == 2 * Self.gib)
  }

  @Test("by default leaves a twentieth of the volume free")
  func twentieth() {
    let nearlyFull = VolumeRoom(total: 100 * Self.gib, available: 6 * Self.gib)
    #expect(BlobStore.allowance(.default, volume: nearlyFull, held: 3 * Self.gib) == 4 * Self.gib)
    let full = VolumeRoom(total: 100 * Self.gib, available: 0)
    #expect(BlobStore.allowance(.default, volume: full, held: 0) == 0)
  }

  @Test("by default is 2 GiB when the volume can't be read")
  func unreadable() { #expect(BlobStore.allowance(.default, volume: nil, held: 5) == 2 * Self.gib) }

  @Test("of bytes is that many, as far as there is room")
  func bytes() {
    let volume = VolumeRoom(total: 100, available: 50)
    #expect(BlobStore.allowance(.bytes(20), volume: volume, held: 5) == 20)
    #expect(BlobStore.allowance(.bytes(1000), volume: volume, held: 5) == 55)
    #expect(BlobStore.allowance(.bytes(0), volume: volume, held: 5) == 0)
    #expect(BlobStore.allowance(.bytes(1000), volume: nil, held: 5) == 1000)
  }

  @Test("that keeps all is none")
  func keepAll() { #expect(BlobStore.allowance(.keepAll, volume: VolumeRoom(total: 1, available: 0), held: 9) == nil) }

  @Test("is kept by the store", arguments: [FileBudget.default, .bytes(123), .bytes(0), .keepAll])
  func kept(budget: FileBudget) throws {
    try withScratch { scratch in
      #expect(try scratch.copy.blobs.cache().setting == .default)
      try scratch.copy.blobs.setBudget(budget)
      #expect(try scratch.copy.blobs.cache().setting == budget)
      try scratch.reopen()
      let cache = try scratch.copy.blobs.cache()
      #expect(cache.setting == budget)
      #expect((cache.budget == nil) == (budget == .keepAll))
      if case .bytes(let bytes) = budget { #expect(cache.budget == bytes) }
    }
  }

  @Test("can't be negative")
  func negative() throws {
    try withScratch { (scratch) throws in
      #expect(throws: MarfaError.self) { try scratch.copy.blobs.setBudget(.bytes(-1)) }
      #expect(try scratch.copy.blobs.cache().setting == .default)
    }
  }
}

/// Files of ten bytes each, all of them on the server: `D/attached`, `root`, `fetched`, and bytes put with no item.
private func prepare(_ scratch: Scratch) throws -> (attached: BlobHash, root: BlobHash, put: BlobHash) {
  try scratch.mkdir("D")
  try scratch.write("D/attached", "attached..")
  try scratch.write("root", "root......")
  let put = try scratch.copy.blobs.put(file: scratch.folder.file("p", "put......."), mimeType: "text/plain").blob
  try scratch.answer()
  return (
    try #require(try scratch.item("D/attached")?.blob), try #require(try scratch.item("root")?.blob), put
  )
}

@Suite("Trimming to the budget")
struct TrimTests {
  @Test("takes what can be fetched again, and never an attachment of an item held")
  func trim() throws {
    try withScratch { scratch in
      let (attached, root, put) = try prepare(scratch)
      #expect(try scratch.copy.blobs.cache().held == 30)
      #expect(try scratch.copy.blobs.setBudget(.bytes(0)) == 20)
      #expect(try scratch.copy.blobs.isHeld(attached))
      #expect(try !scratch.copy.blobs.isHeld(root))
      #expect(try !scratch.copy.blobs.isHeld(put))
      scratch.copy.tree.settle()
      #expect(!isThere(scratch.copy.blobStore.files.held(root)))
      #expect(try scratch.copy.blobs.cache().held == 10)
      #expect(try scratch.copy.blobs.trim() == 0)
      #expect(try scratch.copy.blobs.notHeld(root)?.reason == .notFetched)
      #expect(try scratch.copy.blobs.size(root) == 10)
      #expect(throws: MarfaError.bytesAbsent(root)) { try scratch.tree.open(root, size: nil) }
    }
  }

  @Test("takes the least recently read first, and no more than it must")
  func oldest() throws {
    try withScratch { scratch in
      let (_, root, put) = try prepare(scratch)
      try scratch.copy.store.write { (connection) throws(MarfaError) in
        try connection.run("UPDATE blobs SET read_at = 1 WHERE hash = ?1") { $0.hash(1, put) }
        try connection.run("UPDATE blobs SET read_at = 2 WHERE hash = ?1") { $0.hash(1, root) }
      }
      #expect(try scratch.copy.blobs.setBudget(.bytes(19)) == 10)
      #expect(try scratch.copy.blobs.isHeld(root))
      #expect(try !scratch.copy.blobs.isHeld(put))
    }
  }

  @Test("never takes bytes a closure reads")
  func pinned() async throws {
    try await withAsyncScratch { scratch in
      let (_, root, put) = try prepare(scratch)
      try await scratch.copy.blobs.withFile(root) { (path) throws in
        #expect(try scratch.copy.blobs.setBudget(.bytes(0)) == 10)
        #expect(try scratch.copy.blobs.removeFetchedFiles() == 0)
        #expect(isThere(path))
      }
      #expect(try scratch.copy.blobs.isHeld(root))
      #expect(try !scratch.copy.blobs.isHeld(put))
      #expect(try scratch.copy.blobs.trim() == 10)
    }
  }

  @Test("never takes a queued upload's bytes")
  func queued() throws {
    try withScratch { scratch in
      try scratch.write("f", "one")
      _ = try scratch.copy.blobs.put(file: scratch.folder.file("p", "put"))
      #expect(try scratch.copy.blobs.setBudget(.bytes(0)) == 0)
      #expect(try scratch.copy.blobs.removeFetchedFiles() == 0)
      try scratch.sendOut()
      #expect(try scratch.copy.blobs.removeFetchedFiles() == 0)
      #expect(try scratch.read("f") == "one")
      try scratch.answer()
      #expect(try scratch.copy.blobs.removeFetchedFiles() == 6)
    }
  }

  @Test("never takes the only bytes of a file that lives on this device only")
  func local() throws {
    try withScratch { scratch in
      try scratch.mkdir(".Trash-1000")
      try scratch.write("f", "one")
      try scratch.write("g", "two")
      try scratch.answer()
      try scratch.move("f", ".Trash-1000/f")
      try scratch.move("g", "g~")
      try scratch.write("g", "three")
      try scratch.answer()
      #expect(try scratch.existing("g~").local)
      #expect(try scratch.copy.blobs.setBudget(.bytes(0)) == 5)
      #expect(try scratch.read(".Trash-1000/f") == "one")
      #expect(try scratch.read("g~") == "two")
    }
  }

  @Test("to a budget that keeps all takes nothing")
  func keepAll() throws {
    try withScratch { scratch in
      _ = try prepare(scratch)
      #expect(try scratch.copy.blobs.setBudget(.keepAll) == 0)
      #expect(try scratch.copy.blobs.trim() == 0)
    }
  }

  @Test("takes attachments too, when only those of pinned items are kept, or none")
  func keep() throws {
    try withScratch { scratch in
      let (attached, _, _) = try prepare(scratch)
      try scratch.copy.blobs.setKeep(.pinned)
      try scratch.tree.setPinned(try scratch.existing("D").number, true)
      #expect(try scratch.copy.blobs.setBudget(.bytes(0)) == 20)
      #expect(try scratch.copy.blobs.isHeld(attached))
      try scratch.copy.blobs.setKeep(.none)
      try scratch.reopen()
      #expect(try scratch.copy.status().keep == .none)
      #expect(try scratch.copy.blobs.trim() == 10)
      #expect(try !scratch.copy.blobs.isHeld(attached))
    }
  }

  @Test("takes no file that is pinned itself")
  func pinnedFile() throws {
    try withScratch { scratch in
      let (_, root, _) = try prepare(scratch)
      try scratch.tree.setPinned(try scratch.existing("root").number, true)
      #expect(try scratch.copy.blobs.setBudget(.bytes(0)) == 10)
      #expect(try scratch.copy.blobs.isHeld(root))
    }
  }
}

@Suite("Removing the files that were fetched")
struct RemoveFetchedTests {
  @Test("takes every file that can be fetched again, and leaves the budget as it is")
  func remove() throws {
    try withScratch { scratch in
      let (attached, root, put) = try prepare(scratch)
      try scratch.write("queued", "queued")
      try scratch.copy.blobs.setBudget(.bytes(1000))
      #expect(try scratch.copy.blobs.removeFetchedFiles() == 20)
      #expect(try scratch.copy.blobs.cache().setting == .bytes(1000))
      #expect(try scratch.copy.blobs.isHeld(attached))
      #expect(try !scratch.copy.blobs.isHeld(root))
      #expect(try !scratch.copy.blobs.isHeld(put))
      #expect(try scratch.read("queued") == "queued")
      #expect(try scratch.copy.blobs.removeFetchedFiles() == 0)
    }
  }

  @Test("takes nothing where what is held can't be read, and says so")
  func unreadable() throws {
    try withScratch { scratch in
      let (_, root, put) = try prepare(scratch)
      let held = scratch.copy.blobsFolder + "/held"
      try Path.move(held, to: held + "-away")
      #expect {
        try scratch.copy.blobs.removeFetchedFiles()
      } throws: { error in
        guard case .store(let failure) = error as? MarfaError else { return false }
        return failure.description.contains(held)
      }
      try Path.move(held + "-away", to: held)
      for hash in [root, put] { #expect(try scratch.copy.blobs.isHeld(hash)) }
      #expect(try scratch.copy.blobs.removeFetchedFiles() == 20)
    }
  }

  @Test("takes nothing where the store can't be read, and says so")
  func storeUnreadable() throws {
    let scratch = try Scratch()
    defer { scratch.copy.close() }
    let (_, root, put) = try prepare(scratch)
    // The table with the sums is gone.
    try scratch.copy.store.write { (connection) throws(MarfaError) in
      _ = try connection.run("ALTER TABLE counters RENAME TO lost")
    }
    #expect {
      try scratch.copy.blobs.removeFetchedFiles()
    } throws: { error in
      guard case .store = error as? MarfaError else { return false }
      return true
    }
    for hash in [root, put] { #expect(try scratch.copy.blobs.isHeld(hash)) }
    scratch.copy.tree.settle()
    for hash in [root, put] { #expect(isThere(scratch.copy.blobStore.files.held(hash))) }
    let cache = try scratch.copy.blobs.cache()
    #expect(cache.held == nil && cache.heldUnreadable?.contains("counters") == true && cache.attachments == nil)
  }
}

@Suite("The cache in numbers")
struct FileCacheTests {
  @Test("counts each attachment once, and none that hangs on nothing")
  func attachments() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      try scratch.mkdir("E")
      try scratch.write("D/f", "one")
      try scratch.link("D/f", "E/f")
      try scratch.write("D/g", "four")
      try scratch.write("root", "alone")
      try scratch.write("D/empty", "")
      try scratch.write("D/.f.swp", "editor's")
      try scratch.answer()
      let cache = try scratch.copy.blobs.cache()
      #expect(cache.held == 20)
      #expect(cache.heldUnreadable == nil && !cache.volumeUnreadable && cache.backupMarkFailure == nil)
      let attachments = try #require(cache.attachments)
      #expect(attachments.held == 2)
      #expect(attachments.heldBytes == 7)
      #expect(attachments.notHeld == 0 && attachments.notHeldByReason.isEmpty && attachments.partialBytes == 0)
      #expect(try scratch.copy.status().fileCache == cache)
    }
  }

  @Test("says why they can't be read, and counts nothing then; without its volume the default budget is 2 GiB")
  func unreadable() throws {
    try withScratch { scratch in
      _ = try prepare(scratch)
      let folder = scratch.copy.blobsFolder
      try Path.move(folder + "/held", to: folder + "/away")
      let cache = try scratch.copy.blobs.cache()
      #expect(cache.held == nil && cache.attachments == nil && !cache.volumeUnreadable)
      #expect(cache.heldUnreadable?.contains(folder) == true)
      #expect(try scratch.copy.status().fileCache == cache)
      try Path.move(folder + "/away", to: folder + "/held")
      try Path.move(folder, to: folder + "-away")
      let away = try scratch.copy.blobs.cache()
      #expect(away.volumeUnreadable && away.setting == .default && away.budget == 2 << 30)
      try Path.move(folder + "-away", to: folder)
      let back = try scratch.copy.blobs.cache()
      #expect(back.held == 30 && back.heldUnreadable == nil && !back.volumeUnreadable && back.attachments?.held == 1)
    }
  }

  @Test("are read with no request")
  func noRequest() throws {
    try withRemote { remote in
      try remote.remote("D/f", MemorySource.pattern(1000))
      // (One of no known size may be asked about meanwhile, by the walk that learns sizes.)
      try remote.remote("D/g", MemorySource.pattern(2000, seed: 2))
      let cache = try remote.blobs.cache()
      #expect(cache.attachments?.notHeld == 2 && cache.attachments?.notHeldBytes == 3000)
      #expect(try remote.copy.status().fileCache == cache)
      #expect(remote.source.asked.isEmpty && remote.source.sizesAsked.isEmpty)
    }
  }

  @Test("says of those not held why, with their bytes and how many state none")
  func reasons() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      for (name, text) in [("a", "1"), ("b", "22"), ("c", "333"), ("d", "4444")] {
        try scratch.write("D/\(name)", text)
      }
      try scratch.answer()
      func hash(_ name: String) throws -> BlobHash { try #require(try scratch.item("D/\(name)")?.blob) }
      try scratch.copy.blobs.setKeep(.none)
      #expect(try scratch.copy.blobs.removeFetchedFiles() == 10)
      let (a, b, c) = (try hash("a"), try hash("b"), try hash("c"))
      try scratch.copy.store.write { (connection) throws(MarfaError) in
        for hash in [a, b] {
          try connection.run("UPDATE blobs SET not_held_reason = 'unreachable' WHERE hash = ?1") { $0.hash(1, hash) }
        }
        try connection.run("UPDATE blobs SET not_held_reason = 'absent', size = NULL WHERE hash = ?1") { $0.hash(1, c) }
        try connection.run("UPDATE nodes SET size = NULL WHERE hash = ?1") { $0.hash(1, c) }
      }
      let attachments = try #require(try scratch.copy.blobs.cache().attachments)
      #expect(attachments.held == 0 && attachments.heldBytes == 0)
      #expect(attachments.notHeld == 4 && attachments.notHeldBytes == 7)
      #expect(
        attachments.notHeldByReason == [
          KeptAttachments.NotHeld(reason: .notFetched, attachments: 1, bytes: 4, unstated: 0),
          KeptAttachments.NotHeld(reason: .unreachable, attachments: 2, bytes: 3, unstated: 0),
          KeptAttachments.NotHeld(reason: .absent, attachments: 1, bytes: 0, unstated: 1),
        ])
    }
  }

  @Test("counts an attachment that came back from the bin without its bytes as not held")
  func restored() throws {
    try withScratch { scratch in
      try scratch.mkdir("D")
      let attached = try scratch.copy.items.attach(
        to: try #require(try scratch.item("D")?.id), file: scratch.folder.file("f", "one"))
      try scratch.answer()
      try scratch.copy.items.delete(attached.file)
      try scratch.answer()
      #expect(try !scratch.copy.blobs.isHeld(attached.blob))
      try scratch.copy.items.restore(attached.file)
      #expect(try scratch.list("D") == ["f"])
      let attachments = try #require(try scratch.copy.blobs.cache().attachments)
      #expect(attachments.held == 0)
      #expect(attachments.notHeld == 1)
    }
  }
}
