import MarfaEngine

/// An answer that says no (contract "Requests and answers": the refusal envelope).
public struct ServerRefusal: Error, Sendable {
  /// The HTTP status.
  public var status: Int
  /// The contract's code, `item_not_found`.
  public var code: String
  /// In words.
  public var message: String
  /// What goes with the code.
  public var details: JSON.Object?

  init(_ status: Int, _ code: String, _ message: String, _ details: JSON.Object? = nil) {
    self.status = status
    self.code = code
    self.message = message
    self.details = details
  }

  /// The server itself failed.
  static func broken(_ message: String) -> ServerRefusal { ServerRefusal(500, "internal_error", message) }
  /// The request is not one the contract has.
  static func invalid(_ message: String, _ details: JSON.Object? = nil) -> ServerRefusal {
    ServerRefusal(400, "invalid_request", message, details)
  }
  /// No such row, or one the key may not see.
  static func noItem(_ id: String, trashed: Bool = false) -> ServerRefusal {
    ServerRefusal(404, "item_not_found", "There is no item \(id).", trashed ? ["trashed": true] : nil)
  }
  /// No such bytes, or none the key may read.
  static func noBlob(_ hash: String) -> ServerRefusal {
    ServerRefusal(404, "blob_not_found", "There is no blob \(hash).")
  }
  /// The key lacks a grant.
  static func forbidden(_ grant: String) -> ServerRefusal {
    ServerRefusal(403, "permission_denied", "The key has no grant \(grant).", ["grant": .string(grant)])
  }
  /// An edge its type does not allow.
  static func edge(_ reason: String, _ message: String) -> ServerRefusal {
    ServerRefusal(400, "edge_constraint_violation", message, ["reason": .string(reason)])
  }

  /// `{"error":{"code","message","details"?}}`
  var text: String {
    var error: JSON.Object = ["code": .string(code), "message": .string(message)]
    if let details { error["details"] = .object(details) }
    return JSON.object(["error": .object(error)]).text
  }
}
