import Glibc
import MarfaEngine

/// The process that has a store open for writing.
public enum StoreHolder {
  /// Its number, as it wrote it beside the store; `nil` when it has ended.
  public static func pid(of store: String) -> Int? {
    guard let pid = WorkingCopy.holder(of: store), Unmounting.isAlive(pid) else { return nil }
    return pid
  }

  /// Where it has the store mounted; `nil` when it has not, or does not say.
  public static func mountPoint(of store: String) -> String? {
    guard let client = try? ControlClient(ControlAddress(writerOf: store)) else { return nil }
    return (try? client.ask(ControlRequest("status")))?["mount"]?.object?["mount_point"]?.string
  }
}
