/// A request on its way. It goes on without this handle; its handler's `end` comes exactly once in any case.
public final class Transfer: Sendable {
  private let onCancel: @Sendable () -> Void
  private let onResume: @Sendable () -> Void

  init(cancel: @escaping @Sendable () -> Void, resume: @escaping @Sendable () -> Void) {
    onCancel = cancel
    onResume = resume
  }

  /// Ends it as canceled, unless it has ended. Returns at once, from any thread.
  public func cancel() { onCancel() }

  /// Lets it go on after `.pause`. Returns at once, from any thread; without effect on one that is not paused.
  public func resume() { onResume() }
}
