import Glibc
import MarfaEngine
import MarfaFS

/// What `mount` is to do.
struct MountOptions {
  /// The store's path, canonical.
  var store: String
  /// True when no store was named, and the default one is meant.
  var isDefaultStore: Bool
  /// The folder to mount at, from the root.
  var mountPoint: String
  var isReader: Bool
  var isForeground: Bool
  /// The kernel reads held files by itself where it can.
  var passesThrough: Bool
  var asJSON: Bool
  /// The options of libfuse and the kernel.
  var fuseOptions: [String]
  var budget: FileBudget?
  var keep: KeepSetting?
  var tree: Tree.Settings
  /// The server it is to follow, as it was given.
  var server: Origin?
  /// Where its key is, from the root; `-` for standard input.
  var keyFile: String?
  /// The key from there, once it was read: a pipe has it only once.
  var key: FoundCredential?
  /// Where the command that started this process hands the key on.
  var keyDescriptor: CInt?
  /// The types to bring from there; `nil` when none were named.
  var types: [String]?
  /// The tier to bring.
  var tier: TierFilter?
  /// Where the log is to go; `nil` for the usual place, and in the foreground for standard error.
  var log: String?
  /// Where to tell the command that started this process how it went.
  var readyDescriptor: CInt?
  /// The options as they were given, for the process in the background.
  private var words: [String]

  /// Reads and checks a command line.
  init(_ line: CommandLineParser.Line) throws(CommandFailure) {
    try Self.refuseMistakes(line)
    switch line.operands.count {
    case 1:
      store = try Locations.defaultStore()
      isDefaultStore = true
      mountPoint = line.operands[0]
    case 2:
      store = line.operands[0]
      isDefaultStore = false
      mountPoint = line.operands[1]
    case 0: throw CommandLineParser.usage("name the folder to mount at: marfa-mount [STORE] FOLDER")
    default:
      throw CommandLineParser.usage(
        "mount takes a store and a folder, and was given \(line.operands.count) words; quote names with blanks in them")
    }
    for word in line.operands where word.isEmpty { throw CommandLineParser.usage("an empty name is no path") }
    store = try Self.storeOutsideMounts(Locations.canonicalStore(store))
    mountPoint = Locations.absolute(mountPoint)
    isReader = line.has(.reader)
    isForeground = line.has(.foreground)
    passesThrough = line.has(.passthrough)
    asJSON = line.has(.json)
    fuseOptions = try Values.fuseOptions(line.values(.fuseOptions))
    budget = try line.value(.budget).map { (text) throws(CommandFailure) in try Values.budget(text) }
    keep = try line.value(.keep).map { (text) throws(CommandFailure) in try Values.keep(text) }
    tree = Tree.Settings()
    if let text = line.value(.localNames) { tree.localNames = try Values.localNames(text) }
    if let text = line.value(.settle) { tree.settling = try Values.settling(text) }
    if let type = line.value(.directoryType) {
      guard Values.isTypeName(type), !FileTypes.isFileType(type) else {
        throw CommandLineParser.usage("--directory-type is the type of an item such as core.note, not \"\(type)\"")
      }
      tree.directoryType = type
    }
    server = try line.value(.server).map { (text) throws(CommandFailure) in try Values.server(text) }
    keyFile = line.value(.keyFile).map { $0 == "-" ? $0 : Locations.absolute($0) }
    types = line.has(.type) ? try Values.types(line.values(.type)) : nil
    tier = try line.value(.tier).map { (text) throws(CommandFailure) in try Values.tier(text) }
    log = line.value(.log).map { Locations.absolute($0) }
    readyDescriptor = line.value(.readyDescriptor).flatMap { CInt($0) }
    keyDescriptor = line.value(.keyDescriptor).flatMap { CInt($0) }
    words = []
    for option in line.command.options where option != .foreground && option != .json && option != .log {
      words += line.values(option).flatMap { option.value == nil ? [option.spelling] : [option.spelling, $0] }
    }
    try refuseForReader()
  }

  /// The store that a path leads to: that of the mount whose folder it is, or is in. A store is never kept in a mount: its
  /// bytes would be items of the other one.
  private static func storeOutsideMounts(_ path: String) throws(CommandFailure) -> String {
    guard let mount = try StoreTarget.mount(holding: path) else { return path }
    let status = (try? Path.status(path)) ?? nil
    // What a crashed mount left can't be looked at.
    guard path == mount.mountPoint || status.map({ $0.st_mode & S_IFMT == S_IFDIR }) ?? false else {
      throw CommandFailure(
        .refused, "store_in_mount",
        "\(path) is in the mount at \(mount.mountPoint), and a store can't be kept in one. Choose a path on a disk")
    }
    return mount.store
  }

  /// A reader looks at what is here, and asks no server.
  private func refuseForReader() throws(CommandFailure) {
    guard isReader else { return }
    let given: [CommandOption] = [
      server.map { _ in .server }, keyFile.map { _ in .keyFile }, types.map { _ in .type }, tier.map { _ in .tier },
    ].compactMap { $0 }
    guard let first = given.first else { return }
    throw CommandLineParser.usage("a reader looks at what is here and asks no server: leave out \(first.spelling)")
  }

  /// The command line of the process in the background. It holds where the key was, never the key.
  func background(readyDescriptor: CInt, keyDescriptor: CInt?, log: String) -> [String] {
    ["mount", "--foreground", CommandOption.readyDescriptor.spelling, String(readyDescriptor), "--log", log]
      + (keyDescriptor.map { [CommandOption.keyDescriptor.spelling, String($0)] } ?? []) + words
      + ["--"] + (isDefaultStore ? [mountPoint] : [store, mountPoint])
  }

  /// Catches a line that would do something else than what was meant.
  private static func refuseMistakes(_ line: CommandLineParser.Line) throws(CommandFailure) {
    guard let first = line.operands.first, !line.isCommandNamed else { return }
    let isThere = ((try? Path.status(first)) ?? nil) != nil
    guard !isThere, !first.contains("/"), !first.hasSuffix(".db") else { return }
    if let meant = Spelling.otherWords[first] {
      throw CommandLineParser.usage("\"\(first)\" is no command. Did you mean \(meant)?")
    }
    if let near = Spelling.nearest(to: first, among: Command.allCases.map { $0.rawValue }) {
      throw CommandLineParser.usage("\"\(first)\" is no command and no path. Did you mean \(near)?")
    }
    // A command of another version, perhaps: not to be made a store of.
    if line.operands.count > 1, !first.contains(".") {
      throw CommandLineParser.usage(
        "\"\(first)\" is no command, and no store that is there. To make a store of that name: "
          + "marfa-mount mount \(first) FOLDER")
    }
    if line.operands.count == 1, !first.contains(".") {
      throw CommandLineParser.usage(
        "\"\(first)\" is no command, and no folder that is there. To mount at a folder of that name, make it first: "
          + "mkdir \(first)")
    }
  }
}
