import ContractServer
import Foundation
import Testing

@Suite("Pictures and films in the mount", .enabled(if: Machine.canMount, Machine.needsMount))
struct MediaTests {
  @Test(
    "are made, looked at, cut and read from anywhere by ffmpeg",
    .enabled(if: Machine.has("ffmpeg", "ffprobe"), "there is no ffmpeg"))
  func films() throws {
    try withMount { mount in
      try mount.shell(
        """
        mkdir item; make() { ffmpeg -v error -nostdin -f lavfi -i testsrc=d=6:s=160x120:r=10 -g 10 -y "$@"; }
        make -c:v mpeg4 item/a.mp4; make -c:v mpeg4 $1/a.mp4; cmp item/a.mp4 $1/a.mp4
        ffmpeg -v error -nostdin -i item/a.mp4 -c copy -movflags +faststart item/fast.mp4
        ffmpeg -v error -nostdin -i item/a.mp4 -c copy item/a.mkv
        for f in a.mp4 fast.mp4 a.mkv; do
          ffprobe -v error -show_entries format=duration -of csv=p=0 item/$f | grep -q '^6\\.0'
          for at in 5 1 3; do ffmpeg -v error -nostdin -ss $at -i item/$f -frames:v 1 -y $1/$f.$at.ppm; done
        done
        for at in 5 1 3; do cmp $1/a.mp4.$at.ppm $1/fast.mp4.$at.ppm; cmp $1/a.mp4.$at.ppm $1/a.mkv.$at.ppm; done
        """, seconds: 120)
      #expect(try mount.attribute("user.mime_type", of: "item/a.mkv")?.hasPrefix("video/") == true)
      #expect(try mount.queue().titles == ["item", "a.mp4", "fast.mp4", "a.mkv"])
    }
  }

  @Test(
    "are changed in place and as copies by ImageMagick",
    .enabled(if: Machine.has("mogrify", "identify"), "there is no ImageMagick"))
  func pictures() throws {
    try withMount { mount in
      try mount.shell(
        "mkdir item; mogrify -version > /dev/null; printf 'P3 2 2 255 255 0 0 0 255 0 0 0 255 9 9 9\\n' > item/p.ppm")
      let id = try mount.attribute("user.marfa.id", of: "item/p.ppm")
      try mount.shell(
        """
        cd item; mogrify -format png -resize 40x40! p.ppm; identify -format '%wx%h %m' p.png | grep -qx '40x40 PNG'
        mogrify -rotate 90 -resize 20x30! p.ppm; identify -format '%wx%h %m' p.ppm | grep -qx '20x30 PPM'
        """)
      #expect(try mount.attribute("user.marfa.id", of: "item/p.ppm") == id)
      let queue = try mount.queue()
      #expect(queue.titles == ["item", "p.ppm", "p.png"] && queue.count("upload_blob") == 2, "\(queue.writes)")
    }
  }

  @Test("on a server cost a file manager that looks at the start of each about what it reads")
  func thumbnails() throws {
    let served = try Served()
    let (count, size) = (40, 4_000_000)
    let trip = try served.server.change { try $0.createNote("trip") }
    var bytes = [UInt8](repeating: 0, count: size)
    for number in 0..<count {
      bytes[0] = UInt8(number)
      _ = try served.server.change { try $0.createFile("film \(number).mp4", bytes, attachedTo: trip) }
    }
    try served.withMount { mount in
      #expect(eventually(seconds: 30) { isThere(mount.point + "/trip/film \(count - 1).mp4") })
      // A listing with lengths, then the start of each, as it tells what a file is; then the end, where an index may be.
      try mount.shell("ls -l trip > /dev/null; for f in trip/*; do head -c 4096 \"$f\" > /dev/null; done")
      func fetched() throws -> Int {
        try (0..<count).reduce(0) { sum, number in
          sum + (Int(try mount.attribute("user.marfa.held_bytes", of: "trip/film \(number).mp4") ?? "") ?? 0)
        }
      }
      let starts = try fetched()
      #expect(starts >= count * 4096 && starts <= count * (128 << 10), "\(starts) bytes of \(count * size)")
      try mount.shell("for f in trip/*; do tail -c 1000 \"$f\" > /dev/null; done")
      let both = try fetched()
      #expect(both <= count * (384 << 10), "\(both) bytes of \(count * size)")
      #expect(try File(mount.point + "/trip/film 7.mp4", O_RDONLY).read(2) == [7, 0])
    }
  }
}
