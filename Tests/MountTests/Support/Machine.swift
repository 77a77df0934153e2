import Glibc
import Testing

/// What this machine has, and so which tests run.
enum Machine {
  /// Whether this process may do what only root may.
  static let isRoot = geteuid() == 0
  static let needsRoot: Comment = "root is needed to mount a volume or to become somebody else"

  /// The program under test: `MARFA_MOUNT_BIN`, else what was built here, for release before for debugging.
  static let program: String? = {
    if let named = getenv("MARFA_MOUNT_BIN") { return String(cString: named) }
    let source = #filePath.split(separator: "/").dropLast(4)
    let folder = "/" + source.joined(separator: "/")
    return ["release", "debug"].map { "\(folder)/.build/\($0)/marfa-mount" }.first { access($0, X_OK) == 0 }
  }()

  /// Options that every mount of a test gets, so that all can be run another way: `MARFA_MOUNT_OPTIONS=--passthrough`.
  static let options: [String] = {
    let words = getenv("MARFA_MOUNT_OPTIONS").map { String(cString: $0) } ?? ""
    return words.split(separator: " ").map { String($0) }
  }()

  /// Whether a store can be mounted here.
  static let canMount =
    program != nil && access("/dev/fuse", R_OK | W_OK) == 0 && (isRoot || has("fusermount3"))
  static let needsMount: Comment = """
    mounting needs marfa-mount (build it, or name it in MARFA_MOUNT_BIN), /dev/fuse, and for others than root fusermount3
    """

  /// Whether all of these programs are here.
  static func has(_ programs: String...) -> Bool {
    let path = getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin"
    let folders = path.split(separator: ":").map { String($0) } + ["/usr/sbin", "/sbin"]
    return programs.allSatisfy { program in folders.contains { access("\($0)/\(program)", X_OK) == 0 } }
  }
}
