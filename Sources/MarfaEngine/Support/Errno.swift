import Glibc

/// A kernel error number, as a value that can be thrown, compared and said in words.
public struct Errno: Error, Hashable, Sendable, CustomStringConvertible {
  /// The number, as `errno.h` has it.
  public let code: CInt

  /// Wraps a number of `errno.h`.
  public init(_ code: CInt) { self.code = code }

  /// What the calling thread's last failed call left in `errno`. Read it on the very next line.
  public static var last: Errno { Errno(errno) }

  /// The system's own words for it, such as "No space left on device".
  public var description: String { String(cString: strerror(code)) }
}

extension Errno {
  public static let notFound = Errno(ENOENT)
  public static let exists = Errno(EEXIST)
  public static let notDirectory = Errno(ENOTDIR)
  public static let isDirectory = Errno(EISDIR)
  public static let notEmpty = Errno(ENOTEMPTY)
  public static let invalid = Errno(EINVAL)
  public static let nameTooLong = Errno(ENAMETOOLONG)
  public static let noSpace = Errno(ENOSPC)
  public static let io = Errno(EIO)
  public static let readOnly = Errno(EROFS)
  public static let notPermitted = Errno(EPERM)
  public static let noData = Errno(ENODATA)
  public static let notSupported = Errno(EOPNOTSUPP)
  public static let crossDevice = Errno(EXDEV)
  public static let stale = Errno(ESTALE)
}
