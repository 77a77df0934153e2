import CLinux
import Glibc

@testable import MarfaEngine

/// Another program.
final class Program: Sendable {
  let pid: pid_t
  private let output: Descriptor

  /// Starts it with its standard output in our hands.
  init(_ arguments: [String], environment: [String: String] = [:]) throws {
    var ends: [CInt] = [0, 0]
    guard pipe(&ends) == 0 else { throw Errno.last }
    _ = fcntl(ends[0], F_SETFD, FD_CLOEXEC)
    output = Descriptor(owning: ends[0])
    let input = Descriptor(owning: ends[1])
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_adddup2(&actions, input.raw, 1)
    if input.raw != 1 { posix_spawn_file_actions_addclose(&actions, input.raw) }
    var variables: [String] = []
    var variable = environ
    while let text = variable.pointee {
      variables.append(String(cString: text))
      variable += 1
    }
    variables += environment.map { "\($0.key)=\($0.value)" }
    var words: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) } + [nil]
    var settings: [UnsafeMutablePointer<CChar>?] = variables.map { strdup($0) } + [nil]
    defer { for word in words + settings { free(word) } }
    var child: pid_t = 0
    let code = posix_spawnp(&child, arguments[0], &actions, nil, &words, &settings)
    guard code == 0 else { throw Errno(code) }
    pid = child
  }

  /// The next bytes it writes; empty at its end.
  func read() throws -> [UInt8] {
    var buffer = [UInt8](repeating: 0, count: 4096)
    while true {
      let count = Glibc.read(output.raw, &buffer, buffer.count)
      if count >= 0 { return Array(buffer.prefix(count)) }
      guard errno == EINTR else { throw Errno.last }
    }
  }

  /// Reads lines until one is `line`; false when the program ended without it.
  func waitFor(line: String) throws -> Bool {
    var text: [UInt8] = []
    while true {
      let bytes = try read()
      if bytes.isEmpty { return false }
      text += bytes
      if text.split(separator: 0x0a).contains(where: { $0.elementsEqual(line.utf8) }) { return true }
    }
  }

  func kill(_ signal: CInt = SIGKILL) { Glibc.kill(pid, signal) }

  /// Everything it wrote, and its exit status or 128 + signal.
  func wait() throws -> (status: CInt, output: String) {
    var all: [UInt8] = []
    while true {
      let bytes = try read()
      if bytes.isEmpty { break }
      all += bytes
    }
    var status: CInt = 0
    while waitpid(pid, &status, 0) < 0 {
      guard errno == EINTR else { throw Errno.last }
    }
    return (marfa_exit_status(status), String(decoding: all, as: UTF8.self))
  }

  @discardableResult
  static func run(_ arguments: [String]) throws -> (status: CInt, output: String) { try Program(arguments).wait() }
}

/// This test program started again for a part in a test that needs a process it can kill: the child runs one suite,
/// ``ChildRoles``, with its part in the environment.
enum Child {
  static let variable = "MARFA_ENGINE_TEST_ROLE"

  /// The part this process plays, `nil` in an ordinary run.
  static var role: [String]? {
    getenv(variable).map { String(cString: $0).split(separator: "\n").map(String.init) }
  }

  static func start(_ role: String...) throws -> Program {
    let own = try contents("/proc/self/cmdline", limit: 1 << 20).split(separator: 0).map {
      String(decoding: $0, as: UTF8.self)
    }
    var arguments = [own[0]]
    // The runner of some toolchains is a helper that is told which bundle to load.
    if let index = own.firstIndex(of: "--test-bundle-path") { arguments += own[index...index + 1] }
    arguments += ["--testing-library", "swift-testing", "--filter", "MarfaEngineTests.ChildRoles"]
    return try Program(arguments, environment: [variable: role.joined(separator: "\n")])
  }

  private static func contents(_ path: String, limit: Int) throws -> [UInt8] {
    try Descriptor.open(path, O_RDONLY).prefix(limit)
  }
}
