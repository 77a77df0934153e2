import CLinux
import ContractServer
import Foundation
import MarfaEngine
import Testing

@Suite("A mount that has a server", .serialized, .enabled(if: Machine.canMount, Machine.needsMount))
struct ServerTests {
  @Test("and another of it show the same, while both are written to")
  func converge() throws {
    let served = try Served()
    try served.withMounts(2) { mounts in
      let a = mounts[0]
      let b = mounts[1]
      try a.shell("mkdir Sicily; for n in 1 2 3 4 5; do echo a$n > Sicily/a$n.txt; done")
      try b.shell("mkdir Norway; for n in 1 2 3 4 5; do echo b$n > Norway/b$n.txt; done")
      try a.send()
      try b.send()
      let all = 12
      #expect(eventually(seconds: 30) { (try? a.names().count) == all && (try? b.names().count) == all })
      try a.shell("mv Norway/b1.txt Sicily/moved.txt; rm Norway/b2.txt; mkdir Sicily/Etna")
      try b.shell("mv Sicily/a1.txt Sicily/first.txt; rm Sicily/a2.txt")
      try a.send()
      try b.send()
      let wanted = [
        "./Norway", "./Norway/b3.txt", "./Norway/b4.txt", "./Norway/b5.txt", "./Sicily", "./Sicily/Etna",
        "./Sicily/a3.txt", "./Sicily/a4.txt", "./Sicily/a5.txt", "./Sicily/first.txt", "./Sicily/moved.txt",
      ]
      for mount in mounts { try expect(wanted, in: mount) }
      for path in ["Norway/b3.txt", "Sicily/first.txt", "Sicily/moved.txt"] {
        let hash = try a.attribute("user.marfa.hash", of: path)
        #expect(hash != nil)
        #expect(try b.attribute("user.marfa.hash", of: path) == hash)
        #expect(try a.attribute("user.marfa.id", of: path) == b.attribute("user.marfa.id", of: path))
      }
    }
  }

  /// Waits until these are the names in a mount.
  private func expect(_ wanted: [String], in mount: Mount) throws {
    _ = eventually(seconds: 30) { (try? mount.names().map { String($0) }) == wanted }
    #expect(try mount.names().map { String($0) } == wanted)
  }

  @Test("sends what was copied in and unmounted at once when it is mounted again")
  func unmountedAtOnce() throws {
    let served = try Served()
    try served.withMount { mount in
      try mount.shell("mkdir x; head -c 3000000 /dev/urandom > $1/f; cp $1/f x/")
      try mount.unmount()
      // It knows its server; it needs the key again.
      try mount.start(served.again)
      try mount.send()
      #expect(try mount.attribute("user.marfa.upload", of: "x/f") == "stored")
      try mount.shell("cmp x/f $1/f")
      let id = try #require(try mount.attribute("user.marfa.id", of: "x/f"))
      #expect(try served.server.item(id)?.blob == mount.attribute("user.marfa.hash", of: "x/f"))
    }
  }

