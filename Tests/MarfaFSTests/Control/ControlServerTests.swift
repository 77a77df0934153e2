import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

@Suite("Asking a mount through its socket", .timeLimit(.minutes(1)))
struct ControlServerTests {
  @Test("A request is answered with its result on one line")
  func answers() throws {
    let served = try Served()
    let connection = try served.connect()
    connection.send("{\"command\":\"budget\"}\n")
    let text = try #require(connection.receive())
    #expect(text.hasSuffix("\n") && text.dropLast().allSatisfy { $0 != "\n" })
    #expect(try JSON(reading: text).object?["ok"] == true)
  }

  @Test("A request that is ended by the end of what is sent is a request")
  func withoutNewline() throws {
    let served = try Served()
    let connection = try served.connect()
    connection.send("{\"command\":\"cache\"}")
    connection.endSending()
    #expect(connection.receive()?.hasPrefix("{\"ok\":true") == true)
  }

  @Test(
    "What is no request is told so, and the next one is answered",
    arguments: [
      ("hello\n", "bad_request"), ("\n", "bad_request"), ("[]\n", "bad_request"), ("{}\n", "bad_request"),
      ("{\"command\":7}\n", "bad_request"), ("{\"command\":\"status\",\"arguments\":[]}\n", "bad_request"),
      ("{\"command\":\"\u{0}\"}\n", "bad_request"), (String(repeating: "[", count: 500) + "\n", "bad_request"),
      ("{\"command\":\"fly\"}\n", "unknown_command"),
      ("{\"command\":\"status\",\"arguments\":{\"verbose\":true}}\n", "unknown_argument"),
      ("{\"command\":\"queue\",\"arguments\":{\"limit\":\"ten\"}}\n", "bad_argument"),
      ("{\"command\":\"queue\",\"arguments\":{\"limit\":-1}}\n", "bad_argument"),
      ("{\"command\":\"budget\",\"arguments\":{\"set\":\"lots\"}}\n", "bad_argument"),
      ("{\"command\":\"add\"}\n", "missing_argument"),
      ("{\"command\":\"add\",\"arguments\":{\"file\":\"photo.jpg\"}}\n", "bad_argument"),
      ("{\"command\":\"add\",\"arguments\":{\"file\":\"/etc/hostname\",\"tier\":\"moon\"}}\n", "bad_argument"),
      ("{\"command\":\"attach\",\"arguments\":{\"file\":\"/etc/hostname\"}}\n", "bad_argument"),
      ("{\"command\":\"attach\",\"arguments\":{\"file\":\"/etc/hostname\",\"item\":\"7\"}}\n", "bad_argument"),
      ("{\"command\":\"attach\",\"arguments\":{\"file\":\"/x\",\"node\":1,\"path\":\"a\"}}\n", "bad_argument"),
    ])
  func refusesNonsense(line: String, code: String) throws {
    let served = try Served()
    let connection = try served.connect()
    connection.send(line)
    #expect(connection.failure() == code)
    #expect(try served.ask("status")["items"] == 0)
    #expect(try served.store.copy.queue.counts().total == 0)
  }

  @Test("A request over a megabyte is refused before it is read to its end")
  func refusesLarge() throws {
    let served = try Served()
    let connection = try served.connect()
    let large = String(repeating: "x", count: 8 << 20)
    let sent = connection.send("{\"command\":\"\(large)\"}\n")
    #expect(sent < 8 << 20)
    #expect(connection.failure() == "request_too_large")
  }

  @Test("One who connects and says nothing holds nobody up, and is sent away")
  func silentClient() throws {
    var limits = ControlServer.Limits()
    limits.connection.idle = 1
    let served = try Served(limits: limits)
    let silent = try served.connect()
    let slow = try served.connect()
    slow.send("{\"comm")
    #expect(try within(seconds: 0.8) { (try? served.ask("status")) != nil })
    #expect(silent.failure() == "too_slow")
    #expect(slow.failure() == "too_slow")
  }

  @Test("One who sends a byte now and then gets no more time than others")
  func dripping() throws {
    var limits = ControlServer.Limits()
    limits.connection.idle = 0.5
    let served = try Served(limits: limits)
    let connection = try served.connect()
    let start = Timestamp.now
    for _ in 0..<40 where connection.send("{") == 1 { usleep(50_000) }
    #expect(connection.failure() == "too_slow")
    #expect(Timestamp.now.nanoseconds - start.nanoseconds < 4_000_000_000)
  }

  @Test("However many connect and say nothing, the next one is answered")
  func manyConnections() throws {
    let served = try Served()
    let crowd = try (0..<200).map { _ in try served.connect() }
    #expect(try within(seconds: 5) { (try? served.ask("status")) != nil })
    #expect(crowd.count == 200)
  }

  @Test("One who does not read the answer holds nobody up")
  func unreadAnswers() throws {
    var limits = ControlServer.Limits()
    limits.connection.idle = 1
    limits.commands = 2
    let served = try Served(limits: limits)
    // More than a socket takes without being read.
    for _ in 0..<300 { _ = try served.store.note(String(repeating: "long title ", count: 100)) }
    let deaf = try (0..<8).map { _ in try served.connect() }
    for connection in deaf { connection.send("{\"command\":\"queue\",\"arguments\":{\"limit\":10000}}\n") }
    #expect(try within(seconds: 20) { (try? served.ask("budget")) != nil })
    // A whole answer still reaches one who reads.
    #expect(try served.ask("queue", ["limit": 10000])["writes"]?.array?.count == 300)
  }

  @Test("One who hangs up before the answer does no harm")
  func hangsUp() throws {
    let served = try Served()
    for _ in 0..<50 { try served.connect().send("{\"command\":\"queue\"}\n") }
    #expect(try served.ask("status")["mode"] == "writer")
  }

  @Test("Many who ask at once are all answered")
  func atOnce() throws {
    let served = try Served()
    let answered = Monitor(0)
    for _ in 0..<24 {
      startThread(named: "asker") {
        for _ in 0..<20 where (try? served.ask("status")) != nil { answered.update { $0 += 1 } }
      }
    }
    #expect(answered.wait(until: .after(seconds: 40)) { $0 == 480 ? true : nil } == true)
  }

  @Test("The answer to a request for the end goes out, and nothing is answered after the end")
  func ends() throws {
    let served = try Served()
    #expect(try served.ask("unmount") == ["mount_point": "/mnt/trip", "pid": .integer(getpid())])
    #expect(served.unmounts.read { $0 } == 1)
    #expect(served.server.stop(seconds: 5))
    #expect(try ControlClient(ControlAddress(writerOf: served.path)) == nil)
    #expect(try Path.status(served.path + ".sock") == nil)
  }

  @Test(
    "Another person's process gets no answer",
    .enabled(
      if: isRoot && CommandBinary.path != nil && access("/usr/bin/setpriv", X_OK) == 0,
      "only root can be somebody else, with setpriv and the program built"))
  func strangers() throws {
    let binary = try #require(CommandBinary.path)
    let served = try Served()
    // What keeps others out first are the modes; without them it is the kernel's word about who asks.
    chmod(served.store.directory.path, 0o755)
    chmod(served.path + ".sock", 0o666)
    let outcome = try run([
      "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--", binary, "status", served.path,
    ])
    #expect(outcome.status == 3)
    #expect(outcome.output.contains("ended before it answered"))
  }
}
