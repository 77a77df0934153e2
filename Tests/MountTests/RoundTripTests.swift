import Foundation
import Testing

@Suite("A tree of a person's files copied into the mount", .enabled(if: Machine.canMount, Machine.needsMount))
struct RoundTripTests {
  @Test("comes back as it was, and again after the store was mounted anew")
  func copiesCompareEqual() throws {
    try withMount { mount in
      let tree = try mount.realTree(files: 2000)
      try mount.shell("mkdir item && cp -r \(tree) item/tree && diff -r \(tree) item/tree", seconds: 120)
      let before = try mount.shell("getfattr -R -d -m - item | grep -v held_bytes", seconds: 60)
      #expect(before.output.contains("user.marfa.upload=\"queued\""))
      #expect(!before.output.contains("user.marfa.upload=\"writing\""))
      try mount.remount()
      try mount.shell("diff -r \(tree) item/tree", seconds: 120)
      #expect(try mount.shell("getfattr -R -d -m - item | grep -v held_bytes", seconds: 60) == before)
    }
  }

  @Test("is no news to rsync when it is asked again", .enabled(if: Machine.has("rsync"), "there is no rsync"))
  func rsyncFindsNothingToDo() throws {
    try withMount { mount in
      let tree = try mount.realTree(files: 500)
      try mount.shell("mkdir item && rsync -a \(tree)/ item/ && rsync -a \(tree)/ item/", seconds: 120)
      #expect(try mount.shell("rsync -ani \(tree)/ item/").output == "")
      try mount.remount()
      #expect(try mount.shell("rsync -ani --checksum \(tree)/ item/").output == "")
      #expect(try mount.shell("rsync -ani \(tree)/ item/").output == "")
    }
  }

  @Test(
    "keeps its times to the nanosecond, its modes and its links",
    arguments: ["cp -a $1/tree item/", "tar -C $1 --format=posix --xattrs -c tree | tar -C item --xattrs -xp"])
  func keepsWhatArchivesKeep(_ copy: String) throws {
    try withMount { mount in
      try shell(
        """
        mkdir -p tree/deep/er; cd tree
        echo one > one; echo two > deep/two; : > nothing; printf 'x' > deep/er/three
        ln -s ../one deep/link; ln -s /no/where broken; ln one deep/hard
        chmod 600 one; chmod 754 deep/two; chmod 500 deep/er; chmod 4755 deep/er/three
        setfattr -n user.colour -v blue deep/two
        touch -d '2001-02-03 04:05:06.123456789' one
        touch -d '1965-02-03 04:05:06.987654321' deep/two
        touch -d '2100-12-31 23:59:59.999999999' nothing
        touch -h -d '2010-10-10 10:10:10.101010101' deep/link
        touch -d '2020-02-02 02:02:02.222222222' deep/er deep .
        """, in: mount.outside)
      let show = """
        find tree -printf '%P %y %m %l %n %s %T+\\n' | sed 's/ d \\([0-9]*\\)  [0-9]* [0-9]*/ d \\1/' | sort
        getfattr -d -m 'user.colour' tree/deep/two; stat -c %h tree/one; test tree/one -ef tree/deep/hard
        """
      let wanted = try shell(show, in: mount.outside).output
      try mount.shell("mkdir item; \(copy)")
      #expect(try mount.shell("cd item; \(show)").output == wanted)
      try mount.remount()
      #expect(try mount.shell("cd item; \(show)").output == wanted)
    }
  }
}
