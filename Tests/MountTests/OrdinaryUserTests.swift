import Glibc
import Testing

@Suite(
  "Somebody who is not root",
  .enabled(
    if: Machine.canMount && Machine.isRoot && Machine.has("setpriv", "unshare", "fusermount3"),
    "needs root, to become somebody else in a namespace of mounts of their own"))
struct OrdinaryUserTests {
  /// Runs a script as nobody, in a folder of theirs, in a namespace where they may open the kernel's device.
  private func asNobody(_ script: String, _ body: (Outcome) throws -> Void) throws {
    let mount = try Mount()
    defer { mount.end() }
    let program = try #require(Machine.program)
    let outcome = try run(
      [
        "unshare", "--mount", "--propagation", "private", "bash", "-euc",
        """
        cd "$1"; mkdir home; mknod fuse c 10 229; chmod 666 fuse; cp "$2" marfa-mount; chmod 755 marfa-mount .
        chown nobody home mount outside; mount --bind fuse /dev/fuse
        trap 'umount -l mount 2> /dev/null || true' EXIT
        cd home; HOME=$PWD setpriv --reuid=nobody --regid=nogroup --clear-groups bash -euo pipefail -c "$3" test
        """, "test", mount.folder, program, "marfa=../marfa-mount; m=$(cd ../mount; pwd)\n" + script,
      ], seconds: 60)
    try body(outcome)
  }

  @Test("mounts, copies, edits, unmounts and mounts again")
  func lives() throws {
    try asNobody(
      """
      $marfa store.db $m > said; grep -q Mounted said; test $(stat -c %U $m) = nobody
      mkdir $m/item; cp -rp /usr/include/linux $m/item/; diff -r /usr/include/linux $m/item/linux
      sed -i s/Copyright/copyright/ $m/item/linux/fuse.h; test "$(stat -c %U:%G:%a $m/item/linux/fuse.h)" = nobody:nogroup:644
      getfattr -d -m - $m/item/linux/fuse.h | grep -q 'upload="queued"'
      $marfa unmount $m; ! mountpoint -q $m; $marfa store.db $m > said; grep -q copyright $m/item/linux/fuse.h
      fusermount3 -u $m; for n in $(seq 100); do mountpoint -q $m || break; sleep 0.05; done
      ls -l store.db | grep -q '^-rw-------'; test $(stat -c %a store.db.blobs) = 700
      test "$(find store.db.blobs -type f -perm /077 | wc -l)" = 0
      """
    ) { #expect($0.status == 0, "\($0)") }
  }

  @Test("is told of what they may not do, and a crash of theirs is replaced")
  func limits() throws {
    try asNobody(
      """
      $marfa store.db $m > said; mkdir $m/item; echo x > $m/item/f; chmod 0 $m/item/f
      ! cat $m/item/f 2> said; grep -q 'Permission denied' said; ! chown root $m/item/f 2> said; chmod 600 $m/item/f
      ! chgrp root $m/item/f 2> said; chmod 500 $m/item; ! touch $m/item/g 2> said; chmod 700 $m/item
      pid=$($marfa status $m --json | grep -o '"pid":[0-9]*' | cut -d : -f 2); kill -9 $pid
      while kill -0 $pid 2> /dev/null; do sleep 0.02; done
      ! ls $m 2> said; $marfa store.db $m > said; test "$(cat $m/item/f)" = x; $marfa unmount $m
      """
    ) { #expect($0.status == 0, "\($0)") }
  }

  @Test("reads held files through the program, which says why, whatever the kernel offers")
  func ordinary() throws {
    try asNobody(
      """
      $marfa store.db $m --passthrough > said; $marfa status $m > said; grep -q '^Reads *ordinary: ' said
      mkdir $m/item; head -c 3000000 /dev/urandom > f; cp f $m/item/; for n in 1 2 3; do cmp f $m/item/f; sleep 0.1; done
      exec 3< $m/item/f; echo more >> $m/item/f; test "$(tail -c +3000001 <&3)" = more; exec 3<&-; $marfa unmount $m
      """
    ) { #expect($0.status == 0, "\($0)") }
  }

  @Test("can't look into the mount of another")
  func others() throws {
    try withMount { mount in
      try mount.shell("mkdir item; echo secret > item/f")
      chmod(mount.folder, 0o755)
      let outcome = try run([
        "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "cat", mount.point + "/item/f",
      ])
      #expect(outcome.status != 0 && outcome.errors.contains("Permission denied"), "\(outcome)")
    }
  }
}
