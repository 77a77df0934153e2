import CLinux
import Glibc
import MarfaEngine
import Testing

@testable import MarfaFS

extension MountTests.Ending {
  @Test("ends when asked, and nothing of it is left")
  func stop() throws {
    let filesystem = MemoryFileSystem()
    let mount = try Mounted(filesystem)
    #expect(try run(["ls", mount.path]).status == 0)
    mount.session.requestStop()
    mount.session.requestStop()
    let session = mount.session
    #expect(try within(seconds: 5) { session.wait() } == .stopped)
    #expect(try MountTable.top(at: mount.path) == nil)
    #expect(mount.session.threadCount == 0)
  }

  @Test("lets go of its filesystem when it has ended")
  func release() throws {
    weak var filesystem: MemoryFileSystem?
    do {
      let mount = try Mounted()
      filesystem = mount.filesystem
      #expect(try run(["ls", mount.path]).status == 0)
    }
    #expect(eventually { filesystem == nil })
  }

  @Test("ends in a bounded time while a program has a file open, and the program is told")
  func stopWithOpenFile() throws {
    let filesystem = MemoryFileSystem()
    filesystem.addFile("f", [1])
    let mount = try Mounted(filesystem)
    let program = try Program(["sh", "-c", "exec 3< \(mount.path)/f; sleep 3; cat <&3; cat /proc/self/fd/3"])
    #expect(eventually { isOpen(3, of: program.pid) })
    mount.session.requestStop()
    let (ending, took) = timed { mount.session.wait(seconds: 10) }
    #expect(ending == .stopped)
    #expect(took < 2)
    #expect(try MountTable.top(at: mount.path) == nil)
    let output = try program.wait().output
    #expect(output.contains("Transport endpoint is not connected") || output.contains("connection abort"))
  }

  @Test("ends in a bounded time while a call is stuck for good")
  func stopWhileStuck() throws {
    let mount = try Mounted { $0.stopLimit = 1 }
    let stuck = try Program(["stat", mount.path + "/stuck"])
    #expect(eventually { mount.filesystem.stuck.read { $0 } == 1 })
    mount.session.requestStop()
    let (ending, took) = timed { mount.session.wait(seconds: 10) }
    #expect(ending == .stopped)
    #expect(took < 3)
    #expect(try stuck.wait(seconds: 5).status != 0, "whoever waited for the answer is let go")
    #expect(try MountTable.top(at: mount.path) == nil)
  }

  @Test("ends in a bounded time while a reply is parked for good")
  func stopWhileParked() throws {
    let filesystem = MemoryFileSystem()
    filesystem.addFile("f", Array("park".utf8))
    let directory = try TemporaryDirectory()
    var configuration = MountConfiguration(mountPoint: directory.path, source: "test")
    configuration.stopLimit = 1
    // Nobody answers what is parked when the end begins.
    let session = try MountSession.mount(configuration, filesystem, invalidator: Invalidator())
    let reader = try Program(["cat", directory.path + "/f"])
    #expect(eventually { filesystem.state.read { $0.parked.count } == 1 })
    session.requestStop()
    let (ending, took) = timed { session.wait(seconds: 10) }
    #expect(ending == .stopped)
    #expect(took < 3)
    #expect(try reader.wait(seconds: 5).status == 1)
    // An answer that comes too late harms nobody.
    #expect(filesystem.answerParked(.io) == 1)
  }

  @Test("ends in a bounded time while it is busy, asked or not", arguments: [true, false, true, false])
  func stopWhileBusy(isAsked: Bool) throws {
    let filesystem = MemoryFileSystem()
    for number in 0..<200 { filesystem.addFile("f\(number)", [UInt8](repeating: 1, count: 70_000)) }
    let mount = try Mounted(filesystem)
    let script = """
      cd \(mount.path) || exit
      for i in 1 2 3; do
        (while ls -l && cat f* && cp f1 new$i && mv new$i old$i && rm old$i; do :; done) > /dev/null 2>&1 &
      done
      wait
      """
    let busy = try Program(["sh", "-c", script])
    #expect(eventually { filesystem.state.read { $0.reads } >= 200 })
    for number in 0..<200 { mount.invalidator.entry(parent: 1, name: Array("f\(number)".utf8)) }
    if isAsked {
      mount.session.requestStop()
    } else {
      #expect(try run(["fusermount3", "-u", "-z", mount.path]).status == 0)
      // Those who are in it may stay as long as they like; it ends with the last of them.
      #expect(mount.session.wait(seconds: 0.1) == nil)
      #expect(try run(["pkill", "-P", "\(busy.pid)"]).status == 0)
      kill(busy.pid, SIGTERM)
    }
    let (ending, took) = timed { mount.session.wait(seconds: 10) }
    #expect(ending == (isAsked ? .stopped : .unmounted))
    #expect(took < 2)
    _ = try busy.wait()
  }

  @Test("ends when somebody unmounts it")
  func unmountedElsewhere() throws {
    let mount = try Mounted()
    #expect(try run(["ls", mount.path]).status == 0)
    #expect(try run(["fusermount3", "-u", mount.path]).status == 0)
    let session = mount.session
    #expect(try within(seconds: 5) { session.wait() } == .unmounted)
  }

  @Test("ends when the kernel cuts it off", .enabled(if: isRoot, "needs root"))
  func aborted() throws {
    let mount = try Mounted()
    let minor = try #require(mount.session.device.split(separator: ":").last)
    let control = "/sys/fs/fuse/connections/\(minor)/abort"
    guard access(control, W_OK) == 0 else { return }
    #expect(try run(["sh", "-c", "echo 1 > \(control)"]).status == 0)
    #expect(mount.session.wait(seconds: 5) == .failed)
    #expect(try MountTable.top(at: mount.path) == nil)
  }

  @Test("leaves what was mounted on the same directory before", .enabled(if: isRoot, "needs root"))
  func mountBeneath() throws {
    let directory = try TemporaryDirectory()
    #expect(try run(["mount", "-t", "tmpfs", "beneath", directory.path]).status == 0)
    let session = try MountSession.mount(
      MountConfiguration(mountPoint: directory.path, source: "test"), MemoryFileSystem(), invalidator: Invalidator())
    #expect(try run(["fusermount3", "-u", directory.path]).status == 0)
    #expect(session.wait(seconds: 5) == .unmounted)
    #expect(try MountTable.top(at: directory.path)?.type == "tmpfs")
  }

  @Test("is asked to stop by a signal once, and a second Ctrl-C is told apart")
  func signals() throws {
    let stops = Monitor<[CInt]>([])
    let second = Monitor(0)
    let thread = Monitor<pthread_t?>(nil)
    Signals.startWatching(
      onStop: { signal in stops.update { $0.append(signal) } }, onSecondInterrupt: { second.update { $0 += 1 } },
      started: { this in thread.update { $0 = this } })
    let watcher = try #require(thread.wait(until: .after(seconds: 5)) { $0 })
    pthread_kill(watcher, SIGTERM)
    #expect(stops.wait(until: .after(seconds: 5)) { $0.isEmpty ? nil : $0 } == [SIGTERM])
    pthread_kill(watcher, SIGHUP)
    pthread_kill(watcher, SIGINT)
    #expect(second.wait(until: .after(seconds: 5)) { $0 == 1 ? true : nil } == true)
    #expect(stops.read { $0 } == [SIGTERM])
  }
}

/// Whether a process has that descriptor open.
private func isOpen(_ descriptor: CInt, of pid: pid_t) -> Bool {
  var status = stat()
  return lstat("/proc/\(pid)/fd/\(descriptor)", &status) == 0
}
