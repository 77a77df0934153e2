import CLinux
import Foundation
import Testing

@Suite("A mount that is ended", .enabled(if: Machine.canMount, Machine.needsMount))
struct EndingTests {
  @Test(
    "by a signal while it stands in the foreground ends with status 0 and keeps what was written",
    arguments: [SIGTERM, SIGINT, SIGHUP])
  func foreground(signal: CInt) throws {
    let mount = try Mount()
    defer { mount.end() }
    let program = try #require(Machine.program)
    let process = try Program([program, "mount", "-f", mount.store, mount.point], environment: ["HOME": mount.folder])
    try #require(eventually(seconds: 20) { process.soFar.contains("Mounted \(mount.store) at \(mount.point)") })
    try mount.shell("mkdir item; cp /bin/ls item/ls")
    process.kill(signal)
    let outcome = try process.wait(seconds: 15)
    #expect(outcome.status == 0, "\(outcome)")
    #expect(!Mount.isMounted(mount.point))
    try mount.start()
    try mount.shell("cmp /bin/ls item/ls")
    try mount.unmount()
  }

  @Test(
    "by a signal in the background, or the system's own ways, right after a copy has every byte of it",
    arguments: ["kill -TERM PID", "fusermount3 -u .", "umount .", "PROGRAM unmount .", "PROGRAM unmount STORE"])
  func rightAfterCopying(way: String) throws {
    try withMount { mount in
      mount.expectedWarnings = []
      let (pid, program) = (try #require(mount.pid), try #require(Machine.program))
      for round in 1...3 {
        if round > 1 { try mount.start() }
        let command = way.replacingOccurrences(of: "PID", with: "\(mount.pid ?? pid)")
          .replacingOccurrences(of: "PROGRAM", with: program).replacingOccurrences(of: "STORE", with: mount.store)
          .replacingOccurrences(of: " .", with: " " + mount.point)
        try shell(
          """
          mkdir \(mount.point)/item\(round); head -c 9000000 /dev/urandom > file\(round); cp file\(round) \(mount.point)/item\(round)/f
          for n in 1 2 3 4 5; do \(command) 2> said && exit 0; grep -q busy said || break; done; cat said >&2; exit 1
          """, in: mount.outside)
        try mount.waitForEnd()
      }
      try mount.start()
      try mount.shell("for n in 1 2 3; do cmp $1/file$n item$n/f; done")
      #expect(try mount.queue().count("upload_blob") == 3)
    }
  }

  @Test("while a program has a file open is refused, says who, and changes nothing; by force it ends")
  func busy() throws {
    try withMount { mount in
      try mount.shell("mkdir item; echo before > item/f")
      let user = try Program(["bash", "-c", "exec 9>> item/f; echo more >&9; echo ready; sleep 60"], in: mount.point)
      try #require(eventually { user.soFar.contains("ready") })
      let refused = try mount.command(["unmount", mount.point])
      #expect(refused.status == 1 && refused.errors.contains("(process \(user.pid)) has \(mount.point)"), "\(refused)")
      #expect(try run(["fusermount3", "-u", mount.point]).status != 0)
      #expect(try mount.text("item/f") == "before\nmore\n")
      let forced = try mount.command(["unmount", mount.point, "--force"])
      #expect(forced.status == 0, "\(forced)")
      user.kill()
      _ = try user.wait()
      try mount.waitForEnd()
      try mount.start()
      #expect(try mount.text("item/f").hasPrefix("before\n"))
    }
  }

  @Test("though it is not mounted, or never was, is told so")
  func notMounted() throws {
    let mount = try Mount()
    defer { mount.end() }
    for what in [mount.point, mount.store, mount.folder + "/gone"] {
      let outcome = try mount.command(["unmount", what])
      #expect(outcome.status == 1 && outcome.errors.contains("mounted"), "\(outcome)")
    }
  }
}
