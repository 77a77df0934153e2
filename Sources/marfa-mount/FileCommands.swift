import CLinux
import Glibc
import MarfaEngine
import MarfaFS

/// `attach`, `embed` and `add`: files brought into a store.
enum FileCommands {
  static func run(_ line: CommandLineParser.Line) throws(CommandFailure) {
    var request = ControlRequest(line.command.rawValue)
    for (option, key) in [(CommandOption.title, "title"), (.mime, "mime"), (.type, "type"), (.tier, "tier")] {
      if let value = line.value(option) { request.arguments[key] = .string(value) }
    }
    if let tier = line.value(.tier), Tier(rawValue: tier) == nil {
      throw CommandLineParser.usage("--tier is library or feed, not \"\(tier)\"")
    }
    if line.value(.title) == "" { throw CommandLineParser.usage("a title can't be empty") }
    let target: StoreTarget
    var files = line.operands
    if line.command == .add {
      target = try StoreTarget(line.value(.store))
      request.arguments["tags"] = .array(try tags(line).map { .string($0) })
    } else {
      guard !files.isEmpty else { throw CommandLineParser.usage("name the item and the file") }
      let reference = try ItemWord(files.removeFirst(), store: line.value(.store))
      target = reference.target
      for (key, value) in reference.arguments.members { request.arguments[key] = value }
    }
    try check(files, line)
    let access = try StoreAccess.writing(target)
    defer { access.close() }
    try bring(files, request, access, line)
  }

  /// Brings in one file after the other. When one fails, those before it stay.
  private static func bring(
    _ files: [String], _ request: ControlRequest, _ access: StoreAccess, _ line: CommandLineParser.Line
  ) throws(CommandFailure) {
    var results: [JSON] = []
    for file in files {
      var request = request
      request.arguments["file"] = .string(Locations.absolute(file))
      do throws(CommandFailure) {
        let result = try access.run(request)
        results.append(.object(result))
        if !line.has(.json) { try Output.print(FileText.done(line.command, file, result)) }
      } catch {
        var failure = error
        if files.count > 1 {
          failure.message += ". \(results.count) of \(files.count) files were done, and none from \(file) on"
          failure.details["done"] = .array(results)
        }
        throw failure
      }
    }
    if line.has(.json) { try Output.print(["files": .array(results)]) }
  }

  /// Looks at all files before anything is done with one.
  private static func check(_ files: [String], _ line: CommandLineParser.Line) throws(CommandFailure) {
    guard !files.isEmpty else { throw CommandLineParser.usage("name the file to \(line.command.rawValue)") }
    if files.count > 1 {
      guard line.command != .embed else { throw CommandLineParser.usage("embed takes one file") }
      guard line.value(.title) == nil else {
        throw CommandLineParser.usage("one --title can't be the title of \(files.count) files")
      }
    }
    let wrong = files.compactMap { problem($0) }
    guard wrong.isEmpty else {
      let words = wrong.joined(separator: "; ") + (files.count > 1 ? ". Nothing was done" : "")
      throw CommandFailure(.refused, "bad_file", words)
    }
  }

  private static func problem(_ file: String) -> String? {
    do throws(Errno) {
      guard let status = try Path.status(file) else { return "\(file) is not there" }
      switch status.st_mode & S_IFMT {
      case S_IFREG: break
      case S_IFDIR: return "\(file) is a folder; to bring in all of one, copy it into a mount: cp -r"
      default: return "\(file) is no regular file"
      }
      guard status.st_size > 0 else { return "\(file) is empty, and an empty file can't be attached" }
      guard access(file, R_OK) == 0 else { throw .last }
      return nil
    } catch {
      return "\(file) can't be read: \(error)"
    }
  }

  private static func tags(_ line: CommandLineParser.Line) throws(CommandFailure) -> [String] {
    let tags = line.values(.tag)
    guard !tags.contains("") else { throw CommandLineParser.usage("a tag can't be empty") }
    return tags
  }
}

/// What a person calls an item: its id; a path to its directory in a mount; or the names that lead to it from the root.
struct ItemWord {
  /// The store it is in.
  let target: StoreTarget
  /// How a request says it.
  let arguments: JSON.Object

  /// `filesToo`: a file is as good as a directory.
  init(_ word: String, store: String?, filesToo: Bool = false) throws(CommandFailure) {
    guard !word.isEmpty else { throw CommandLineParser.usage("an empty name is no item") }
    if let id = ItemID(word.lowercased()) {
      target = try StoreTarget(store)
      arguments = ["item": .string("\(id)")]
      return
    }
    let path = Locations.absolute(word)
    guard let mount = try StoreTarget.mount(holding: path) else {
      // Names from the top may be written with a slash before them; a path that is there is meant as one.
      let isPath = ["/", "./", "../"].contains { word.hasPrefix($0) } || word == "." || word == ".."
      guard !isPath || word == "/" || ((try? Path.status(word)) ?? nil) == nil else {
        throw CommandFailure(.refused, "not_in_a_mount", "\(word) is in no mount of a store")
      }
      target = try StoreTarget(store)
      arguments = ["path": .string(word)]
      return
    }
    if let store, try StoreTarget(store).store != mount.store {
      throw CommandFailure(.refused, "other_store", "\(word) is in the mount of \(mount.store), not of \(store)")
    }
    target = StoreTarget(mount)
    do throws(Errno) {
      guard let node = try MarfaMounts.node(path) else { throw .notFound }
      guard node.isDirectory || filesToo else { throw .notDirectory }
      arguments = ["node": .integer(node.number)]
    } catch {
      throw error == .notDirectory
        ? CommandFailure(
          .refused, "not_an_item", "\(word) is a file; files are attached to an item, and an item is a directory")
        : CommandFailure(.io(error, word))
    }
  }
}

/// What was brought in, in words.
private enum FileText {
  static func done(_ command: Command, _ file: String, _ result: JSON.Object) -> String {
    let size = result["size"]?.integer.map { " (\(Bytes.text($0)))" } ?? ""
    let title = result["title"]?.string ?? ""
    let name = title == Path.lastComponent(file) ? title : "\(file) as \(title)"
    let verb =
      switch command {
      case .attach: "Attached"
      case .embed: "Embedded"
      default: "Added"
      }
    var text = "\(verb) \(Output.safe(name))\(size)"
    if command == .attach, let embed = result["embed"]?.string { text += "; \(Output.safe(embed)) shows it in a text" }
    return text
  }
}
