import CLinux
import Glibc
import MarfaEngine
import MarfaFS

/// `mount`: in the foreground until the mount ends; otherwise it starts a process in the background and returns once the
/// mount answers.
enum MountCommand {
  /// How often a store that another process has is tried again: a command may have it for a moment.
  private static let attempts = 30

  static func run(_ options: MountOptions) throws(CommandFailure) {
    var options = options
    // Before a store or a log is made for it, and once: what it is in may be a pipe.
    options.key = try ServerConnection.namedKey(options)
    if options.server != nil, try ServerConnection.key(options) == nil { throw ServerConnection.noKey(options) }
    guard options.isForeground else { return try BackgroundMount.start(options) }
    // Before any thread: the signals that end a mount are for the one that waits for them.
    Signals.block()
    // What a list of processes and `killall` call it, however it was started.
    pthread_setname_np(pthread_self(), "marfa-mount")
    let terminal = try options.log.map { (path) throws(CommandFailure) in LogFile.take(try LogFile.open(path)) }
    guard let ready = options.readyDescriptor else {
      do throws(CommandFailure) {
        return try serve(options) { (facts) throws(CommandFailure) in
          try Output.print(
            options.asJSON ? JSON.object(facts).text : MountReport.text(facts, warns: options.log != nil))
          return true
        }
      } catch {
        // The log has it too; whoever waits here does not look there first.
        if let terminal {
          Log.error(error.message)
          LogFile.giveBack(terminal)
        }
        throw error
      }
    }
    let pipe = BackgroundMount.settle(ready)
    do throws(CommandFailure) {
      try serve(options) { facts in BackgroundMount.report(.done(facts), to: pipe) }
    } catch {
      Log.error(error.message)
      _ = BackgroundMount.report(.failed(error), to: pipe)
      exit(error.kind.exitStatus)
    }
  }

  /// Mounts, tells `ready` when the mount answers, and serves it to its end. `ready` answers false when nobody wants the
  /// mount any more.
  private static func serve(
    _ options: MountOptions, ready: (JSON.Object) throws(CommandFailure) -> Bool
  ) throws(CommandFailure) {
    DescriptorLimit.raise()
    let (copy, mounted, server) = try mount(options)
    Signals.watch { signal in
      Log.notice("told to end (signal \(signal))")
      mounted.requestStop()
    }
    do throws(CommandFailure) {
      guard mounted.waitUntilReady(), isAnswered(mounted.mountPoint) else {
        throw CommandFailure(
          .environment, "mount_failed",
          "\(mounted.mountPoint) was mounted and ended at once\(options.readyDescriptor == nil ? "" : ": the log says why")"
        )
      }
      // Not before: what a server says of the mount's files, the kernel is to be told.
      try server.connect(copy)
      Log.notice("\(copy.path) is mounted at \(mounted.mountPoint) (\(copy.isReader ? "reader" : "writer"))")
      if try !ready(MountReport.facts(options, copy, mounted, server)) {
        Log.notice("the command that started this mount ended before it was told")
        mounted.requestStop()
      }
    } catch {
      mounted.requestStop()
      mounted.wait()
      throw error
    }
    switch mounted.wait() {
    case .stopped, .unmounted: Log.notice("\(mounted.mountPoint) is unmounted")
    case .failed:
      throw CommandFailure(.environment, "mount_failed", "the mount at \(mounted.mountPoint) failed; the log says how")
    }
  }

  /// The kernel and libfuse may still disagree once the one has said what it offers: asking the mount tells. What answers
  /// is to be another filesystem than the one above, not the folder beneath a mount that is gone again.
  private static func isAnswered(_ folder: String) -> Bool {
    var (inside, above) = (stat(), stat())
    return stat(folder, &inside) == 0 && stat(folder + "/..", &above) == 0 && inside.st_dev != above.st_dev
  }

  /// Looks at the folder before anything is made, opens the store, and mounts it.
  private static func mount(
    _ options: MountOptions
  ) throws(CommandFailure) -> (WorkingCopy, MountedStore, ServerConnection) {
    let claim = claim(options.mountPoint)
    defer { withExtendedLifetime(claim) {} }
    let mountPoint: String
    do throws(MountError) { mountPoint = try MountPoint.prepare(options.mountPoint) } catch {
      throw explained(error, options)
    }
    let copy = try open(options)
    do throws(CommandFailure) {
      try choose(options, copy)
      let connection = try ServerConnection.prepare(options, copy)
      var configuration = MountConfiguration(mountPoint: mountPoint, source: copy.path)
      configuration.isReadOnly = copy.isReader
      configuration.options = options.fuseOptions
      configuration.passesThrough = options.passesThrough
      do throws(MountError) {
        let mounted = try MountedStore.mount(copy, configuration, log: options.log)
        return (copy, mounted, connection)
      } catch {
        throw CommandFailure(error)
      }
    } catch {
      copy.close()
      throw error
    }
  }

