import CLinux
import Glibc

/// The order in which locks are taken: a thread takes a lock only above every lock it already holds.
/// Checked in debug builds, in any test that merely passes by.
public enum LockRank: UInt8, Sendable {
  /// One open of a file.
  case handle = 1
  /// One open file.
  case file
  /// The table of open files.
  case files
  /// Sealing what a former process left.
  case recovery
  /// The store's writing connection.
  case store
  /// The pool of reading connections.
  case readers
  /// A file's running digest.
  case digest
  /// The table of blobs that are open or being fetched.
  case fetches
  /// One blob that is open or being fetched.
  case fetch
  /// State that calls nothing else while it is held.
  case leaf
}

/// A mutual exclusion that holds the state it guards: there is no way to the value but through ``withLock(_:)``.
///
/// A pthread mutex rather than `Synchronization.Mutex`, which ThreadSanitizer cannot see on Linux.
public final class Lock<Value: ~Copyable>: @unchecked Sendable {
  // Safe: `value` is touched only between lock and unlock of `raw`, whose address never moves.
  private let raw: UnsafeMutablePointer<pthread_mutex_t>
  private var value: Value
  private let rank: LockRank

  /// Makes an unlocked lock around `value`.
  public init(_ rank: LockRank, _ value: consuming sending Value) {
    self.value = value
    self.rank = rank
    raw = .allocate(capacity: 1)
    raw.initialize(to: pthread_mutex_t())
    pthread_mutex_init(raw, nil)
  }

  deinit {
    pthread_mutex_destroy(raw)
    raw.deallocate()
  }

  /// Runs `body` with the value, alone. Not recursive: taking a lock twice in one thread is a defect (and traps in
  /// debug builds). Never call out to the network, reply to the kernel or wait for another thread inside.
  public func withLock<R: ~Copyable, E: Error>(_ body: (inout Value) throws(E) -> R) throws(E) -> R {
    #if DEBUG
      let outer = HeldRank.enter(rank)
    #endif
    pthread_mutex_lock(raw)
    defer {
      pthread_mutex_unlock(raw)
      #if DEBUG
        HeldRank.leave(to: outer)
      #endif
    }
    return try body(&value)
  }
}

#if DEBUG
  /// The highest rank this thread holds, kept in thread-specific storage.
  private enum HeldRank {
    private static let key: pthread_key_t = {
      var key = pthread_key_t()
      pthread_key_create(&key, nil)
      return key
    }()

    static func enter(_ rank: LockRank) -> UInt {
      let held = UInt(bitPattern: pthread_getspecific(key))
      precondition(held < UInt(rank.rawValue), "lock order: \(rank) taken while rank \(held) is held")
      pthread_setspecific(key, UnsafeRawPointer(bitPattern: UInt(rank.rawValue)))
      return held
    }

    static func leave(to held: UInt) {
      pthread_setspecific(key, UnsafeRawPointer(bitPattern: held))
    }
  }
#endif

/// Starts a detached thread of this process's own. It has every signal blocked: signals are for the thread that waits
/// for them.
public func startThread(named name: StaticString, _ body: @escaping @Sendable () -> Void) {
  final class Box {
    let name: StaticString
    let body: @Sendable () -> Void
    init(_ name: StaticString, _ body: @escaping @Sendable () -> Void) {
      self.name = name
      self.body = body
    }
  }
  var attributes = pthread_attr_t()
  pthread_attr_init(&attributes)
  pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
  pthread_attr_setstacksize(&attributes, 512 * 1024)
  var all = sigset_t()
  var before = sigset_t()
  sigfillset(&all)
  pthread_sigmask(SIG_BLOCK, &all, &before)
  var thread = pthread_t()
  let box = Unmanaged.passRetained(Box(name, body))
  let code = pthread_create(
    &thread, &attributes,
    { context in
      guard let context else { return nil }
      // Safe: this is the one reference `passRetained` made, taken exactly once, here.
      let box = Unmanaged<Box>.fromOpaque(context).takeRetainedValue()
      _ = pthread_setname_np(pthread_self(), "\(box.name)")
      box.body()
      return nil
    }, box.toOpaque())
  pthread_sigmask(SIG_SETMASK, &before, nil)
  pthread_attr_destroy(&attributes)
  // No thread can be had: the work is done here rather than never.
  if code != 0 { box.takeRetainedValue().body() }
}
