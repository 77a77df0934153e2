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
    default: Issue.record("no such part: \(role)")
    }
  }
}
