import Glibc
import Testing

@testable import MarfaEngine

@Suite("A moment")
struct TimestampTests {
  @Test(
    "is written as the contract writes times",
    arguments: [
      (0, "1970-01-01T00:00:00.000Z"), (1_795_943_700_250_999_999, "2026-11-29T09:15:00.250Z"),
      (-1, "1969-12-31T23:59:59.999Z"), (951_782_400_000_000_000, "2000-02-29T00:00:00.000Z"),
      (.max, "2262-04-11T23:47:16.854Z"), (.min, "1677-09-21T00:12:43.145Z"),
    ] as [(Int64, String)])
  func text(nanoseconds: Int64, text: String) {
    #expect(Timestamp(nanoseconds: nanoseconds).iso8601 == text)
  }

  @Test(
    "goes to the kernel's pair and back",
    arguments: [0, 1, -1, 999_999_999, -1_000_000_000, -1_000_000_001, .max, .min])
  func pair(nanoseconds: Int64) {
    let time = Timestamp(nanoseconds: nanoseconds)
    #expect((0..<1_000_000_000).contains(time.timespec.tv_nsec))
    #expect(Timestamp(time.timespec) == time)
  }

  @Test("beyond what it can hold is held to that")
  func clamped() {
    #expect(Timestamp(timespec(tv_sec: .max, tv_nsec: 0)).nanoseconds == .max)
    #expect(Timestamp(timespec(tv_sec: .min, tv_nsec: 999_999_999)).nanoseconds == .min)
  }

  @Test(
    "has whole milliseconds, rounded down",
    arguments: [(0, 0), (999_999, 0), (1_000_000, 1), (-1, -1), (-1_000_001, -2)])
  func milliseconds(nanoseconds: Int64, milliseconds: Int64) {
    #expect(Timestamp(nanoseconds: nanoseconds).milliseconds == milliseconds)
  }
}

@Suite("A size in words")
struct SizeTests {
  @Test(
    "has one decimal and a unit",
    arguments: [
      (0, "0 bytes"), (1, "1 byte"), (1023, "1023 bytes"), (1024, "1 KiB"), (1536, "1.5 KiB"), (1 << 20, "1 MiB"),
      (5 << 30, "5 GiB"), (.max, "8192 PiB"),
    ] as [(Int64, String)])
  func words(count: Int64, words: String) { #expect(Bytes.text(count) == words) }
}
