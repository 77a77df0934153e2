import Testing

extension Saving {
  /// Runs a program in a terminal of 80 columns, and types once `seen` has been shown. (A shell has no terminal to give.)
  private static func typed(_ keys: String, after seen: String, into command: String) -> String {
    """
    export HOME=$(mktemp -d) TERM=xterm; trap 'rm -rf $HOME' EXIT; python3 - '\(keys)' '\(seen)' \(command) <<'END'
    import os, pty, sys
    keys, seen = sys.argv[1].encode().decode("unicode_escape").encode("latin1"), sys.argv[2].encode()
    child, terminal = pty.fork()
    if child == 0: os.execvp(sys.argv[3], sys.argv[3:])
    shown = b""
    try:
      while data := os.read(terminal, 65536):
        shown += data
        if keys and seen in shown:
          os.write(terminal, keys)
          keys = b""
    except OSError: pass
    sys.exit(os.waitpid(child, 0)[1] != 0)
    END
    """
  }

  private static func emacs(_ name: String, _ settings: String = "") -> Saving {
    Saving(
      name: "Emacs itself, \(name)",
      script: """
        export HOME=$(mktemp -d); trap 'rm -rf $HOME' EXIT
        emacs -Q --batch doc.txt --eval '(progn \(settings) (search-forward "old") (replace-match "new") (save-buffer))'
        """, needs: "emacs")
  }

  static let itself = [
    Saving(
      name: "nano itself",
      script: typed(#"\x1b[3~\x1b[3~\x1b[3~new\x0f\r\x18"#, after: "and more", into: "nano doc.txt"), needs: "nano"),
    Saving(
      name: "nano itself, with a backup",
      script: typed(#"\x1b[3~\x1b[3~\x1b[3~new\x0f\r\x18"#, after: "and more", into: "nano -B doc.txt"), needs: "nano"),
    Saving(
      name: "vim itself, in a terminal",
      script: typed(#":s/old/new/\r:wq\r"#, after: "and more", into: "vim -N -u NONE -i NONE doc.txt"), needs: "vim"),
    Saving(
      name: "Emacs itself, in a terminal",
      script: typed(#"\x04\x04\x04new\x18\x13\x18\x03"#, after: "and more", into: "emacs -Q -nw doc.txt"),
      needs: "emacs"),
    emacs("with a backup by renaming"),
    emacs("with a backup by copying", "(setq backup-by-copying t)"),
    emacs("without a backup", "(setq make-backup-files nil)"),
    emacs("through a file beside it", "(setq file-precious-flag t)"),
  ].filter { $0.isPossible && Machine.has("python3") }
}

extension SavingTests {
  @Test("keeps its id, edges, tags and attributes, and is sent once, by editors as they are", arguments: Saving.itself)
  func itself(_ saving: Saving) throws { try keepsWhatItIs(saving) }
}

@Suite(
  "A document that LibreOffice writes",
  .enabled(if: Machine.canMount && Machine.has("soffice"), "needs a mount and LibreOffice"), .serialized)
struct OfficeTests {
  /// Has LibreOffice write `item/doc.odt` from a text.
  private func convert(_ text: String, _ mount: Mount) throws {
    try mount.shell(
      """
      printf '\(text)' > "$1/doc.txt"; export HOME=$1
      soffice --headless --convert-to odt --outdir item "$1/doc.txt" > "$1/said" 2>&1
      unzip -p item/doc.odt content.xml | grep -q '\(text)'
      """, seconds: 120)
  }

  @Test(
    "is one item, and the same one when it is written again", .enabled(if: Machine.has("unzip"), "there is no unzip"))
  func converted() throws {
    try withMount { mount in
      try mount.shell("mkdir item")
      try convert("old text", mount)
      try mount.shell("setfattr -n user.xdg.tags -v 'green,red' item/doc.odt")
      let before = try mount.attributes(of: "item/doc.odt")
      try convert("new text", mount)
      let after = try mount.attributes(of: "item/doc.odt")
      for name in ["user.marfa.id", "user.marfa.edge", "user.marfa.type", "user.xdg.tags", "user.mime_type"] {
        #expect(after[name] == before[name], "\(name)")
      }
      #expect(after["user.mime_type"] == "application/vnd.oasis.opendocument.text")
      #expect(after["user.marfa.hash"] != before["user.marfa.hash"])
      // It is opened where it lies, and read from there.
      try mount.shell(
        """
        export HOME=$1; soffice --headless --convert-to txt --outdir "$1/out" item/doc.odt > "$1/said" 2>&1
        grep -q 'new text' "$1/out/doc.txt"; test "$(ls -A item)" = doc.odt
        """, seconds: 120)
      let queue = try mount.queue()
      #expect(queue.count("upload_blob") == 1 && queue.titles == ["item", "doc.odt"], "\(queue.writes)")
    }
  }
}
