import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

@Suite("A command line", .enabled(if: CommandBinary.path != nil, CommandBinary.reason), .timeLimit(.minutes(2)))
struct CommandLineTests {
  @Test(
    "that is not understood changes nothing, and says what is wrong with it",
    arguments: [
      ([], "what is to be done?"), (["umount", "folder"], "Did you mean unmount?"), (["ls"], "is no command, and no"),
      (["list", "folder"], "is no command"), (["version"], "Did you mean --version?"),
      (["sync"], "Did you mean queue --wait?"), (["trim", "--keep", "none"], "--keep is an option of mount"),
      (["status", ""], "an empty name is no store"), (["pin", ""], "an empty name is no item"),
      (["budget", "./folder"], "budget --store ./folder"), (["budget", "folder"], "budget --store folder"),
      (["folder", "--directory-type", "x y"], "--directory-type"), (["stauts"], "Did you mean status?"),
      (["feetch", "folder"], "Did you mean fetch?"),
      (["status", "--jsn"], "Did you mean --json?"), (["status", "-x"], "has no option -x"),
      (["status", "--force"], "--force is an option of unmount"), (["status", "--json=yes"], "takes no value"),
      (["status", "a", "b"], "takes one store"), (["mount"], "name the folder"), (["mount", "a", "b", "c"], "3 words"),
      (["mount", ""], "no path"), (["folder", "--budget"], "needs a value"),
      (["folder", "--budget", "lots"], "no budget"), (["folder", "--budget", "1e400"], "no budget"),
      (["folder", "--budget=-5"], "no budget"), (["folder", "--keep", "all"], "attached, pinned or none"),
      (["folder", "--settle", "-1"], "--settle"), (["folder", "--settle", "nan"], "--settle"),
      (["folder", "--local-names", "a/b"], "no \"/\""), (["folder", "--local-names", "*"], "would keep every file"),
      (["folder", "--directory-type", "core.file"], "--directory-type"), (["folder", "-o", "fsname=x"], "-o fsname"),
      (["folder", "--server", "x.org"], "write https://x.org"), (["queue", "--limit", "many"], "--limit"),
      (["folder", "--server", "ftp://x.org"], "no way to speak"), (["folder", "--server", ""], "is empty"),
      (["folder", "--server", "https://me:pw@x.org"], "the key is given separately"),
      (["folder", "--server", "https://x.org/?a"], "\"?\""),
      (["folder", "--server", "https://x.org:99999"], "no port"),
      (["folder", "--server", "https://x.org", "--tier", "moon"], "--tier is library, feed or all"),
      (["folder", "--server", "https://x.org", "--type", "*"], "every type comes"),
      (["folder", "--server", "https://x.org", "--reader"], "leave out --server"),
      (["folder", "--reader", "--key-file", "k"], "leave out --key-file"),
      (["folder", "--key", "secret"], "name that: --key-file FILE"),
      (["status", "--wait"], "--wait is an option of queue"),
      (["release"], "by its number"), (["discard", "first"], "no write's number"),
      (["withdraw", "0"], "no write's number"),
      (["pin"], "name the item"), (["hydrate", "a", "b"], "takes one store"), (["evict"], "or --all"),
      (["trim", "a", "b"], "takes one store"), (["pause", "a", "b"], "takes one store"),
      (["budget", "1", "2"], "one value"), (["attach"], "name the item"), (["attach", "Norway"], "name the file"),
      (["attch", "Norway", "a"], "Did you mean attach?"), (["attach", "Norway", "a", "--title", ""], "can't be empty"),
      (["embed", "Norway", "a", "b"], "one file"), (["attach", "Norway", "a", "b", "--title", "t"], "--title"),
      (["add", "a", "--tag", ""], "a tag can't be empty"), (["add", "a", "--tier", "moon"], "--tier"),
      (["unmount"], "name the one"), (["help", "flying"], "no command \"flying\""), (["add"], "name the file"),
    ])
  func misunderstood(words: [String], said: String) throws {
    let home = try Home()
    try home.folder("folder")
    let outcome = try home.shell("exec \"$marfa\" \"$@\"", ["sh"] + words)
    #expect(outcome.status == 2)
    #expect(outcome.output.contains(said))
    #expect(outcome.output.contains("Try: marfa-mount"))
    #expect(!outcome.output.contains("secret"))
    #expect(home.names == ["folder"])
  }

