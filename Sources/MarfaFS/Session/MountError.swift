import MarfaEngine

/// Why a mount could not be made, in words that say what to do.
public enum MountError: Error, Equatable, Sendable, CustomStringConvertible {
  /// There is no such directory.
  case missing(path: String)
  /// Something else than a directory is there.
  case notDirectory(path: String)
  /// The directory has entries, which the mount would hide.
  case notEmpty(path: String)
  /// A Marfa store is mounted there, and its process lives.
  case alreadyMounted(path: String)
  /// What is mounted there has lost its process, and is not ours to take away.
  case deadMount(path: String, type: String)
  /// A mount without a process is there, and cannot be taken away.
  case cannotDetach(path: String, Errno)
  /// The directory cannot be looked at.
  case unreadable(path: String, Errno)
  /// The kernel's device is not there.
  case noDevice
  /// The kernel's device may not be opened.
  case deviceRefused(Errno)
  /// The program that lets ordinary users mount is not there.
  case noHelper
  /// An option given with `-o` is not known, in libfuse's words.
  case option(String)
  /// The system refused the mount, in libfuse's words.
  case refused(String)

  /// What happened, and what the person can do.
  public var description: String {
    switch self {
    case .missing(let path):
      "\(path) does not exist. Make the directory first: mkdir -p \(path)"
    case .notDirectory(let path):
      "\(path) is not a directory. Choose a directory to mount on."
    case .notEmpty(let path):
      "\(path) is not empty, and mounting would hide what is in it. Choose an empty directory."
    case .alreadyMounted(let path):
      "\(path) is already mounted. To end that mount: fusermount3 -u \(path)"
    case .deadMount(let path, let type):
      "\(path) has a mount of type \(type) whose program has ended. Take it away first: fusermount3 -u -z \(path)"
    case .cannotDetach(let path, let error):
      "\(path) has a mount left over from a process that ended, and it could not be taken away (\(error)). "
        + "Try: fusermount3 -u -z \(path), or as root: umount -l \(path)"
    case .unreadable(let path, let error):
      "\(path) cannot be looked at: \(error)."
    case .noDevice:
      "/dev/fuse is missing. Load the kernel's module: modprobe fuse. "
        + "In a container, start it with: --device /dev/fuse --cap-add SYS_ADMIN"
    case .deviceRefused(let error):
      "/dev/fuse cannot be opened (\(error)). Give it its usual rights, as root: chmod 666 /dev/fuse. "
        + "In a container, start it with: --device /dev/fuse --cap-add SYS_ADMIN"
    case .noHelper:
      "fusermount3 is missing, and without it only root can mount. Install the package fuse3."
    case .option(let words):
      "An option given with -o is not known: \(words)"
    case .refused(let words):
      "The mount was refused: \(words)"
    }
  }
}
