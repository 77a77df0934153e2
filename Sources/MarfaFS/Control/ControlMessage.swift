import MarfaEngine

/// What a mount is asked: one line of JSON, `{"command":"attach","arguments":{…}}`.
public struct ControlRequest: Sendable, Equatable {
  /// The command's word.
  public var command: String
  /// What it is given.
  public var arguments: JSON.Object

  /// A request of these.
  public init(_ command: String, _ arguments: JSON.Object = [:]) {
    self.command = command
    self.arguments = arguments
  }

  /// Reads a line.
  init(line: [UInt8]) throws(CommandFailure) {
    let value: JSON
    do throws(JSON.ReadError) { value = try JSON(reading: line) } catch {
      switch error {
      case .malformed(let position):
        throw CommandFailure(.usage, "bad_request", "the request is not one line of JSON (at byte \(position))")
      case .tooDeep: throw CommandFailure(.usage, "bad_request", "the request nests too deep")
      }
    }
    guard let object = value.object, let command = object["command"]?.string else {
      throw CommandFailure(.usage, "bad_request", "the request names no command")
    }
    guard let arguments = (object["arguments"] ?? .object([:])).object else {
      throw CommandFailure(.usage, "bad_request", "the request's arguments are not an object")
    }
    self.init(command, arguments)
  }

  /// The line, with its end.
  var line: [UInt8] {
    Array((["command": .string(command), "arguments": .object(arguments)] as JSON).text.utf8) + [0x0a]
  }
}

/// What a mount answers: one line of JSON, `{"ok":true,"result":{…}}` or
/// `{"ok":false,"error":{"code":"no_room","kind":"environment","message":"…"}}`. Blank lines before it mean that the
/// command is still at work.
public enum ControlAnswer: Sendable, Equatable {
  /// It is done.
  case done(JSON.Object)
  /// It is not.
  case failed(CommandFailure)

  /// The line, with its end.
  public var line: [UInt8] {
    let value: JSON =
      switch self {
      case .done(let result): ["ok": true, "result": .object(result)]
      case .failed(let failure): ["ok": false, "error": failure.json]
      }
    return Array(value.text.utf8) + [0x0a]
  }

  /// Reads a line; `nil` for what is no answer.
  public init?(line: [UInt8]) {
    guard let object = (try? JSON(reading: line))?.object else { return nil }
    if object["ok"]?.bool == true, let result = object["result"]?.object {
      self = .done(result)
    } else if object["ok"]?.bool == false, let failure = object["error"].flatMap({ CommandFailure($0) }) {
      self = .failed(failure)
    } else {
      return nil
    }
  }
}

extension CommandFailure {
  /// As an answer has it.
  public var json: JSON {
    var object: JSON.Object = ["code": .string(code), "kind": .string(kind.rawValue), "message": .string(message)]
    if !details.isEmpty { object["details"] = .object(details) }
    return .object(object)
  }

  /// Reads what ``json`` wrote. A kind that a later version may know is taken for a refusal.
  public init?(_ json: JSON) {
    guard let object = json.object, let code = object["code"]?.string, let message = object["message"]?.string else {
      return nil
    }
    let kind = object["kind"]?.string.flatMap { Kind(rawValue: $0) } ?? .refused
    self.init(kind, code, message, details: object["details"]?.object ?? [:])
  }
}
