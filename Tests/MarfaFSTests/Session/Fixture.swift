import CLinux
import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

/// Whether this process may do what only root may.
let isRoot = geteuid() == 0

/// Whether a mount can be made here: by root, or with the helper's help.
let mountingIsPossible = access("/dev/fuse", R_OK | W_OK) == 0 && (isRoot || Helper.isInstalled)

/// A directory of its own that goes away with the test, whatever is mounted on it.
final class TemporaryDirectory: Sendable {
  let path: String

  init() throws {
    var template = Array("/tmp/marfa-session-XXXXXX".utf8CString)
    path = try #require(
      template.withUnsafeMutableBufferPointer { mkdtemp($0.baseAddress!).map { String(cString: $0) } })
  }

  deinit {
    while let entry = try? MountTable.top(at: path), MountPoint.detach(path, device: entry.device) == nil {}
    _ = try? run(["rm", "-rf", "--one-file-system", path])
  }
}

/// A filesystem in memory, mounted for one test. Ends with the test, whatever is stuck.
final class Mounted: Sendable {
  let directory: TemporaryDirectory
  let filesystem: MemoryFileSystem
  let invalidator = Invalidator()
  let session: MountSession
  var path: String { directory.path }

  init(
    _ filesystem: MemoryFileSystem = MemoryFileSystem(), limits: Workers.Limits = Workers.Limits(),
    _ change: (inout MountConfiguration) -> Void = { _ in }
  ) throws {
    self.filesystem = filesystem
    directory = try TemporaryDirectory()
    var configuration = MountConfiguration(mountPoint: directory.path, source: "test")
    configuration.stopLimit = 2
    change(&configuration)
    let ready = Monitor(false)
    session = try MountSession.mount(
      configuration, filesystem, invalidator: invalidator, workers: limits, whenReady: { ready.update { $0 = true } },
      whenStopping: { _ = filesystem.answerParked(.io) })
    try #require(ready.wait(until: .after(seconds: 5)) { $0 ? true : nil } == true, "the mount does not answer")
  }

  deinit {
    filesystem.isFreed.update { $0 = true }
    session.requestStop()
    _ = session.wait(seconds: 10)
  }
}

/// What a program said and how it ended.
struct Outcome: Equatable {
  var status: CInt
  var output: String
}

/// A program that runs.
final class Program: Sendable {
  let pid: pid_t
  private let output: CInt

  init(_ words: [String]) throws {
    var pipe: [CInt] = [0, 0]
    try #require(Glibc.pipe(&pipe) == 0)
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    posix_spawn_file_actions_adddup2(&actions, pipe[1], 1)
    posix_spawn_file_actions_adddup2(&actions, pipe[1], 2)
    posix_spawn_file_actions_addclose(&actions, pipe[0])
    posix_spawn_file_actions_addclose(&actions, pipe[1])
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
    var words = words.map { (word: String) in strdup(word) }
    words.append(nil)
    var child = pid_t()
    let code = posix_spawnp(&child, words[0]!, &actions, &attributes, words, environ)
    for word in words { free(word) }
    close(pipe[1])
    try #require(code == 0, "\(Errno(code))")
    pid = child
    output = pipe[0]
  }

  /// Waits for its end; after so many seconds it is killed, and the test fails.
  func wait(seconds: Double = 20) throws -> Outcome {
    let outcome = Monitor<Outcome?>(nil)
    let (pid, output) = (pid, output)
    startThread(named: "program") {
      var bytes: [UInt8] = []
      var block = [UInt8](repeating: 0, count: 65536)
      while case let count = read(output, &block, block.count), count > 0 { bytes += block.prefix(count) }
      close(output)
      var status: CInt = 0
      waitpid(pid, &status, 0)
      outcome.update {
        $0 = Outcome(status: marfa_exit_status(status), output: String(decoding: bytes, as: UTF8.self))
      }
    }
    if let outcome = outcome.wait(until: .after(seconds: seconds), for: { $0 }) { return outcome }
    kill(pid, SIGKILL)
    return try #require(nil as Outcome?, "a program took longer than \(seconds) s")
  }
}

/// Runs a program to its end.
@discardableResult
func run(_ words: [String], seconds: Double = 20) throws -> Outcome { try Program(words).wait(seconds: seconds) }

/// Runs `body` in a thread of its own, and fails the test when it takes longer.
func within<R: Sendable>(seconds: Double, _ body: @escaping @Sendable () -> R) throws -> R {
  let result = Monitor<R?>(nil)
  startThread(named: "bounded") {
    let value = body()
    result.update { $0 = value }
  }
  return try #require(result.wait(until: .after(seconds: seconds), for: { $0 }), "took longer than \(seconds) s")
}

/// Waits until something holds, and fails the test when it takes longer.
func eventually(seconds: Double = 10, _ holds: () -> Bool) -> Bool {
  let deadline = Deadline.after(seconds: seconds)
  while !deadline.hasPassed {
    if holds() { return true }
    usleep(2_000)
  }
  return holds()
}

/// What `body` returns, and the seconds it took.
func timed<R>(_ body: () throws -> R) rethrows -> (R, Double) {
  func now() -> Double {
    var time = timespec()
    clock_gettime(CLOCK_MONOTONIC, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
  }
  let start = now()
  let result = try body()
  return (result, now() - start)
}
