import Glibc
import Testing

@testable import MarfaEngine
@testable import MarfaFS

@Suite("Why a command failed")
struct CommandFailureTests {
  private static func store(_ code: Int32) -> MarfaError {
    .store(StoreFailure(code: code, message: "words", doing: "testing"))
  }

  @Test(
    "Whose turn it is follows from the error",
    arguments: [
      (MarfaError.noRoom(size: 1, left: 0), CommandFailure.Kind.environment, "no_room"),
      (.readingHandle, .store, "reading_handle"), (.noServer, .store, "no_server"), (.canceled, .refused, "canceled"),
      (.itemNotFound(ItemID.mint()), .refused, "item_not_found"), (.invalid("words"), .refused, "invalid"),
      (.notNamedAlone(title: "t"), .refused, "not_named_alone"), (.noBody(type: "t"), .refused, "no_body"),
      // SQLITE_FULL, SQLITE_IOERR_WRITE, SQLITE_BUSY: may pass. SQLITE_CORRUPT, SQLITE_CONSTRAINT: won't.
      (store(13), .environment, "no_room"), (store(778), .environment, "store"), (store(5), .environment, "store"),
      (store(11), .store, "store"), (store(19), .store, "store"),
      (.unusable(.notAStore(path: "p")), .store, "not_a_store"),
      (.unusable(.newer(path: "p", found: 2, known: 1)), .store, "store_newer"),
      (.unusable(.readOnlyFolder(path: "p")), .store, "store_folder_read_only"),
      (.io(.notFound, "p"), .refused, "io"), (.io(Errno(EACCES), "p"), .refused, "io"),
      (.io(Errno(EIO), "p"), .environment, "io"), (.io(Errno(EMFILE), "p"), .environment, "io"),
    ])
  func engine(error: MarfaError, kind: CommandFailure.Kind, code: String) {
    let failure = CommandFailure(error)
    #expect(failure.kind == kind && failure.code == code)
    #expect(failure.message == error.description)
  }

  @Test(
    "Whose turn it is follows from why nothing could be mounted",
    arguments: [
      (MountError.missing(path: "p"), CommandFailure.Kind.refused), (.notEmpty(path: "p"), .refused),
      (.alreadyMounted(path: "p"), .refused), (.noDevice, .environment), (.noHelper, .environment),
      (.option("words"), .usage), (.refused("words"), .environment),
    ])
  func mount(error: MountError, kind: CommandFailure.Kind) {
    #expect(CommandFailure(error).kind == kind)
    // How one of ours is ended is this program's to say.
    let words =
      error == .alreadyMounted(path: "p") ? "p is already mounted. To end that mount: marfa-mount unmount p" : nil
    #expect(CommandFailure(error).message == words ?? error.description)
  }

  @Test("It comes through the socket as it was")
  func wire() throws {
    let failure = CommandFailure(.credential, "no_key", "a \"key\"\nis missing", details: ["n": 1])
    let line = ControlAnswer.failed(failure).line
    #expect(line.last == 0x0a && line.dropLast().allSatisfy { $0 != 0x0a })
    #expect(ControlAnswer(line: Array(line.dropLast())) == .failed(failure))
  }

  @Test("An answer that is none is known for it", arguments: ["", "x", "{}", "{\"ok\":true}", "{\"ok\":false}", "[1]"])
  func noAnswer(text: String) { #expect(ControlAnswer(line: Array(text.utf8)) == nil) }

  @Test("A kind that a later version knows is a refusal")
  func laterKind() {
    let json: JSON = ["code": "c", "message": "m", "kind": "weather"]
    #expect(CommandFailure(json)?.kind == .refused)
  }
}
