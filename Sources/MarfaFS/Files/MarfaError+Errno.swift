import Glibc
import MarfaEngine

extension MarfaError {
  /// What a program is told (SEMANTICS.md, "What a failure is called"); what deserves a person's eye is logged.
  var errno: Errno {
    switch self {
    case .file(let errno): return errno
    case .noRoom, .overBudget: return .noSpace
    case .bytesAbsent, .noServer: return .noData
    case .notFetched(_, let failure):
      switch failure {
      case .unreachable: return Errno(ENETUNREACH)
      case .timedOut: return Errno(ETIMEDOUT)
      case .rateLimited: return Errno(EBUSY)
      case .absent: return .noData
      case .credentialRefused: return Errno(EACCES)
      case .wrongBytes: return Errno(EBADMSG)
      case .failed:
        Log.error("\(self)")
        return .io
      }
    case .readingHandle: return .readOnly
    case .canceled: return Errno(EINTR)
    case .itemNotFound, .edgeNotFound: return .notFound
    case .invalid, .notNamedAlone, .noBody: return .invalid
    case .store(let failure):
      // A full disk is the person's to mend, and every program knows the word for it.
      if failure.isFull { return .noSpace }
      Log.error("\(self)")
      return .io
    case .remote(let failure): return failure.errno
    case .unusable:
      Log.error("\(self)")
      return .io
    case .io(let errno, let what):
      if errno == .noSpace || errno.code == EDQUOT || errno.code == EFBIG { return errno }
      Log.error("\(what): \(errno)")
      // It is this process that can have no more files open, not the program that asks.
      if errno.code == EMFILE || errno.code == ENFILE { return Errno(ENFILE) }
      return errno.code == EINTR || errno.code == EBADMSG ? errno : .io
    }
  }
}

extension RemoteFailure {
  /// A program that can be told to try again is, and a refused key is a matter of permission.
  fileprivate var errno: Errno {
    switch self {
    case .notConnected, .unreachable, .notTheServers: return Errno(ENETUNREACH)
    case .timedOut: return Errno(ETIMEDOUT)
    case .busy(let status, _, _): return Errno(status == 429 ? EBUSY : ENETUNREACH)
    case .canceled: return Errno(EINTR)
    case .refused(let refusal) where refusal.status == 401 || refusal.status == 403: return Errno(EACCES)
    case .refused(let refusal) where refusal.status == 404: return .noData
    case .refused, .contractMismatch, .unreadable, .file:
      Log.error("\(self)")
      return .io
    }
  }
}
