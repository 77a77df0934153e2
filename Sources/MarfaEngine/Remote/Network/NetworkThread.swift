import CCurl
import Glibc

/// The loop that owns the multi handle: the only code, with ``LiveTransfer``, that calls libcurl's other functions.
final class NetworkThread {
  private let inbox: NetworkInbox
  private let multi: UnsafeMutableRawPointer?
  private let limits: NetworkLimits
  private let deadlines = Deadlines()
  private var live: [UInt64: LiveTransfer] = [:]
  private var ids: [UnsafeMutableRawPointer: UInt64] = [:]

  init(_ inbox: NetworkInbox, _ limits: NetworkLimits) {
    self.inbox = inbox
    self.limits = limits
    multi = inbox.multi
    guard let multi else { return }
    // Without a bound, many requests at once overrun a small server's queue of connections to be accepted.
    marfa_curl_multi_set_long(multi, CURLMOPT_MAX_HOST_CONNECTIONS, limits.connectionsPerHost)
    marfa_curl_multi_set_long(multi, CURLMOPT_MAXCONNECTS, max(64, limits.connectionsPerHost * 2))
    marfa_curl_multi_set_long(multi, CURLMOPT_PIPELINING, marfa_curl_multiplex)
  }

  /// Until the network is closed.
  func run() {
    inbox.begin()
    var running: CInt = 0
    while let commands = inbox.take() {
      for command in commands { act(on: command) }
      curl_multi_perform(multi, &running)
      handOn()
      finishDone()
      expire()
      let wait = deadlines.milliseconds(until: Monotonic.now, atMost: 60_000)
      if let multi {
        curl_multi_poll(multi, nil, 0, wait, nil)
      } else {
        usleep(10_000)  // libcurl could not be set up at all: every request is told so.
      }
    }
    for command in inbox.shut() {
      switch command {
      case .start(_, _, let handler): handler.end(.failure(.shutDown))
      case .work(let work): work()
      case .cancel, .resume: break
      }
    }
    for id in Array(live.keys) { finish(id, .failure(.shutDown)) }
    curl_multi_cleanup(multi)
  }

  private func act(on command: NetworkCommand) {
    switch command {
    case .start(let id, let request, let handler): start(id, request, handler)
    case .cancel(let id): finish(id, .failure(.canceled))
    case .resume(let id):
      guard let transfer = live[id], let result = transfer.resume() else { return }
      finish(id, result)
    case .work(let work): work()
    }
  }

  private func start(_ id: UInt64, _ request: HTTPRequest, _ handler: any TransferHandler) {
    do throws(NetworkFailure) {
      let transfer = try LiveTransfer(request, handler, limits, deadlines)
      live[id] = transfer
      ids[transfer.easy] = id
      guard curl_multi_add_handle(multi, transfer.easy) == CURLM_OK else {
        finish(id, .failure(.unreachable("the request could not be started")))
        return
      }
    } catch {
      handler.end(.failure(error))
    }
  }

  private func handOn() {
    for (id, transfer) in live {
      if let result = transfer.handOn() { finish(id, result) }
    }
  }

  private func finishDone() {
    var left: CInt = 0
    while let message = curl_multi_info_read(multi, &left) {
      guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle, let id = ids[easy],
        let transfer = live[id]
      else { continue }
      // The message is libcurl's and gone with the handle's removal.
      let result = transfer.result(of: marfa_curl_message_result(message))
      if let result = transfer.hold(result) { finish(id, result) }
    }
  }

  private func expire() {
    let now = Monotonic.now
    guard deadlines.next <= now else { return }
    deadlines.next = .max
    for (id, transfer) in live {
      if let failure = transfer.expired(at: now) { finish(id, .failure(failure)) }
    }
  }

  /// Takes a transfer out of libcurl first, then says its end.
  private func finish(_ id: UInt64, _ result: Result<Void, NetworkFailure>) {
    guard let transfer = live.removeValue(forKey: id) else { return }
    ids[transfer.easy] = nil
    curl_multi_remove_handle(multi, transfer.easy)
    transfer.end(result)
  }
}

/// When the next limit of time passes, over all transfers: never later than the first of them.
final class Deadlines {
  var next = Int64.max

  func note(_ deadline: Int64) { next = min(next, deadline) }

  func milliseconds(until now: Int64, atMost limit: CInt) -> CInt {
    guard next != .max else { return limit }
    return CInt(clamping: min(Int64(limit), max(0, (next - now) / 1_000_000 + 1)))
  }
}

extension Duration {
  /// Whole nanoseconds, held to what fits with room to spare.
  var nanoseconds: Int64 {
    let (seconds, attoseconds) = components
    return max(0, min(seconds, 1_000_000_000)) * 1_000_000_000 + attoseconds / 1_000_000_000
  }

  /// `10 s`, `250 ms`.
  var words: String {
    let milliseconds = nanoseconds / 1_000_000
    return milliseconds % 1000 == 0 ? "\(milliseconds / 1000) s" : "\(milliseconds) ms"
  }
}