  @Test("works without it, says so, and catches up when it is back")
  func offline() throws {
    let served = try Served()
    try served.withMount { mount in
      mount.expectedWarnings = ["is not followed for now", "nothing is sent for now"]
      try mount.shell("mkdir Sicily; echo one > Sicily/one.txt")
      try mount.send()
      served.server.stop()
      #expect(eventually { (try? mount.attribute("user.marfa.online", of: ".")) == "no" })
      try mount.shell("echo two > Sicily/two.txt; cat Sicily/one.txt; mv Sicily/one.txt Sicily/1.txt; mkdir Norway")
      #expect(try mount.attribute("user.marfa.upload", of: "Sicily/two.txt") == "queued")
      let why = try mount.attribute("user.marfa.upload_detail", of: "Sicily/two.txt")
      #expect(why?.contains("can't be reached") == true, "\(why ?? "")")
      let status = try mount.command(["status", mount.point])
      #expect(status.output.contains("not online") && status.output.contains("can't be reached"), "\(status)")
      let queue = try mount.command(["queue", mount.point]).lines
      #expect(queue.first?.hasPrefix("What is queued waits for \(served.server.url): ") == true, "\(queue)")
      #expect(try mount.command(["hydrate", mount.point]).status == 3)
      // Whoever waits without a terminal is told for what.
      let waiting = try Program([try #require(Machine.program), "queue", mount.point, "--wait"])
      #expect(eventually(seconds: 30) { waiting.errorsSoFar.contains("to send: the server can't be reached") })
      waiting.kill()
      try waiting.wait()
      // Also after a start without it.
      try mount.unmount()
      try mount.start(served.again)
      #expect(try mount.text("Sicily/two.txt") == "two\n")
      let trip = try served.server.change { try $0.createNote("From elsewhere") }
      try served.server.start()
      _ = try mount.command(["retry", mount.point])
      #expect(mount.isOnline())
      try mount.send()
      #expect(eventually { isThere(mount.point + "/From elsewhere") }, "\(trip)")
      let id = try #require(try mount.attribute("user.marfa.id", of: "Sicily/1.txt"))
      #expect(try served.server.item(id)?.title == "1.txt")
    }
  }

  @Test("says that it is the key, when the server takes it no more for what waits")
  func keyLost() throws {
    let served = try Served()
    try served.withMount { mount in
      mount.expectedWarnings = ["nothing is sent", "is blocked: credential_refused"]
      try mount.shell("mkdir Sicily")
      try mount.send()
      served.server.faults.add(Fault(.refuse(status: 401, code: "unauthorized"), method: "POST", count: nil))
      try mount.shell("echo one > Sicily/one.txt")
      let wait = try mount.command(["queue", mount.point, "--wait"])
      #expect(wait.status == 5 && wait.errors.contains("--key-file"), "\(wait)")
      // One state, though the stream of events was opened while the key was good.
      let status = try mount.command(["status", mount.point]).output
      #expect(status.contains(": the key is refused\n") && !status.contains("online"), "\(status)")
      #expect(try mount.attribute("user.marfa.online", of: ".") == "no")
      let queue = try mount.command(["queue", mount.point]).lines
      #expect(queue.first?.hasPrefix("\(served.server.url) does not accept the key, and what is queued waits") == true)
    }
  }

  @Test("remembers the server it was to have, though the first key was wrong")
  func wrongFirstKey() throws {
    let served = try Served()
    let mount = try Mount()
    defer { mount.end() }
    let key = mount.folder + "/wrong"
    let file = try File(key, O_WRONLY | O_CREAT, mode: 0o600)
    try file.write("mk_wrong\n")
    try file.close()
    try mount.start(["--server", served.server.url, "--key-file", key, "--settle", "0"])
    #expect(
      try eventually { try mount.command(["status", mount.point]).output.contains(": the key is refused\n") })
    try mount.shell("mkdir Sicily")
    try mount.unmount()
    let keyless = try mount.command(["mount", "--log", mount.log, mount.store, mount.point])
    #expect(keyless.status == 0 && keyless.output.contains("there is no key for it"), "\(keyless)")
    let status = try mount.command(["status", mount.point]).output
    #expect(status.contains("\(served.server.url): not asked"), "\(status)")
    #expect(try mount.command(["queue", mount.point, "--wait"]).status == 5)
    #expect(try mount.command(["unmount", mount.point]).status == 0)
    // It is bound to nothing yet: another may be named.
    let other = try Served()
    try mount.start(other.options)
    #expect(mount.isOnline())
    try mount.send()
    try mount.remount(other.again)
    #expect(mount.isOnline())
    try mount.unmount()
    #expect(served.server.violations.isEmpty && other.server.violations.isEmpty)
  }

  @Test("says at first that the list is being brought, and where it will be")
  func firstList() throws {
    let served = try Served()
    _ = try served.server.change { try $0.createNote("Sicily") }
    served.server.faults.add(Fault(.stall(seconds: nil), path: "/edges"))
    let mount = try Mount()
    defer { mount.end() }
    let begun = try mount.command(["mount", "--log", mount.log] + served.options + [mount.store, mount.point])
    #expect(begun.status == 0 && begun.output.contains("The folder shows it once all of it is here"), "\(begun)")
    #expect(
      try eventually(seconds: 30) {
        let status = try mount.command(["status", mount.point]).output
        return status.contains("1 item and 0 edges so far; the folder shows it once all of it is here")
      })
    #expect(try listing(mount.point).isEmpty)
    // It stands at the edges, which the items' count came before.
    #expect(eventually { served.server.requests.contains { $0.path == "/edges" } })
    served.server.faults.release()
    #expect(mount.isOnline() && isThere(mount.point + "/Sicily"))
    #expect(try !mount.command(["status", mount.point]).output.contains("so far"))
    #expect(try mount.command(["unmount", mount.point]).status == 0)
  }

