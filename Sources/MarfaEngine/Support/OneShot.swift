/// One value that one thread hands to others who wait for it.
final class OneShot<Value: Sendable>: Sendable {
  private let value = Monitor<Value?>(nil)

  /// Gives the value; a second one is a defect.
  func fulfil(_ value: Value) {
    self.value.update {
      assert($0 == nil, "answered twice")
      $0 = .some(value)
    }
  }

  /// Waits for the value.
  @discardableResult
  func wait() -> Value {
    while true {
      if let value = value.wait(for: { $0 }) { return value }
    }
  }
}
