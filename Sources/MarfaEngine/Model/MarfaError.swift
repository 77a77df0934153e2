/// Everything the engine refuses or fails with. Each case says what happened and to what; ``description`` says it to a
/// person, and what to do.
public enum MarfaError: Error, Sendable, Equatable, CustomStringConvertible {
  /// The volume has no room for these bytes.
  case noRoom(size: Int64, left: Int64)
  /// The budget does not keep these bytes: nothing else keeps them either, and it is smaller, or taken by what was fetched
  /// after them.
  case overBudget(size: Int64?, budget: Int64)
  /// The bytes are not here, and this handle does not fetch (a reader, or a copy without a server).
  case bytesAbsent(BlobHash)
  /// A reader was asked to write or to fetch.
  case readingHandle
  /// The bytes could not be fetched.
  case notFetched(BlobHash, FetchFailure)
  /// The copy has no server.
  case noServer
  /// The caller's task was cancelled.
  case canceled
  /// No item of this id is in the copy.
  case itemNotFound(ItemID)
  /// No edge of this id is in the copy.
  case edgeNotFound(EdgeID)
  /// A value the contract does not take, with the reason.
  case invalid(String)
  /// The title can't name the file alone, so no embed text exists.
  case notNamedAlone(title: String)
  /// The item's type has no body to embed in.
  case noBody(type: String)
  /// The store failed: SQLite's words.
  case store(StoreFailure)
  /// The store is of another kind than this program can use.
  case unusable(StoreProblem)
  /// A file operation of the system failed: its error, and on what.
  case io(Errno, String)
  /// A tree operation was refused as POSIX says.
  case file(Errno)
  /// The server did not do what it was asked.
  case remote(RemoteFailure)

  public var description: String {
    switch self {
    case .noRoom(let size, let left):
      "no room: \(Bytes.text(size)) are needed and \(Bytes.text(left)) are left on the volume; free some space and try again"
    case .overBudget(let size, let budget):
      "it does not stay on this device: \(size.map { Bytes.text($0) } ?? "its bytes") and a budget of "
        + "\(Bytes.text(budget)). Choose a larger one, or pin the file"
    case .bytesAbsent(let hash): "the bytes \(hash) are not on this device, and this copy does not fetch"
    case .notFetched(let hash, let failure): "the bytes \(hash) could not be fetched: \(failure)"
    case .readingHandle:
      "this is a reader: another process has the store open for writing, or it was opened with --reader"
    case .noServer: "this store has no server to fetch from"
    case .canceled: "cancelled"
    case .itemNotFound(let id): "no item \(id) is in this store"
    case .edgeNotFound(let id): "no edge \(id) is in this store"
    case .invalid(let words): words
    case .notNamedAlone(let title):
      "the title \"\(title)\" can't name the file alone; give the attachment a title of its own to embed it"
    case .noBody(let type): "an item of type \(type) has no body to embed a file in"
    case .store(let failure): failure.description
    case .unusable(let problem): problem.description
    case .io(let error, let what): "\(what): \(error)"
    case .file(let error): error.description
    case .remote(let failure): failure.description
    }
  }
}

/// SQLite's answer to something that should have worked.
public struct StoreFailure: Error, Sendable, Equatable, CustomStringConvertible {
  /// SQLite's extended result code.
  public var code: Int32
  /// SQLite's words. Never the values bound, so nothing of a person's leaks into a log.
  public var message: String
  /// What was being done.
  public var doing: String

  public var description: String { "the store failed while \(doing): \(message) (SQLite \(code))" }
  /// True when the disk is full.
  public var isFull: Bool { code & 0xff == 13 }
}

/// Why a file can't be used as a store.
public enum StoreProblem: Sendable, Equatable, CustomStringConvertible {
  /// The file is something else.
  case notAStore(path: String)
  /// It is a store, cut short or damaged.
  case damaged(path: String, words: String)
  /// It was written by a later version of this program.
  case newer(path: String, found: Int, known: Int)
  /// Its folder is not there.
  case noFolder(path: String)
  /// Nothing may be written there.
  case readOnlyFolder(path: String)
  /// The folder with the bytes is not beside it, and it has rows that say it should be.
  case bytesMissing(path: String, files: Int)
  /// A reader was asked for, and there is no store.
  case nothingToRead(path: String)
  /// It is a copy of another server.
  case boundElsewhere(path: String, bound: String, asked: String)

  public var description: String {
    switch self {
    case .notAStore(let path):
      "\(path) is not a Marfa store (it is some other kind of file); nothing was changed. Name another path for the store"
    case .damaged(let path, let words):
      "\(path) is damaged or cut short (\(words)); nothing was changed. Bring it back from a backup, with its .blobs folder"
    case .newer(let path, let found, let known):
      "\(path) has schema \(found), written by a newer marfa-mount; this one knows up to \(known). Update marfa-mount; nothing was changed"
    case .noFolder(let path): "the folder for the store is not there: \(path); make it, or name another path"
    case .readOnlyFolder(let path):
      "nothing may be written in \(path), and a store needs to; move the store, or open it with --reader to look at it"
    case .bytesMissing(let path, let files):
      "\(path).blobs is not there, and the bytes of \(files) files belong in it; nothing was changed. Bring that folder back beside the store, from where the store came from"
    case .nothingToRead(let path): "there is no store at \(path) to read"
    case .boundElsewhere(let path, let bound, let asked):
      "\(path) is a copy of \(bound), and can't become one of \(asked); make another store for that server"
    }
  }
}

/// Sizes in words.
public enum Bytes {
  /// `512 bytes`, `1.5 MiB`, …: one decimal, units of 1024.
  public static func text(_ count: Int64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"]
    guard count >= 1024 else { return count == 1 ? "1 byte" : "\(count) bytes" }
    var value = Double(count)
    var unit = -1
    while value >= 1024, unit < units.count - 1 {
      value /= 1024
      unit += 1
    }
    let tenths = Int64((value * 10).rounded())
    return tenths % 10 == 0 ? "\(tenths / 10) \(units[unit])" : "\(tenths / 10).\(tenths % 10) \(units[unit])"
  }
}
