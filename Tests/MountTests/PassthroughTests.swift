import CLinux
import Foundation
import Testing

extension Machine {
  /// Whether the kernel reads held files by itself here, as a mount says.
  fileprivate static let passesThrough: Bool = {
    guard canMount, isRoot, let mount = try? Mount() else { return false }
    defer { mount.end() }
    guard (try? mount.start(["--passthrough"])) != nil, let way = try? reads(mount) else { return false }
    try? mount.unmount()
    return way.hasPrefix("passthrough")
  }()
}

/// How `status` says that files are read.
private func reads(_ mount: Mount) throws -> String {
  let lines = try mount.command(["status", mount.store]).lines
  let line = try #require(lines.first { $0.hasPrefix("Reads ") })
  return line.dropFirst(6).trimmingCharacters(in: .whitespaces)
}

/// How many files the kernel reads by itself now.
private func passing(_ mount: Mount) throws -> Int {
  let output = try mount.command(["status", mount.point, "--json"]).output
  let rest = try #require(output.range(of: "\"passthrough_files\":")).upperBound
  return try #require(Int(output[rest...].prefix { $0.isNumber }))
}

@Suite(
  "A held file that the kernel reads by itself", .serialized,
  .enabled(if: Machine.passesThrough, "needs root, and a kernel that passes files through (Linux 6.9)"))
struct PassthroughTests {
  @Test("is said to be in the status, and so is why it is not: nobody asked for it")
  func said() throws {
    try withMount("--passthrough") { mount in
      #expect(try reads(mount) == "passthrough: held files at the disk's own speed")
      let json = try mount.command(["status", mount.store, "--json"]).output
      #expect(json.contains("\"passthrough\":\"passthrough\"") && json.contains("\"passthrough_detail\":null"))
      try mount.remount()
      #expect(try reads(mount) == "ordinary: passthrough is off; --passthrough turns it on")
      let other = try mount.command(["status", mount.store, "--json"]).output
      #expect(other.contains("\"passthrough\":\"ordinary\""), "\(other)")
      try mount.shell("mkdir item; head -c 3000000 /dev/urandom > $1/f; cp $1/f item/; sleep 0.2; cmp $1/f item/f")
    }
  }

  /// A file of three million bytes in the mount and outside, and a reader that has it open on 3.
  private func withReader(_ script: String) throws {
    try withMount("--passthrough") { mount in
      try mount.shell(
        """
        mkdir item; head -c 3000000 /dev/urandom > $1/old; cp $1/old item/f; cp $1/old $1/new
        # The kernel tells of a close a moment later, and passes through what nobody has open otherwise.
        for try in $(seq 200); do
          exec 3< item/f
          if \(Machine.program ?? "") status . --json | grep -q '"passthrough_files":1,'; then break; fi
          exec 3<&-; sleep 0.05
        done
        same() { cmp $1 $2 || { echo "$1 and $2 differ $(stat -c %s $1 $2)" >&2; false; }; }
        \(script)
        # The reader has what was there when it opened the file.
        cat <&3 | cmp - $1/old
        exec 3<&-; same item/f $1/new
        """)
      try mount.remount()
      try mount.shell("cmp item/f $1/new")
    }
  }

  @Test("can be appended to, by a shell and again")
  func appended() throws {
    try withReader(
      """
      for n in 1 2 3; do
        echo "line $n" >> item/f; echo "line $n" >> $1/new; same item/f $1/new
        test $(stat -c %s item/f) = $(stat -c %s $1/new); test "$(tail -c 7 item/f)" = "line $n"
      done
      """)
  }

  @Test("can be written in the middle, cut and emptied")
  func written() throws {
    try withReader(
      """
      for f in item/f $1/new; do
        echo middle | dd of=$f bs=1 seek=1000000 conv=notrunc status=none; truncate -s 2000000 $f; echo end >> $f
      done
      same item/f $1/new; : > item/f; test $(stat -c %s item/f) = 0; test -z "$(cat item/f)"
      cat $1/old $1/old > item/f; cat $1/old $1/old > $1/new; same item/f $1/new
      """)
  }

