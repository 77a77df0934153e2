import CLinux
import Foundation
import Testing

@Suite("A mount whose process is killed", .enabled(if: Machine.canMount, Machine.needsMount))
struct CrashTests {
  @Test("during a copy of many files has each that was copied, whole, and none by half")
  func duringCopy() throws {
    try withMount { mount in
      mount.expectedWarnings = ["was being written when"]
      let tree = try mount.realTree(files: 1500)
      mkdir(mount.point + "/item", 0o755)
      let copier = try Program(
        [
          "bash", "-c",
          "cd \(tree); find . -type f | while read -r f; do cp --parents \"$f\" \(mount.point)/item 2>/dev/null && echo \"$f\"; done",
        ])
      try #require(eventually(seconds: 60) { copier.soFar.utf8.count(where: { $0 == 0x0a }) > 100 })
      try mount.crash()
      let done = try copier.wait().output
      // A crashed mount is replaced by the next, at the same place.
      try mount.start()
      try done.write(toFile: mount.outside + "/done", atomically: true, encoding: .utf8)
      try mount.shell(
        """
        while read -r f; do cmp "\(tree)/$f" "item/$f"; done < $1/done
        cd item; find . -type f | while read -r f; do cmp "\(tree)/$f" "$f"; done
        """)
      #expect(try mount.status().files >= done.utf8.count(where: { $0 == 0x0a }))
      // The copy can be done again over it.
      try mount.shell("cp -r \(tree)/. item/; diff -r \(tree) item", seconds: 120)
    }
  }

  @Test("while a file is half written takes its name away, keeps the bytes aside, and says so")
  func halfWritten() throws {
    try withMount { mount in
      mount.expectedWarnings = ["was being written when", "were being written when"]
      try mount.shell("mkdir item; echo old > item/old; cp /bin/ls item/ls")
      let writer = try Program(
        [
          "perl", "-e",
          """
          use IO::Handle; $| = 1; open F, ">", "item/new.bin"; open G, "+<", "item/old"; F->autoflush; G->autoflush;
          print F "half " x 200000; print G "changed"; print "ready\\n"; sleep 60
          """,
        ], in: mount.point)
      try #require(eventually { writer.soFar.contains("ready") })
      try mount.crash()
      writer.kill()
      _ = try writer.wait()
      let started = try mount.start()
      #expect(try mount.shell("ls item; cat item/old; cmp /bin/ls item/ls").output == "ls\nold\nold\n")
      let recovered = try mount.status().recovered
      #expect(started.recovered == recovered)
      let sizes = try recovered.map { try File($0, O_RDONLY).size }.sorted()
      #expect(sizes.last == 1_000_000, "\(recovered)")
      #expect(recovered.contains { $0.hasSuffix("new.bin") })
      let words = try mount.command(["status", mount.store]).output
      #expect(words.contains("new.bin"), "\(words)")
      #expect(mount.logText.contains("is kept at"))
      // The name is free, and a person who has looked removes what was kept.
      try mount.shell("echo again > item/new.bin; rm \(mount.store).blobs/recovered/*")
      #expect(try mount.status().recovered == [])
    }
  }

  /// Ways of saving a new version, each of them one after the other without end.
  @Test(
    "within a moment of a save has the old version or the new one, never nothing",
    arguments: [
      "yes $n | head -c 200000 > item/f", "yes $n | head -c 200000 > item/.f.tmp; mv item/.f.tmp item/f",
      "mv item/f item/f~; yes $n | head -c 200000 > item/f; rm item/f~",
      "yes $n | head -c 200000 | dd of=item/f conv=notrunc,fsync status=none",
    ])
  func aroundSaves(save: String) throws {
    try withMount { mount in
      mount.expectedWarnings = ["was being written when", "were being written when"]
      try mount.shell("mkdir item; set +o pipefail; yes 0 | head -c 200000 > item/f")
      var random = Numbers(seed: UInt64(save.utf8.count))
      for _ in 0..<5 {
        let saver = try Program(
          ["bash", "-c", "for n in 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9; do \(save); echo $n; done"],
          in: mount.point)
        try #require(eventually { saver.soFar.count > 2 })
        usleep(UInt32(random.next(30_000)))
        try mount.crash()
        _ = try saver.wait()
        try mount.start()
        // A backup may be all there is between its rename and the close of what replaces it.
        let isWhole = try isThere(mount.point + "/item/f") && (mount.text("item/f") != "" || !save.contains("f~"))
        let name = isWhole ? "f" : "f~"
        let text = try mount.text("item/" + name)
        let isInPlace = save.contains("notrunc")
        #expect(text.utf8.count == 200_000, "\(name)")
        #expect(isInPlace || Set(text.split(separator: "\n")).count == 1, "\(name)")
        try mount.shell("test -s item/f || mv item/f~ item/f; rm -f item/f~ item/.f.tmp")
      }
    }
  }

