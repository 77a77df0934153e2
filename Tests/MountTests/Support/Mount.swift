import CLinux
import Foundation
import Testing

/// A store of a test's own, mounted at a folder of its own by the real program, in the background as people do.
final class Mount {
  /// Holds all that the test has.
  let folder: String
  /// Where the store is.
  var store: String
  /// Where it is mounted.
  let point: String
  /// A folder on the disk, for what is to be copied and compared.
  let outside: String
  /// The process that serves it; `nil` while it is not mounted.
  private(set) var pid: pid_t?
  /// Warnings the test knows of: each is a part of the line. All others fail it.
  var expectedWarnings: [String] = []

  init(volume: String? = nil) throws {
    var template = Array("/tmp/marfa-mount-XXXXXX".utf8CString)
    let made = template.withUnsafeMutableBufferPointer { mkdtemp($0.baseAddress!).map { String(cString: $0) } }
    folder = try #require(made)
    point = folder + "/mount"
    outside = folder + "/outside"
    store = (volume ?? folder) + "/store.db"
    for path in [point, outside] { mkdir(path, 0o755) }
  }

  // MARK: - Starting and ending

  /// Mounts it, and waits until it answers. `through` is what runs the program in surroundings of its choice.
  @discardableResult
  func start(
    _ options: [String] = [], through: [String] = [], sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> Started {
    let words = ["mount"] + options + Machine.options + ["--json", "--log", log, store, point]
    let outcome = try command(words, through: through)
    guard outcome.status == 0 else {
      Issue.record("the mount did not start\n\(outcome)\n\(logText)", sourceLocation: sourceLocation)
      throw TestError("the mount did not start")
    }
    let started = try decode(Started.self, outcome)
    pid = started.pid
    return started
  }

  /// What the program says once it is mounted.
  struct Started: Decodable {
    var pid: pid_t
    var mode: String
    var recovered: [String]?
    var writerPid: pid_t?
    var writerMountPoint: String?
  }

  /// Unmounts it as a person would, and waits for the end of its process.
  func unmount(sourceLocation: SourceLocation = #_sourceLocation) throws {
    var outcome = try command(["unmount", point], sourceLocation: sourceLocation)
    // What another test starts holds our descriptors between its fork and its exec.
    for _ in 0..<20 where outcome.status != 0 && outcome.errors.contains("is in use") {
      usleep(100_000)
      outcome = try command(["unmount", point], sourceLocation: sourceLocation)
    }
    #expect(outcome.status == 0, "unmounting failed\n\(outcome)\n\(logText)", sourceLocation: sourceLocation)
    try waitForEnd(sourceLocation: sourceLocation)
  }

  /// Waits until the process that serves it is gone, and the mount with it.
  func waitForEnd(seconds: Double = 15, sourceLocation: SourceLocation = #_sourceLocation) throws {
    let isOver = eventually(seconds: seconds) { !isRunning }
    #expect(isOver, "the mount's process does not end\n\(logText)", sourceLocation: sourceLocation)
    #expect(!Mount.isMounted(point), "the mount is still there", sourceLocation: sourceLocation)
    pid = nil
  }

  func remount(_ options: [String] = [], sourceLocation: SourceLocation = #_sourceLocation) throws {
    try unmount(sourceLocation: sourceLocation)
    try start(options, sourceLocation: sourceLocation)
  }

  /// Kills its process where it stands, as a crash would. The mount stays behind, dead.
  func crash() throws {
    let pid = try #require(pid)
    Glibc.kill(pid, SIGKILL)
    #expect(eventually { !isRunning })
    self.pid = nil
  }

  var isRunning: Bool { pid.map { Mount.isAlive($0) } ?? false }

  static func isAlive(_ pid: pid_t) -> Bool {
    guard let line = try? String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8) else { return false }
    return !line.contains(") Z ") && !line.contains(") X ")
  }

  static func isMounted(_ path: String) -> Bool {
    guard let table = try? String(contentsOfFile: "/proc/self/mountinfo", encoding: .utf8) else { return false }
    return table.split(separator: "\n").contains { $0.split(separator: " ").dropFirst(4).first == path[...] }
  }

  /// Takes everything away, in whatever state it is. Never waits for long.
  func end() {
    if let pid { Glibc.kill(pid, SIGKILL) }
    for _ in 0..<4 where Mount.isMounted(point) {
      if umount2(point, Int32(MNT_DETACH)) != 0 { _ = try? run(["fusermount3", "-uz", point], seconds: 5) }
    }
    if let pid { _ = eventually(seconds: 5) { !Mount.isAlive(pid) } }
    _ = try? run(["rm", "-rf", "--one-file-system", folder], seconds: 60)
  }

  // MARK: - Asking

  /// Runs marfa-mount.
  func command(
    _ words: [String], through: [String] = [], seconds: Double = 60, sourceLocation: SourceLocation = #_sourceLocation
  ) throws -> Outcome {
    let program = try #require(Machine.program)
    return try Program(through + [program] + words, in: folder, environment: ["HOME": folder]).wait(
      seconds: seconds, sourceLocation: sourceLocation)
  }

  private func decode<T: Decodable>(_ type: T.Type, _ outcome: Outcome) throws -> T {
    let decoder = JSONDecoder()
    decoder.keyDecodingStrategy = .convertFromSnakeCase
    return try decoder.decode(type, from: Data(outcome.output.utf8))
  }

