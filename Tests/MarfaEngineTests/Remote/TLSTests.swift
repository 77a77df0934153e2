import CLinux
import ContractServer
import Glibc
import Testing

@testable import MarfaEngine

private let hasOpenSSL = (try? Program.run(["openssl", "version"]).status) == 0

@Suite("A server behind TLS", .enabled(if: hasOpenSSL, "the openssl command is not installed"))
struct TLSTests {
  /// A server with a certificate of its own for `localhost`, that nobody has vouched for.
  private struct TLSServer {
    let folder: TemporaryFolder
    let program: Program
    let port: Int
    var certificate: String { folder.path + "/cert.pem" }

    init() throws {
      folder = try TemporaryFolder()
      let made = try Program.run([
        "openssl", "req", "-batch", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
        "-days",
        "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-keyout", folder.path + "/key.pem",
        "-out",
        folder.path + "/cert.pem",
      ])
      try #require(made.status == 0)
      program = try Program([
        "openssl", "s_server", "-accept", "127.0.0.1:0", "-cert", folder.path + "/cert.pem", "-key",
        folder.path + "/key.pem", "-www",
      ])
      var text = ""
      var found: Int?
      while found == nil {
        let bytes = try program.read()
        try #require(!bytes.isEmpty, "openssl ended without a port")
        text += String(decoding: bytes, as: UTF8.self)
        let line = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast().first {
          $0.hasPrefix("ACCEPT ")
        }
        found = line.flatMap { $0.split(separator: ":").last }.flatMap { Int($0) }
      }
      port = try #require(found)
    }

    func end() throws {
      program.kill()
      _ = try program.wait()
    }
  }

  private func failure(_ url: String, authorities: String?) -> NetworkFailure? {
    var limits = NetworkLimits()
    limits.authorities = authorities
    let network = Network(limits: limits)
    let taker = Taker()
    network.start(HTTPRequest(.get, url), taker)
    return taker.failure()
  }

  @Test("is spoken to when its certificate is trusted and names it, and not otherwise")
  func trust() throws {
    let server = try TLSServer()
    #expect(failure("https://localhost:\(server.port)/", authorities: server.certificate) == nil)
    guard case .tls = failure("https://localhost:\(server.port)/", authorities: nil) else {
      return #expect(Bool(false), "a stranger's certificate was trusted")
    }
    guard case .tls = failure("https://127.0.0.1:\(server.port)/", authorities: server.certificate) else {
      return #expect(Bool(false), "another host's certificate was trusted")
    }
    try server.end()
  }

  @Test("is asked for where there is none, and that is what is said")
  func otherScheme() throws {
    let folder = try TemporaryFolder()
    let plain = try ContractServer(folder: folder.path)
    defer { plain.stop() }
    let found = try #require(failure("https" + plain.url.dropFirst("http".count), authorities: nil))
    #expect("\(RemoteFailure(found))".contains("is its address http://?"), "\(found)")
    #expect(
      "\(RemoteFailure.unreachable("OpenSSL SSL_connect: SSL_ERROR_SYSCALL in connection to h:1"))".contains(
        "is its address http://?"))
    #expect("\(RemoteFailure.notTheServers(status: 400, retryAfter: nil))".contains("is its address https://?"))
    #expect("\(RemoteFailure.unreachable("Received HTTP/0.9 when not allowed"))".contains("is its address https://?"))
    #expect(
      "\(RemoteFailure.unreachable("refused"))" == "the server can't be reached (refused); it is tried again by itself")
  }
}
