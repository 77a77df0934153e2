import ContractServer
import Glibc
import MarfaEngine

/// Runs the tests' server by itself, so that two mounts can share it.
@main
enum Command {
  private static let help = """
    marfa-contract-server --folder DIR [--port N] [--store-port N] [--admin-port N] [--key NAME=SECRET]...
                          [--links store|instance] [--prefix /P] [--round-trip SECONDS] [--rate BYTES/S]
                          [--ping SECONDS] [--retain N]

    The server the tests are run against, for trying a mount out: it keeps what it is sent in DIR, listens
    on this machine alone, and secures nothing. Prints one line of JSON with where everything is, and runs
    until SIGTERM or SIGINT. Give each mount a --key of its own.
    """

  static func main() {
    var signals = sigset_t()
    sigemptyset(&signals)
    sigaddset(&signals, SIGTERM)
    sigaddset(&signals, SIGINT)
    pthread_sigmask(SIG_BLOCK, &signals, nil)
    if CommandLine.arguments.dropFirst().contains(where: { $0 == "--help" || $0 == "-h" }) {
      print(help)
      exit(0)
    }
    do {
      let (folder, options) = try arguments(CommandLine.arguments.dropFirst())
      let server = try ContractServer(folder: folder, options)
      var keys = JSON.Object()
      for key in options.keys { keys[key.name] = .string(key.secret) }
      print(
        JSON.object([
          "url": .string(server.url), "store_url": .string(server.storeURL),
          "admin_url": .optional(server.adminURL), "key": .string(server.key), "keys": .object(keys),
          "pid": .integer(getpid()),
        ]).text)
      fflush(nil)
      var signal: CInt = 0
      sigwait(&signals, &signal)
      server.stop()
    } catch {
      let words = (error as? ServerRefusal)?.message ?? (error as? Usage)?.words ?? "\(error)"
      _ = (words + "\n").withCString { write(2, $0, strlen($0)) }
      exit(error is Usage ? 2 : 1)
    }
  }

  private struct Usage: Error {
    var words: String
  }

  private static func arguments(_ words: ArraySlice<String>) throws -> (folder: String, options: ServerOptions) {
    var options = ServerOptions()
    options.adminPort = 0
    var folder: String?
    var keys: [APIKey] = []
    var rest = words
    while let name = rest.popFirst() {
      guard let value = rest.popFirst() else { throw Usage(words: "\(name) needs a value") }
      func number<T: LosslessStringConvertible>() throws -> T {
        guard let number = T(value) else { throw Usage(words: "\(name) \(value): no such number") }
        return number
      }
      switch name {
      case "--folder": folder = value
      case "--port": options.port = try number()
      case "--store-port": options.storePort = try number()
      case "--admin-port": options.adminPort = try number()
      case "--key":
        let halves = value.split(separator: "=", maxSplits: 1).map(String.init)
        keys.append(APIKey(halves.count > 1 ? halves[0] : "key\(keys.count + 1)", secret: halves.last ?? value))
      case "--links":
        guard let place = LinkPlace(rawValue: value) else { throw Usage(words: "--links is store or instance") }
        options.links = place
      case "--prefix": options.prefix = value
      case "--round-trip": options.link.roundTrip = try number()
      case "--rate": options.link.bytesPerSecond = try number() as Double
      case "--ping": options.pingInterval = try number()
      case "--retain": options.retainedEvents = try number() as Int
      default: throw Usage(words: "there is no \(name)")
      }
    }
    guard let folder else { throw Usage(words: "--folder is needed") }
    if !keys.isEmpty { options.keys = keys }
    return (folder, options)
  }
}