  /// Keeps others from mounting at a folder until it is done here: two that look at once would both find it empty.
  private static func claim(_ folder: String) -> Descriptor? {
    // What can't be opened, `prepare` will say.
    guard let file = try? Descriptor.open(folder, O_RDONLY | O_DIRECTORY) else { return nil }
    for _ in 0..<100 {
      if flock(file.raw, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK { break }
      usleep(100_000)
    }
    return file
  }

  // MARK: The store

  private static func open(_ options: MountOptions) throws(CommandFailure) -> WorkingCopy {
    if options.isDefaultStore {
      do throws(Errno) { try Locations.makeFolder(of: options.store) } catch {
        throw CommandFailure(.io(error, "making the folder of \(options.store)"))
      }
    }
    var settings = WorkingCopy.Options()
    settings.reader = options.isReader
    settings.tree = options.tree
    settings.tree.groupsRows = true
    do throws(MarfaError) {
      var copy = try WorkingCopy(path: options.store, options: settings)
      // Whoever has the store may be a command that is about to end. One that has it mounted is not.
      for _ in 0..<attempts where copy.isReader && !options.isReader && StoreHolder.mountPoint(of: copy.path) == nil {
        copy.close()
        usleep(100_000)
        copy = try WorkingCopy(path: options.store, options: settings)
      }
      return copy
    } catch {
      throw CommandFailure(error)
    }
  }

  /// Keeps in the store what was chosen for it.
  private static func choose(_ options: MountOptions, _ copy: WorkingCopy) throws(CommandFailure) {
    guard options.budget != nil || options.keep != nil else { return }
    guard !copy.isReader else {
      Log.warning("a reader chooses no budget: --budget and --keep are left as the store has them")
      return
    }
    do throws(MarfaError) {
      if let keep = options.keep { try copy.blobs.setKeep(keep) }
      if let budget = options.budget { try copy.blobs.setBudget(budget) }
    } catch {
      throw CommandFailure(error)
    }
  }

  /// A mount point that can't be one, because it is the store.
  private static func explained(_ error: MountError, _ options: MountOptions) -> CommandFailure {
    let store = (try? Path.status(options.store)) ?? nil
    let isFolder = store.map { $0.st_mode & S_IFMT == S_IFDIR } ?? false
    switch error {
    case .missing where isFolder, .notDirectory where isFolder:
      return CommandLineParser.usage(
        "the store comes first, then the folder: "
          + "\(CommandHint(mounting: options.mountPoint, at: options.store))")
    default: return CommandFailure(error)
    }
  }
}

/// What is said of a mount that answers.
enum MountReport {
  /// As JSON.
  static func facts(
    _ options: MountOptions, _ copy: WorkingCopy, _ mounted: MountedStore, _ server: ServerConnection
  ) -> JSON.Object {
    var facts: JSON.Object = [
      "store": .string(copy.path), "mount_point": .string(mounted.mountPoint), "pid": .integer(getpid()),
      "mode": .string(copy.isReader ? "reader" : "writer"), "log": .optional(options.log),
    ]
    if copy.isNew { facts["new"] = true }
    if copy.isReader && !options.isReader {
      facts["writer_pid"] = StoreHolder.pid(of: copy.path).map { .integer($0) } ?? .null
      facts["writer_mount_point"] = .optional(StoreHolder.mountPoint(of: copy.path))
    }
    for (key, value) in server.facts(copy).members { facts[key] = value }
    let recovered = copy.recoveredFiles()
    if !recovered.isEmpty { facts["recovered"] = .array(recovered.map { .string($0) }) }
    return facts
  }

  /// In words. `warns` is false where the warnings are seen already, for the log is.
  static func text(_ facts: JSON.Object, warns: Bool) -> String {
    func word(_ key: String) -> String { Output.safe(facts[key]?.string ?? "") }
    var lines = ["Mounted \(word("store")) at \(word("mount_point"))"]
    if facts["new"]?.bool == true { lines.insert("Made a new store: \(word("store"))", at: 0) }
    if let writer = facts["writer_pid"] {
      let who = writer.integer.map { "Process \($0)" } ?? "Another process"
      let at = facts["writer_mount_point"]?.string.map { ", mounted at \(Output.safe($0))" } ?? ""
      lines.append("\(who) has this store open for writing\(at); this mount is a reader: nothing can be written here.")
    } else if word("mode") == "reader" {
      lines.append("It is a reader: nothing can be written here.")
    }
    lines += ServerConnection.text(facts)
    let status = CommandHint("status", store: facts["store"]?.string ?? "")
    if let recovered = facts["recovered"]?.array?.count {
      lines.append(
        recovered == 1
          ? "What a file had that was being written when a process ended was kept: see \"\(Output.safe("\(status)"))\"."
          : "What \(recovered) files had that were being written when a process ended was kept: "
            + "see \"\(Output.safe("\(status)"))\".")
    }
    if warns { lines += (facts["warnings"]?.array ?? []).map { "Warning: \(Output.safe($0.string ?? ""))" } }
    if facts["log"]?.string != nil { lines.append("The log is at \(word("log"))") }
    return lines.joined(separator: "\n")
  }
}
