import CLinux
import Glibc

/// The folder beside the store that holds bytes (ARCHITECTURE.md, "The store on disk"): `held/`,
/// `partial/`, `staged/`, `recovered/`.
struct BlobFiles: Sendable {
  /// `NAME.db.blobs`.
  let root: String

  init(beside store: String) { root = store + ".blobs" }

  /// Makes the folders, this person's alone.
  func prepare() throws(MarfaError) {
    do throws(Errno) {
      for folder in [root, root + "/held", root + "/partial", root + "/staged"] {
        try Path.makeDirectory(folder, mode: 0o700)
      }
      // Made when there is room: a file that was closed is given its name under one of them when there may be none.
      guard try Path.status(root + "/held/ff") == nil else { return }
      for number in 0..<256 {
        try Path.makeDirectory("\(root)/held/\(number < 16 ? "0" : "")\(String(number, radix: 16))", mode: 0o700)
      }
      try Path.synchronizeDirectory(root + "/held")
    } catch {
      throw .io(error, "making \(root)")
    }
  }

  /// Where sealed bytes are: `held/ab/cdef…`.
  func held(_ hash: BlobHash) -> String {
    let hex = hash.hex
    return "\(root)/held/\(hex.prefix(2))/\(hex.dropFirst(2))"
  }

  /// Where bytes are of which some are here: a sparse file as long as the whole.
  func partial(_ hash: BlobHash) -> String { "\(root)/partial/\(hash.hex)" }

  /// Makes an empty one. Nothing that was there is taken over.
  func makePartial(_ hash: BlobHash, size: Int64) throws(Errno) -> Descriptor {
    let path = partial(hash)
    try Path.remove(path)
    let file = try Descriptor.open(path, O_RDWR | O_CREAT | O_EXCL, mode: 0o600)
    do throws(Errno) { try file.truncate(to: size) } catch {
      try? Path.remove(path)
      throw error
    }
    return file
  }

  /// Where bytes a program writes are until they are sealed: `staged/NODE-UUID`. The node's number is in the name so
  /// that a start after a crash knows what a file was, with nothing of it in the store yet.
  func staged(_ node: Int64, _ id: StagedID) -> String { "\(root)/staged/\(node)-\(id.bytes.text)" }

  /// The id of a new staged file: a UUID of version 7; of version 8 (RFC 9562: the maker's own) when the node was made
  /// with it, so that a start after a crash knows that nobody ever closed that file and its name means nothing yet.
  static func mintStaged(isNew: Bool) -> StagedID {
    var bytes = Bytes128.version7(milliseconds: Timestamp.now.milliseconds)
    if isNew { bytes.high = bytes.high & ~0xf000 | 0x8000 }
    return StagedID(bytes: bytes)
  }

  /// Reads such a name back.
  static func parseStaged(_ name: String) -> (node: Int64, id: StagedID)? {
    guard let dash = name.firstIndex(of: "-"), let node = Int64(name[..<dash]),
      let id = Bytes128(text: name[name.index(after: dash)...])
    else { return nil }
    return (node, StagedID(bytes: id))
  }

  /// Gives a staged file its name under `held/`. Bytes already there stay: they hash to the same name. The staged name
  /// stays too, until what refers to the bytes is committed.
  func hold(_ staged: String, as hash: BlobHash) throws(Errno) {
    let path = held(hash)
    if link(staged, path) == 0 { return }
    var error = Errno.last
    if error == .notFound {
      // Taken away by hand.
      try Path.makeDirectory(Path.parent(path), mode: 0o700)
      try Path.synchronizeDirectory(root + "/held")
      if link(staged, path) == 0 { return }
      error = .last
    }
    guard error == .exists else { throw error }
    // There already, and the same when it is as long. A shorter one was cut by a power loss: it is replaced, whole.
    guard let present = try Path.status(path), let new = try Path.status(staged), present.st_size != new.st_size else {
      return
    }
    let spare = staged + ".held"
    guard link(staged, spare) == 0 else { throw .last }
    try Path.move(spare, to: path)
  }

  /// The name that the seal gave these bytes survives power loss.
  func synchronizeHeld(_ hash: BlobHash) throws(Errno) { try Path.synchronizeDirectory(Path.parent(held(hash))) }
}
