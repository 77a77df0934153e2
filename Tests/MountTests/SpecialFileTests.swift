import CLinux
import Glibc
import Testing

@Suite("Links, pipes, sockets and devices in the mount", .enabled(if: Machine.canMount, Machine.needsMount))
struct SpecialFileTests {
  /// A folder `item` with one of each that anybody may make, and a file.
  private let making = """
    mkdir item; cd item; echo text > file; ln -s file link; mkfifo -m 640 pipe
    python3 -c 'import socket; s = socket.socket(socket.AF_UNIX); s.bind("socket")'
    """

  @Test("carry bytes from one program to another", .enabled(if: Machine.has("python3"), "there is no python3"))
  func carry() throws {
    try withMount { mount in
      try mount.shell(
        """
        \(making); head -c 1000000 /dev/urandom > $1/bytes
        timeout 30 cat $1/bytes > pipe & timeout 30 cmp pipe $1/bytes; wait; cmp file <(echo text); cat link
        """)
      let script = """
        import os, socket
        os.unlink("socket"); server = socket.socket(socket.AF_UNIX); server.bind("socket"); server.listen(1)
        if os.fork() == 0:
          client = socket.socket(socket.AF_UNIX); client.connect("socket"); client.sendall(b"hello"); os._exit(0)
        print(server.accept()[0].recv(5).decode())
        """
      let outcome = try run(["timeout", "30", "python3", "-c", script], in: mount.point + "/item")
      #expect(outcome.output == "hello\n", "\(outcome)")
    }
  }

  @Test(
    "keep what they are over a remount, are renamed, linked, copied and removed, and never queued",
    .enabled(if: Machine.has("python3", "rsync"), "there is no python3 or no rsync"))
  func live() throws {
    try withMount { mount in
      try mount.shell("\(making); touch -d '2011-01-01 01:01:01.123456789' pipe; chmod 600 socket; ln pipe pipe2")
      let show = "find item ! -type d -printf '%P %y %m %n %s %T+ %l\\n' | grep -v ^file | sed 's/ [^ ]* $/ t/' | sort"
      let wanted = "link l 777 1 4 TIME file\npipe p 640 2 0 t\npipe2 p 640 2 0 t\nsocket s 600 1 0 t\n"
      func check() throws {
        let found = try mount.shell(show).output.replacing(#/ \d{4}-[^ ]* file/#, with: " TIME file")
        #expect(found == wanted)
        #expect(try mount.shell("stat -c %y item/pipe").output == "2011-01-01 01:01:01.123456789 +0000\n")
      }
      try check()
      try mount.remount()
      try check()
      let queued = try mount.queue()
      #expect(queued.titles == ["item", "file"], "\(queued.writes)")
      try mount.shell(
        """
        cp -a item $1/item; rsync -a item/ $1/again; rsync -ani item/ $1/again | grep -v '^\\.d' && exit 1
        tar -cf $1/t item; tar -tvf $1/t | grep -q ^p; mv $1/again item/back; test -p item/back/pipe -a -S item/back/socket
        mv item/pipe item/moved; test -p item/moved; mv item/moved item/link; test -p item/link
        mkdir other; mv item/socket other/; test -S other/socket; mkdir .Trash; mv other/socket .Trash/; mv .Trash/socket other/
        """)
      // A pipe over a file takes the file's place, and a file a pipe's.
      try mount.shell("mv item/pipe2 item/file; test -p item/file; echo new > n; mv n item/file; grep -q new item/file")
      try mount.shell("rm -r item other .Trash; test -z \"$(ls -A)\"")
      #expect(try mount.queue().total == 0)
    }
  }

  @Test("name no attributes, which nobody could read, so that whoever copies attributes copies them")
  func attributes() throws {
    try withMount { mount in
      try mount.shell("mkdir item; cd item; echo text > file; ln -s file link; mkfifo pipe")
      var names = [CChar](repeating: 0, count: 1000)
      for name in ["link", "pipe"] {
        #expect(llistxattr(mount.point + "/item/" + name, &names, names.count) == 0, "\(name)")
        #expect(errorOf { lsetxattr(mount.point + "/item/" + name, "user.colour", "blue", 4, 0) } == EPERM, "\(name)")
      }
      try mount.shell("cp -P --preserve=xattr item/link item/link2; cp -aP --preserve=xattr item/pipe item/pipe2")
      if Machine.has("rsync") { try mount.shell("cd item; rsync -lX --specials link pipe $1/; test -L $1/link") }
    }
  }

  @Test("of root's, a device says which it is, and can't be opened", .enabled(if: Machine.isRoot, Machine.needsRoot))
  func devices() throws {
    try withMount { mount in
      try mount.shell("mkdir item; mknod -m 666 item/null c 1 3; mknod item/disk b 259 70000")
      func check() throws {
        #expect(
          try mount.shell("stat -c '%F %a %t %T %s' item/null item/disk").lines == [
            "character special file 666 1 3 0", "block special file 644 103 11170 0",
          ])
        let outcome = try run(["bash", "-c", "echo x > item/null"], in: mount.point)
        #expect(outcome.status != 0 && outcome.errors.contains("Permission denied"), "\(outcome)")
      }
      try check()
      // A change of owner takes set-user-ID away from anything but a folder.
      try mount.shell("mkfifo -m 755 p; chmod u+s p; chown 12345 p; test $(stat -c %a:%u p) = 755:12345; rm p")
      try mount.remount()
      try check()
      #expect(try mount.queue().titles == ["item"])
    }
  }
}