  @Test("with a file open is replaced by the next mount, and the program that had it gets errors, not hangs")
  func withFileOpen() throws {
    try withMount { mount in
      try mount.shell("mkdir item; echo text > item/f")
      let file = try File(mount.point + "/item/f", O_RDONLY)
      let folder = try File(mount.point + "/item", O_RDONLY | O_DIRECTORY)
      try mount.crash()
      // The second is told while threads of the process still hold the device.
      let said = try run(["ls", mount.point])
      let words = ["Transport endpoint is not connected", "Software caused connection abort"]
      #expect(words.contains { said.errors.contains($0) }, "\(said)")
      let status = try mount.command(["status", mount.store, "--json"])
      #expect(status.status == 0, "\(status)")
      try mount.start()
      let reading = try errorThrown { _ = try file.read(5) }
      #expect([0, ENOTCONN, ECONNABORTED, EIO].contains(reading))
      #expect(errorOf { openat(folder.descriptor, "f", O_RDONLY) < 0 ? -1 : 0 } != 0)
      #expect(try mount.text("item/f") == "text\n")
      _ = try errorThrown { try file.close() }
      _ = try errorThrown { try folder.close() }
      // And over and over, one left over under another.
      for _ in 0..<3 {
        try mount.crash()
        try mount.start()
      }
      #expect(try mount.text("item/f") == "text\n")
      #expect(try shell("grep -c ' \(mount.point) ' /proc/self/mountinfo").output == "1\n")
    }
  }

  @Test("is unmounted by the program's own command as well as by the system's")
  func leftOver() throws {
    try withMount { mount in
      try mount.crash()
      let outcome = try mount.command(["unmount", mount.point])
      #expect(outcome.status == 0, "\(outcome)")
      #expect(!Mount.isMounted(mount.point))
      try mount.start()
    }
  }

  @Test("in the middle of many changes of names has every one that was answered")
  func changes() throws {
    try withMount { mount in
      mount.expectedWarnings = ["was being written when"]
      mkdir(mount.point + "/item", 0o755)
      let changer = try Program(
        [
          "bash", "-c",
          """
          cd item; for n in $(seq 100000); do
            mkdir d$n && echo $n > d$n/f && mv d$n/f d$n/g && ln d$n/g d$n/h && setfattr -n user.n -v $n d$n/g && ln -s g d$n/l \\
              && chmod 640 d$n/g && touch -d @$n d$n/g && echo $n || break
          done
          """,
        ], in: mount.point)
      try #require(eventually(seconds: 60) { changer.soFar.split(separator: "\n").count > 30 })
      try mount.crash()
      let done = try changer.wait().lines.count
      try mount.start()
      let checked = try mount.shell(
        """
        cd item; for n in $(seq \(done)); do
          test "$(cat d$n/l)" = $n; test ! -e d$n/f; test d$n/g -ef d$n/h
          test "$(getfattr --only-values -n user.n d$n/h)" = $n; test "$(stat -c '%a %Y %h' d$n/g)" = "640 $n 2"
        done; ls -d d* | wc -l
        """)
      #expect([done, done + 1].contains(checked.output.number))
    }
  }
}