  @Test("goes on without a key, and says how to give one")
  func keyless() throws {
    let served = try Served()
    try served.withMount { mount in
      mount.expectedWarnings = ["there is no key for", "make another store for that server", "--key-file names"]
      try mount.shell("mkdir Sicily; echo one > Sicily/one.txt")
      try mount.send()
      try mount.unmount()
      let outcome = try mount.command(["mount", "--log", mount.log, mount.store, mount.point])
      #expect(outcome.status == 0 && outcome.output.contains("there is no key for it"), "\(outcome)")
      #expect(outcome.output.contains("--key-file FILE"))
      #expect(try mount.text("Sicily/one.txt") == "one\n")
      try mount.shell("echo two > Sicily/two.txt")
      let why = try mount.attribute("user.marfa.upload_detail", of: "Sicily/two.txt")
      #expect(why?.contains("--key-file") == true, "\(why ?? "")")
      #expect(try mount.command(["queue", mount.point, "--wait"]).status == 5)
      #expect(try mount.command(["retry", mount.point]).status == 5)
      #expect(try mount.command(["unmount", mount.point]).status == 0)
      let other = try mount.command(
        [
          "mount", "--log", mount.log, "--server", "http://127.0.0.1:9", "--key-file", served.keyFile, mount.store,
          mount.point,
        ])
      #expect(other.status == 4 && other.errors.contains("make another store for that server"), "\(other)")
      let bad = try mount.command(
        ["mount", "--log", mount.log, "--key-file", served.keyFile + ".not", mount.store, mount.point])
      #expect(bad.status == 5 && bad.errors.contains("does not exist"), "\(bad)")
      #expect(!Mount.isMounted(mount.point))
      let fresh = try mount.command(
        ["mount", "--log", mount.log, "--server", served.server.url, mount.folder + "/new.db", mount.point])
      #expect(fresh.status == 5 && fresh.errors.contains("there is no key for"), "\(fresh)")
      try mount.start(served.again)
      try mount.send()
    }
  }

  @Test("has its key nowhere but in the requests to it")
  func secrecy() throws {
    let served = try Served()
    try served.withMount { mount in
      try mount.shell("mkdir Sicily; echo one > Sicily/one.txt")
      try mount.send()
      let pid = try #require(mount.pid)
      for name in ["cmdline", "environ"] {
        let bytes = try Data(contentsOf: URL(fileURLWithPath: "/proc/\(pid)/\(name)"))
        #expect(!bytes.isEmpty)
        #expect(bytes.range(of: Data(served.server.key.utf8)) == nil, "\(name)")
      }
      let status = try mount.command(["status", mount.point, "--json"])
      #expect(!status.output.contains(served.server.key))
      try mount.unmount()
      // The log, the store and everything beside it, byte by byte.
      let found = try run(["grep", "-rlaF", "--", served.server.key, mount.folder])
      #expect(found.status == 1 && found.output.isEmpty, "\(found)")
    }
  }

