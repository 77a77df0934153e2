import Testing

extension Saving {
  static let waiting = [
    Saving(
      name: "Emacs with a backup by copying",
      script: """
        ln -s 'me@here.123:456' '.#doc.txt'; cp -p doc.txt doc.txt~; sed s/old/new/ doc.txt~ > doc.txt
        rm '.#doc.txt'
        """),
    Saving(
      name: "GNOME with a backup",
      script: """
        sed s/old/new/ doc.txt > .goutputstream-A1B2C3; ln doc.txt doc.txt~; mv .goutputstream-A1B2C3 doc.txt
        """),
    Saving(
      name: "LibreOffice into the document",
      script: """
        echo me > '.~lock.doc.txt#'; sed s/old/new/ doc.txt > lu8231a.tmp; cat lu8231a.tmp > doc.txt
        rm lu8231a.tmp '.~lock.doc.txt#'
        """),
    Saving(
      name: "a browser",
      script: "sed s/old/new/ doc.txt > doc.txt.part; : > doc.txt; mv doc.txt.part doc.txt"),
    Saving(name: "perl -i.bak", script: "perl -i.bak -pe s/old/new/ doc.txt", leaves: ["doc.txt.bak"]),
    Saving(name: "a shell's redirection", script: "text=$(sed s/old/new/ doc.txt); printf '%s\\n' \"$text\" > doc.txt"),
    Saving(
      name: "truncate and append",
      script: "text=$(sed s/old/new/ doc.txt); truncate -s 0 doc.txt; echo \"$text\" >> doc.txt"),
  ]
}

extension SavingTests {
  @Test("keeps its id, edges, tags and attributes, and is sent once, in these ways too", arguments: Saving.waiting)
  func waiting(_ saving: Saving) throws { try keepsWhatItIs(saving) }
}
