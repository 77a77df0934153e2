import Glibc
import MarfaEngine
import MarfaFS

/// The program: a command line in, an exit status out.
@main
enum Program {
  /// What `--version` says.
  static let version = "0.1.0"

  static func main() {
    // The store, its log and its sockets are this person's alone.
    umask(0o077)
    exit(run(Array(CommandLine.arguments.dropFirst())))
  }

  /// Runs a command line without the program's name, and tells the exit status.
  static func run(_ words: [String]) -> CInt {
    do throws(CommandFailure) {
      try refuseBytes()
      try run(try CommandLineParser.parse(words))
      return 0
    } catch {
      let command = words.first.map { Command(rawValue: $0) ?? .mount }
      return Output.report(error, command: command, asJSON: words.prefix { $0 != "--" }.contains("--json"))
    }
  }

  private static func run(_ line: CommandLineParser.Line) throws(CommandFailure) {
    if line.has(.version) { return try Output.print("marfa-mount \(version)") }
    if line.has(.help) { return try Output.print(Help.text(for: line.isCommandNamed ? line.command : .help)) }
    switch line.command {
    case .help: try Output.print(Help.text(for: try HelpCommand.topic(line)))
    case .mount: try MountCommand.run(try MountOptions(line))
    case .unmount: try UnmountCommand.run(line)
    case .queue where line.has(.wait): try ServerCommands.run(line)
    case .status, .queue, .cache, .budget: try StatusCommands.run(line)
    case .hydrate, .retry, .pause, .resume: try ServerCommands.run(line)
    case .release, .withdraw, .discard: try WriteCommands.run(line)
    case .pin, .unpin: try PinCommands.run(line)
    case .fetch, .evict, .trim: try BytesCommands.run(line)
    case .attach, .embed, .add: try FileCommands.run(line)
    }
  }

  /// Arguments become text, and what is no UTF-8 would be something else afterwards.
  private static func refuseBytes() throws(CommandFailure) {
    for (index, word) in CommandLine.arguments.enumerated() {
      guard let bytes = CommandLine.unsafeArgv[index] else { continue }
      guard word.utf8.elementsEqual(UnsafeRawBufferPointer(start: bytes, count: strlen(bytes))) else {
        throw CommandFailure(
          .usage, "usage",
          "\"\(word)\" is not UTF-8, and can't be taken as an argument. Copy the file into the mount instead: "
            + "any name can be used there")
      }
    }
  }
}
