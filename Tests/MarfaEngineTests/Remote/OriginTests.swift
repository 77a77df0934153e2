import CLinux
import Glibc
import Testing

@testable import MarfaEngine

@Suite("A server's address")
struct OriginTests {
  @Test(
    "is written one way, however it is given",
    arguments: [
      ("https://Example.ORG", "https://example.org"), ("https://example.org:443/", "https://example.org"),
      ("HTTP://example.org:80", "http://example.org"), ("http://example.org:443", "http://example.org:443"),
      ("https://example.org./marfa//", "https://example.org/marfa"),
      ("http://[0:0::1]:8080/A/b", "http://[::1]:8080/A/b"),
      ("http://127.0.0.1:9", "http://127.0.0.1:9"), ("https://a_b-c.x:", "https://a_b-c.x"),
    ])
  func normal(text: String, written: String) throws {
    let origin = try Origin(text)
    #expect(origin.description == written)
    #expect(try Origin(origin.description) == origin)
  }

  @Test(
    "that can't be one is refused with what is wrong",
    arguments: [
      ("", OriginProblem.empty), ("https://a b", .characters), ("https://a\n", .characters),
      ("https://ä.org", .characters),
      ("example.org", .noScheme("example.org")), ("ftp://example.org", .scheme("ftp")),
      ("file:///etc", .scheme("file")),
      ("https://key@example.org", .userInfo), ("https://", .noHost), ("https:///path", .noHost),
      ("https://a..b", .host("a..b")), ("https://[::1", .host("[::1")), ("https://[::zz]", .host("[::zz]")),
      ("https://[::1]x", .host("[::1]x")), ("https://a%2fb", .host("a%2fb")), ("https://a:0", .port("0")),
      ("https://a:65536", .port("65536")), ("https://a:12x", .port("12x")),
      ("https://a:99999999999999999999", .port("99999999999999999999")),
      ("https://a/../b", .path("/../b")), ("https://a/b//c", .path("/b//c")), ("https://a/?q", .queryOrFragment),
      ("https://a#f", .queryOrFragment),
    ])
  func refused(text: String, problem: OriginProblem) {
    #expect(throws: problem) { try Origin(text) }
    #expect(!problem.description.isEmpty)
  }

  @Test(
    "leads from one to the next as links and redirects do",
    arguments: [
      ("http://h:1/a/b?q=1", "https://x/y", "https://x/y"), ("http://h:1/a/b?q=1", "/c?d", "http://h:1/c?d"),
      ("http://h:1/a/b?q=1", "c", "http://h:1/a/c"), ("http://h:1/a/b?q=1", "?z", "http://h:1/a/b?z"),
      ("http://h:1", "c", "http://h:1/c"), ("https://h/", "//other/p", "https://other/p"),
      ("https://h/", "http://h/", nil), ("https://h/", "ftp://h/", nil), ("https://h/", "", nil),
      ("https://h/", "javascript:x", nil), ("https://h/", "https://u:p@h/", nil), ("https://h/", "/a b", nil),
      ("https://h/", "https://h\\@evil/", nil),
    ] as [(String, String, String?)])
  func resolving(base: String, reference: String, result: String?) throws {
    let address = try #require(WebAddress(base)).resolving(reference)
    #expect(address?.text == result)
  }
}

@Suite("A key")
struct CredentialTests {
  @Test("is printed, dumped or interpolated nowhere")
  func redacted() throws {
    let credential = try Credential("very-secret")
    var dumped = ""
    dump(credential, to: &dumped)
    for text in ["\(credential)", String(reflecting: credential), String(describing: credential), dumped] {
      #expect(!text.contains("secret"))
    }
    let found = FoundCredential(credential: credential, source: "x")
    #expect(!"\(found)".contains("secret"))
    dumped = ""
    dump(found, to: &dumped)
    #expect(!dumped.contains("secret"))
  }

  @Test(
    "with what no key holds is refused",
    arguments: ["", "a b", "a\nb", "a\u{0}", "ä", "a\r\nX-Other: 1", String(repeating: "k", count: 5000)])
  func characters(key: String) {
    #expect(throws: key.isEmpty ? CredentialProblem.empty : .characters) { try Credential(key) }
  }

  @Test("comes from the file named, else from the environment, else from the service's credentials")
  func sources() throws {
    let folder = try TemporaryFolder()
    let file = try folder.file("key", "from-file\n")
    try folder.file("marfa-key", "  from-service \r\n")
    var variables = ["MARFA_API_KEY": "from-environment", "CREDENTIALS_DIRECTORY": folder.path]
    func find(_ keyFile: String?) throws -> FoundCredential? {
      try FoundCredential.find(keyFile: keyFile) { variables[$0] }
    }
    #expect(try find(file)?.credential.key == "from-file")
    #expect(try find(nil)?.credential.key == "from-environment")
    variables["MARFA_API_KEY"] = ""
    #expect(try find(nil)?.credential.key == "from-service")
    variables["CREDENTIALS_DIRECTORY"] = "/nowhere"
    #expect(try find(nil) == nil)
    #expect(throws: CredentialProblem.file("/nowhere/key", .notFound)) { try find("/nowhere/key") }
    #expect(throws: CredentialProblem.file(folder.path, .isDirectory)) { try find(folder.path) }
    #expect(throws: CredentialProblem.empty) { try find(try folder.file("empty", "\n")) }
    #expect(throws: CredentialProblem.characters) {
      try find(try folder.file("long", String(repeating: "k", count: 100_000)))
    }
  }

  @Test("that was given where its file's name is wanted is not said again")
  func keyAsName() {
    for name in ["sk_secret", "/dev/null/sk_secret", String(repeating: "sk_secret", count: 40)] {
      do throws(CredentialProblem) {
        _ = try FoundCredential.find(keyFile: name)
        Issue.record("there is a file \(name)")
      } catch {
        #expect(!error.description.contains("sk_secret") && error.description.contains("--key-file"))
      }
    }
  }

  @Test("is handed from one process to another through a pipe, with all that is known of it")
  func handedOn() throws {
    let folder = try TemporaryFolder()
    let found = try #require(try FoundCredential.find(keyFile: try folder.file("key", "k\"e\\y\n")))
    var ends: [CInt] = [-1, -1]
    #expect(pipe(&ends) == 0)
    let readEnd = Descriptor(owning: ends[0])
    do {
      let writeEnd = Descriptor(owning: ends[1])
      try found.hand(to: writeEnd)
    }
    let taken = try FoundCredential.take(from: readEnd)
    #expect(taken.credential.key == "k\"e\\y" && taken.source == found.source)
    #expect(taken.warning == found.warning && taken.warning != nil)
    #expect(throws: CredentialProblem.empty) { try FoundCredential.take(from: readEnd) }
  }

  @Test("in a file that others may read comes with a warning")
  func mode() throws {
    let folder = try TemporaryFolder()
    let file = try folder.file("key", "k")
    #expect(try FoundCredential.find(keyFile: file)?.warning?.contains("chmod 600") == true)
    chmod(file, 0o600)
    #expect(try FoundCredential.find(keyFile: file)?.warning == nil)
  }
}
