import CFuse3
import Glibc
import MarfaEngine

/// libfuse's sessions: made with our options, and unmade.
enum Library {
  /// What libfuse says.
  private struct Said {
    /// The last whole line, for the error that is thrown next.
    var last = ""
    /// A line whose end is still to come.
    var begun = ""
  }

  private static let said = Lock<Said>(.leaf, Said())

  /// libfuse's last words, or what there is to say without.
  static var lastWords: String {
    let words = said.withLock { $0.last }
    return words.isEmpty ? "libfuse does not say why" : words
  }

  /// Makes a session for `driver`, which it holds on to until it is destroyed.
  static func makeSession(_ configuration: MountConfiguration, _ driver: Driver) throws(MountError) -> SessionHandle {
    captureLog()
    var arguments = fuse_args()
    defer { fuse_opt_free_args(&arguments) }
    for word in words(for: configuration) where fuse_opt_add_arg(&arguments, word) != 0 {
      throw .refused("out of memory")
    }
    var operations = makeOperations()
    let retained = Unmanaged.passRetained(driver)
    let size = MemoryLayout<fuse_lowlevel_ops>.size
    guard let session = marfa_session_new(&arguments, &operations, size, retained.toOpaque()) else {
      retained.release()
      throw .option(lastWords)
    }
    return SessionHandle(raw: session)
  }

  /// Mounts a session, and has it speak to the kernel by our own calls.
  static func mount(_ session: SessionHandle, on path: String) throws(MountError) {
    guard fuse_session_mount(session.raw, path) == 0 else { throw .refused(lastWords) }
    var calls = makeDeviceCalls()
    // It copies them, and keeps the descriptor that it has. It fails only without memory, and then keeps its own calls.
    _ = fuse_session_custom_io(session.raw, &calls, session.descriptor)
  }

  /// The command line libfuse is given.
  static func words(for configuration: MountConfiguration) -> [String] {
    var options = ["subtype=marfa", "fsname=\(escaped(configuration.source))", "default_permissions"]
    if configuration.isReadOnly { options.append("ro") }
    options += configuration.options
    return ["marfa-mount"] + options.flatMap { ["-o", $0] }
  }

  /// A value in libfuse's list of options, where commas part and backslashes escape.
  private static func escaped(_ value: String) -> String {
    var result = ""
    for character in value.unicodeScalars {
      if character == "," || character == "\\" { result.unicodeScalars.append("\\") }
      result.unicodeScalars.append(character)
    }
    return result
  }

  /// Frees a session that no thread uses any more, and lets go of its driver.
  ///
  /// Not by `fuse_session_unmount`: it unmounts whatever is on the path, which may be what was there before us.
  static func destroy(_ session: SessionHandle, _ driver: Driver) {
    fuse_session_destroy(session.raw)
    // Safe: this is the reference that `makeSession` retained; nothing can ask for it any more.
    Unmanaged.passUnretained(driver).release()
  }

  /// Cuts a session off from the kernel while threads may still use it: its descriptor stays good, and leads nowhere.
  static func disconnect(_ session: SessionHandle) {
    guard session.descriptor >= 0, let nowhere = try? Descriptor.open("/dev/null", O_RDWR) else { return }
    dup2(nowhere.raw, session.descriptor)
    _ = fcntl(session.descriptor, F_SETFD, FD_CLOEXEC)
  }

  /// Has libfuse say to our log what it would say on standard error.
  private static func captureLog() {
    said.withLock { $0 = Said() }
    fuse_set_log_func { level, format, arguments in
      guard let format, let arguments else { return }
      var buffer = [CChar](repeating: 0, count: 1024)
      guard vsnprintf(&buffer, buffer.count, format, arguments) > 0 else { return }
      let text = String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
      guard let line = Library.add(text) else { return }
      if level.rawValue <= FUSE_LOG_ERR.rawValue {
        Log.warning("libfuse: \(line)")
      } else {
        Log.debug("libfuse: \(line)")
      }
    }
  }

  /// Adds what was said to the line that was begun, and returns it when that ends it.
  private static func add(_ text: String) -> String? {
    said.withLock { said in
      said.begun += text
      guard said.begun.hasSuffix("\n") || said.begun.utf8.count > 1024 else { return nil }
      var line = Substring(said.begun)
      while line.hasSuffix("\n") { line.removeLast() }
      if line.hasPrefix("fuse: ") { line.removeFirst("fuse: ".count) }
      said.begun = ""
      said.last = String(line)
      return said.last
    }
  }
}
