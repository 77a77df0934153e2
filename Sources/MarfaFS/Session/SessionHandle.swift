import CFuse3

/// libfuse's session, which its threads share.
struct SessionHandle: @unchecked Sendable {
  // Safe: libfuse's session is made for many threads. `MountSession` destroys it only once none of them has it any more.
  let raw: OpaquePointer

  /// Whether the session is to end or has ended.
  var hasExited: Bool { fuse_session_exited(raw) != 0 }

  /// Has the session end as soon as its threads look.
  func exit() { fuse_session_exit(raw) }

  /// The device's descriptor.
  var descriptor: CInt { fuse_session_fd(raw) }
}
