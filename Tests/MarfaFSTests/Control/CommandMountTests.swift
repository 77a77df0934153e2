import CLinux
import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

@Suite(
  "Mounting with the command", .serialized,
  .enabled(if: mountingIsPossible, "needs /dev/fuse, and root or fusermount3"),
  .enabled(if: CommandBinary.path != nil, CommandBinary.reason), .timeLimit(.minutes(3)))
struct CommandMountTests {
  @Test("returns once the mount answers, says where everything is, and unmounting leaves nothing behind")
  func wholeLife() throws {
    let home = try Home()
    let folder = try home.folder("trip")
    let mounted = try home.marfa("trip")
    #expect(
      mounted
        == Outcome(
          status: 0,
          output: """
            Made a new store: \(home.path)/data/marfa/store.db
            Mounted \(home.path)/data/marfa/store.db at \(folder)
            The log is at \(home.path)/state/marfa/store.log

            """))
    let used = try home.shell("mkdir trip/Norway && echo deep > trip/Norway/fjord.txt && ls trip/Norway")
    #expect(used.output == "fjord.txt\n")
    #expect(try home.marfa("status", "trip/Norway").output.contains("Mounted      at \(folder)"))
    let status = try #require(try home.marfa("status", "--json").json)
    let pid = try #require(status["mount"]?.object?["pid"]?.integer)
    #expect(status["mode"] == "writer" && status["files"] == 1)
    #expect(try home.marfa("unmount", "trip") == Outcome(status: 0, output: "Unmounted \(folder)\n"))
    #expect(!Unmounting.isAlive(Int(pid)))
    #expect(try Path.names(in: home.path + "/data/marfa").sorted() == ["store.db", "store.db.blobs", "store.db.lock"])
    for (path, mode) in [("data/marfa", 0o700), ("state/marfa/store.log", 0o600), ("data/marfa/store.db", 0o600)] {
      #expect((try Path.status("\(home.path)/\(path)")?.st_mode).map { $0 & 0o777 } == mode_t(mode))
    }
  }

  @Test("A mount is not ended by the name of something in it, whether it is there or not")
  func unmountInside() throws {
    let home = try Home()
    try home.folder("trip")
    #expect(try home.marfa("trip").status == 0)
    _ = try home.shell("mkdir trip/Norway")
    for word in ["trip/Norway", "trip/gone", "trip/gone/deeper"] {
      let outcome = try home.marfa("unmount", word)
      #expect(outcome.status == 1 && "\(outcome)".contains("is inside the mount"), "\(outcome)")
    }
    #expect(try home.marfa("unmount", "trip").status == 0)
  }

  @Test("A mount that is gone is not waited for because another has its numbers now, which the kernel gives again")
  func numbersGivenAgain() throws {
    let home = try Home()
    let folder = try home.folder("trip")
    #expect(try home.marfa("trip").status == 0)
    let other = try #require(try MarfaMounts.all().first { $0.mountPoint == folder })
    var gone = other
    gone.mountPoint = "\(home.path)/gone"
    gone.store = "\(home.path)/gone.db"
    #expect(Unmounting.waitForEnd(of: gone, pid: nil, seconds: 0))
    #expect(!Unmounting.waitForEnd(of: other, pid: nil, seconds: 0))
    #expect(try home.marfa("unmount", "trip").status == 0)
  }

  @Test("Two stores of one name in two folders have a log each")
  func logs() throws {
    let home = try Home()
    var logs: Set<String> = []
    for folder in ["a", "b"] {
      try home.folder(folder)
      try home.folder(folder + "/point")
      #expect(try home.marfa("\(folder)/notes.db", "\(folder)/point").status == 0)
      let status = try #require(try home.marfa("status", "\(folder)/notes.db", "--json").json)
      logs.insert(try #require(status["mount"]?.object?["log"]?.string))
      #expect(try home.marfa("unmount", "\(folder)/point").status == 0)
    }
    #expect(logs.count == 2)
    #expect(logs.allSatisfy { $0.hasPrefix("\(home.path)/state/marfa/notes-") })
  }

  @Test("Files are attached by paths in the mount, and are there at once")
  func attach() throws {
    let home = try Home()
    try home.folder("trip")
    try home.file("fjord.jpg", "deep")
    #expect(try home.marfa("trips.db", "trip").status == 0)
    let outcome = try home.shell(
      """
      mkdir trip/Norway trip/Norway/Bergen
      "$marfa" attach trip/Norway/Bergen fjord.jpg && cd trip/Norway && "$marfa" embed . ../../fjord.jpg
      ls Bergen; cat fjord.jpg
      "$marfa" attach fjord.jpg ../../fjord.jpg; "$marfa" attach .. ../../fjord.jpg; "$marfa" attach No ../../fjord.jpg
      """)
    #expect(
      outcome.output == """
        Attached fjord.jpg (4 bytes); ![[fjord.jpg]] shows it in a text
        Embedded fjord.jpg (4 bytes)
        fjord.jpg
        deepmarfa-mount: fjord.jpg is a file; files are attached to an item, and an item is a directory
        marfa-mount: the root is no item; "add" adds a file that hangs on no item
        marfa-mount: No: No such file or directory

        """)
    #expect(try home.marfa("unmount", "trips.db").status == 0)
  }

  @Test("A second mount of a store is a reader, and says who writes")
  func secondMount() throws {
    let home = try Home()
    let (first, second) = (try home.folder("first"), try home.folder("second"))
    #expect(try home.marfa("trips.db", "first").status == 0)
    let outcome = try home.marfa("trips.db", "second")
    #expect(outcome.status == 0)
    #expect(outcome.output.contains("has this store open for writing, mounted at \(first); this mount is a reader"))
    #expect(try home.shell("mkdir first/a; mkdir second/b").status != 0)
    #expect(try home.marfa("status", "first", "--json").json?["mode"] == "writer")
    let reader = try #require(try home.marfa("status", "second", "--json").json)
    #expect(reader["mode"] == "reader" && reader["mount"]?.object?["mount_point"] == .string(second))
    #expect(try home.marfa("status", "trips.db", "--json").json?["mode"] == "writer")
    #expect(
      try home.marfa("unmount", "trips.db") == Outcome(status: 0, output: "Unmounted \(second)\nUnmounted \(first)\n"))
    #expect(home.names.filter { $0.hasSuffix(".sock") } == [])
  }

  @Test("A mount that a program uses stays, and the program is named; --force ends it all the same")
  func busy() throws {
    let home = try Home()
    let folder = try home.folder("trip")
    #expect(try home.marfa("trips.db", "trip").status == 0)
    let program = try Program(["env", "-C", folder, "sleep", "60"])
    defer {
      kill(program.pid, SIGKILL)
      _ = try? program.wait()
    }
    #expect(eventually { Unmounting.users(of: folder).map { $0.name } == ["sleep"] })
    let refused = try home.marfa("unmount", "trip")
    #expect(refused.status == 1)
    #expect(refused.output.contains("sleep (process \(program.pid)) has \(folder)"))
    #expect(try home.marfa("status", "trip", "--json").json?["mode"] == "writer")
    #expect(try home.marfa("unmount", "--force", "trip", "--json").json?["unmounted"]?.array?.count == 1)
  }

  @Test("The command that unmounts is not in its own way")
  func standsInside() throws {
    let home = try Home()
    let folder = try home.folder("trip")
    #expect(try home.marfa("trips.db", "trip").status == 0)
    let outcome = try run(["env", "-C", folder, try #require(CommandBinary.path), "unmount", "."])
    #expect(outcome == Outcome(status: 0, output: "Unmounted \(folder)\n"))
  }

  @Test("A mount whose process was killed is seen, replaced and taken away")
  func killed() throws {
    let home = try Home()
    let folder = try home.folder("trip")
    func kill9() throws {
      let pid = try #require(try home.marfa("status", "trip", "--json").json?["mount"]?.object?["pid"]?.integer)
      kill(pid_t(pid), SIGKILL)
      #expect(eventually { !Unmounting.isAlive(Int(pid)) })
    }
    #expect(try home.marfa("trips.db", "trip").status == 0)
    #expect(try home.shell("mkdir trip/Norway").status == 0)
    try kill9()
    #expect(try home.marfa("status", "trip").output.contains("its process has ended"))
    #expect(try home.marfa("status", "trips.db", "--json").json?["mount"]?.object?["dead"] == true)
    #expect(try home.marfa("trips.db", "trip").status == 0)
    #expect(try home.shell("ls trip").output == "Norway\n")
    try kill9()
    #expect(try home.marfa("unmount", "trip") == Outcome(status: 0, output: "Unmounted \(folder)\n"))
    #expect(try home.shell("ls trip").output == "")
  }

  @Test("In the foreground it says when it answers, and ends by a signal")
  func foreground() throws {
    let home = try Home()
    let folder = try home.folder("trip")
    let binary = try #require(CommandBinary.path)
    let program = try Program([binary, "-f", home.path + "/trips.db", folder])
    #expect(eventually { (try? MarfaMounts.holding(folder)) ?? nil != nil })
    kill(program.pid, SIGTERM)
    let outcome = try program.wait()
    #expect(outcome.status == 0)
    #expect(outcome.output.contains("Mounted \(home.path)/trips.db at \(folder)\n"))
    #expect(try MarfaMounts.holding(folder) == nil)
  }

  @Test("A process in the background keeps nothing of where it was started")
  func surroundings() throws {
    let home = try Home()
    try home.folder("trip")
    let outcome = try home.shell(
      """
      exec 9> kept 8< /etc/hostname; "$marfa" trips.db trip --json > facts || exit 1
      pid=$(sed 's/.*"pid":\\([0-9]*\\).*/\\1/' facts); readlink /proc/$pid/cwd; readlink /proc/$pid/fd/0
      ls -l /proc/$pid/fd | grep -c -e kept -e hostname; cut -d ' ' -f 6 /proc/$pid/stat | grep -c "^$pid$"
      """)
    #expect(outcome.output == "/\n/dev/null\n0\n1\n")
    #expect(try home.marfa("unmount", "trip").status == 0)
  }

  @Test("A mount that nobody waits for any more is taken back")
  func abandoned() throws {
    let home = try Home()
    let folder = try home.folder("trip")
    // What is written to 3 is read by a program that has ended already.
    let script = """
      { sleep 0.3; exec "$marfa" mount --foreground --ready-descriptor 3 trips.db trip 3>&1 >/dev/null; } 2>log | true
      """
    #expect(try home.shell(script).status == 0)
    #expect(eventually { (try? home.shell("grep -c 'trip is unmounted' log").output) == "1\n" })
    #expect(try MarfaMounts.holding(folder) == nil)
    #expect(try home.shell("grep -c 'ended before it was told' log").output == "1\n")
  }

  @Test("Of several who mount at one folder at once, one does")
  func atOnce() throws {
    let home = try Home()
    let folder = try home.folder("trip")
    let outcome = try home.shell(
      """
      for n in 1 2 3 4; do "$marfa" trips.db trip >>said 2>&1 & done; wait
      grep -c ^Mounted said; grep -c already said
      """)
    #expect(outcome.output == "1\n3\n")
    #expect(try MarfaMounts.all().filter { $0.mountPoint == folder }.count == 1)
    #expect(try home.marfa("status", "trips.db", "--json").json?["mode"] == "writer")
    #expect(try home.marfa("unmount", "trip").status == 0)
  }

  @Test("A store that only a reader has mounted is seen by its path")
  func readerAlone() throws {
    let home = try Home()
    let folder = try home.folder("look")
    let store = try home.store("trips.db")
    #expect(try home.marfa("--reader", "trips.db", "look").output.contains("It is a reader"))
    let status = try #require(try home.marfa("status", "trips.db", "--json").json)
    #expect(status["mode"] == "reader" && status["mount"]?.object?["mount_point"] == .string(folder))
    // And it keeps nobody from writing.
    try home.file("a.txt", "a")
    #expect(try home.marfa("add", "a.txt", "--store", store).status == 0)
    #expect(try home.marfa("unmount", "trips.db").status == 0)
  }

  @Test("A key that others can read, in its file or on its way, is warned about where the mount was started")
  func warnings() throws {
    let home = try Home()
    try home.folder("trip")
    try home.file("key", "mk_any")
    let server = ["--server", "http://marfa.invalid"]
    #expect(chmod(home.path + "/key", 0o644) == 0)
    let mounted = try home.shell("\"$marfa\" trips.db trip \"$@\" --key-file key", ["sh"] + server)
    #expect(mounted.status == 0)
    #expect(mounted.output.contains("Warning: others than you may read the key in \(home.path)/key"), "\(mounted)")
    #expect(mounted.output.contains("Warning: the key and all else goes to http://marfa.invalid in the clear"))
    #expect(try home.marfa("unmount", "trip").status == 0)
    // It is read once, and what is not in a file is no file's.
    let piped = try home.shell("echo mk_any | \"$marfa\" trips.db trip --json --key-file -", ["sh"])
    let facts = try #require(piped.json)
    #expect(facts["key_from"] == "standard input" && facts["warnings"]?.array?.count == 1, "\(piped)")
    #expect(try home.marfa("unmount", "trip").status == 0)
  }

  @Test("A key that was given for its file's name is in no log")
  func keyAsName() throws {
    let home = try Home()
    try home.folder("trip")
    for way in [["-f", "--log", "log"], ["--log", "log"], []] {
      let outcome = try home.shell(
        "exec \"$marfa\" trips.db trip --server https://marfa.invalid --key-file sk_bert \"$@\"", ["sh"] + way)
      #expect(outcome.status == 5 && outcome.output.contains("not the key"), "\(outcome)")
      #expect(!outcome.output.contains("sk_bert"))
    }
    #expect(try home.shell("grep -ra sk_bert .").status == 1)
  }

  @Test("A mount's folder names its store, and no store can be in a mount")
  func mountsOfMounts() throws {
    let home = try Home()
    let folder = try home.folder("trip")
    try home.folder("look")
    // A word like a command's that is a store's name is no slip.
    #expect(try home.marfa("a.db", "trip").output.hasPrefix("Made a new store: \(home.path)/a.db\n"))
    let look = try home.marfa("trip", "look")
    #expect(look.output.contains("Mounted \(home.path)/a.db at \(home.path)/look\n"), "\(look)")
    #expect(look.output.contains("this mount is a reader"))
    let again = try home.marfa("other.db", "trip")
    #expect(again.status == 1 && again.output.contains("is already mounted: it shows \(home.path)/a.db."), "\(again)")
    #expect(again.output.contains("marfa-mount unmount \(folder)\n"))
    #expect(try home.marfa("unmount", "look").status == 0)
    let inner = try home.marfa("trip/inner.db", "look")
    #expect(inner.status == 1 && inner.output.contains("a store can't be kept in one"), "\(inner)")
    let usual = try home.shell("XDG_DATA_HOME=\"$PWD/trip\" \"$marfa\" look")
    #expect(usual.status == 1 && usual.output.contains("a store can't be kept in one"), "\(usual)")
    #expect(try Path.names(in: folder).isEmpty)
    #expect(try home.marfa("unmount", "trip").status == 0)
  }

  @Test("A log over 8 MiB is set aside when a mount starts")
  func log() throws {
    let home = try Home()
    try home.folder("trip")
    try home.folder("logs")
    try home.file("logs/a.log", String(repeating: "x", count: (8 << 20) + 1))
    let mounted = try home.marfa("trips.db", "trip", "--log", "logs/a.log")
    #expect(mounted.output.contains("The log is at \(home.path)/logs/a.log"))
    #expect(try home.marfa("unmount", "trip").status == 0)
    #expect(try Path.status(home.path + "/logs/a.log.1")?.st_size == (8 << 20) + 1)
    #expect(try home.shell("grep -c 'is mounted at' logs/a.log").output == "1\n")
  }

  @Test("What is chosen for a store stays chosen")
  func choices() throws {
    let home = try Home()
    try home.folder("trip")
    #expect(try home.marfa("trips.db", "trip", "--budget", "500M", "--keep=pinned").status == 0)
    #expect(try home.marfa("unmount", "trip").status == 0)
    let cache = try #require(try home.marfa("cache", "trips.db", "--json").json)
    #expect(cache["budget_setting"] == "524288000" && cache["keep"] == "pinned")
  }

  @Test("What can't be mounted is said, with nothing changed, and the status tells whose turn it is")
  func refusals() throws {
    let home = try Home()
    try home.folder("trip")
    try home.folder("full/")
    try home.file("full/x", "x")
    try home.file("text", "some words of a person's")
    let store = try home.store("trips.db")
    try home.file("cut.db", "SQLite format 3\u{0}")
    #expect(try home.shell("cp trips.db new.db; head -c 5000 trips.db > short.db").status == 0)
    try home.file("full.db", "")
    let before = home.names
    func expect(_ words: String..., status: CInt, said: String, location: SourceLocation = #_sourceLocation) throws {
      let outcome = try home.shell("exec \"$marfa\" \"$@\"", ["sh"] + words)
      #expect(outcome.status == status, sourceLocation: location)
      #expect(outcome.output.contains(said), "\(outcome.output)", sourceLocation: location)
    }
    try expect("trips.db", "nowhere", status: 1, said: "does not exist")
    try expect("trips.db", "text", status: 1, said: "is not a directory")
    try expect("trips.db", "full", status: 1, said: "is not empty")
    try expect("text", "trip", status: 4, said: "is not a Marfa store")
    try expect("cut.db", "trip", status: 4, said: "is not a Marfa store")
    try expect("short.db", "trip", status: 4, said: "damaged or cut short")
    try expect("nowhere/a.db", "trip", status: 4, said: "the folder for the store is not there")
    try expect("--reader", "nowhere.db", "trip", status: 4, said: "there is no store")
    try expect("trip", store, status: 2, said: "the store comes first")
    try expect("trips.db", "trip", "-o", "bogus", status: 2, said: "bogus")
    try expect("trips.db", "trip", "--log", "/proc/none/a.log", status: 3, said: "can't be written")
    #expect(try MarfaMounts.holding(home.path + "/trip") == nil)
    // A log, and the file that says whose a store is: nothing else may come of it.
    #expect(home.names.filter { !before.contains($0) && !$0.hasSuffix(".lock") } == ["state"])
    #expect(try home.shell("cat text").output == "some words of a person's")
  }
}
