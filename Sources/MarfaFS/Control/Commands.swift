import MarfaEngine

/// The commands on a store: one implementation each, whether a mount is asked through its socket or the command has
/// opened the store itself.
public struct Commands: Sendable {
  /// What a mount adds: facts for `status`, and the way to its end.
  public struct Mount: Sendable {
    let facts: @Sendable () -> MountFacts
    let unmount: @Sendable () -> Void

    /// A mount that tells its facts, and whose end begins with `unmount`, which returns at once.
    public init(facts: @escaping @Sendable () -> MountFacts, unmount: @escaping @Sendable () -> Void) {
      self.facts = facts
      self.unmount = unmount
    }
  }

  let copy: WorkingCopy
  let mount: Mount?
  let jobs = FetchJobs()

  /// The commands on a working copy; `mount` is `nil` when it is not mounted by this process.
  public init(_ copy: WorkingCopy, mount: Mount? = nil) {
    self.copy = copy
    self.mount = mount
  }

  /// Carries out a request. `hangUp` is cancelled when whoever asked waits no more.
  public func run(
    _ request: ControlRequest, hangUp: Cancellation = Cancellation()
  ) throws(CommandFailure) -> JSON.Object {
    switch request.command {
    case "status": try status(request.arguments)
    case "queue": try queue(request.arguments)
    case "progress": try progress(request.arguments)
    case "hydrate": try hydrate(request.arguments)
    case "retry": try retry(request.arguments)
    case "pause": try pause(request.arguments)
    case "resume": try resume(request.arguments)
    case "release": try release(request.arguments)
    case "withdraw": try withdraw(request.arguments)
    case "discard": try discard(request.arguments)
    case "pin": try pin(request.arguments, true)
    case "unpin": try pin(request.arguments, false)
    case "fetch": try fetch(request.arguments, hangUp)
    case "fetching": try fetching(request.arguments)
    case "evict": try evict(request.arguments)
    case "trim": try trim(request.arguments)
    case "cache": try cache(request.arguments)
    case "budget": try budget(request.arguments)
    case "attach": try attach(request.arguments)
    case "embed": try embed(request.arguments)
    case "add": try add(request.arguments)
    case "unmount": try unmount(request.arguments)
    default:
      throw CommandFailure(.usage, "unknown_command", "this mount knows no command \"\(request.command)\"")
    }
  }

  /// Carries out a request, whatever comes of it.
  func answer(_ request: ControlRequest, hangUp: Cancellation) -> ControlAnswer {
    do throws(CommandFailure) { return .done(try run(request, hangUp: hangUp)) } catch { return .failed(error) }
  }

  /// Has the mount end, even with files open. The answer goes out before it does.
  private func unmount(_ arguments: JSON.Object) throws(CommandFailure) -> JSON.Object {
    _ = try Arguments(arguments, allowed: [])
    guard let mount else { throw CommandFailure(.refused, "not_mounted", "\(copy.path) is not mounted") }
    let facts = mount.facts()
    mount.unmount()
    return ["mount_point": .string(facts.mountPoint), "pid": .integer(facts.pid)]
  }
}

/// What a mount tells of itself, beside what its store says.
public struct MountFacts: Sendable, Equatable {
  /// The directory it is mounted on.
  public var mountPoint: String
  /// The process that serves it.
  public var pid: Int
  /// Since when.
  public var since: Timestamp
  /// Why the kernel does not read held files by itself; `nil` when it does.
  public var whyNotPassthrough: String?
  /// How many files it reads so now.
  public var passing: Int
  /// Where the log is; `nil` when it goes to a terminal.
  public var log: String?

  /// All of it.
  public init(
    mountPoint: String, pid: Int, since: Timestamp, whyNotPassthrough: String?, passing: Int, log: String?
  ) {
    self.mountPoint = mountPoint
    self.pid = pid
    self.since = since
    self.whyNotPassthrough = whyNotPassthrough
    self.passing = passing
    self.log = log
  }

  /// As answers have it.
  var json: JSON {
    [
      "mount_point": .string(mountPoint), "pid": .integer(pid), "since": .string(since.iso8601),
      "passthrough": .string(whyNotPassthrough == nil ? "passthrough" : "ordinary"),
      "passthrough_detail": .optional(whyNotPassthrough), "passthrough_files": .integer(passing), "log": .optional(log),
    ]
  }
}
