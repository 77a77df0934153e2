import CLinux
import Glibc
import Testing

/// How a program ended, and what it said.
struct Outcome: Equatable, CustomStringConvertible {
  /// Its exit status, or 128 and the signal's number.
  var status: CInt
  var output: String
  var errors: String

  var description: String { "status \(status)\noutput: \(output.suffix(4000))\nerrors: \(errors.suffix(4000))" }
  /// The lines of its output, without the last line's end.
  var lines: [Substring] { output.split(separator: "\n") }
}

/// A program that runs. Its output goes to files, so that it never waits for us, nor we for it longer than we said.
final class Program: @unchecked Sendable {
  // Safe: `isOver` is the one thing that changes, and a program has one waiter.
  let pid: pid_t
  private let output: CInt
  private let errors: CInt
  private let words: [String]
  private var isOver = false

  /// Starts it, in a group of its own. `input` is what it reads.
  init(_ words: [String], in folder: String = "/", environment: [String: String] = [:], input: String = "") throws {
    self.words = words
    output = try Program.scratch()
    errors = try Program.scratch()
    let source = try Program.scratch(input)
    defer { close(source) }
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    for (from, to) in [(source, CInt(0)), (output, 1), (errors, 2)] {
      posix_spawn_file_actions_adddup2(&actions, from, to)
    }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setpgroup(&attributes, 0)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP))
    let line = folder == "/" ? words : ["env", "-C", folder, "--"] + words
    var arguments: [UnsafeMutablePointer<CChar>?] = line.map { strdup($0) } + [nil]
    var variables: [UnsafeMutablePointer<CChar>?] = Program.surroundings(environment).map { strdup($0) } + [nil]
    defer { for word in arguments + variables { free(word) } }
    var child = pid_t()
    let code = posix_spawnp(&child, line[0], &actions, &attributes, &arguments, &variables)
    guard code == 0 else { throw TestError("\(words[0]) cannot be started: \(String(cString: strerror(code)))") }
    pid = child
  }

  deinit {
    if !isOver { Glibc.kill(-pid, SIGKILL) }
    close(output)
    close(errors)
  }

  /// A language, an editor's or a terminal's habits must not change what a program does here.
  private static func surroundings(_ changes: [String: String]) -> [String] {
    var variables = [
      "PATH": getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin", "HOME": "/nonexistent",
      "LC_ALL": "C.UTF-8", "TERM": "dumb", "GIT_CONFIG_NOSYSTEM": "1", "TZ": "UTC",
    ]
    for (name, value) in changes { variables[name] = value }
    return variables.map { "\($0.key)=\($0.value)" }
  }

  private static func scratch(_ text: String = "") throws -> CInt {
    var template = Array("/tmp/marfa-mount-said-XXXXXX".utf8CString)
    let file = template.withUnsafeMutableBufferPointer { mkstemp($0.baseAddress!) }
    guard file >= 0 else { throw TestError("no scratch file: \(String(cString: strerror(errno)))") }
    _ = fcntl(file, F_SETFD, FD_CLOEXEC)
    unlink(template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) })
    let bytes = Array(text.utf8)
    guard pwrite(file, bytes, bytes.count, 0) == bytes.count else { throw TestError("no scratch file") }
    return file
  }

  func kill(_ signal: CInt = SIGKILL) { Glibc.kill(pid, signal) }

  /// How it ended, when it has.
  func poll() throws -> Outcome? {
    var status: CInt = 0
    let found = waitpid(pid, &status, WNOHANG)
    guard found == pid else { return nil }
    isOver = true
    return Outcome(status: marfa_exit_status(status), output: contents(output), errors: contents(errors))
  }

  /// What it has written so far.
  var soFar: String { contents(output) }
  /// The same of its errors.
  var errorsSoFar: String { contents(errors) }

  /// Waits for its end. After so many seconds it and what it started are killed, and the test fails.
  @discardableResult
  func wait(seconds: Double = 60, sourceLocation: SourceLocation = #_sourceLocation) throws -> Outcome {
    var outcome: Outcome?
    _ = try eventually(seconds: seconds) {
      outcome = try poll()
      return outcome != nil
    }
    if let outcome { return outcome }
    Glibc.kill(-pid, SIGKILL)
    let words = "\(words.joined(separator: " ").prefix(2000))\nwas not over after \(seconds) s"
    let said = "output: \(contents(output).suffix(2000))\nerrors: \(contents(errors).suffix(2000))"
    Issue.record("\(words)\n\(said)", sourceLocation: sourceLocation)
    throw TestError(words)
  }

  private func contents(_ file: CInt) -> String {
    var bytes: [UInt8] = []
    var block = [UInt8](repeating: 0, count: 1 << 16)
    while case let count = pread(file, &block, block.count, off_t(bytes.count)), count > 0 {
      bytes += block.prefix(count)
    }
    return String(decoding: bytes, as: UTF8.self)
  }
}

/// What stops a test.
struct TestError: Error, CustomStringConvertible {
  var description: String
  init(_ words: String) { description = words }
}

/// Runs a program to its end, whatever that is.
func run(
  _ words: [String], in folder: String = "/", input: String = "", seconds: Double = 60,
  sourceLocation: SourceLocation = #_sourceLocation
) throws -> Outcome {
  try Program(words, in: folder, input: input).wait(seconds: seconds, sourceLocation: sourceLocation)
}

/// Runs a script of bash's in a folder. The first thing in it that fails ends it, and fails the test.
@discardableResult
func shell(
  _ script: String, _ arguments: String..., in folder: String = "/", seconds: Double = 60,
  sourceLocation: SourceLocation = #_sourceLocation
) throws -> Outcome {
  let words = ["bash", "-euo", "pipefail", "-c", script, "test"] + arguments
  let outcome = try run(words, in: folder, seconds: seconds, sourceLocation: sourceLocation)
  guard outcome.status == 0 else {
    Issue.record("a script failed\n\(outcome)", sourceLocation: sourceLocation)
    throw TestError("a script failed: \(outcome.errors.suffix(500))")
  }
  return outcome
}

/// Runs Perl, for the calls that no program has.
@discardableResult
func perl(
  _ script: String, _ arguments: String..., in folder: String = "/", seconds: Double = 60,
  sourceLocation: SourceLocation = #_sourceLocation
) throws -> Outcome {
  let words = ["perl", "-we", "use strict; use Fcntl qw(:DEFAULT :flock :seek); use IO::Handle; " + script] + arguments
  let outcome = try run(words, in: folder, seconds: seconds, sourceLocation: sourceLocation)
  guard outcome.status == 0 else {
    Issue.record("a script failed\n\(outcome)", sourceLocation: sourceLocation)
    throw TestError("a script failed: \(outcome.errors.suffix(500))")
  }
  return outcome
}

/// Waits until something holds; false when it has not after so many seconds.
func eventually(seconds: Double = 10, _ holds: () throws -> Bool) rethrows -> Bool {
  let end = monotonicSeconds() + seconds
  while monotonicSeconds() < end {
    if try holds() { return true }
    usleep(2_000)
  }
  return try holds()
}

/// What `body` returns, and the seconds it took.
func timed<R>(_ body: () throws -> R) rethrows -> (R, seconds: Double) {
  let start = monotonicSeconds()
  let result = try body()
  return (result, monotonicSeconds() - start)
}

func monotonicSeconds() -> Double {
  var time = timespec()
  clock_gettime(CLOCK_MONOTONIC, &time)
  return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
}
