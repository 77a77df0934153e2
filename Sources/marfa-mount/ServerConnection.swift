import MarfaEngine
import MarfaFS

/// How a mount meets its store's server: decided and checked before anything is mounted.
enum ServerConnection {
  /// There is no server, or a reader leaves it to the writer.
  case none
  /// The store is bound to a server, and there is no key: it works without.
  case keyless(origin: String)
  /// It is asked.
  case ready(RemoteOptions, FoundCredential)

  /// Finds the server and the key. What was asked for and can't be is refused; a store that was bound before and has no
  /// key now is mounted all the same.
  static func prepare(_ options: MountOptions, _ copy: WorkingCopy) throws(CommandFailure) -> ServerConnection {
    guard !copy.isReader else { return .none }
    let bound: String?
    do throws(MarfaError) { bound = try copy.origin() } catch { throw CommandFailure(error) }
    var wanted = options.server
    if wanted == nil {
      let known: String?
      // Also one that has not answered yet.
      do throws(MarfaError) { known = try copy.knownOrigin() } catch { throw CommandFailure(error) }
      if let known { wanted = try Values.server(known) }
    }
    guard let origin = wanted else {
      for (isGiven, option) in [
        (options.keyFile != nil, CommandOption.keyFile), (options.types != nil, .type), (options.tier != nil, .tier),
      ] where isGiven {
        throw CommandLineParser.usage("\(option.spelling) is about a server, and this store has none: add --server URL")
      }
      return .none
    }
    if let bound, bound != origin.description {
      throw CommandFailure(.unusable(.boundElsewhere(path: copy.path, bound: bound, asked: origin.description)))
    }
    guard let found = try key(options) else {
      guard options.server == nil else { throw noKey(options) }
      Log.warning("there is no key for \(origin): the store works without its server")
      return .keyless(origin: origin.description)
    }
    for warning in warnings(found, origin) { Log.warning(warning) }
    var remote = RemoteOptions(origin, credential: found.credential)
    remote.types = options.types
    remote.tier = options.tier
    return .ready(remote, found)
  }

  /// The key, wherever it is; `nil` when there is none.
  static func key(_ options: MountOptions) throws(CommandFailure) -> FoundCredential? {
    if let key = options.key { return key }
    return try reading { () throws(CredentialProblem) in try FoundCredential.find(keyFile: options.keyFile) }
  }

  /// The key from the place the command line names; `nil` when it names none.
  static func namedKey(_ options: MountOptions) throws(CommandFailure) -> FoundCredential? {
    if let descriptor = options.keyDescriptor {
      return try reading { () throws(CredentialProblem) in
        try FoundCredential.take(from: Descriptor(owning: descriptor))
      }
    }
    guard options.keyFile != nil else { return nil }
    return try key(options)
  }

  /// What is not as it should be with a key that is used all the same, for a person.
  private static func warnings(_ found: FoundCredential, _ origin: Origin) -> [String] {
    var warnings = found.warning.map { [$0] } ?? []
    if origin.isReadableOnTheWay {
      warnings.append(
        "the key and all else goes to \(origin) in the clear: whoever can read the network between can read it. Use "
          + "https:// where the server has it")
    }
    return warnings
  }

  private static func reading(
    _ body: () throws(CredentialProblem) -> FoundCredential?
  ) throws(CommandFailure) -> FoundCredential? {
    do throws(CredentialProblem) { return try body() } catch {
      throw CommandFailure(.credential, "bad_key", "\(error)")
    }
  }

  /// A server was named, and no key.
  static func noKey(_ options: MountOptions) -> CommandFailure {
    let server = options.server.map { "\($0)" } ?? "the server"
    return CommandFailure(
      .credential, "no_key", "there is no key for \(server). Give one with --key-file FILE, or in MARFA_API_KEY")
  }

  /// Begins to follow the server. The network is met later, by threads of the copy's own.
  func connect(_ copy: WorkingCopy) throws(CommandFailure) {
    guard case .ready(let remote, let found) = self else { return }
    do throws(MarfaError) { try copy.connect(remote) } catch { throw CommandFailure(error) }
    Log.notice("\(copy.path) follows \(remote.origin), with the key from \(found.source)")
  }

  /// What is said of it once the mount answers.
  func facts(_ copy: WorkingCopy) -> JSON.Object {
    switch self {
    case .none: return [:]
    case .keyless(let origin): return ["server": .string(origin), "connected": false, "reason": "no_key"]
    case .ready(let remote, let found):
      var facts: JSON.Object = [
        "server": .string("\(remote.origin)"), "connected": true, "key_from": .string(found.source),
        "hydration": .string(((try? copy.hydration()) ?? .never).rawValue),
      ]
      let warnings = Self.warnings(found, remote.origin)
      if !warnings.isEmpty { facts["warnings"] = .array(warnings.map { .string($0) }) }
      if (try? copy.wasHydrated()) == false { facts["first_hydration"] = true }
      if let progress = copy.serverStatus?.hydrationProgress { facts["hydrated_items"] = .integer(progress.items) }
      return facts
    }
  }

  /// The same in words.
  static func text(_ facts: JSON.Object) -> [String] {
    guard let server = facts["server"]?.string.map({ Output.safe($0) }) else { return [] }
    guard facts["connected"]?.bool == true else {
      return [
        "This store belongs to \(server), and there is no key for it: it works with what is here, and",
        "what you write waits. Give a key with --key-file FILE, or in MARFA_API_KEY, and mount again.",
      ]
    }
    var lines = ["It follows \(server)"]
    if facts["hydration"]?.string != HydrationState.complete.rawValue {
      let status = CommandHint("status", store: facts["store"]?.string ?? "")
      lines.append(
        "Bringing the list of what is there: \(Counted.text(facts.count("hydrated_items"), "item")) so far; see "
          + "\"\(Output.safe("\(status)"))\"")
      if facts["first_hydration"]?.bool == true {
        lines.append("The folder shows it once all of it is here; what you write goes in meanwhile.")
      }
    }
    return lines
  }
}
