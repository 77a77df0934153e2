import CLinux
import Glibc

/// The key a server knows this device by. It goes into one header of requests to the one origin and nowhere else: printed,
/// dumped or interpolated it says only that it is one.
public struct Credential: Sendable, CustomStringConvertible, CustomDebugStringConvertible, CustomReflectable {
  /// The key itself. Read only where the header is made.
  let key: String

  /// Checks a key: visible ASCII characters, no more than 4096.
  public init(_ key: String) throws(CredentialProblem) {
    guard !key.isEmpty else { throw .empty }
    guard key.utf8.count <= 4096, key.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else { throw .characters }
    self.key = key
  }

  public var description: String { "(a key)" }
  public var debugDescription: String { description }
  public var customMirror: Mirror { Mirror(self, children: []) }
}

/// Why there is no key to use.
public enum CredentialProblem: Error, Equatable, Sendable, CustomStringConvertible {
  case empty
  /// A space, a line break, a control character or one outside ASCII; or far too long.
  case characters
  /// The file can't be read.
  case file(String, Errno)

  public var description: String {
    switch self {
    case .empty: "the key is empty"
    case .characters: "the key holds a space, a line break or another character that no key holds; give the key alone"
    case .file(let path, let error):
      // Somebody who gave the key where its file's name is wanted must not find it in a log.
      Self.leadsNowhere(error)
        ? "the file that --key-file names does not exist; it wants a file with the key in it, not the key"
        : "the key can't be read from \(path): \(error)"
    }
  }

  /// True for an error by which no file may have the name.
  private static func leadsNowhere(_ error: Errno) -> Bool {
    [ENOENT, ENOTDIR, ENAMETOOLONG, EINVAL, ELOOP].contains(error.code)
  }
}

/// A key, and where it came from.
public struct FoundCredential: Sendable {
  public var credential: Credential
  /// Where from, for a person: the file's path or the variable's name.
  public var source: String
  /// What is not right about that place, for a person; the key is used all the same.
  public var warning: String?

  /// Looks for the key: in `keyFile` if one is named (`-` is standard input), else in `MARFA_API_KEY`, else in the file `marfa-key` among the
  /// service's credentials (systemd's `LoadCredential=`). `nil` when there is none.
  public static func find(
    keyFile: String?, variable: (String) -> String? = FoundCredential.environment
  ) throws(CredentialProblem) -> FoundCredential? {
    if keyFile == "-" { return try standardInput() }
    if let keyFile { return try read(keyFile) }
    if let key = variable("MARFA_API_KEY"), !key.isEmpty {
      return FoundCredential(credential: try Credential(trimmed(Array(key.utf8))), source: "MARFA_API_KEY")
    }
    if let folder = variable("CREDENTIALS_DIRECTORY"), !folder.isEmpty {
      let path = folder + "/marfa-key"
      if access(path, F_OK) == 0 { return try read(path) }
    }
    return nil
  }

  private static func standardInput() throws(CredentialProblem) -> FoundCredential {
    let bytes: [UInt8]
    do throws(Errno) {
      let input = fcntl(0, F_DUPFD_CLOEXEC, 3)
      guard input >= 0 else { throw Errno.last }
      bytes = try contents(of: Descriptor(owning: input))
    } catch {
      throw .file("standard input", error)
    }
    return FoundCredential(credential: try Credential(trimmed(bytes)), source: "standard input")
  }

  // MARK: From one process to another

  /// Writes it into a pipe, for the one process that is to have it: in a command line or an environment others might read it,
  /// and what it came from may be read only once. It is small enough for any pipe to take it whole.
  public func hand(to pipe: Descriptor) throws(Errno) {
    let said: JSON.Object = [
      "key": .string(credential.key), "source": .string(source), "warning": .optional(warning),
    ]
    let bytes = Array(JSON.object(said).text.utf8)
    guard Glibc.write(pipe.raw, bytes, bytes.count) == bytes.count else { throw Errno.last }
  }

  /// Takes what ``hand(to:)`` wrote, once the pipe's other end is closed.
  public static func take(from pipe: Descriptor) throws(CredentialProblem) -> FoundCredential {
    let bytes: [UInt8]
    do throws(Errno) { bytes = try contents(of: pipe) } catch { throw .file("a pipe", error) }
    guard let said = (try? JSON(reading: bytes))?.object, let key = said["key"]?.string else { throw .empty }
    return FoundCredential(
      credential: try Credential(key), source: said["source"]?.string ?? "", warning: said["warning"]?.string)
  }

  /// A variable of this process's environment.
  public static let environment: @Sendable (String) -> String? = { name in
    getenv(name).map { String(cString: $0) }
  }

  private static func read(_ path: String) throws(CredentialProblem) -> FoundCredential {
    let bytes: [UInt8]
    let status: stat
    do throws(Errno) {
      let file = try Descriptor.open(path, O_RDONLY)
      status = try file.status()
      guard status.st_mode & S_IFMT != S_IFDIR else { throw Errno.isDirectory }
      bytes = try contents(of: file)
    } catch {
      throw .file(path, error)
    }
    var found = FoundCredential(credential: try Credential(trimmed(bytes)), source: path)
    if status.st_mode & S_IFMT == S_IFREG, status.st_mode & 0o077 != 0 {
      found.warning = "others than you may read the key in \(path); set it right with: chmod 600 \(path)"
    }
    return found
  }

  /// What a small file or a pipe holds; of a large one, enough to see that it is no key.
  private static func contents(of file: Descriptor) throws(Errno) -> [UInt8] {
    var all: [UInt8] = []
    var block = [UInt8](repeating: 0, count: 8192)
    while all.count <= 8192 {
      let count = Glibc.read(file.raw, &block, block.count)
      if count == 0 { break }
      if count > 0 { all += block.prefix(count) } else if errno != EINTR { throw Errno.last }
    }
    return all
  }

  /// Without the white space around it: a file's line break, mostly.
  private static func trimmed(_ bytes: [UInt8]) -> String {
    func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || (0x09...0x0d).contains(byte) }
    let kept = bytes.drop(while: isSpace).reversed().drop(while: isSpace).reversed()
    return String(decoding: Array(kept), as: UTF8.self)
  }
}
