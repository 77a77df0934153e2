import Testing

/// A program's way of saving `doc.txt` in the folder it stands in: `old` becomes `new` in it.
struct Saving: Sendable, CustomTestStringConvertible {
  var name: String
  var script: String
  /// Names it leaves that a person may have wanted, and that are therefore items of their own.
  var leaves: [String] = []
  var needs: String?

  var testDescription: String { name }
  var isPossible: Bool { needs.map { Machine.has($0) } ?? true }

  static let all = editors + desktops + commands

  static let editors =
    ["yes", "no", "auto"].flatMap { copy in
      ["nobackup nowritebackup", "nobackup writebackup", "backup"].map { backup in
        Saving(
          name: "vim, backupcopy=\(copy) \(backup)",
          script: """
            vim -N -u NONE -i NONE -es -c 'set swapfile directory=. backupdir=. backupcopy=\(copy) \(backup)' \
            -c '%s/old/new/' -c wq doc.txt
            """, needs: "vim")
      }
    } + [
      Saving(name: "ed", script: "printf ',s/old/new/\\nw\\nq\\n' | ed -s doc.txt", needs: "ed"),
      Saving(
        name: "Emacs with a backup by renaming",
        script: """
          ln -s 'me@here.123:456' '.#doc.txt'; sed s/old/new/ doc.txt > '#doc.txt#'; mv doc.txt doc.txt~
          sed s/old/new/ doc.txt~ > doc.txt; rm '.#doc.txt' '#doc.txt#'
          """),
    ]

  static let desktops = [
    Saving(name: "GNOME", script: "sed s/old/new/ doc.txt > .goutputstream-A1B2C3; mv .goutputstream-A1B2C3 doc.txt"),
    Saving(
      name: "KDE", script: "sed s/old/new/ doc.txt > doc.txt.Kx7Qza; sync doc.txt.Kx7Qza; mv doc.txt.Kx7Qza doc.txt"),
    Saving(
      name: "LibreOffice over the document",
      script: """
        echo me > '.~lock.doc.txt#'; sed s/old/new/ doc.txt > lu8231a.tmp; mv lu8231a.tmp doc.txt; rm '.~lock.doc.txt#'
        """),
    Saving(
      name: "an office program that moves the original away",
      script: """
        echo me > '~$doc.txt'; sed s/old/new/ doc.txt > 5C1E0B00.tmp; mv doc.txt 7D2F.tmp; mv 5C1E0B00.tmp doc.txt
        rm 7D2F.tmp '~$doc.txt'
        """),
  ]

  static let commands = [
    Saving(name: "sed -i", script: "sed -i s/old/new/ doc.txt"),
    Saving(name: "perl -i", script: "perl -i -pe s/old/new/ doc.txt"),
    Saving(name: "cp over it", script: "sed s/old/new/ doc.txt > /tmp/$$; cp /tmp/$$ doc.txt; rm /tmp/$$"),
    Saving(
      name: "rsync",
      script: "mkdir /tmp/$$; sed s/old/new/ doc.txt > /tmp/$$/doc.txt; rsync -aI /tmp/$$/ .; rm -r /tmp/$$",
      needs: "rsync"),
    Saving(
      name: "rsync --inplace",
      script: "mkdir /tmp/$$; sed s/old/new/ doc.txt > /tmp/$$/doc.txt; rsync -aI --inplace /tmp/$$/ .; rm -r /tmp/$$",
      needs: "rsync"),
    Saving(name: "dd conv=notrunc,fsync", script: "printf new | dd of=doc.txt conv=notrunc,fsync status=none"),
  ]
  /// Those whose programs are here.
  static let possible = all.filter { $0.isPossible }
}

@Suite("A file saved by a program", .enabled(if: Machine.canMount, Machine.needsMount))
struct SavingTests {
  @Test("keeps its id, edges, tags and attributes, and is sent once", arguments: Saving.possible)
  func keepsWhatItIs(_ saving: Saving) throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir item; printf 'old text\\nand more\\n' > item/doc.txt
        setfattr -n user.xdg.tags -v 'green,red' item/doc.txt
        setfattr -n user.xdg.comment -v 'a comment' item/doc.txt
        setfattr -n user.colour -v blue item/doc.txt
        """)
      let before = try mount.attributes(of: "item/doc.txt")
      try shell(saving.script, in: mount.point + "/item")
      try check(mount, before, saving)
      try mount.remount()
      try check(mount, before, saving)
    }
  }

  private func check(_ mount: Mount, _ before: [String: String], _ saving: Saving) throws {
    #expect(try mount.text("item/doc.txt") == "new text\nand more\n")
    let after = try mount.attributes(of: "item/doc.txt")
    let same = [
      "user.marfa.id", "user.marfa.edge", "user.marfa.type", "user.xdg.tags", "user.xdg.comment", "user.colour",
      "user.mime_type", "user.marfa.upload", "user.marfa.held",
    ]
    for name in same { #expect(after[name] == before[name], "\(name)") }
    #expect(after["user.xdg.tags"] == "green,red")
    #expect(after["user.marfa.hash"] != before["user.marfa.hash"])

    let queue = try mount.queue()
    #expect(queue.count("upload_blob") == 1 + saving.leaves.count, "\(queue.writes)")
    #expect(queue.writes.contains { $0.hash == after["user.marfa.hash"] })
    #expect(queue.titles == Set(["item", "doc.txt"] + saving.leaves))
  }
}

@Suite("A new file that a program makes", .enabled(if: Machine.canMount, Machine.needsMount))
struct NewFileTests {
  private static let makings = [
    Saving(
      name: "vim", script: "vim -N -u NONE -i NONE -es -c 'set swapfile directory=.' -c 'normal inew' -c wq doc.txt",
      needs: "vim"),
    Saving(name: "GNOME", script: "echo new > .goutputstream-AA; mv .goutputstream-AA doc.txt"),
    Saving(name: "LibreOffice", script: "echo > '.~lock.doc.txt#'; echo new > lu1.tmp; mv lu1.tmp doc.txt"),
    Saving(
      name: "a browser",
      script: ": > doc.txt; echo n > doc.txt.part; echo new > doc.txt.part; mv doc.txt.part doc.txt"),
    Saving(name: "Firefox", script: ": > doc.txt; echo new > Kc3z_1a.txt.part; mv Kc3z_1a.txt.part doc.txt"),
    Saving(
      name: "rsync", script: "mkdir /tmp/$$; echo new > /tmp/$$/doc.txt; rsync -aI /tmp/$$/ .; rm -r /tmp/$$",
      needs: "rsync"),
    Saving(name: "curl -C, in pieces", script: "printf n > doc.txt; printf e >> doc.txt; echo w >> doc.txt"),
    Saving(name: "install", script: "echo new > /tmp/$$; install -m 600 /tmp/$$ doc.txt; rm /tmp/$$"),
  ].filter { $0.isPossible }

  @Test("is one item with one upload, and what the program had beside it is none", arguments: makings)
  func isOneItem(_ saving: Saving) throws {
    try withMount { mount in
      try mount.shell("mkdir item")
      try shell(saving.script, in: mount.point + "/item")
      #expect(try mount.text("item/doc.txt") == "new\n")
      let queue = try mount.queue()
      #expect(queue.count("upload_blob") == 1, "\(queue.writes)")
      #expect(queue.count("create_item") == 2, "\(queue.writes)")
      #expect(queue.titles == ["item", "doc.txt"])
    }
  }
}
