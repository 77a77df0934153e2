import CLinux
import Glibc
import MarfaEngine
import MarfaFS

/// A mount in a process of its own: started, and waited for until it says how it went.
enum BackgroundMount {
  /// How many seconds a mount has to answer. Opening a store that was not closed may take a while.
  private static let patience = 60
  /// The number the new process finds its end of the pipe under.
  private static let descriptor: CInt = 3
  /// The number it finds the key under, when one was read.
  private static let keyDescriptor: CInt = 4

  static func start(_ options: MountOptions) throws(CommandFailure) {
    let path = if let path = options.log { path } else { try Locations.defaultLog(of: options.store) }
    let log = try LogFile.open(path)
    let child: pid_t
    let readEnd: Descriptor
    do throws(Errno) {
      let ends = try ChildProcess.makePipe()
      readEnd = ends.readEnd
      var surroundings = ChildProcess.Surroundings()
      surroundings.hasNoInput = true
      surroundings.isOwnSession = true
      surroundings.descriptors = [(log, 1), (log, 2), (ends.writeEnd, descriptor)]
      if let key = options.key {
        let keyEnds = try ChildProcess.makePipe()
        try key.hand(to: keyEnds.writeEnd)
        surroundings.descriptors.append((keyEnds.readEnd, keyDescriptor))
      }
      let name = CommandLine.arguments.first ?? "marfa-mount"
      let words =
        [name]
        + options.background(
          readyDescriptor: descriptor, keyDescriptor: options.key.map { _ in keyDescriptor }, log: path)
      child = try ChildProcess.spawn("/proc/self/exe", words, surroundings)
      // Our own write ends close here: with the child's, the pipe ends.
    } catch {
      throw CommandFailure(.environment, "no_process", "no process can be started for the mount: \(error)")
    }
    switch try waitForReport(of: child, readEnd, log: path) {
    case .done(let facts):
      try Output.print(options.asJSON ? JSON.object(facts).text : MountReport.text(facts, warns: true))
    case .failed(let failure): throw failure
    }
  }

  /// Makes this process one of the background, before it opens anything: it stands in the way of no folder, and holds
  /// nothing of whoever started it but the pipe, which is returned.
  static func settle(_ readyDescriptor: CInt) -> Descriptor {
    chdir("/")
    for name in (try? Path.names(in: "/proc/self/fd")) ?? [] {
      guard let descriptor = CInt(name), descriptor > 2, descriptor != readyDescriptor else { continue }
      // The listing's own is closed by now, and closing it again does nothing.
      close(descriptor)
    }
    _ = fcntl(readyDescriptor, F_SETFD, FD_CLOEXEC)
    return Descriptor(owning: readyDescriptor)
  }

  /// Tells the command that started this process how it went: false when it is there no more.
  static func report(_ answer: ControlAnswer, to pipe: Descriptor) -> Bool {
    let line = answer.line
    let count = line.withUnsafeBytes { write(pipe.raw, $0.baseAddress, $0.count) }
    return count == line.count
  }

  /// Waits for the report, the process's end or the end of our patience, whichever comes first.
  private static func waitForReport(
    of child: pid_t, _ readEnd: Descriptor, log: String
  ) throws(CommandFailure) -> ControlAnswer {
    var line: [UInt8] = []
    var block = [UInt8](repeating: 0, count: 64 << 10)
    let end = time(nil) + patience
    while !line.contains(0x0a) {
      var set = [pollfd(fd: readEnd.raw, events: Int16(POLLIN), revents: 0)]
      let left = end - time(nil)
      let count = left > 0 ? poll(&set, 1, CInt(left * 1000)) : 0
      if count < 0 && errno == EINTR { continue }
      guard count > 0 else {
        kill(child, SIGTERM)
        throw CommandFailure(
          .environment, "no_answer", "the mount did not answer in \(patience) seconds, and was told to end; see \(log)")
      }
      let size = read(readEnd.raw, &block, block.count)
      if size < 0 && errno == EINTR { continue }
      guard size > 0 else {
        let status = ChildProcess.wait(for: child)
        throw CommandFailure(
          .environment, "mount_failed", "the mount's process ended before it answered (status \(status)); see \(log)")
      }
      line += block.prefix(size)
    }
    guard let answer = ControlAnswer(line: Array(line.prefix { $0 != 0x0a })) else {
      throw CommandFailure(
        .environment, "mount_failed", "the mount's process said something that is no report; see \(log)")
    }
    return answer
  }
}