  @Test(
    "teaches itself",
    arguments: [
      "mount", "unmount", "status", "queue", "hydrate", "retry", "pause", "resume", "release", "withdraw", "discard",
      "pin",
      "unpin", "fetch", "evict", "trim", "cache", "budget", "attach", "embed", "add",
    ])
  func help(command: String) throws {
    let home = try Home()
    let outcome = try home.marfa(command, "--help")
    #expect(outcome.status == 0)
    let usage = command == "mount" ? "marfa-mount [mount]" : "marfa-mount \(command)"
    #expect(outcome.output.hasPrefix(usage) && outcome.output.contains("Examples:"))
    #expect(try home.marfa("help", command) == outcome)
    #expect(try home.marfa("--help").output.contains(usage))
    // It fits a terminal.
    #expect(outcome.output.split(separator: "\n").allSatisfy { $0.count <= 95 })
  }

  @Test("tells its version, and what it is")
  func version() throws {
    let home = try Home()
    #expect(try home.marfa("--version").output.hasPrefix("marfa-mount "))
    let overview = try home.marfa("help")
    #expect(try home.marfa("-h") == overview)
    for words in ["marfa-mount --version", "marfa-mount help [COMMAND]", "evict ITEM...|--all"] {
      #expect(overview.output.contains(words))
    }
    #expect(try home.marfa("queue", "--help").output.contains("with 5"))
  }

  @Test("says what failed as JSON when JSON is asked for, and on standard error")
  func jsonErrors() throws {
    let home = try Home()
    let outcome = try home.shell("\"$marfa\" status nowhere.db --json 2>errors; echo $?; cat errors >&2")
    #expect(outcome.output.hasPrefix("4\n"))
    let error = try JSON(reading: String(outcome.output.dropFirst(2))).object?["error"]?.object
    #expect(error?["code"] == "no_store" && error?["kind"] == "store")
    let usage = try home.marfa("status", "--json", "--nonsense")
    #expect(usage.status == 2 && usage.json?["error"]?.object?["code"] == "usage")
  }

  @Test("whose words are no UTF-8 is refused")
  func bytes() throws {
    let home = try Home()
    let outcome = try home.shell("\"$marfa\" add \"$(printf 'caf\\351.txt')\"")
    #expect(outcome.status == 2 && outcome.output.contains("is not UTF-8"))
  }

  @Test("whose result can't be written fails")
  func fullOutput() throws {
    let home = try Home()
    _ = try home.store("store.db")
    let outcome = try home.shell("\"$marfa\" status store.db > /dev/full")
    #expect(outcome.status == 3 && outcome.output.contains("could not be written"))
  }

  @Test(
    "takes sizes as coreutils does",
    arguments: [
      ("0", 0), ("500M", 500 << 20), ("2GiB", 2 << 30), ("1.5k", 1536), ("3MB", 3_000_000), ("1 TiB", 1 << 40),
      ("12b", 12),
    ] as [(String, Int64)])
  func sizes(text: String, bytes: Int64) throws {
    let home = try Home()
    let store = try home.store("store.db")
    let outcome = try home.marfa("budget", text, "--store", store, "--json")
    #expect(outcome.json?["budget_setting"] == .string(String(bytes)))
  }

  @Test("after -- has no options")
  func doubleDash() throws {
    let home = try Home()
    let outcome = try home.marfa("status", "--", "--json")
    #expect(outcome.status == 4 && outcome.output.contains("/--json"))
  }
}

@Suite(
  "A store nobody has mounted", .enabled(if: CommandBinary.path != nil, CommandBinary.reason), .timeLimit(.minutes(2)))
