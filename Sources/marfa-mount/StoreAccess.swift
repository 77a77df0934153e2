import Glibc
import MarfaEngine
import MarfaFS

/// Which store a command is about.
struct StoreTarget {
  /// The store's path.
  var store: String
  /// The mount it was named by, when it was.
  var mount: MarfaMount?

  /// Finds the store that a word names: the store itself, or any path in its mount. Without a word, the default store.
  init(_ word: String?) throws(CommandFailure) {
    guard let word else {
      store = Locations.canonicalStore(try Locations.defaultStore())
      return
    }
    guard !word.isEmpty else { throw CommandLineParser.usage("an empty name is no store") }
    let path = Locations.absolute(word)
    if let mount = try Self.mount(holding: path) {
      self.mount = mount
      store = mount.store
      return
    }
    store = Locations.canonicalStore(path)
    if let status = try? Path.status(store), status.st_mode & S_IFMT == S_IFDIR {
      throw CommandFailure(
        .refused, "not_mounted", "\(word) is a folder that shows no store. Name the store itself, or mount it there")
    }
  }

  /// The store of a mount.
  init(_ mount: MarfaMount) {
    self.mount = mount
    store = mount.store
  }

  /// The mount that a path is in.
  static func mount(holding path: String) throws(CommandFailure) -> MarfaMount? {
    do throws(Errno) { return try MarfaMounts.holding(path) } catch {
      throw CommandFailure(.environment, "no_mount_table", "the kernel's table of mounts can't be read: \(error)")
    }
  }
}

/// A store as a command reaches it: by the process that has it mounted, or opened by this one.
enum StoreAccess {
  case mounted(ControlAddress)
  case opened(WorkingCopy)

  /// How long a command that opened the store before us may take.
  private static let patience = 100

  /// Reaches a store to change something.
  static func writing(_ target: StoreTarget) throws(CommandFailure) -> StoreAccess {
    let address = ControlAddress(writerOf: target.store)
    for attempt in 0... {
      if try ControlClient(address) != nil { return .mounted(address) }
      let copy = try open(target.store, reader: false)
      if !copy.isReader { return .opened(copy) }
      // Another command, perhaps, which has it for a moment; or a mount that has just started.
      if attempt == patience { break }
      usleep(100_000)
    }
    let holder = StoreHolder.pid(of: target.store).map { "process \($0)" } ?? "another process"
    throw CommandFailure(
      .environment, "store_busy",
      "\(holder) has \(target.store) open for writing, and can't be asked. Try again when it has ended")
  }

  /// Reaches a store to look at it.
  static func reading(_ target: StoreTarget) throws(CommandFailure) -> StoreAccess {
    let address = ControlAddress(writerOf: target.store)
    if try ControlClient(address) != nil { return .mounted(address) }
    return .opened(try open(target.store, reader: true))
  }

  /// Carries out a request.
  func run(_ request: ControlRequest) throws(CommandFailure) -> JSON.Object {
    switch self {
    case .opened(let copy): return try Commands(copy).run(request)
    case .mounted(let address):
      guard let client = try ControlClient(address) else {
        throw CommandFailure(.environment, "no_answer", "the mount ended; try again")
      }
      return try client.ask(request)
    }
  }

  /// Begins a request in the process that has the store mounted; `nil` when none has.
  func begin(_ request: ControlRequest) throws(CommandFailure) -> ControlCall? {
    guard case .mounted(let address) = self else { return nil }
    return try ControlClient(address)?.begin(request)
  }

  /// Closes what was opened.
  func close() {
    if case .opened(let copy) = self { copy.close() }
  }

  private static func open(_ store: String, reader: Bool) throws(CommandFailure) -> WorkingCopy {
    do throws(Errno) {
      guard try Path.status(store) != nil else {
        throw .notFound
      }
    } catch {
      guard error == .notFound else { throw CommandFailure(.io(error, store)) }
      throw CommandFailure(
        .store, "no_store",
        "there is no store at \(store). Mounting it makes one: "
          + "\(CommandHint(mounting: store, at: "FOLDER"))")
    }
    var options = WorkingCopy.Options()
    options.reader = reader
    do throws(MarfaError) { return try WorkingCopy(path: store, options: options) } catch {
      throw CommandFailure(error)
    }
  }
}
