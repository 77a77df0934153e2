import CLinux
import Foundation
import Testing

@Suite("Files and folders moved about in the mount", .enabled(if: Machine.canMount, Machine.needsMount))
struct MovingTests {
  @Test("keep their ids, and what is queued names each once")
  func keepIDs() throws {
    try withMount { mount in
      try mount.shell("mkdir a b; echo text > a/f; mkdir a/sub; echo deep > a/sub/g")
      let (file, folder) = (
        try mount.attribute("user.marfa.id", of: "a/f"), try mount.attribute("user.marfa.id", of: "a/sub")
      )
      try mount.shell("mv a/f b/h; mv a/sub b/; mv b/h b/i; mv b/sub c")
      #expect(try mount.attribute("user.marfa.id", of: "b/i") == file)
      #expect(try mount.attribute("user.marfa.id", of: "c") == folder)
      #expect(try mount.text("b/i") + mount.text("c/g") == "text\ndeep\n")
      let queue = try mount.queue()
      #expect(queue.titles == ["a", "b", "c", "i", "g"])
      #expect(queue.count("create_item") == 5 && queue.count("upload_blob") == 2 && queue.count("create_edge") == 2)
      #expect(queue.total == 9, "\(queue.writes)")
    }
  }

  @Test("in and out by mv arrive whole and leave nothing behind")
  func bothWays() throws {
    try withMount { mount in
      let tree = try mount.realTree(files: 200)
      try mount.shell(
        """
        cp -a \(tree) $1/same; mkdir item; mv \(tree) item/; test ! -e \(tree); diff -r $1/same item/tree
        rsync -ani $1/same/ item/tree/ | grep -v '^\\.d' && exit 1
        mv item/tree item/other; mv item/other $1/back; diff -r $1/same $1/back; test -z "$(ls item)"
        """, seconds: 120)
      #expect(try mount.queue().titles == ["item"])
    }
  }

  @Test("obey rename's flags")
  func flags() throws {
    try withMount { mount in
      try mount.shell("mkdir item; echo one > item/a; echo two > item/b; mkdir item/d; echo in > item/d/f")
      func rename(_ from: String, _ to: String, _ flags: UInt32) -> CInt {
        errorOf { renameat2(AT_FDCWD, mount.point + "/item/" + from, AT_FDCWD, mount.point + "/item/" + to, flags) }
      }
      let (noReplace, exchange): (UInt32, UInt32) = (1, 2)
      #expect(rename("a", "b", noReplace) == EEXIST)
      #expect(rename("a", "d", noReplace) == EEXIST)
      #expect(rename("a", "c", noReplace) == 0)
      #expect(rename("gone", "c", exchange) == ENOENT)
      #expect(rename("c", "gone", exchange) == ENOENT)
      #expect(rename("c", "b", exchange) == 0)
      #expect(try mount.text("item/b") + mount.text("item/c") == "one\ntwo\n")
      // A file and a folder can change places.
      #expect(rename("b", "d", exchange) == 0)
      #expect(try mount.text("item/d") + mount.text("item/b/f") == "one\nin\n")
      #expect(rename("b", "b/f/g", 0) == ENOTDIR)
      #expect(rename("b", "b/g", 0) == EINVAL)
      #expect(rename("b", "b/f", exchange) == EINVAL)
      #expect(rename("d", "b", 0) == EISDIR)
      #expect(rename("b", "d", 0) == ENOTDIR)
      mkdir(mount.point + "/item/empty", 0o755)
      #expect(rename("empty", "b", 0) == ENOTEMPTY)
      #expect(rename("b", "empty", 0) == 0)
      try mount.remount()
      #expect(try mount.shell("cat item/d item/empty/f item/c; ls item").output == "one\nin\ntwo\nc\nd\nempty\n")
    }
  }

  @Test("are found through deep paths, and the whole depth can be removed")
  func deep() throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir item; cd item; deep=$(printf 'd%.0s/' $(seq 400)); mkdir -p $deep; echo bottom > $deep/f
        test $(cat $deep/f) = bottom; test $(find . -type d | wc -l) = 401; realpath $deep > /dev/null
        mv d/d/d top; test $(find top -name f | wc -l) = 1
        for n in $(seq 150); do mkdir $(printf 'n%.0s' $(seq 200)); cd n*; done; echo far > f
        """)
      try mount.remount()
      #expect(try mount.shell("find item -name f -execdir cat {} + | sort").output == "bottom\nfar\n")
      #expect(try mount.shell("rm -r item; find . | wc -l").output == "1\n")
      #expect(try mount.queue().total == 0)
    }
  }

  @Test("are counted by find, du, df and ls as they are")
  func counted() throws {
    try withMount { mount in
      let tree = try mount.realTree(files: 300)
      try mount.shell(
        """
        mkdir item; cp -r \(tree) item/tree
        for what in f d; do test $(find item/tree -type $what | wc -l) = $(find \(tree) -type $what | wc -l); done
        sum() { find $1 -type f -printf '%s\\n' | awk '{ s += $1 } END { print s }'; }
        test $(sum item/tree) = $(sum \(tree)); test $(du -bc $(find item/tree -type f) | tail -n 1 | cut -f 1) = $(sum \(tree))
        test $(du -s --block-size=1 item/tree | cut -f 1) -ge $(sum \(tree))
        find item/tree -newer \(tree) -type f | wc -l | grep -qx $(find \(tree) -type f | wc -l)
        ls -lR item > /dev/null; test $(stat -f -c %T item) = fuseblk -o $(stat -f -c %t item) = 65735546
        """, seconds: 60)
      // `df` tells what can really be written: what the disk under the store has, less what the store keeps for itself.
      let ours = try mount.shell("df --output=avail -B1 . | tail -n 1").output.number
      let disk = try shell("df --output=avail -B1 . | tail -n 1", in: mount.folder).output.number
      #expect(abs(disk - ours - (32 << 20)) < 256 << 20, "\(ours) of \(disk)")
      #expect(try mount.shell("df --output=fstype . | tail -n 1").output == "fuse.marfa\n")
    }
  }

  @Test("are locked by flock and fcntl against other processes")
  func locked() throws {
    try withMount { mount in
      try mount.shell("mkdir item; echo > item/f")
      try mount.shell(
        """
        exec 9< item/f; flock -x 9; ! flock -n item/f true; flock -u 9; flock -n item/f true
        perl -e 'use Fcntl qw(:flock F_SETLK F_WRLCK F_UNLCK SEEK_SET); open F, "+<", "item/f" or die;
          my $lock = pack("s s x4 q q l x4", F_WRLCK, SEEK_SET, 0, 10, 0); fcntl(F, F_SETLK, $lock) or die "lock: $!";
          unless (fork) { open G, "+<", "item/f" or die; exit(fcntl(G, F_SETLK, $lock) ? 1 : 0) } wait; exit($? >> 8)'
        """)
    }
  }
}

extension String {
  /// The number it is.
  var number: Int { Int(split(separator: "\n").first?.split(separator: " ").first ?? "") ?? -1 }
}
