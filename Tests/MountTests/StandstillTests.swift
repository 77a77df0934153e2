import ContractServer
import Foundation
import Testing

@Suite("A mount whose server says nothing any more", .enabled(if: Machine.canMount, Machine.needsMount))
struct StandstillTests {
  /// Runs a script in the mount, which has to be over in a moment.
  private func atOnce(_ mount: Mount, _ script: String) throws -> String {
    let (outcome, seconds) = try timed { try mount.shell(script) }
    #expect(seconds < 2, "\(script) took \(seconds) s")
    return outcome.output
  }

  @Test("answers everybody whose bytes are here, lets a reader be killed, and ends and starts as ever")
  func standsStill() throws {
    let served = try Served()
    let trip = try served.server.change { try $0.createNote("trip") }
    let bytes = (0..<3_000_000).map { UInt8(truncatingIfNeeded: $0 / 1000) }
    for name in ["half", "far"] {
      _ = try served.server.change { try $0.createFile(name, bytes + [UInt8(name.utf8.count)], attachedTo: trip) }
    }
    try served.withMount { mount in
      mount.expectedWarnings = ["not followed", "nothing is sent", "could not be", "can't be", "did not end in"]
      #expect(eventually(seconds: 30) { isThere(mount.point + "/trip/half") && isThere(mount.point + "/trip/far") })
      try mount.shell("ls -l trip; head -c 1000 trip/half > $1/half; echo here > trip/here")
      try mount.send()
      served.server.faults.add(Fault(.stall(seconds: nil), count: nil))
      let reader = try Program(["cat", "trip/far"], in: mount.point)
      usleep(300_000)
      // What takes no bytes waits for nobody, and what is here is read and written.
      #expect(try atOnce(mount, "df . > /dev/null; stat -c %s trip/far; stat -f . > /dev/null") == "3000001\n")
      #expect(try atOnce(mount, "ls .. > /dev/null; ls trip; cat trip/here") == "far\nhalf\nhere\nhere\n")
      let changing = "echo new > trip/new; mv trip/new trip/renamed; rm trip/here; cat trip/renamed"
      #expect(try atOnce(mount, changing) == "new\n")
      #expect(try atOnce(mount, "cmp -n 1000 $1/half trip/half; echo $?") == "0\n")
      // Half a file is counted as what of it is here.
      let sizes = try atOnce(mount, "for o in '-B1 trip/half' '-b trip/half' '-B1 trip/far'; do du $o | cut -f 1; done")
      let numbers = sizes.split(separator: "\n").map { Int($0) ?? -1 }
      #expect(numbers.count == 3 && (65_536..<1_500_000).contains(numbers[0]), "\(sizes)")
      #expect(numbers.dropFirst().first == 3_000_001 && numbers.last == 0, "\(sizes)")
      // Whoever waits for bytes can be killed.
      #expect(try reader.poll() == nil)
      reader.kill()
      let (_, seconds) = try timed { try reader.wait(seconds: 20) }
      #expect(seconds < 2, "the reader took \(seconds) s to die")
      let (_, ending) = try timed { try mount.unmount() }
      #expect(ending < 12, "the end took \(ending) s")
      let (_, starting) = try timed { try mount.start(served.again) }
      #expect(starting < 5, "the start took \(starting) s")
      #expect(try atOnce(mount, "ls -R . | grep -c .; cat trip/renamed; df . > /dev/null") == "6\nnew\n")
      #expect(try mount.queue().total > 0)
      served.server.faults.removeAll()
      served.server.faults.release()
      _ = try mount.command(["retry", mount.point])
      #expect(mount.isOnline(seconds: 60))
      try mount.send()
      #expect(try mount.shell("cat trip/far | wc -c", seconds: 120).output == "3000001\n")
    }
  }
}