  var log: String { folder + "/log" }
  var logText: String { (try? String(contentsOfFile: log, encoding: .utf8)) ?? "" }

  /// Lines of the log that a person would worry about and the test does not expect.
  var unexpectedWarnings: [Substring] {
    logText.split(separator: "\n").filter { line in
      (line.contains(" warning: ") || line.contains(" error: ")) && !expectedWarnings.contains { line.contains($0) }
    }
  }

  /// The most memory that the mount's process has had, in bytes (proc(5), `VmHWM`).
  func peakMemory() throws -> Int {
    let status = try String(contentsOfFile: "/proc/\(try #require(pid))/status", encoding: .utf8)
    let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("VmHWM:") })
    return try #require(line.split(separator: " ").dropFirst().first.flatMap { Int($0) }) << 10
  }

  /// The writes that wait.
  func queue(sourceLocation: SourceLocation = #_sourceLocation) throws -> Queue {
    let outcome = try command(["queue", store, "--json", "--limit", "10000"])
    try #require(outcome.status == 0, "\(outcome)", sourceLocation: sourceLocation)
    return try decode(Queue.self, outcome)
  }

  struct Queue: Decodable {
    var total: Int
    var bytes: Int
    var writes: [Write]

    struct Write: Decodable {
      var kind: String
      var title: String?
      var hash: String?
      var tag: String?
      var sourceTitle: String?
      var targetTitle: String?
    }

    /// How many writes there are of a kind.
    func count(_ kind: String) -> Int { writes.count { $0.kind == kind } }
    /// The titles that any write names.
    var titles: Set<String> { Set(writes.flatMap { [$0.title, $0.sourceTitle, $0.targetTitle] }.compactMap { $0 }) }
  }

  /// What `status` says.
  func status(sourceLocation: SourceLocation = #_sourceLocation) throws -> Status {
    let outcome = try command(["status", store, "--json"])
    try #require(outcome.status == 0, "\(outcome)", sourceLocation: sourceLocation)
    return try decode(Status.self, outcome)
  }

  struct Status: Decodable {
    var mode: String?
    var items: Int
    var files: Int
    var localFiles: Int
    var recovered: [String]
  }

  /// The value of an extended attribute; `nil` when there is none.
  func attribute(_ name: String, of path: String) throws -> String? {
    try attributes(of: path)[name]
  }

  /// All extended attributes of something in the mount.
  func attributes(of path: String) throws -> [String: String] {
    var names = [CChar](repeating: 0, count: 1 << 16)
    let count = llistxattr(point + "/" + path, &names, names.count)
    guard count >= 0 else { throw TestError("listing attributes of \(path): \(String(cString: strerror(errno)))") }
    var found: [String: String] = [:]
    for name in names.prefix(count).split(separator: 0) {
      let name = String(decoding: name.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      var value = [UInt8](repeating: 0, count: 1 << 16)
      let size = lgetxattr(point + "/" + path, name, &value, value.count)
      guard size >= 0 else { throw TestError("\(name) of \(path): \(String(cString: strerror(errno)))") }
      found[name] = String(decoding: value.prefix(size), as: UTF8.self)
    }
    return found
  }

  /// The text of a file in the mount.
  func text(_ path: String) throws -> String {
    String(decoding: try Data(contentsOf: URL(fileURLWithPath: point + "/" + path)), as: UTF8.self)
  }

  /// Runs a script in the mount; `$1` is the folder outside.
  @discardableResult
  func shell(_ script: String, seconds: Double = 60, sourceLocation: SourceLocation = #_sourceLocation) throws
    -> Outcome
  {
    try MountTests.shell(script, outside, in: point, seconds: seconds, sourceLocation: sourceLocation)
  }
}

extension Mount {
  /// A tree of files that are really on this machine, outside: text and headers, pictures, fonts and archives.
  func realTree(files: Int) throws -> String {
    let tree = outside + "/tree"
    try MountTests.shell(
      """
      mkdir -p "$1"; cd /usr
      find include share lib/python3 -type f -size -400k -readable 2>/dev/null | sort > "$1.all" || true
      awk 'NR % 11 == 1 && n++ < \(files)' "$1.all" > "$1.list"
      tar -c -T "$1.list" | tar -x -C "$1"; rm "$1.list" "$1.all"
      test $(find "$1" -type f | wc -l) -ge \(files)
      """, tree)
    return tree
  }
}

/// Mounts a store for one test. At the end it is unmounted as a person would, and its log must be without complaint;
/// whatever happens, nothing is left.
@discardableResult
func withMount<R>(
  _ options: String..., sourceLocation: SourceLocation = #_sourceLocation, _ body: (Mount) throws -> R
) throws -> R {
  let mount = try Mount()
  defer { mount.end() }
  try mount.start(options, sourceLocation: sourceLocation)
  let result = try body(mount)
  if mount.pid != nil { try mount.unmount(sourceLocation: sourceLocation) }
  let warnings = mount.unexpectedWarnings
  #expect(warnings.isEmpty, "\(warnings.prefix(20).joined(separator: "\n"))", sourceLocation: sourceLocation)
  return result
}
