import MarfaEngine

extension MountSession {
  /// Mounts a working copy. `whenReady` is called once, from another thread, when the mount answers. The copy must live
  /// until ``wait()`` has returned; a reader is mounted read-only.
  public static func mount(
    _ copy: WorkingCopy, _ configuration: MountConfiguration, whenReady: @escaping @Sendable () -> Void = {}
  ) throws(MountError) -> MountSession {
    var configuration = configuration
    configuration.isReadOnly = configuration.isReadOnly || copy.isReader
    let invalidator = Invalidator()
    return try mount(
      configuration, FileSystem(copy, invalidator: invalidator), invalidator: invalidator, whenReady: whenReady)
  }
}
