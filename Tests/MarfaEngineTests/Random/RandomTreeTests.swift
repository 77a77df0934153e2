import Glibc
import Testing

@testable import MarfaEngine

@Suite("A tree under random operations")
struct RandomTreeTests {
  /// Three that come again, one that found a fault, and one of today; `MARFA_SEED` runs one of one's own.
  static let seeds: [UInt64] =
    getenv("MARFA_SEED").flatMap { UInt64(String(cString: $0)) }.map { [$0] }
    ?? [1, 2, 3, 1_796_029_399_756_980_941, UInt64(bitPattern: Timestamp.now.nanoseconds)]

  static let steps = 1200

  private struct Failure {
    var step: Int
    var problems: [String]
    var history: [TreeOperation]
  }

  @Test("looks after each as POSIX says, and its queue is one a server takes", arguments: seeds)
  func model(seed: UInt64) throws {
    guard var failure = try run(seed, steps: Self.steps, checkingEvery: 20) else { return }
    // Once more, to find the very step.
    if let closer = try run(seed, steps: failure.step, checkingEvery: 1) { failure = closer }
    Issue.record(
      """
      seed \(seed), step \(failure.step): \(failure.history.last.map { "\($0)" } ?? "")
      \(failure.problems.joined(separator: "\n"))
      after \(failure.history.suffix(40).map(\.description).joined(separator: "; "))
      """)
  }

  private func run(_ seed: UInt64, steps: Int, checkingEvery interval: Int) throws -> Failure? {
    var options = WorkingCopy.Options()
    // As a mount has it, for every other seed.
    options.tree.groupsRows = seed % 2 == 0
    let scratch = try Scratch(options)
    defer { scratch.copy.close() }
    let reference = ReferenceTree()
    var source = OperationSource(seed: seed)
    var comparison = TreeComparison()
    var history: [TreeOperation] = []
    for step in 1...steps {
      let operation = source.next(reference)
      history.append(operation)
      var problems: [String] = []
      do {
        let expected = reference.apply(operation)
        let error = try scratch.apply(operation)
        if error != expected {
          problems.append("\(error.map { "\($0)" } ?? "done") instead of \(expected.map { "\($0)" } ?? "done")")
        }
        if let difference = try comparison.difference(scratch, reference) { problems.append(difference) }
        if step % interval == 0 || step == steps { problems += try invariantBreaches(scratch.copy) }
        if step == Self.steps { try scratch.answer() }
      } catch {
        problems.append("\(error)")
      }
      if !problems.isEmpty { return Failure(step: step, problems: problems, history: history) }
    }
    return nil
  }
}
