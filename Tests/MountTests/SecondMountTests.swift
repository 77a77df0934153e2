import CLinux
import Foundation
import Testing

@Suite("A second mount of one store", .enabled(if: Machine.canMount, Machine.needsMount))
struct SecondMountTests {
  private func withTwo(_ body: (_ writer: Mount, _ reader: Mount, _ started: Mount.Started) throws -> Void) throws {
    try withMount { writer in
      try writer.shell("mkdir item; echo one > item/f")
      let reader = try Mount()
      defer { reader.end() }
      reader.store = writer.store
      let started = try reader.start()
      try body(writer, reader, started)
      if reader.pid != nil { try reader.unmount() }
      #expect(reader.unexpectedWarnings.isEmpty, "\(reader.logText)")
    }
  }

  private func bytes(of path: String) throws -> [UInt8] { Array(try Data(contentsOf: URL(fileURLWithPath: path))) }

  @Test("becomes a reader and says whose the store is")
  func says() throws {
    try withTwo { writer, reader, started in
      #expect(started.mode == "reader")
      #expect(started.writerPid == writer.pid)
      #expect(started.writerMountPoint == writer.point)
      #expect(try reader.text("item/f") == "one\n")
      try reader.unmount()
      let words = try reader.command(["mount", "--log", reader.log, reader.store, reader.point])
      #expect(words.output.contains("this mount is a reader: nothing can be written here"), "\(words)")
      #expect(words.output.contains("\(writer.pid ?? 0)"))
      _ = try reader.command(["unmount", reader.point])
    }
  }

  @Test("can write nothing")
  func writesNothing() throws {
    try withTwo { _, reader, _ in
      for command in [
        "touch item/f", "echo > item/f", "echo > item/new", "mkdir new", "rm item/f", "rmdir item", "mv item/f item/g",
        "ln item/f item/g", "ln -s f item/g", "chmod 600 item/f", "truncate -s 0 item/f", "cp /bin/ls item/",
        "mkfifo p",
      ] {
        let outcome = try run(["bash", "-c", command], in: reader.point)
        #expect(outcome.status != 0 && outcome.errors.contains("Read-only file system"), "\(command): \(outcome)")
      }
      for name in ["user.xdg.tags", "user.marfa.pin", "user.other"] {
        #expect(errorOf { setxattr(reader.point + "/item/f", name, "x", 1, 0) } == EROFS)
      }
      #expect(errorOf { access(reader.point + "/item/f", W_OK) } == EROFS)
      #expect(try reader.attribute("user.marfa.upload", of: "item/f") == "queued")
    }
  }

  @Test("sees what the first one writes, changes, renames and removes within two seconds")
  func follows() throws {
    try withTwo { writer, reader, _ in
      func sees(_ what: String, _ holds: () throws -> Bool) {
        #expect(eventually(seconds: 2.5) { (try? holds()) == true }, "\(what)")
      }
      _ = try listing(reader.point + "/item")
      #expect(!isThere(reader.point + "/item/g"))
      try writer.shell("echo two > item/g")
      sees("a new file") { try reader.text("item/g") == "two\n" }
      try writer.shell("echo another > item/f")
      sees("other bytes") { try reader.text("item/f") == "another\n" }
      sees("their length") { try File(reader.point + "/item/f", O_RDONLY).size == 8 }
      try writer.shell("mv item/g item/h; rm item/f; mkdir other; chmod 600 item/h")
      sees("names") {
        try Set(listing(reader.point + "/item").map { String(decoding: $0, as: UTF8.self) }) == ["h"]
      }
      sees("a folder") { isThere(reader.point + "/other") }
      sees("that a file is gone") { !isThere(reader.point + "/item/f") }
      try writer.shell("setfattr -n user.xdg.tags -v red item/h")
      sees("tags") { try reader.attribute("user.xdg.tags", of: "item/h") == "red" }
    }
  }

