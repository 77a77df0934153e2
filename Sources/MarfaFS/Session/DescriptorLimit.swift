import Glibc
import MarfaEngine

/// How many files this process may have open. Each file that any program has open in the mount is one of ours as well,
/// and a shell's usual limit of 1,024 is meant for one program.
public enum DescriptorLimit {
  /// As many as are of use to anybody. A limit of a thousand million, which there is, would cost programs that we start and
  /// that close all descriptors one by one their time.
  private static let enough: rlim_t = 1 << 20

  /// Raises it as far as the system lets this process: to the hard limit, and for root to what the kernel takes at most.
  public static func raise() {
    var limit = rlimit()
    guard getrlimit(resource, &limit) == 0, limit.rlim_cur < enough else { return }
    let most = max(limit.rlim_max, min(kernelLimit(), enough))
    for hard in [most, limit.rlim_max] {
      var raised = rlimit(rlim_cur: min(hard, enough), rlim_max: hard)
      if setrlimit(resource, &raised) == 0 { return }
    }
    Log.warning("no more than \(limit.rlim_cur) files can be open in the mount at one time: \(Errno.last)")
  }

  private static var resource: __rlimit_resource_t { __rlimit_resource_t(RLIMIT_NOFILE.rawValue) }

  /// What `fs.nr_open` says, or 0.
  private static func kernelLimit() -> rlim_t {
    guard let text = try? Path.procContents("/proc/sys/fs/nr_open") else { return 0 }
    return rlim_t(String(decoding: text.prefix { $0 != 0x0a }, as: UTF8.self)) ?? 0
  }
}
