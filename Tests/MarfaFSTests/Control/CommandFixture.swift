import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

/// The program under test, built beside the tests.
enum CommandBinary {
  /// Where it is; `nil` when it is not built.
  static let path: String? = {
    var candidates: [String] = []
    if let named = getenv("MARFA_MOUNT_BIN") { candidates.append(String(cString: named)) }
    if let tests = realpath("/proc/self/exe", nil) {
      candidates.append(Path.parent(String(cString: tests)) + "/marfa-mount")
      free(tests)
    }
    return candidates.first { access($0, X_OK) == 0 }
  }()

  /// What a skipped test says.
  static let reason: Comment = "the marfa-mount binary is not built"
}

/// A home of its own in which the program is run. What it left mounted goes with it.
final class Home: Sendable {
  let directory: TemporaryDirectory
  var path: String { directory.path }

  init() throws { directory = try TemporaryDirectory() }

  deinit {
    for mount in (try? MarfaMounts.all()) ?? [] where MarfaMounts.isInside(mount.mountPoint, path) {
      try? Unmounting.forcibly(mount)
    }
    // Their processes end by themselves; what they have open does not keep the folder from going.
  }

  /// Runs the program in this home.
  @discardableResult
  func marfa(_ words: String..., seconds: Double = 60) throws -> Outcome {
    let binary = try #require(CommandBinary.path)
    return try shell("exec \"$0\" \"$@\"", [binary] + words, seconds: seconds)
  }

  /// Runs a script in this home; `$marfa` is the program.
  func shell(_ script: String, _ words: [String] = ["sh"], seconds: Double = 60) throws -> Outcome {
    let variables = [
      "HOME=\(path)", "XDG_DATA_HOME=\(path)/data", "XDG_STATE_HOME=\(path)/state", "marfa=\(CommandBinary.path ?? "")",
    ]
    return try run(
      ["env", "-C", path] + variables + ["sh", "-c", script] + words, seconds: seconds)
  }

  /// Makes a folder in it.
  @discardableResult
  func folder(_ name: String) throws -> String {
    try Path.makeDirectory("\(path)/\(name)", mode: 0o755)
    return "\(path)/\(name)"
  }

  /// Makes a file in it.
  @discardableResult
  func file(_ name: String, _ text: String) throws -> String {
    let file = try Descriptor.open("\(path)/\(name)", O_WRONLY | O_CREAT | O_TRUNC, mode: 0o600)
    try file.write(Array(text.utf8), at: 0)
    return "\(path)/\(name)"
  }

  /// Makes an empty store in it.
  func store(_ name: String) throws -> String {
    try WorkingCopy(path: "\(path)/\(name)").close()
    return "\(path)/\(name)"
  }

  /// The names in it.
  var names: [String] { ((try? Path.names(in: path)) ?? []).sorted() }
}

extension Outcome {
  /// What was said, as JSON.
  var json: JSON.Object? { (try? JSON(reading: output))?.object }
}
