import Glibc
import MarfaEngine

/// The signals that end a mount, taken by one thread that waits for them: nothing is ever done in a signal handler.
public enum Signals {
  /// Those that mean "stop", but for those our parent had us ignore, as nohup does with SIGHUP.
  private static var stopping: [CInt] { [SIGINT, SIGTERM, SIGHUP].filter { !isIgnored($0) } }

  /// Keeps the stopping signals from every thread that is started from here on. Call it first in `main`, before any
  /// thread. A reader that goes away is told by EPIPE then, not by a signal.
  public static func block() {
    var set = makeSet(stopping)
    pthread_sigmask(SIG_BLOCK, &set, nil)
    signal(SIGPIPE, SIG_IGN)
  }

  /// Starts the thread that waits for the stopping signals, and calls `onStop` at the first. A second SIGINT means that
  /// the person does not want to wait: the process ends at once. What was queued is on the disk.
  public static func watch(onStop: @escaping @Sendable (CInt) -> Void) {
    startWatching(onStop: onStop) {
      Log.error("interrupted twice: ended at once, without waiting for the mount to end")
      _exit(130)
    }
  }

  /// As `watch`, with what is done at the second SIGINT. Tells `started` the thread, once.
  static func startWatching(
    onStop: @escaping @Sendable (CInt) -> Void, onSecondInterrupt: @escaping @Sendable () -> Void,
    started: (@Sendable (pthread_t) -> Void)? = nil
  ) {
    let signals = stopping
    startThread(named: "marfa-signals") {
      var set = makeSet(signals)
      var stopped = false
      started?(pthread_self())
      while true {
        var signal: CInt = 0
        guard sigwait(&set, &signal) == 0 else { continue }
        if !stopped {
          stopped = true
          onStop(signal)
        } else if signal == SIGINT {
          onSecondInterrupt()
        }
      }
    }
  }

  private static func makeSet(_ signals: [CInt]) -> sigset_t {
    var set = sigset_t()
    sigemptyset(&set)
    for signal in signals { sigaddset(&set, signal) }
    return set
  }

  private static func isIgnored(_ signal: CInt) -> Bool {
    var action = sigaction()
    guard sigaction(signal, nil, &action) == 0 else { return false }
    return unsafeBitCast(action.__sigaction_handler.sa_handler, to: Int.self) == unsafeBitCast(SIG_IGN, to: Int.self)
  }
}
