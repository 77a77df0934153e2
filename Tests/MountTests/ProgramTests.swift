import Testing

@Suite("A git repository in the mount", .enabled(if: Machine.canMount && Machine.has("git"), "needs a mount and git"))
struct RepositoryTests {
  private let identity = "git config user.name me; git config user.email me@example.org; git config gc.auto 0"

  @Test("is made, cloned, packed and checked, and clean after a remount")
  func lives() throws {
    try withMount { mount in
      let tree = try mount.realTree(files: 300)
      try shell(
        "git init -q -b main; \(identity); git add -A; git commit -qm first; echo >> new; git add -A; git commit -qm next",
        in: tree)
      try mount.shell(
        """
        mkdir item; git clone -q \(tree) item/copy; cd item/copy; \(identity)
        test -z "$(git status --porcelain)"; git fsck --full --strict
        git checkout -qb other; echo more >> new; mkdir -p deep/er; echo file > deep/er/file; git add -A
        git commit -qm more; git mv deep deeper; git commit -qm moved; git checkout -q main; git merge -q other
        git tag v1; git gc -q --aggressive --prune=now; git fsck --full --strict
        git stash list; git worktree add -q ../work v1; git -C ../work status --porcelain
        test -z "$(git status --porcelain)"
        """, seconds: 120)
      try mount.remount()
      // The index knows each file's inode and times: not one of them may have changed.
      #expect(try mount.shell("cd item/copy; git diff-files; git status --porcelain; git fsck --full").output == "")
      try mount.shell(
        """
        cd item/copy; git reset -q --hard HEAD~2; git clean -qfd; test ! -e deeper; git pull -q . other
        git log --oneline | wc -l | grep -qx 4; git worktree remove ../work; git fsck --full --strict
        """)
    }
  }

  @Test("can be made in place and pushed to")
  func isPushedTo() throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir item; git init -q --bare -b main item/bare.git
        git clone -q item/bare.git $1/clone 2>/dev/null; cd $1/clone; \(identity)
        for n in $(seq 50); do echo $n > file$n; done; git add -A; git commit -qm first; git push -q origin HEAD:main
        git -C $OLDPWD/item/bare.git fsck --full; git -C $OLDPWD/item/bare.git repack -qad
        git clone -q $OLDPWD/item/bare.git ../second; diff -r -x .git . ../second
        """)
    }
  }
}

@Suite(
  "A database in the mount", .enabled(if: Machine.canMount && Machine.has("sqlite3"), "needs a mount and sqlite3"))
struct DatabaseTests {
  @Test("takes the inserts of two processes and is whole", arguments: ["delete", "wal", "truncate", "persist"])
  func twoProcesses(journal: String) throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir item; cd item
        sqlite3 db 'pragma journal_mode=\(journal); create table t(who, n, text)' > $1/mode
        insert() {
          { echo '.timeout 60000'; for n in $(seq 120); do
            echo "insert into t values('$1', $n, printf('%.500c', 'x'));"; done } | sqlite3 db
        }
        insert a & insert b & wait -n; wait -n
        """, seconds: 120)
      let ask = "cd item; sqlite3 db 'pragma integrity_check; select count(*), count(distinct who || n) from t'"
      #expect(try mount.shell(ask).output == "ok\n240|240\n")
      try mount.remount()
      #expect(try mount.shell(ask).output == "ok\n240|240\n")
      #expect(
        try mount.shell("cd item; sqlite3 db 'delete from t where n > 60; vacuum'; \(ask.dropFirst(9))").output
          == "ok\n120|120\n")
    }
  }

  @Test(
    "is whole, with every transaction it had answered for, when the mount's process is killed",
    arguments: ["delete", "wal"])
  func killed(journal: String) throws {
    try withMount { mount in
      mount.expectedWarnings = ["being written when the last process ended"]
      try mount.shell("mkdir item; sqlite3 item/db 'pragma journal_mode=\(journal); create table t(n)'")
      let writer = try Program(
        [
          "bash", "-c",
          """
          for n in $(seq 5000); do echo "insert into t values($n);"; echo "select 'done ' || $n;"; done | sqlite3 -bail item/db
          """,
        ], in: mount.point)
      #expect(eventually { writer.soFar.contains("done 40\n") })
      try mount.crash()
      let done = try writer.wait().lines.last { $0.hasPrefix("done ") && $0.count > 5 }
      let answered = try #require(done?.dropFirst(5))
      try mount.start()
      let found = try mount.shell(
        "sqlite3 item/db 'pragma integrity_check; select count(*) >= \(answered), max(n) = count(*) from t'")
      #expect(found.output == "ok\n1|1\n", "after \(answered)")
    }
  }
}

@Suite("An archive in the mount", .enabled(if: Machine.canMount, Machine.needsMount))
struct ArchiveTests {
  @Test("is packed and unpacked there as elsewhere")
  func packs() throws {
    try withMount { mount in
      let tree = try mount.realTree(files: 200)
      try mount.shell(
        """
        mkdir item; tar -C \(tree) -czf item/a.tar.gz .; mkdir item/out; tar -C item/out -xzf item/a.tar.gz
        diff -r \(tree) item/out; tar -C item/out -dzf item/a.tar.gz
        tar -C item/out -cf item/b.tar .; tar -C item/out -rf item/b.tar --transform 's/^/again\\//' .
        tar -tf item/b.tar > /dev/null; tar -C item/out -df item/b.tar .
        """, seconds: 120)
    }
  }

  @Test("is zipped, changed and unzipped", .enabled(if: Machine.has("zip", "unzip"), "there is no zip"))
  func zips() throws {
    try withMount { mount in
      let tree = try mount.realTree(files: 100)
      try mount.shell(
        """
        mkdir item; cp -r \(tree) item/tree; cd item; zip -qr all.zip tree; unzip -tq all.zip
        echo more > tree/more; zip -qu all.zip tree/more; mkdir out; unzip -qd out all.zip; diff -r tree out/tree
        zip -qd all.zip tree/more; unzip -tq all.zip
        """, seconds: 120)
      let queue = try mount.queue()
      #expect(queue.writes.count { $0.kind == "upload_blob" && $0.title == "all.zip" } <= 1)
      #expect(queue.titles.filter { $0.hasPrefix("zi") } == [], "zip's own temporaries are no items")
    }
  }
}
