import CLinux
import Glibc
import MarfaEngine

/// Programs this one starts.
public enum ChildProcess {
  /// How a new process finds its surroundings.
  public struct Surroundings: Sendable {
    /// Descriptors of ours that it has under these numbers. All others are closed in it, but for 0, 1 and 2.
    public var descriptors: [(from: Descriptor, to: CInt)] = []
    /// Reads nothing from where we read.
    public var hasNoInput = false
    /// Is of no terminal: Ctrl-C there and its end are not for it.
    public var isOwnSession = false

    /// Those of this process.
    public init() {}
  }

  /// `POSIX_SPAWN_SETSID` (spawn.h; Swift's Glibc does not show it).
  private static let ownSession: Int16 = 0x80

  /// Starts a program, which is looked for as a shell does. Signals are to it as they are to a fresh process.
  public static func spawn(_ program: String, _ words: [String], _ surroundings: Surroundings) throws(Errno) -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    if surroundings.hasNoInput { posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0) }
    for descriptor in surroundings.descriptors {
      posix_spawn_file_actions_adddup2(&actions, descriptor.from.raw, descriptor.to)
    }
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    var pipe = sigset_t()
    sigemptyset(&pipe)
    sigaddset(&pipe, SIGPIPE)
    posix_spawnattr_setsigdefault(&attributes, &pipe)
    posix_spawnattr_setflags(
      &attributes,
      Int16(POSIX_SPAWN_SETSIGMASK) | Int16(POSIX_SPAWN_SETSIGDEF) | (surroundings.isOwnSession ? ownSession : 0))
    var arguments = words.map { (word: String) in strdup(word) }
    defer { for word in arguments { free(word) } }
    arguments.append(nil)
    var child = pid_t()
    // The descriptors are open until they are the child's.
    let code = withExtendedLifetime(surroundings) {
      posix_spawnp(&child, program, &actions, &attributes, arguments, environ)
    }
    guard code == 0 else { throw Errno(code) }
    return child
  }

  /// Waits for a child's end: its exit status, or 128 and the signal that ended it.
  public static func wait(for child: pid_t) -> CInt {
    var status: CInt = 0
    while waitpid(child, &status, 0) < 0 {
      if errno != EINTR { return 127 }
    }
    return marfa_exit_status(status)
  }

  /// Runs a program to its end and catches what it says on standard error. `nil` when it can't be started.
  static func run(_ words: [String]) -> (status: CInt, errors: String)? {
    guard let program = words.first, let (readEnd, writeEnd) = try? makePipe() else { return nil }
    var surroundings = Surroundings()
    surroundings.hasNoInput = true
    surroundings.descriptors = [(writeEnd, 2)]
    guard let child = try? spawn(program, words, surroundings) else { return nil }
    return (status: wait(for: child), errors: String(decoding: drain(readEnd), as: UTF8.self))
  }

  /// A pipe whose ends no child inherits.
  public static func makePipe() throws(Errno) -> (readEnd: Descriptor, writeEnd: Descriptor) {
    var ends: [CInt] = [-1, -1]
    guard pipe(&ends) == 0 else { throw Errno.last }
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    return (Descriptor(owning: ends[0]), Descriptor(owning: ends[1]))
  }

  /// What is in a pipe by now: a few words of a program that ended.
  private static func drain(_ readEnd: Descriptor) -> [UInt8] {
    _ = fcntl(readEnd.raw, F_SETFL, O_NONBLOCK)
    var block = [UInt8](repeating: 0, count: 4096)
    let count = read(readEnd.raw, &block, block.count)
    return Array(block.prefix(max(0, count)))
  }
}