  @Test("can be edited by what renames over it", .enabled(if: Machine.has("sed"), "needs sed"))
  func renamedOver() throws {
    try withReader(
      """
      sed -i '1s/^/first /' item/f; sed -i '1s/^/first /' $1/new; same item/f $1/new
      cp $1/old item/g; mv item/g item/f; cp $1/old $1/new; same item/f $1/new
      sed -i '$a last' item/f; sed -i '$a last' $1/new; same item/f $1/new
      """)
  }

  @Test(
    "can be edited by vim, however it saves", .enabled(if: Machine.has("vim"), "needs vim"),
    arguments: ["yes", "no", "auto"])
  func vim(backupCopy: String) throws {
    try withReader(
      """
      for n in 1 2; do
        for f in item/f $1/new; do
          vim -es -N -u NONE -i NONE -c 'set backupcopy=\(backupCopy) noswapfile binary noeol' -c "normal ggIround $n " \\
            -c wq $f < /dev/null
        done
        same item/f $1/new; test "$(head -c 7 item/f)" = "round $n"
      done
      """)
  }

  @Test("can be removed and made anew, and a link to it goes on")
  func removed() throws {
    try withReader(
      """
      ln item/f item/g; rm item/f; same item/g $1/old; echo more >> item/g; cp $1/old $1/g; echo more >> $1/g
      same item/g $1/g; cp $1/old item/f; echo other >> item/f; echo other >> $1/new; same item/g $1/g; rm item/g
      """)
  }

  @Test("is read by one second mount as it was when it was opened there, and by the next open as it is")
  func secondMount() throws {
    try withMount("--passthrough") { writer in
      try writer.shell("mkdir item; head -c 3000000 /dev/urandom > $1/old; cp $1/old item/f; sleep 0.3")
      let reader = try Mount()
      defer { reader.end() }
      reader.store = writer.store
      try reader.start(["--passthrough"])
      let old = try Data(contentsOf: URL(fileURLWithPath: writer.outside + "/old"))
      #expect(eventually { (try? reader.read("item/f")) == old })
      var open: [File] = []
      var passed = 0
      for round in 1...5 {
        let count = try passing(reader)
        let file = try File(reader.point + "/item/f", O_RDONLY)
        let isPassing = try passing(reader) > count
        if isPassing { passed += 1 }
        open.append(file)
        let was = try file.read(4_000_000)
        try writer.shell("echo 'round \(round)' >> item/f")
        let wanted = try writer.read("item/f")
        #expect(eventually(seconds: 5) { (try? reader.read("item/f")) == wanted })
        #expect(try !isPassing || file.read(4_000_000) == was)
      }
      #expect(passed > 0)
      open = []
      try reader.unmount()
      #expect(reader.unexpectedWarnings.isEmpty, "\(reader.logText)")
    }
  }

  @Test(
    "is replaced elsewhere while it is open: who has it reads it to its end as it was, who opens it has the new one")
  func replaced() throws {
    let served = try Served()
    try served.withMount(["--passthrough"]) { mount in
      try mount.shell(
        """
        mkdir x; for n in 0 1; do head -c 2500000 /dev/urandom > $1/$n; cp $1/$n x/$n; done; cp $1/0 x/f; sleep 0.3
        """)
      try mount.send()
      let id = try #require(try mount.attribute("user.marfa.id", of: "x/f"))
      let contents = try (0...1).map { Array(try Data(contentsOf: URL(fileURLWithPath: "\(mount.outside)/\($0)"))) }
      for round in 1...6 {
        let (before, after) = (contents[(round + 1) % 2], contents[round % 2])
        let open = try File(mount.point + "/x/f", O_RDONLY)
        #expect(try open.read(1000) == Array(before.prefix(1000)))
        _ = try served.server.change { try $0.replaceBytes(id, after) }
        #expect(eventually { (try? mount.read("x/f")) == Data(after) }, "round \(round)")
        #expect(try open.read(4_000_000) == before, "round \(round)")
        #expect(try open.size == before.count)
      }
    }
  }
}

extension Mount {
  /// The bytes of a file in the mount.
  fileprivate func read(_ path: String) throws -> Data {
    try Data(contentsOf: URL(fileURLWithPath: point + "/" + path))
  }
}