  @Test("takes its key from a pipe, and hands it on where nobody else reads it", arguments: ["<(echo \"$KEY\")", "-"])
  func pipedKey(file: String) throws {
    let served = try Served()
    let mount = try Mount()
    defer { mount.end() }
    let script = """
      KEY=$(cat); "$0" mount --log "$1" --server "$2" --key-file \(file) "$3" "$4" <<< "$KEY"
      """
    let started = try Program(
      ["bash", "-c", script, try #require(Machine.program), mount.log, served.server.url, mount.store, mount.point],
      input: served.server.key
    ).wait()
    #expect(started.status == 0 && mount.isOnline(), "\(started)\n\(mount.logText)")
    let status = try mount.command(["status", mount.store, "--json"]).output
    let pid = try #require(status.split(separator: "\"pid\":").last?.prefix { $0.isNumber })
    for name in ["cmdline", "environ"] {
      let bytes = try Data(contentsOf: URL(fileURLWithPath: "/proc/\(pid)/\(name)"))
      #expect(!bytes.isEmpty && bytes.range(of: Data(served.server.key.utf8)) == nil, "\(name)")
    }
    #expect(!mount.logText.contains(served.server.key))
    #expect(try mount.command(["unmount", mount.point]).status == 0)
    let empty = try Program(
      [
        "bash", "-c", "exec \"$0\" mount --key-file - \"$1\" \"$2\"", try #require(Machine.program), mount.store,
        mount.point,
      ]
    ).wait()
    #expect(empty.status == 5 && empty.errors.contains("empty"), "\(empty)")
  }

  @Test("shows how far an upload is")
  func progress() throws {
    let served = try Served()
    try served.withMount { mount in
      served.server.link = Link(bytesPerSecond: 4_000_000)
      try mount.shell("mkdir x; head -c 8000000 /dev/urandom > x/f")
      var seen: Set<String> = []
      let isSeen = eventually(seconds: 60) {
        guard let attributes = try? mount.attributes(of: "x/f"), attributes["user.marfa.upload"] == "sending",
          let progress = attributes["user.marfa.upload_progress"], progress.hasSuffix("/8000000"),
          !progress.hasPrefix("0/"), !progress.hasPrefix("8000000/")
        else { return false }
        seen.insert(progress)
        return seen.count > 2
      }
      #expect(isSeen, "\(seen)")
      served.server.link = Link()
      try mount.send()
      #expect(try mount.attribute("user.marfa.upload", of: "x/f") == "stored")
      #expect(try mount.attribute("user.marfa.upload_progress", of: "x/f") == nil)
    }
  }

  @Test("says of what the server refused that it did, and keeps it")
  func refused() throws {
    let served = try Served()
    try served.withMount { mount in
      mount.expectedWarnings = ["is refused"]
      try mount.shell("mkdir x")
      try mount.send()
      served.server.faults.add(
        Fault(.refuse(status: 413, code: "too_large"), method: "POST", path: "/blobs", count: nil))
      try mount.shell("echo bytes > x/f")
      #expect(eventually { (try? mount.attribute("user.marfa.upload", of: "x/f")) == "refused:too_large" })
      let why = try mount.attribute("user.marfa.upload_detail", of: "x/f")
      #expect(why?.contains("marfa-mount discard") == true, "\(why ?? "")")
      #expect(try mount.text("x/f") == "bytes\n")
      let wait = try mount.command(["queue", mount.point, "--wait"])
      #expect(wait.status == 4 && wait.errors.contains("refused"), "\(wait)")
      let queue = try mount.command(["queue", mount.point]).output
      #expect(queue.contains("x/f (") && queue.contains("f attached-to x"), "\(queue)")
      let words: String = try #require(why)
      let number = words.split(separator: "discard ").last?.split(separator: " ").first
      let write = try #require(number)
      // It says which store, and can be copied as it is.
      #expect(why?.contains("discard \(write) --store \(mount.store)\"") == true, "\(why ?? "")")
      #expect(try mount.command(["discard", String(write), "--store", mount.store]).status == 0)
      #expect(try mount.attribute("user.marfa.upload", of: "x/f") == "local")
      #expect(try mount.text("x/f") == "bytes\n")
      try mount.send()
    }
  }

  @Test("does not say that it fetched what its budget does not keep")
  func budget() throws {
    let served = try Served()
    let trip = try served.server.change { try $0.createNote("trip") }
    for (name, count) in [("large", 300_000), ("a", 60_000), ("b", 70_000)] {
      let bytes = [UInt8](repeating: UInt8(count / 10_000), count: count)
      _ = try served.server.change { try $0.createFile(name, bytes, attachedTo: trip) }
    }
    let mount = try Mount()
    defer { mount.end() }
    try mount.start(served.options + ["--keep", "none", "--budget", "100K"])
    #expect(eventually(seconds: 30) { isThere(mount.point + "/trip/b") })
    try mount.shell("ls -l trip")
    func held(_ name: String) throws -> Bool { try mount.attribute("user.marfa.held", of: "trip/\(name)") == "yes" }
    let large = try mount.command(["fetch", mount.point + "/trip/large"])
    #expect(large.status == 1 && large.errors.contains("marfa-mount budget SIZE --store \(mount.store)\""), "\(large)")
    #expect(try run(["setfattr", "-n", "user.marfa.held", "-v", "yes", mount.point + "/trip/large"]).status != 0)
    #expect(try mount.attribute("user.marfa.held_bytes", of: "trip/large") == "0", "nothing of it was brought")
    let one = try mount.command(["fetch", mount.point + "/trip/a"])
    #expect(one.status == 0 && one.output.hasPrefix("Fetched 1 file,"), "\(one)")
    #expect(try held("a"))
    let all = try mount.command(["fetch", mount.point + "/trip/b", mount.point + "/trip/a", "--json"])
    #expect(all.status == 0, "each fits alone: \(all)")
    // Both at once do not.
    _ = try mount.command(["evict", mount.point + "/trip"])
    let both = try mount.command(["fetch", mount.point + "/trip", "--json"])
    #expect(both.status == 1 && both.errors.contains("\"not_kept\":2"), "\(both)")
    let none = try mount.command(["fetch", "--store", mount.store])
    #expect(none.status == 0 && none.output.contains("--keep none"), "\(none)")
    let host = try mount.command(["pin", mount.point + "/trip"])
    #expect(host.output.contains("not kept"), "\(host)")
    // A pinned file stays whatever the budget is.
    #expect(try mount.command(["pin", mount.point + "/trip/large"]).output == "Pinned large\n")
    #expect(try mount.command(["fetch", "--store", mount.store]).output.hasPrefix("Fetched 1 file,"))
    #expect(try held("large"))
    #expect(try mount.command(["fetch", mount.point + "/trip/large"]).status == 0)
    try mount.unmount()
  }

  @Test("lets go of no bytes that a program has open, and next of those that were opened last, held by then or not")
  func openHeld() throws {
    let served = try Served()
    for name in ["a", "b"] {
      _ = try served.server.change { try $0.createFile(name, [UInt8](repeating: name.utf8.first ?? 0, count: 60_000)) }
    }
    let mount = try Mount()
    defer { mount.end() }
    try mount.start(served.options + ["--keep", "none"])
    #expect(eventually(seconds: 30) { isThere(mount.point + "/b") })
    #expect(try mount.command(["fetch", mount.point + "/a", mount.point + "/b"]).status == 0)
    func held(_ name: String) throws -> Bool { try mount.attribute("user.marfa.held", of: name) == "yes" }
    let letGo = ["setfattr", "-n", "user.marfa.held", "-v", "no", mount.point + "/a"]
    // A fetch notes the reading of what it brought a moment after it has said that it is done.
    usleep(500_000)
    // The one that was fetched first is opened last.
    let open = try File(mount.point + "/a", O_RDONLY)
    let refused = try run(letGo)
    #expect(refused.status != 0 && refused.errors.contains("busy"), "\(refused)")
    #expect(try held("a"))
    try open.close()
    try mount.unmount()
    try mount.start(served.options + ["--keep", "none", "--budget", "100K"])
    let trimmed = try mount.command(["trim", mount.store])
    #expect(trimmed.status == 0, "\(trimmed)")
    #expect(try held("a") && !held("b"))
    #expect(try run(letGo).status == 0)
    try mount.unmount()
  }

  @Test("ends a fetch with the command that began it")
  func interrupted() throws {
    let served = try Served()
    let trip = try served.server.change { try $0.createNote("trip") }
    for number in 0..<6 {
      // Large enough that what is under way is cut off.
      let bytes = [UInt8](repeating: UInt8(number), count: 8_000_000)
      _ = try served.server.change { try $0.createFile("f\(number)", bytes, attachedTo: trip) }
    }
    try served.withMount { mount in
      #expect(eventually(seconds: 30) { isThere(mount.point + "/trip/f5") })
      try mount.shell("ls -l trip")
      served.server.link = Link(bytesPerSecond: 2_000_000)
      func here() throws -> Int {
        try (0..<6).reduce(0) { sum, number in
          sum + (Int(try mount.attribute("user.marfa.held_bytes", of: "trip/f\(number)") ?? "") ?? 0)
        }
      }
      for signal in [SIGINT, SIGKILL] {
        let before = try here()
        let program = try Program([try #require(Machine.program), "fetch", mount.point + "/trip"])
        #expect(try eventually { try here() > before })
        program.kill(signal)
        try program.wait()
        // It stands still, and not because all of it is here.
        var last = -1
        let isStill = try eventually(seconds: 60) {
          usleep(500_000)
          defer { last = (try? here()) ?? -1 }
          return try here() == last
        }
        #expect(isStill && last < 48_000_000, "\(last)")
      }
      served.server.link = Link()
      let fetched = try mount.command(["fetch", mount.point + "/trip"])
      #expect(fetched.status == 0, "\(fetched)")
    }
  }

  @Test("reads what another wrote, and lets it go, fetches it and keeps it as it is told")
  func bytes() throws {
    let served = try Served()
    try served.withMounts(2) { mounts in
      let writer = mounts[0]
      let other = mounts[1]
      try writer.shell(
        "mkdir -p x/y; head -c 3000000 /dev/urandom > x/large; echo small > x/small; echo deep > x/y/deep")
      try writer.send()
      #expect(eventually(seconds: 30) { isThere(other.point + "/x/y/deep") && isThere(other.point + "/x/large") })
      try other.shell("cmp x/large \(writer.point)/x/large; cat x/small")
      let fetched = try other.command(["fetch", other.point + "/x", "--json"])
      #expect(fetched.status == 0, "\(fetched)")
      for name in ["x/large", "x/small", "x/y/deep"] {
        #expect(try other.attribute("user.marfa.held", of: name) == "yes", "\(name)")
      }
      #expect(try other.command(["evict", other.point + "/x/large"]).status == 0)
      #expect(try other.attribute("user.marfa.held", of: "x/large") == "no")
      served.server.stop()
      other.expectedWarnings = ["not followed", "nothing is sent", "could not be", "can't be"]
      writer.expectedWarnings = other.expectedWarnings
      try other.shell("cat x/small x/y/deep")
      #expect(try other.command(["fetch", other.point + "/x/large"], seconds: 120).status == 3)
      _ = try other.command(["evict", other.point + "/x"])
      let several = try other.command(["fetch", other.point + "/x"], seconds: 120)
      #expect(several.status == 3 && several.errors.contains("3 files could not be fetched: the server"), "\(several)")
      let here = try writer.command(["fetch", writer.point + "/x"])
      #expect(here.output == "Everything that was named is here already\n", "\(here)")
      try served.server.start()
      _ = try other.command(["retry", other.point])
      #expect(other.isOnline())
      let all = try other.command(["fetch", "--store", other.store], seconds: 120)
      #expect(all.status == 0 && all.output.hasPrefix("Fetched"), "\(all)")
      try other.shell("cmp x/large \(writer.point)/x/large")
      #expect(try other.command(["pin", other.point + "/x/large"]).status == 0)
      #expect(try other.command(["evict", other.point + "/x/large"]).status == 1)
      #expect(try other.command(["trim", other.store]).status == 0)
      #expect(try other.command(["evict", "--all", "--store", other.store]).status == 0)
      #expect(try other.attribute("user.marfa.held", of: "x/large") == "yes")
    }
  }
}
