import CFuse3
import CLinux
import Glibc

/// The system calls by which a session speaks to the kernel. They are the ones libfuse would make, and they let
/// ``Greeting`` see INIT go by. Splicing is given too, or libfuse would copy.
func makeDeviceCalls() -> fuse_custom_io {
  var calls = fuse_custom_io()
  calls.read = { descriptor, buffer, size, driver in
    let count = Glibc.read(descriptor, buffer, size)
    if count > 0, let driver, let buffer { see(UnsafeRawBufferPointer(start: buffer, count: count), driver) }
    return count
  }
  calls.writev = { descriptor, parts, count, driver in
    guard let driver, let parts else { return Glibc.writev(descriptor, parts, count) }
    return write(UnsafeBufferPointer(start: parts, count: Int(count)), to: descriptor, driver)
  }
  calls.splice_receive = { from, fromOffset, to, toOffset, size, flags, _ in
    splice(from, fromOffset, to, toOffset, size, flags)
  }
  calls.splice_send = { from, fromOffset, to, toOffset, size, flags, _ in
    splice(from, fromOffset, to, toOffset, size, flags)
  }
  return calls
}

/// Notes what the kernel offers. INIT is the first request there is, and is always read: libfuse splices only after it.
private func see(_ request: UnsafeRawBufferPointer, _ driver: UnsafeMutableRawPointer) {
  let driver = Unmanaged<Driver>.fromOpaque(driver).takeUnretainedValue()
  if driver.offered == nil { driver.offered = Greeting.offer(in: request) }
}

/// Writes a message, and completes the answer to INIT before. All that is written later goes by untouched.
private func write(
  _ message: UnsafeBufferPointer<iovec>, to descriptor: CInt, _ driver: UnsafeMutableRawPointer
) -> Int {
  let driver = Unmanaged<Driver>.fromOpaque(driver).takeUnretainedValue()
  var passes: Bool?
  if driver.isGreeting, let offered = driver.offered {
    passes = Greeting.complete(message, offered: offered, passthrough: driver.backing.isWanted)
  }
  let count = Glibc.writev(descriptor, message.baseAddress, CInt(message.count))
  // The kernel has taken the answer when this returns, and takes files from then on.
  if let passes, count >= 0 { driver.backing.agreed(passes) }
  return count
}
