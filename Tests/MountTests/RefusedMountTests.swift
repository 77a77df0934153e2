import CLinux
import Foundation
import Testing

@Suite("A mount that cannot be", .enabled(if: Machine.canMount, Machine.needsMount))
struct RefusedMountTests {
  /// Asks for the mount, which must be refused: with this status, this code, these words.
  private func expectRefusal(
    _ mount: Mount, _ status: CInt, _ code: String, _ words: String, _ options: [String] = [], at point: String? = nil,
    sourceLocation: SourceLocation = #_sourceLocation
  ) throws {
    let line = ["mount"] + options + ["--log", mount.log, mount.store, point ?? mount.point]
    let foreground = ["mount", "-f"] + options + [mount.store, point ?? mount.point]
    for form in [line, Array(line.dropFirst()), foreground] {
      let outcome = try mount.command(form, seconds: 20, sourceLocation: sourceLocation)
      #expect(outcome.status == status, "\(outcome)", sourceLocation: sourceLocation)
      #expect(outcome.errors.contains(words), "\(outcome)", sourceLocation: sourceLocation)
      #expect(outcome.output == "", sourceLocation: sourceLocation)
    }
    let outcome = try mount.command(line + ["--json"], sourceLocation: sourceLocation)
    #expect(
      outcome.status == status && outcome.errors.contains("\"code\":\"\(code)\""), "\(outcome)",
      sourceLocation: sourceLocation)
    #expect(!Mount.isMounted(mount.point), sourceLocation: sourceLocation)
  }

  private func withStore(_ body: (Mount) throws -> Void) throws {
    let mount = try Mount()
    defer { mount.end() }
    try body(mount)
    #expect(!Mount.isMounted(mount.point))
  }

  @Test("because of an option that only shows itself wrong once the kernel has the mount")
  func brokenOption() throws {
    try withStore { mount in
      try expectRefusal(mount, 3, "mount_failed", "ended at once", ["-o", "max_read=65536"])
    }
  }

  @Test("because its folder is not there, is a file, or is not empty")
  func folder() throws {
    try withStore { mount in
      try expectRefusal(mount, 1, "mount_point_missing", "mkdir -p", at: mount.folder + "/gone")
      try expectRefusal(mount, 1, "mount_point_missing", "does not exist", at: mount.folder + "/gone/deeper")
      try shell("echo > file; echo > mount/there", in: mount.folder)
      try expectRefusal(mount, 1, "mount_point_not_a_directory", "is not a directory", at: mount.folder + "/file")
      try expectRefusal(mount, 1, "mount_point_not_a_directory", "is not a directory", at: mount.folder + "/file/x")
      try expectRefusal(mount, 1, "mount_point_not_empty", "would hide what is in it")
      #expect(isThere(mount.point + "/there") && !isThere(mount.store), "nothing was made")
    }
  }

  @Test("because the store is a text file leaves that file as it is")
  func text() throws {
    try withStore { mount in
      try shell("seq 1000 > store.db; cp -p store.db copy", in: mount.folder)
      try expectRefusal(mount, 4, "not_a_store", "is not a Marfa store")
      try shell("printf 'x' > store.db; touch -d 2001-01-01 store.db; cp -p store.db copy", in: mount.folder)
      try expectRefusal(mount, 4, "not_a_store", "is not a Marfa store")
      try shell("cmp store.db copy; test \"$(stat -c %y store.db)\" = \"$(stat -c %y copy)\"", in: mount.folder)
      #expect(!isThere(mount.store + ".blobs") && !isThere(mount.store + "-wal"))
    }
  }

  @Test("because the store is another program's database", .enabled(if: Machine.has("sqlite3"), "there is no sqlite3"))
  func foreign() throws {
    try withStore { mount in
      try shell(
        "sqlite3 store.db 'pragma application_id = 77; create table t(a); insert into t values(1)'; cp store.db copy",
        in: mount.folder)
      try expectRefusal(mount, 4, "not_a_store", "is not a Marfa store")
      try shell("cmp store.db copy", in: mount.folder)
    }
  }

  @Test("because the store is cut short says so and does not mend it by force", arguments: [50, 99, 3000, 20_000])
  func truncated(bytes: Int) throws {
    try withStore { mount in
      try mount.start()
      try mount.shell("mkdir item; for n in $(seq 40); do echo $n > item/$n; done")
      try mount.unmount()
      try shell("rm -f store.db-wal store.db-shm; truncate -s \(bytes) store.db; cp store.db copy", in: mount.folder)
      let code = bytes < 100 ? "not_a_store" : "store_damaged"
      try expectRefusal(mount, 4, code, bytes < 100 ? "is not a Marfa store" : "damaged or cut short")
      try shell("cmp store.db copy", in: mount.folder)
    }
  }

  @Test("because the store is damaged inside", .enabled(if: Machine.has("sqlite3"), "there is no sqlite3"))
  func damaged() throws {
    try withStore { mount in
      try mount.start()
      try mount.shell("mkdir item; for n in $(seq 40); do echo $n > item/$n; done")
      try mount.unmount()
      try shell("dd if=/dev/urandom of=store.db bs=4096 seek=1 count=400 conv=notrunc status=none", in: mount.folder)
      let outcome = try mount.command(["mount", "--log", mount.log, mount.store, mount.point], seconds: 20)
      #expect(outcome.status == 4 && outcome.errors.contains(mount.store), "\(outcome)")
    }
  }

  @Test(
    "because a newer program wrote the store names both schemas",
    .enabled(if: Machine.has("sqlite3"), "there is no sqlite3"))
  func newer() throws {
    try withStore { mount in
      try mount.start()
      try mount.unmount()
      try shell("sqlite3 store.db 'pragma user_version = 9999'", in: mount.folder)
      try expectRefusal(mount, 4, "store_newer", "has schema 9999")
      try expectRefusal(mount, 4, "store_newer", "this one knows up to", ["--reader"])
    }
  }

  @Test("because the store's folder is not there, or a reader's store is not")
  func nowhere() throws {
    try withStore { mount in
      mount.store = mount.folder + "/gone/store.db"
      try expectRefusal(mount, 4, "store_folder_missing", "is not there")
      mount.store = mount.folder + "/store.db"
      try expectRefusal(mount, 4, "no_store", "there is no store at", ["--reader"])
      mount.store = mount.folder + "/outside"
      try expectRefusal(mount, 4, "not_a_store", "is not a Marfa store")
      #expect(!isThere(mount.folder + "/gone"))
    }
  }

  @Test("in a folder that is read-only becomes one for a reader", .enabled(if: Machine.isRoot, Machine.needsRoot))
  func readOnly() throws {
    let volume = try SmallVolume(bytes: 16 << 20)
    defer { volume.end() }
    let mount = try Mount(volume: volume.path)
    defer { mount.end() }
    try mount.start()
    try mount.shell("mkdir item; echo text > item/f")
    try mount.unmount()
    try volume.becomeReadOnly()
    try expectRefusal(mount, 4, "store_folder_read_only", "open it with --reader")
    mount.expectedWarnings = ["no socket beside"]
    #expect(try mount.start(["--reader"]).mode == "reader")
    #expect(try mount.text("item/f") == "text\n")
    #expect(try run(["touch", mount.point + "/item/f"]).errors.contains("Read-only file system"))
    try mount.unmount()
  }

  @Test("because another store is mounted there already")
  func already() throws {
    try withMount { mount in
      let outcome = try mount.command(
        ["mount", "--log", mount.log + "2", mount.folder + "/other.db", mount.point], seconds: 20)
      #expect(outcome.status == 1 && outcome.errors.contains("is already mounted"), "\(outcome)")
      #expect(!isThere(mount.folder + "/other.db"))
    }
  }

  @Test(
    "because its command line is wrong ends with status 2 and the way to write it",
    arguments: [
      [], ["mount"], ["mount", "a", "b", "c"], ["mount", "--budgett", "1G", "a", "b"],
      ["mount", "--budget", "lots", "a", "b"],
      ["mount", "--settle", "-1", "a", "b"], ["mount", "", "b"], ["moutn", "a"], ["mount", "-o"],
      ["mount", "--settle"],
      ["mount", "-x", "a", "b"], ["status", "a", "b"], ["queue", "--limit", "many"], ["budget", "--store"],
    ])
  func commandLine(_ words: [String]) throws {
    try withStore { mount in
      let outcome = try mount.command(words, seconds: 10)
      #expect(outcome.status == 2 && outcome.output == "" && outcome.errors.hasPrefix("marfa-mount: "), "\(outcome)")
    }
  }
}