  @Test("reads a file to its end that is removed by the first one, as that one does itself")
  func removedWhileOpen() throws {
    try withTwo { writer, reader, _ in
      let files = try [writer, reader].map { try File($0.point + "/item/f", O_RDONLY) }
      #expect(try files.map { try $0.size } == [4, 4])
      try writer.shell("setfattr -n user.colour -v blue item/f; rm item/f")
      #expect(eventually(seconds: 5) { !isThere(reader.point + "/item/f") })
      // Longer than what the kernel was told holds for it.
      #expect(eventually(seconds: 5) { (try? files[1].status().st_nlink) == 0 })
      for file in files {
        #expect(try file.text() == "one\n")
        #expect(try file.size == 4)
        #expect(try file.status().st_nlink == 0)
        #expect(flistxattr(file.descriptor, nil, 0) == 0)
        #expect(errorOf { CInt(fgetxattr(file.descriptor, "user.colour", nil, 0)) } == ENODATA)
        #expect(errorOf { CInt(fgetxattr(file.descriptor, "user.marfa.held", nil, 0)) } == ENODATA)
      }
    }
  }

  @Test(
    "reads to its end a file as it was opened, whatever the first one makes of it",
    arguments: [
      "head -c 100000 /dev/zero > item/f", "head -c 9000000 /dev/zero > item/f", "truncate -s 1000 item/f",
      ": > item/f",
      "echo more >> item/f", "head -c 100000 /dev/zero > item/g; mv item/g item/f",
    ])
  func changedWhileOpen(_ change: String) throws {
    try withTwo { writer, reader, _ in
      for size in [5000, 3_000_000] {
        // `yes` ends by a signal.
        try writer.shell("yes 0123456 | head -c \(size) > item/f || true")
        let path = reader.point + "/item/f"
        #expect(eventually(seconds: 5) { (try? File(path, O_RDONLY).size) == size })
        let before = try bytes(of: path)
        #expect(before.count == size)
        let file = try File(path, O_RDONLY)
        #expect(try file.read(8) == Array("0123456\n".utf8))
        let memory = try #require(mmap(nil, size, PROT_READ, MAP_SHARED, file.descriptor, 0))
        defer { munmap(memory, size) }
        try writer.shell(change)
        let after = try bytes(of: writer.point + "/item/f")
        // Everything it was told is over by now.
        usleep(1_500_000)
        #expect(try file.size == size)
        #expect(try file.read(size + 10).elementsEqual(before))
        #expect(UnsafeRawBufferPointer(start: memory, count: size).elementsEqual(before), "mapped")
        // Who opens it from then on has what is there now, whole.
        #expect(try bytes(of: path).elementsEqual(after))
        #expect(try file.read(size).elementsEqual(before))
      }
    }
  }

  @Test("reads a file that is being written, and was synced, as it is at that moment, with nothing added")
  func beingWritten() throws {
    try withTwo { writer, reader, _ in
      let file = try File(writer.point + "/item/g", O_RDWR | O_CREAT)
      try file.write([UInt8](repeating: 0x41, count: 200_000), at: 0)
      for offset in 0..<3 {
        try file.synchronize()
        try file.write([0x42], at: offset)
      }
      try file.synchronize()
      let path = reader.point + "/item/g"
      #expect(eventually(seconds: 5) { (try? File(path, O_RDONLY).size) == 200_000 })
      let open = try File(path, O_RDONLY)
      #expect(try open.read(4) == Array("BBBA".utf8))
      try file.truncate(to: 1000)
      try file.synchronize()
      usleep(1_500_000)
      #expect(try open.read(300_000).elementsEqual(Array("BBB".utf8) + [UInt8](repeating: 0x41, count: 997)))
      #expect(try open.size == 1000)
      try file.write([UInt8](repeating: 0x4e, count: 3000), at: 0)
      try file.close()
      usleep(1_500_000)
      #expect(try open.read(300_000).elementsEqual([UInt8](repeating: 0x4e, count: 3000)))
      #expect(try bytes(of: path).elementsEqual([UInt8](repeating: 0x4e, count: 3000)))
    }
  }

  @Test("goes on when the first one ends, and can be its writer after a new start")
  func goesOn() throws {
    try withTwo { writer, reader, _ in
      try writer.unmount()
      #expect(try reader.text("item/f") == "one\n")
      try reader.remount()
      #expect(try reader.status().mode == "writer")
      try reader.shell("echo two > item/f")
      #expect(try reader.text("item/f") == "two\n")
    }
  }
}
