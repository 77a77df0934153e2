import CLinux
import Foundation

/// A volume of its own size, for a store that runs out of room. Needs root.
final class SmallVolume {
  let path: String

  init(bytes: Int) throws {
    var template = Array("/tmp/marfa-mount-volume-XXXXXX".utf8CString)
    path = template.withUnsafeMutableBufferPointer { mkdtemp($0.baseAddress!).map { String(cString: $0) } ?? "" }
    guard Glibc.mount("tmpfs", path, "tmpfs", 0, "size=\(bytes)") == 0 else { throw SystemError("mounting a volume") }
  }

  /// From now on nothing can be written.
  func becomeReadOnly() throws {
    guard Glibc.mount("tmpfs", path, "tmpfs", UInt(MS_REMOUNT | MS_RDONLY), nil) == 0 else {
      throw SystemError("remounting a volume")
    }
  }

  func end() {
    umount2(path, Int32(MNT_DETACH))
    rmdir(path)
  }
}
