/// Where one reader of a blob reads in order, and how far ahead of it is worth fetching. A value: what is done about it is
/// ``BlobFetch``'s.
struct ReadStreams: Sendable {
  /// The first window; it doubles from there to the usual one, and grows fourfold behind that: whoever came so far reads
  /// on, and each step costs a round trip in which a long link stands idle.
  static let firstWindow: Int64 = 256 << 10
  /// As far it grows while the reader reads on; further only while the link is what the reader waits for.
  static let usualWindow: Int64 = 1 << 20
  /// No window is larger.
  static let largestWindow: Int64 = 32 << 20
  /// What a program's reads may be out of order by: the kernel reads ahead with several requests at once, and they
  /// come to us on several threads.
  private static let slack: Int64 = 2 << 20
  /// Places read in turns that are remembered.
  private static let most = 4

  /// One place that is read in order.
  struct Stream: Sendable, Equatable {
    /// Where it began.
    var start: Int64
    /// Behind the furthest byte read.
    var next: Int64
    /// How far ahead of `next` to fetch; 0 until a second read followed the first.
    var window: Int64 = 0
    /// The window grows again when `next` is here.
    var growsAt: Int64 = 0
    /// Nothing is fetched ahead until it is read again: the reader went elsewhere.
    var isLeft = false

    fileprivate func continues(with range: Range<Int64>) -> Bool {
      if window == 0 { return range.lowerBound == next || range.upperBound == start }
      return range.lowerBound <= next + max(window, slack) && range.upperBound >= next - slack
    }
  }

  /// The last one read first.
  private(set) var streams: [Stream] = []

  /// Notes a read. `isBehind` tells whether what lies at an offset has yet to come. Answers true for a seek: what the reader's other places had fetched ahead is not
  /// wanted any more.
  mutating func note(_ range: Range<Int64>, most: Int64, isBehind: (Int64) -> Bool) -> Bool {
    guard let index = streams.firstIndex(where: { $0.continues(with: range) }) else {
      for index in streams.indices { streams[index].isLeft = true }
      streams.insert(Stream(start: range.lowerBound, next: range.upperBound), at: 0)
      if streams.count > ReadStreams.most { streams.removeLast() }
      return streams.count > 1
    }
    var stream = streams.remove(at: index)
    stream.isLeft = false
    stream.start = min(stream.start, range.lowerBound)
    stream.next = max(stream.next, range.upperBound)
    if stream.window == 0 {
      stream.window = min(ReadStreams.firstWindow, most)
      stream.growsAt = stream.next + stream.window / 2
    } else if stream.next >= stream.growsAt,
      stream.window < ReadStreams.usualWindow || isBehind(stream.next + stream.window / 2)
    {
      stream.window = min(stream.window * (stream.window < ReadStreams.usualWindow ? 2 : 4), most)
      stream.growsAt = stream.next + stream.window / 4
    }
    streams.insert(stream, at: 0)
    return false
  }

  /// What to fetch ahead, the place read last first.
  var ahead: [Stream] { streams.filter { $0.window > 0 && !$0.isLeft } }

  /// True when a byte range is in a window.
  func covers(_ range: Range<Int64>) -> Bool {
    streams.contains {
      $0.window > 0 && !$0.isLeft && range.upperBound > $0.next && range.lowerBound < $0.next + $0.window
    }
  }
}
