import CLinux
import Foundation
import Testing

@Suite("A mount with much to do", .enabled(if: Machine.canMount, Machine.needsMount), .serialized)
struct LoadTests {
  /// The longest that looking at, reading and making other files took while `work` ran.
  private func longestWait(_ mount: Mount, during work: Program) throws -> (seconds: Double, outcome: Outcome) {
    var (longest, round) = (0.0, 0)
    while true {
      if let outcome = try work.poll() { return (longest, outcome) }
      round += 1
      let path = mount.point + "/item/small"
      let (_, seconds) = try timed {
        _ = try File(path, O_RDONLY).text()
        _ = try listing(mount.point + "/item")
        let file = try File(mount.point + "/other/\(round)", O_WRONLY | O_CREAT)
        try file.write("text")
        try file.close()
        var status = stat()
        #expect(stat(mount.point + "/item/huge", &status) == 0 || errno == ENOENT)
        #expect(try mount.attribute("user.marfa.id", of: "other/\(round)") != nil)
      }
      longest = max(longest, seconds)
      usleep(5_000)
    }
  }

  @Test("answers others at once while a huge file, written out of order, is closed, changed and read")
  func sealing() throws {
    try withMount { mount in
      try mount.shell("mkdir item other; echo text > item/small; head -c 300M /dev/zero > item/grown")
      let script = """
        use strict; open my $f, "+>", "item/huge" or die; truncate $f, 3 << 30;
        for my $at (3 << 29, 1, (3 << 30) - 5, 1 << 20) { sysseek $f, $at, 0; syswrite $f, "bytes" x 1000 }
        close $f or die; open my $g, ">>", "item/grown" or die; syswrite $g, "more"; close $g or die;
        """
      let work = try Program(["perl", "-e", script], in: mount.point)
      let (seconds, outcome) = try longestWait(mount, during: work)
      #expect(outcome.status == 0, "\(outcome)")
      #expect(seconds < 1.5, "others waited \(seconds) s")
      #expect(try mount.shell("stat -c %s item/huge item/grown").output == "3221230467\n314572804\n")
      // An end that does not wait for what is sealed still: the next start finds the bytes and goes on.
      mount.expectedWarnings = ["did not end in"]
      try mount.remount()
      #expect(try mount.shell("stat -c %s item/huge item/grown; tail -c 5000 item/huge").output.hasSuffix("bytes"))
      #expect(
        try eventually(seconds: 30) { try mount.attribute("user.marfa.upload", of: "item/huge") == "queued" })
      #expect(try mount.attribute("user.marfa.upload", of: "item/grown") == "queued")
    }
  }

  @Test("holds a file of five gigabytes, mostly holes, with its bytes where they were put")
  func fiveGigabytes() throws {
    try withMount { mount in
      mkdir(mount.point + "/item", 0o755)
      let (path, size) = (mount.point + "/item/huge", 5 << 30)
      try mount.shell("dd if=/dev/zero of=item/huge bs=1M count=1 seek=5119 status=none conv=notrunc")
      #expect(try File(path, O_RDONLY).size == size)
      let places = [0, (1 << 32) - 2, (1 << 32) + 1_000_000, size - 4]
      let file = try File(path, O_RDWR)
      for place in places { try file.write("mark", at: place) }
      try file.close()
      func check() throws {
        let file = try File(path, O_RDONLY)
        #expect(try file.size == size)
        for place in places { #expect(try file.read(4, at: place) == Array("mark".utf8), "\(place)") }
        #expect(try file.read(4, at: 2 << 30) == [0, 0, 0, 0])
        #expect(try file.read(8, at: size - 4) == Array("mark".utf8))
      }
      try check()
      #expect(
        try eventually(seconds: 60) { try mount.attribute("user.marfa.upload", of: "item/huge") == "queued" })
      // It takes up what was put in, not what it spans.
      let taken = try mount.shell("du -s --block-size=1M \(mount.store).blobs | cut -f 1").output.number
      #expect(taken < 100, "\(taken) MiB")
      try mount.remount()
      try check()
    }
  }

  @Test("lists a folder of a hundred thousand entries, whole and in a moment, and after a remount")
  func manyEntries() throws {
    try withMount { mount in
      let count = 100_000
      mkdir(mount.point + "/many", 0o755)
      let folder = try File(mount.point + "/many", O_RDONLY | O_DIRECTORY)
      for number in 0..<count {
        try #require(errorOf { mknodat(folder.descriptor, "entry \(number)", S_IFREG | 0o644, 0) } == 0)
      }
      try folder.close()
      try mount.remount()
      let (entries, seconds) = try timed { try listing(mount.point + "/many") }
      #expect(entries.count == count && Set(entries).count == count)
      #expect(seconds < 10, "\(seconds) s")
      #expect(try mount.shell("ls -l many | wc -l", seconds: 30).output == "\(count + 1)\n")
      let (_, lookup) = timed { #expect(isThere(mount.point + "/many/entry 77777")) }
      #expect(lookup < 1)
      // Entries that go while the folder is listed take none of the others with them.
      let stream = try #require(opendir(mount.point + "/many"))
      defer { closedir(stream) }
      var (seen, index) = (Set<String>(), 0)
      while let entry = readdir(stream) {
        let name = withUnsafeBytes(of: &entry.pointee.d_name) { String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self) }
        if name.hasPrefix("entry") { #expect(seen.insert(name).inserted) }
        index += 1
        if index % 500 == 0 { unlink(mount.point + "/many/entry \(count - index / 500)") }
      }
      #expect(seen.count >= count - index / 500)
    }
  }

  @Test("takes many files from many writers at once, each of them whole")
  func manyWriters() throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir item; write() { for n in {1..100}; do printf "$1 $n %.0s" {1..200} > item/$1.$n; done; }
        for who in {1..100}; do write $who & done; wait
        for who in {1..100}; do for n in 1 50 100; do cmp item/$who.$n <(printf "$who $n %.0s" {1..200}); done; done
        test $(ls item | wc -l) = 10000
        """, seconds: 240)
      #expect(try mount.peakMemory() < 64 << 20)
      #expect(try mount.queue().total == 30_001)
    }
  }
}
