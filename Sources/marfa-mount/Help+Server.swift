/// What `--help` says of the commands about the server, the queue and bytes.
extension Help {
  static let hydrate = """
    marfa-mount hydrate [STORE] [--json]

    Brings the whole list of items from the server again and waits until it is here. A mount
    does so by itself when it has to; this is for when you want to be sure. Nothing that waits
    to be sent is lost. It needs a mount that has a server.

    Examples:
      marfa-mount hydrate
      marfa-mount hydrate ~/Marfa --json
    """

  static let retry = """
    marfa-mount retry [STORE] [--json]

    Tries the server now. After a failure a mount waits before it tries again, at most half a
    minute unless the server asks for more; this ends the wait. So does a file whose bytes come.

    Examples:
      marfa-mount retry
      marfa-mount retry ~/Marfa
    """

  static let pause = """
    marfa-mount pause [STORE] [--json]

    Sends nothing more until "marfa-mount resume", or until the mount ends. What is on its way
    goes on; what changes elsewhere still comes; what you write waits.

    Examples:
      marfa-mount pause
      marfa-mount pause ~/Marfa
    """

  static let resume = """
    marfa-mount resume [STORE] [--json]

    Sends again after "marfa-mount pause".

    Examples:
      marfa-mount resume
    """

  static let release = """
    marfa-mount release WRITE... [--store STORE] [--json]

    Sends writes again that are blocked or dead, with all that waited on them, as new
    requests. One the server refused is not sent again: it would be refused again. WRITE is a
    number that "marfa-mount queue" shows.

    Examples:
      marfa-mount release 42
      marfa-mount release 42 43 --store trips.db
    """

  static let withdraw = """
    marfa-mount withdraw WRITE... [--store STORE] [--json]

    Takes back writes that have not gone out, with all that waits on them; the mount shows
    what there is without them. A file or folder they were to make stays on this device, and
    so do bytes that were to replace others, beside those, as "NAME (not sent)"
    (before its extension).
    WRITE is a number that "marfa-mount queue" shows.

    Examples:
      marfa-mount withdraw 42
      marfa-mount pause && marfa-mount withdraw 42 && marfa-mount resume
    """

  static let discard = """
    marfa-mount discard WRITE... [--store STORE] [--json]

    Gives up writes that are blocked, refused or dead, with all that waits on them. What they
    said is gone from the queue; a file or folder they were to make stays on this device, and
    so do bytes that were to replace others, beside those, as "NAME (not sent)"
    (before its extension).
    WRITE is a number that "marfa-mount queue" shows.

    Examples:
      marfa-mount discard 42
    """

  static let pin = """
    marfa-mount pin ITEM... [--store STORE] [--json]

    Pins items: what is attached to them is kept on this device, and they stay here when they
    leave what the store brings from its server. setfattr -n user.marfa.pin -v yes does the
    same. It is known on this device only.

    \(item)

    Examples:
      marfa-mount pin ~/Marfa/Norway
      marfa-mount pin ~/Marfa/Norway/fjord.jpg
    """

  static let unpin = """
    marfa-mount unpin ITEM... [--store STORE] [--json]

    Takes a pin away: what is attached to the item may be let go of again, when the budget and
    --keep say so.

    \(item)

    Examples:
      marfa-mount unpin ~/Marfa/Norway
    """

  static let fetch = """
    marfa-mount fetch [ITEM...] [--store STORE] [--json]

    Brings bytes here, so that they can be read without the server: those of the files named
    and of all files in the folders named; without a name, of every attachment that is kept
    (--keep) and every pinned file. It shows how far it is on a terminal. What the budget has
    no room for does not stay here: the command says so and exits with 1. When the command is
    interrupted, the fetch ends; what came stays. It needs a mount that has a server.

    Examples:
      marfa-mount fetch
      marfa-mount fetch ~/Marfa/Norway
      marfa-mount fetch ~/Marfa/Norway/fjord.jpg
    """

  static let evict = """
    marfa-mount evict ITEM... [--store STORE] [--json]
    marfa-mount evict --all [--store STORE] [--json]

    Lets the bytes of files go, to make room; the files stay, and their bytes are fetched again
    when they are read. Bytes that only this device has, and those of pinned items, stay.

      --all   every file that was fetched, but for attachments that are kept

    Examples:
      marfa-mount evict ~/Marfa/Norway
      marfa-mount evict --all
    """

  static let trim = """
    marfa-mount trim [STORE] [--json]

    Lets go of what is over the budget, the files read longest ago first. A mount does so by
    itself.

    Examples:
      marfa-mount trim
    """
}