struct UnmountedCommandTests {
  @Test("is shown, added to and attached to")
  func commands() throws {
    let home = try Home()
    let store = try home.store("trips.db")
    let copy = try WorkingCopy(path: store)
    _ = try copy.items.create(type: "core.note", properties: ["title": "Norway"])
    copy.close()
    try home.file("fjord.jpg", "deep")
    try home.file("ticket.pdf", "%PDF")
    let attached = try home.marfa("attach", "Norway", "fjord.jpg", "ticket.pdf", "--store", "trips.db")
    #expect(
      attached
        == Outcome(
          status: 0,
          output: """
            Attached fjord.jpg (4 bytes); ![[fjord.jpg]] shows it in a text
            Attached ticket.pdf (4 bytes); ![[ticket.pdf]] shows it in a text

            """))
    let embedded = try home.marfa("embed", "Norway", "fjord.jpg", "--title", "At noon", "--store", store)
    #expect(embedded == Outcome(status: 0, output: "Embedded fjord.jpg as At noon (4 bytes)\n"))
    #expect(try home.marfa("add", "fjord.jpg", "--tag=x", "--store", "trips.db", "--json").json?["files"] != nil)
    let status = try home.marfa("status", "trips.db")
    #expect(status.output.contains("Mounted      no") && status.output.contains("Files        4"))
    #expect(try home.marfa("status", "trips.db", "--json").json?["items"] == 5)
    #expect(
      try home.marfa("queue", "trips.db").output.contains(
        "create edge  queued: awaiting_dependency  At noon attached-to"))
    #expect(try home.marfa("queue", "trips.db").output.hasPrefix("What is queued waits for a server: "))
    #expect(try home.marfa("cache", "trips.db").output.contains("Attachments  3 held"))
    #expect(!home.names.contains("trips.db.sock"))
  }

  @Test("has none of the items of other paths")
  func otherPaths() throws {
    let home = try Home()
    let store = try home.store("trips.db")
    try home.folder("Pictures")
    for path in [home.path + "/Pictures", "./Pictures", "."] {
      let outcome = try home.marfa("pin", path, "--store", store)
      #expect(outcome.status == 1 && outcome.output.contains("\(path) is in no mount of a store"), "\(outcome)")
    }
    let missing = try home.marfa("pin", "Pictures", "--store", store)
    #expect(missing.output.contains("nothing is called \"Pictures\" at the top of \(store)"), "\(missing)")
  }

  @Test("is named in what one is told to do, unless it is the one meant without a name")
  func hints() throws {
    let home = try Home()
    let store = try home.store("my trips.db")
    #expect(try home.marfa("release", "--store", store).output.contains("\"marfa-mount queue '\(store)'\" shows it"))
    #expect(
      try home.marfa("discard", "x", "--store", "my trips.db").output
        .contains("\"marfa-mount queue '\(store)'\" shows them"))
    #expect(try home.marfa("release").output.contains("\"marfa-mount queue\" shows it"))
    #expect(
      try home.marfa("resume", store).output.contains("Mount it: marfa-mount '\(store)' FOLDER"))
  }

  @Test("is not made by looking for it")
  func missing() throws {
    let home = try Home()
    try home.file("a.txt", "a")
    let looking = [["status"], ["queue"], ["cache"], ["budget"]]
    for words in looking + [["release", "1"], ["pin", "Norway"], ["hydrate"], ["pause"], ["queue", "--wait"]] {
      let outcome = try home.shell("exec \"$marfa\" \"$@\"", ["sh"] + words)
      #expect(outcome.status == 4 && outcome.output.contains("there is no store"), "\(words): \(outcome)")
    }
    for words in looking + [["budget", "1G"], ["add", "a.txt"], ["attach", "N", "a.txt"]] {
      let outcome = try home.shell("exec \"$marfa\" \"$@\"", ["sh"] + words)
      #expect(outcome.status == 4 && outcome.output.contains("there is no store"))
    }
    #expect(home.names == ["a.txt"])
  }

  @Test("gets nothing of files of which one is wrong")
  func wrongFile() throws {
    let home = try Home()
    let store = try home.store("trips.db")
    try home.file("a.txt", "a")
    try home.file("empty", "")
    let outcome = try home.marfa("add", "a.txt", "empty", "nowhere", "/dev/null", home.path, "--store", store)
    #expect(outcome.status == 1)
    let said = ["empty is empty", "nowhere is not there", "/dev/null is no regular", "is a folder", "Nothing was done"]
    for words in said {
      #expect(outcome.output.contains(words))
    }
    #expect(try home.marfa("status", store, "--json").json?["files"] == 0)
  }

  @Test("that another process is writing is waited for, and then added to")
  func busy() throws {
    let home = try Home()
    let store = try home.store("trips.db")
    try home.file("a.txt", "a")
    // Several at once: each has the store for a moment.
    let outcome = try home.shell(
      """
      for n in 1 2 3 4 5; do "$marfa" add a.txt --title "n$n" --store trips.db >/dev/null & done; wait
      """)
    #expect(outcome == Outcome(status: 0, output: ""))
    #expect(try home.marfa("status", store, "--json").json?["files"] == 5)
  }

  @Test("whose titles are orders to a terminal shows them as text")
  func hostileTitle() throws {
    let home = try Home()
    let store = try home.store("trips.db")
    let copy = try WorkingCopy(path: store)
    _ = try copy.items.create(type: "core.note", properties: ["title": "\u{1b}[31mred\u{7}\nnew\u{202e}"])
    copy.close()
    let text = try home.marfa("queue", store).output
    #expect(text.contains("\\u{1b}[31mred\\u{7}\\u{a}new\\u{202e}"))
  }
}
