import MarfaEngine

/// A request's arguments, read by their names and checked. What a command does not know is refused, so that a newer
/// command that asks an older mount is told, and not half obeyed.
struct Arguments {
  private let object: JSON.Object

  init(_ object: JSON.Object, allowed: Set<String>) throws(CommandFailure) {
    for (key, _) in object.members where !allowed.contains(key) {
      throw CommandFailure(.usage, "unknown_argument", "this mount knows no argument \"\(key)\" for the command")
    }
    self.object = object
  }

  /// A string, `nil` when it is not given.
  func string(_ key: String) throws(CommandFailure) -> String? {
    try value(key, "a string") { $0.string }
  }

  /// A string that has to be given.
  func required(_ key: String) throws(CommandFailure) -> String {
    guard let value = try string(key) else {
      throw CommandFailure(.usage, "missing_argument", "the argument \"\(key)\" is missing")
    }
    return value
  }

  /// An integer, `nil` when it is not given.
  func integer(_ key: String) throws(CommandFailure) -> Int64? {
    try value(key, "an integer") { $0.integer }
  }

  /// A list of strings, empty when it is not given.
  func strings(_ key: String) throws(CommandFailure) -> [String] {
    try value(key, "a list of strings") { (value) -> [String]? in
      guard let elements = value.array else { return nil }
      let strings = elements.compactMap { $0.string }
      return strings.count == elements.count ? strings : nil
    } ?? []
  }

  /// An absolute path. A relative one would be looked for where the mount's process happens to be.
  func path(_ key: String) throws(CommandFailure) -> String {
    let path = try required(key)
    guard path.hasPrefix("/"), !path.utf8.contains(0) else {
      throw CommandFailure(.usage, "bad_argument", "the argument \"\(key)\" is not an absolute path")
    }
    return path
  }

  private func value<T>(_ key: String, _ kind: String, _ read: (JSON) -> T?) throws(CommandFailure) -> T? {
    guard let value = object[key], value != .null else { return nil }
    guard let result = read(value) else {
      throw CommandFailure(.usage, "bad_argument", "the argument \"\(key)\" is not \(kind)")
    }
    return result
  }
}
