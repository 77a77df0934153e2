import Glibc
import MarfaEngine

/// Why a command did not do what was asked: which kind of thing is in the way, one stable word, and words for a person.
public struct CommandFailure: Error, Sendable, Equatable, CustomStringConvertible {
  /// Whose turn it is now. The command's exit status is made of it.
  public enum Kind: String, Sendable, CaseIterable {
    /// What was asked can't be done; asking again changes nothing.
    case refused
    /// The command line is not understood.
    case usage
    /// Something around us failed: a full disk, a process that does not answer. It may work the next time.
    case environment
    /// The store or its queue won't have it.
    case store
    /// No key is there, or it is not accepted.
    case credential
  }

  /// Whose turn it is.
  public var kind: Kind
  /// One stable word, for programs: `no_room`.
  public var code: String
  /// What happened, to what, and what to do about it.
  public var message: String
  /// What was done before the failure, where that matters.
  public var details: JSON.Object

  /// A failure in words.
  public init(_ kind: Kind, _ code: String, _ message: String, details: JSON.Object = [:]) {
    self.kind = kind
    self.code = code
    self.message = message
    self.details = details
  }

  public var description: String { message }
}

extension CommandFailure {
  /// What the engine refused or failed with. Each case is decided here and nowhere else.
  public init(_ error: MarfaError) {
    let (kind, code): (Kind, String) =
      switch error {
      case .noRoom: (.environment, "no_room")
      case .overBudget: (.refused, "over_budget")
      case .bytesAbsent: (.store, "bytes_absent")
      case .notFetched(_, let failure): (failure.kind, failure.code)
      case .readingHandle: (.store, "reading_handle")
      case .noServer: (.store, "no_server")
      case .canceled: (.refused, "canceled")
      case .itemNotFound: (.refused, "item_not_found")
      case .edgeNotFound: (.refused, "edge_not_found")
      case .invalid: (.refused, "invalid")
      case .notNamedAlone: (.refused, "not_named_alone")
      case .noBody: (.refused, "no_body")
      case .store(let failure): (failure.mayPass ? .environment : .store, failure.isFull ? "no_room" : "store")
      case .unusable(let problem): (.store, problem.code)
      case .io(let error, _): (error.isLasting ? .refused : .environment, "io")
      case .file(let error): (error.isLasting ? .refused : .environment, "io")
      case .remote(let failure): failure.kindAndCode
      }
    self.init(kind, code, error.description)
  }

  /// Why a mount could not be made.
  public init(_ error: MountError) {
    let (kind, code): (Kind, String) =
      switch error {
      case .missing: (.refused, "mount_point_missing")
      case .notDirectory: (.refused, "mount_point_not_a_directory")
      case .notEmpty: (.refused, "mount_point_not_empty")
      case .alreadyMounted: (.refused, "already_mounted")
      case .deadMount, .cannotDetach: (.environment, "dead_mount")
      case .unreadable: (.environment, "mount_point_unreadable")
      case .noDevice, .deviceRefused: (.environment, "no_device")
      case .noHelper: (.environment, "no_helper")
      case .option: (.usage, "mount_option")
      case .refused: (.environment, "mount_refused")
      }
    self.init(kind, code, Self.words(error))
  }
}

extension CommandFailure {
  /// A mount that can't be made, in words; of one of ours in its place, what it shows and the command that ends it.
  private static func words(_ error: MountError) -> String {
    guard case .alreadyMounted(let path) = error else { return error.description }
    let store = ((try? MarfaMounts.all()) ?? []).last { $0.mountPoint == path }?.store
    return "\(path) is already mounted\(store.map { ": it shows \($0)" } ?? ""). To end that mount: "
      + "\(CommandHint(unmounting: path))"
  }
}

/// Runs what only the engine can fail in.
func engine<T>(_ body: () throws(MarfaError) -> T) throws(CommandFailure) -> T {
  do throws(MarfaError) { return try body() } catch { throw CommandFailure(error) }
}

extension StoreFailure {
  /// True for what may be otherwise the next time: a full or failing disk, a file somebody else has locked for long, no
  /// memory (SQLITE_BUSY, LOCKED, NOMEM, IOERR, FULL, PROTOCOL).
  fileprivate var mayPass: Bool { [5, 6, 7, 10, 13, 15].contains(code & 0xff) }
}

extension RemoteFailure {
  /// Exit 5 is for a key that is not accepted; what passes by itself is the environment's.
  fileprivate var kindAndCode: (CommandFailure.Kind, String) {
    switch self {
    case .notConnected, .unreachable: (.environment, "unreachable")
    case .timedOut: (.environment, "timed_out")
    case .notTheServers: (.environment, "not_the_servers")
    case .busy: (.environment, "server_busy")
    case .refused(let refusal): (refusal.status == 401 ? .credential : .refused, refusal.code)
    case .contractMismatch: (.environment, "contract_mismatch")
    case .unreadable: (.environment, "unreadable_answer")
    case .file: (.environment, "io")
    case .canceled: (.refused, "canceled")
    }
  }
}

extension FetchFailure {
  fileprivate var kind: CommandFailure.Kind {
    switch self {
    case .unreachable, .timedOut, .rateLimited, .wrongBytes, .failed: .environment
    case .absent, .credentialRefused: .refused
    }
  }

  fileprivate var code: String {
    switch self {
    case .unreachable, .timedOut: "unreachable"
    case .rateLimited: "rate_limited"
    case .absent: "absent"
    case .credentialRefused: "credential_refused"
    case .wrongBytes: "wrong_bytes"
    case .failed: "fetch_failed"
    }
  }
}

extension StoreProblem {
  fileprivate var code: String {
    switch self {
    case .notAStore: "not_a_store"
    case .damaged: "store_damaged"
    case .newer: "store_newer"
    case .noFolder: "store_folder_missing"
    case .readOnlyFolder: "store_folder_read_only"
    case .bytesMissing: "bytes_missing"
    case .nothingToRead: "no_store"
    case .boundElsewhere: "other_server"
    }
  }
}

extension Errno {
  /// True for an error that says something of what was asked, not of the moment.
  fileprivate var isLasting: Bool {
    [
      ENOENT, ENOTDIR, EISDIR, EACCES, EPERM, EEXIST, ENOTEMPTY, EINVAL, ENAMETOOLONG, ELOOP, EROFS, EXDEV, ENODATA,
      EOPNOTSUPP,
    ].contains(code)
  }
}
