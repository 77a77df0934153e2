import ContractServer
import Glibc
import Testing

@testable import MarfaEngine

/// The program, built beside the tests; `nil` when it is not.
private let binary: String? = {
  let words = ((try? Path.procContents("/proc/self/cmdline")) ?? []).split(separator: 0).map {
    String(decoding: $0, as: UTF8.self)
  }
  var candidates = [Path.resolved("/proc/self/exe")]
  // The runner of some toolchains is a helper that is told which bundle to load.
  if let index = words.firstIndex(of: "--test-bundle-path"), index + 1 < words.count {
    candidates.append(words[index + 1])
  }
  return candidates.map { Path.parent($0) + "/marfa-contract-server" }.first { access($0, X_OK) == 0 }
}()

/// The server run by itself.
@Suite("The tests' server as a command", .enabled(if: binary != nil, "marfa-contract-server is not built"))
struct ServerCommandTests {
  @Test("it says where it is, takes faults on its own port, and ends by SIGTERM")
  func command() throws {
    let folder = try TemporaryFolder()
    let program = try Program([
      try #require(binary), "--folder", folder.path + "/server", "--key", "a=K1", "--key", "b=K2",
    ])
    let places = try #require(try JSON(reading: program.read()).object)
    let admin = try RawClient(try #require(places["admin_url"]?.string))
    let client = try RawClient(try #require(places["url"]?.string))
    #expect(places["keys"] == ["a": "K1", "b": "K2"])
    let fault: JSON.Object = ["effect": "refuse", "status": 503, "path": "/types"]
    #expect(try admin.ask("POST", "/-/faults", [:], body: Array(JSON.object(fault).text.utf8))?.status == 200)
    let key = ["Authorization": "Bearer K2"]
    #expect(try client.ask("GET", "/types", key)?.status == 503)
    #expect(try client.ask("GET", "/types", key)?.status == 200)
    #expect(try client.ask("DELETE", "/items/x", key)?.status == 404)
    let violations = try #require(try admin.ask("GET", "/-/violations")).text
    #expect(try JSON(reading: violations).array?.first?.object?["kind"] == "writeWithoutKey")
    #expect(try admin.ask("GET", "/-/stats")?.json["requests"] == 3)
    program.kill(SIGTERM)
    #expect(try program.wait().status == 0)
  }

  @Test("a wrong command line is told so")
  func usage() throws {
    #expect(try Program.run([try #require(binary), "--folder"]).status == 2)
    #expect(try Program.run([try #require(binary), "--colour", "red"]).status == 2)
  }
}
