/// A command line that a message tells a person to use. It can be copied as it is: it names the store, unless that is the
/// one meant without a name.
public struct CommandHint: Sendable, CustomStringConvertible {
  /// Commands that take the store as their word; the others take it with `--store`.
  private static let takesStoreAsWord: Set<String> = [
    "status", "queue", "cache", "hydrate", "retry", "pause", "resume", "trim", "unmount",
  ]
  /// The store meant without a name. Looked up once: a mount that answers a question of its own waits for nobody.
  private static let usual = (try? Locations.defaultStore()).map { Locations.canonicalStore($0) }
  private let words: [String]

  /// `command` and what follows it; `store` is the path of the store that is meant.
  public init(_ command: String, _ words: String..., store: String) {
    var line = [command] + words
    if store != Self.usual { line += Self.takesStoreAsWord.contains(command) ? [store] : ["--store", store] }
    self.words = line
  }

  /// The line that shows a store at a folder.
  public init(mounting store: String, at folder: String) { words = [store, folder] }

  /// The line that ends the mount at a folder.
  public init(unmounting mountPoint: String) { words = ["unmount", mountPoint] }

  public var description: String { (["marfa-mount"] + words.map { Self.quoted($0) }).joined(separator: " ") }

  /// A word as a shell takes it for one.
  static func quoted(_ word: String) -> String {
    let isPlain = word.unicodeScalars.allSatisfy { scalar in
      scalar.properties.isAlphabetic || (0x30...0x39).contains(scalar.value)
        || "_-+=./:@%,".unicodeScalars.contains(scalar)
    }
    guard !isPlain || word.isEmpty else { return word }
    return "'" + word.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''") + "'"
  }
}
