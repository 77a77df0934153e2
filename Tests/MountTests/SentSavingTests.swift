import ContractServer
import Testing

@Suite("A file that a server has, saved by a program", .enabled(if: Machine.canMount, Machine.needsMount))
struct SentSavingTests {
  private static let savings = Saving.possible + Saving.waiting + Saving.itself

  @Test("is one version further there, with one upload, in each of the ways there are")
  func isOneFurther() throws {
    let served = try Served()
    // A write waits for the program's next step, as it does unless a person says otherwise.
    try served.withMount(["--settle", "2"]) { mount in
      let numbered = Self.savings.enumerated().map { (folder: "item \($0)", saving: $1) }
      for (folder, _) in numbered {
        try mount.shell(
          """
          mkdir '\(folder)'; cd '\(folder)'; printf 'old text\\nand more\\n' > doc.txt
          setfattr -n user.xdg.tags -v 'green,red' doc.txt; setfattr -n user.colour -v blue doc.txt
          """)
      }
      try mount.send()
      var before: [[String: String]] = []
      for (folder, _) in numbered {
        // The event of the first tag may come after the answer to the second.
        #expect(try eventually { try mount.attribute("user.xdg.tags", of: "\(folder)/doc.txt") == "green,red" })
        before.append(try mount.attributes(of: "\(folder)/doc.txt"))
      }
      for (folder, saving) in numbered { try shell(saving.script, in: mount.point + "/" + folder) }
      try mount.send()
      for ((folder, saving), before) in zip(numbered, before) {
        let after = try mount.attributes(of: "\(folder)/doc.txt")
        #expect(try mount.text("\(folder)/doc.txt") == "new text\nand more\n", "\(saving)")
        let same = [
          "user.marfa.id", "user.marfa.edge", "user.marfa.type", "user.xdg.tags", "user.colour", "user.marfa.upload",
        ]
        for name in same { #expect(after[name] == before[name], "\(name), \(saving)") }
        #expect(after["user.marfa.upload"] == "stored", "\(saving)")
        let versions = [before, after].map { Int($0["user.marfa.version"] ?? "") ?? 0 }
        #expect(versions[1] == versions[0] + 1, "\(versions), \(saving)")
        #expect(after["user.marfa.hash"] != before["user.marfa.hash"], "\(saving)")
      }
      // Nothing else of the programs' went to the server.
      let titles = try served.server.change { try $0.items() }.compactMap { $0.title }
      let left = Self.savings.flatMap { $0.leaves }
      #expect(titles.sorted() == (numbered.flatMap { [$0.folder, "doc.txt"] } + left).sorted())
    }
  }
}
