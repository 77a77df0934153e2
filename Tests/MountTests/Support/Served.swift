import ContractServer
import Foundation
import Testing

/// A server in this process, and mounts of it.
final class Served {
  let server: ContractServer
  private let folder: String
  /// Where the key is, for this person alone.
  let keyFile: String

  init(_ options: ServerOptions = ServerOptions()) throws {
    var template = Array("/tmp/marfa-served-XXXXXX".utf8CString)
    let made = template.withUnsafeMutableBufferPointer { mkdtemp($0.baseAddress!).map { String(cString: $0) } }
    folder = try #require(made)
    server = try ContractServer(folder: folder + "/server", options)
    keyFile = folder + "/key"
    let file = try File(keyFile, O_WRONLY | O_CREAT, mode: 0o600)
    try file.write(server.key + "\n")
    try file.close()
  }

  deinit {
    server.stop()
    try? FileManager.default.removeItem(atPath: folder)
  }

  /// The options of a mount that follows it. What is written may go out at once.
  var options: [String] { ["--server", server.url, "--key-file", keyFile, "--settle", "0"] }

  /// The same for a mount that knows its server.
  var again: [String] { ["--key-file", keyFile, "--settle", "0"] }

  /// Mounts for one test, as `withMount` does.
  func withMounts(
    _ count: Int, _ more: [String] = [], sourceLocation: SourceLocation = #_sourceLocation,
    _ body: ([Mount]) throws -> Void
  ) throws {
    var mounts: [Mount] = []
    defer { for mount in mounts { mount.end() } }
    for _ in 0..<count {
      let mount = try Mount()
      mounts.append(mount)
      try mount.start(options + more, sourceLocation: sourceLocation)
      #expect(mount.isOnline(), "\(mount.logText)", sourceLocation: sourceLocation)
    }
    try body(mounts)
    for mount in mounts {
      if mount.pid != nil { try mount.unmount(sourceLocation: sourceLocation) }
      let warnings = mount.unexpectedWarnings
      #expect(warnings.isEmpty, "\(warnings.prefix(20).joined(separator: "\n"))", sourceLocation: sourceLocation)
    }
    #expect(server.violations.isEmpty, "\(server.violations)", sourceLocation: sourceLocation)
  }

  func withMount(
    _ more: [String] = [], sourceLocation: SourceLocation = #_sourceLocation, _ body: (Mount) throws -> Void
  ) throws {
    try withMounts(1, more, sourceLocation: sourceLocation) { try body($0[0]) }
  }
}

extension Mount {
  /// Waits until it has caught up with its server.
  func isOnline(seconds: Double = 30) -> Bool {
    eventually(seconds: seconds) { (try? attribute("user.marfa.online", of: ".")) == "yes" }
  }

  /// Waits until everything is sent, as a person would.
  func send(sourceLocation: SourceLocation = #_sourceLocation) throws {
    let outcome = try command(["queue", point, "--wait"], seconds: 120, sourceLocation: sourceLocation)
    #expect(
      outcome.status == 0 && outcome.output == "Everything is sent\n", "\(outcome)", sourceLocation: sourceLocation)
  }

  /// Every name in it, sorted.
  func names() throws -> [Substring] { try shell("find . -mindepth 1 | LC_ALL=C sort").lines }
}
