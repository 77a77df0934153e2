import CLinux
import Glibc
import Testing

@testable import MarfaEngine

/// A folder of a test's own, gone with the test.
final class TemporaryFolder: Sendable {
  let path: String

  init() throws {
    // In memory where there is room: hundreds of stores are opened and closed, each with its syncs.
    let room = try? VolumeRoom.of("/dev/shm")
    let parent = (room?.available ?? 0) > 1 << 30 && access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"
    guard let template = strdup("\(parent)/marfa-engine-XXXXXX") else { throw Errno.last }
    defer { free(template) }
    guard mkdtemp(template) != nil else { throw Errno.last }
    path = String(cString: template)
  }

  deinit { _ = try? Program.run(["rm", "-rf", "--one-file-system", path]) }

  /// Writes a file of a person's into the folder; answers its path.
  @discardableResult
  func file(_ name: String, _ text: String) throws -> String { try file(name, Array(text.utf8)) }

  @discardableResult
  func file(_ name: String, _ bytes: [UInt8]) throws -> String {
    let descriptor = try Descriptor.open("\(path)/\(name)", O_WRONLY | O_CREAT | O_TRUNC, mode: 0o644)
    try descriptor.write(bytes, at: 0)
    return "\(path)/\(name)"
  }
}

/// The bytes of a file.
func contents(_ path: String) throws -> [UInt8] {
  let file = try Descriptor.open(path, O_RDONLY)
  return try file.prefix(Int(try file.status().st_size))
}

/// Whether something stands at a path.
func isThere(_ path: String) -> Bool { ((try? Path.status(path)) ?? nil) != nil }

/// A small volume of its own, mounted at a folder: for what happens when there is no room. Needs root.
final class SmallVolume: Sendable {
  static var isAllowed: Bool { geteuid() == 0 }
  static let needsRoot: Comment = "mounting a volume needs root"

  private let folder: TemporaryFolder
  var path: String { folder.path + "/volume" }

  init(bytes: Int) throws {
    folder = try TemporaryFolder()
    try Path.makeDirectory(path, mode: 0o700)
    guard mount("tmpfs", path, "tmpfs", 0, "size=\(bytes)") == 0 else { throw Errno.last }
  }

  /// Nothing can be written any more.
  func becomeReadOnly() throws {
    // A program just being started by another test holds copies of our open files until it runs.
    for _ in 0..<1_000_000 {
      if mount("tmpfs", path, "tmpfs", UInt(MS_REMOUNT | MS_RDONLY), nil) == 0 { return }
      guard errno == EBUSY else { break }
      sched_yield()
    }
    throw Errno.last
  }

  deinit { umount2(path, Int32(MNT_DETACH)) }
}
