import Glibc
import MarfaEngine

/// Where things are on this machine.
public enum Locations {
  /// The store that is meant when none is named.
  public static func defaultStore() throws(CommandFailure) -> String {
    try base("XDG_DATA_HOME", ".local/share") + "/marfa/store.db"
  }

  /// Where the log of a store's mount is when none is named: two stores of one name in two places have one each.
  public static func defaultLog(of store: String) throws(CommandFailure) -> String {
    let name = Path.lastComponent(store)
    let stem = name.hasSuffix(".db") && name != ".db" ? String(name.dropLast(3)) : name
    let folder = try base("XDG_STATE_HOME", ".local/state") + "/marfa"
    let store = canonicalStore(store)
    if let usual = try? defaultStore(), store == canonicalStore(usual) { return "\(folder)/\(stem).log" }
    // FNV-1a: short, and the same each time.
    let mark = store.utf8.reduce(UInt32(2_166_136_261)) { ($0 ^ UInt32($1)) &* 16_777_619 }
    return "\(folder)/\(stem)-\(String(mark, radix: 36)).log"
  }

  /// Makes the folder of a file, and those above it, this person's alone.
  public static func makeFolder(of file: String) throws(Errno) {
    let folder = Path.parent(file)
    guard try Path.status(folder) == nil else { return }
    try makeFolder(of: folder)
    try Path.makeDirectory(folder, mode: 0o700)
  }

  /// A path from the root.
  public static func absolute(_ path: String) -> String {
    guard !path.hasPrefix("/") else { return path }
    guard let folder = getcwd(nil, 0) else { return path }
    defer { free(folder) }
    let start = String(cString: folder)
    return start == "/" ? "/" + path : start + "/" + path
  }

  /// The one path of a store, however it was named: its files beside it are found by it.
  public static func canonicalStore(_ path: String) -> String {
    let path = absolute(path)
    if let real = canonical(path) { return real }
    guard let folder = canonical(Path.parent(path)) else { return path }
    return folder == "/" ? "/" + Path.lastComponent(path) : folder + "/" + Path.lastComponent(path)
  }

  /// A path without symbolic links; `nil` when it leads nowhere.
  public static func canonical(_ path: String) -> String? {
    guard let real = realpath(path, nil) else { return nil }
    defer { free(real) }
    return String(cString: real)
  }

  /// A base folder of the XDG specification, by which a relative path counts for nothing.
  private static func base(_ variable: String, _ fallback: String) throws(CommandFailure) -> String {
    if let value = environment(variable), value.hasPrefix("/") { return value }
    if let home = environment("HOME"), home.hasPrefix("/") { return "\(home)/\(fallback)" }
    guard let entry = getpwuid(getuid()), let home = entry.pointee.pw_dir else {
      throw CommandFailure(
        .environment, "no_home", "no home folder is known: set HOME, or name the store and the log (--log)")
    }
    return "\(String(cString: home))/\(fallback)"
  }

  private static func environment(_ name: String) -> String? {
    guard let value = getenv(name) else { return nil }
    return String(cString: value)
  }
}
