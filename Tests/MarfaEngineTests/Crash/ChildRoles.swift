import Glibc
import Testing

@testable import MarfaEngine

/// What this program does when a test has started it again as a process it can kill (``Child``).
@Suite("As the child of a test", .enabled(if: Child.role != nil, "only a test that kills processes starts this one so"))
struct ChildRoles {
  private func say(_ line: String) {
    let bytes = Array((line + "\n").utf8)
    _ = Glibc.write(1, bytes, bytes.count)
  }

  @Test("plays its part")
  func play() throws {
    let role = try #require(Child.role)
    switch role[0] {
    case "hold":
      // Has a store open, with something committed, until it is killed.
      let copy = try WorkingCopy(path: role[1])
      _ = try copy.items.create(type: "core.note", properties: ["title": "held"])
      say("holding")
      while true { pause() }
    case "hydrate":
      // Brings everything a server has into a new store, and says how many KiB that took at most.
      let copy = try WorkingCopy(path: role[1])
      let before = try residentPeak()
      try copy.connect(RemoteOptions(try Origin(role[2]), credential: try Credential(role[3])))
      _ = copy.waitUntilLive(seconds: 240)
      say("items \(try copy.names().count) peak \(try residentPeak() - before)")
      copy.close()
    default: Issue.record("no such part: \(role)")
    }
  }
}

/// The most memory this process has had, in KiB (proc(5), `VmHWM`).
private func residentPeak() throws -> Int {
  let text = String(decoding: try Descriptor.open("/proc/self/status", O_RDONLY).prefix(1 << 16), as: UTF8.self)
  let line = text.split(separator: "\n").first { $0.hasPrefix("VmHWM:") }
  return Int(line?.split(whereSeparator: { $0 == " " || $0 == "\t" })[1] ?? "") ?? 0
}
