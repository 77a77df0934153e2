import MarfaFS

/// `help [COMMAND]`.
enum HelpCommand {
  /// The command to tell of; `help` itself for the overview.
  static func topic(_ line: CommandLineParser.Line) throws(CommandFailure) -> Command {
    guard let word = line.operands.first else { return .help }
    guard line.operands.count == 1, let command = Command(rawValue: word) else {
      throw CommandLineParser.usage("there is no command \"\(line.operands.joined(separator: " "))\"")
    }
    return command
  }
}

/// What `--help` says.
enum Help {
  static func text(for command: Command) -> String {
    switch command {
    case .help: overview
    case .mount: mount
    case .unmount: unmount
    case .status: status
    case .queue: queue
    case .hydrate: hydrate
    case .retry: retry
    case .pause: pause
    case .resume: resume
    case .release: release
    case .withdraw: withdraw
    case .discard: discard
    case .pin: pin
    case .unpin: unpin
    case .fetch: fetch
    case .evict: evict
    case .trim: trim
    case .cache: cache
    case .budget: budget
    case .attach: attach
    case .embed: embed
    case .add: add
    }
  }

  private static let overview = """
    marfa-mount: a Marfa store as a folder

    Items are directories, and their attachments are files. Any program opens them, cp
    attaches, and getfattr tells where each file stands. Everything works offline: what you
    write is kept beside the store and waits in its queue until the server has answered it.

    Usage:
      marfa-mount [mount] [STORE] FOLDER [OPTION]...   show a store at a folder
      marfa-mount unmount FOLDER|STORE                 end that
      marfa-mount status [STORE]                       how a store stands
      marfa-mount queue [STORE] [--wait]               the writes that wait to be sent
      marfa-mount hydrate [STORE]                      bring the whole list from the server
      marfa-mount retry [STORE]                        try the server now
      marfa-mount pause [STORE]                        send nothing until
      marfa-mount resume [STORE]                       this
      marfa-mount release WRITE...                     send a write again that does not move
      marfa-mount withdraw WRITE...                    take one back that has not gone out
      marfa-mount discard WRITE...                     give one up that can't be sent
      marfa-mount pin ITEM...                          keep what is attached to it here until
      marfa-mount unpin ITEM...                        this
      marfa-mount fetch [ITEM...]                      bring bytes here, to be read offline
      marfa-mount evict ITEM...|--all                  let bytes go that can be fetched again
      marfa-mount trim [STORE]                         let go of what is over the budget
      marfa-mount cache [STORE]                        which bytes are on this device
      marfa-mount budget [default|keep-all|SIZE]       how many bytes may be
      marfa-mount attach ITEM FILE...                  attach files to an item
      marfa-mount embed ITEM FILE                      attach one and show it in the text
      marfa-mount add FILE...                          bring in files attached to nothing
      marfa-mount COMMAND --help                       more of a command, with examples;
      marfa-mount help [COMMAND]                       the same
      marfa-mount --version                            which version this is

    STORE is a store's file, or any path in the folder it is shown at. Without it, it is
    $XDG_DATA_HOME/marfa/store.db, which is ~/.local/share/marfa/store.db unless you set that.

    A first try:
      mkdir ~/Marfa
      marfa-mount ~/Marfa                 makes the store, and shows it
      mkdir ~/Marfa/Norway                a new item
      cp fjord.jpg ~/Marfa/Norway/        a file attached to it
      marfa-mount status                  what there is, and what waits
      marfa-mount unmount ~/Marfa

    With a server (the key is in a file that only you can read; it is no argument ever):
      marfa-mount ~/Marfa --server https://marfa.example.org --key-file ~/.config/marfa/key
      marfa-mount queue --wait            returns when everything is sent

    Exit status: 0 done, 1 refused, 2 wrong command line, 3 something around it failed (try
    again), 4 the store or its queue refused, 5 no key.

    Results go to standard output, everything else to standard error. With --json a result is
    one JSON object, and so is an error.
    """

  private static let mount = """
    marfa-mount [mount] [STORE] FOLDER [OPTION]...

    Shows a store at a folder that is there and empty. The store is made when it is not there
    (its folder has to be, unless it is the default store's). The mount runs in the
    background; the command returns once it answers, and says where its log is.

      --server URL            the server to follow and to send to. Once it has answered, the store
                              is bound to it, and follows it at every mount without being told
      --key-file FILE         where the key is: in this file, alone; - is standard input.
                              Otherwise it is taken from MARFA_API_KEY, or from the systemd
                              credential "marfa-key"
      --type TYPE             bring this type of item and those under it; may be given again.
                              Attachments are core.file. Otherwise those it brought before,
                              at first every type. The store keeps the choice
      --tier library|feed|all bring this tier: library; the store keeps the choice
      -f, --foreground        stay in the foreground, and log to standard error; Ctrl-C ends it
      --reader                only look: nothing can be written. When another process has the
                              store open for writing, a mount becomes a reader by itself
      --budget default|keep-all|SIZE
                              how many bytes of fetched files stay on this device (see
                              "marfa-mount budget --help"); the store keeps the choice
      --keep attached|pinned|none
                              which attachments are outside the budget: those of every item
                              here (the usual), of pinned items, or none; the store keeps it
      --directory-type TYPE   the type of item that mkdir makes: core.note
      --local-names LIST      patterns of names that stay on this device and are never sent,
                              with commas between them; "+" before them adds to the usual
                              ones, which are those of editors and desktops
      --settle SECONDS        how long a write waits for the program's next step: 2
      --passthrough           where the kernel can (root's mounts, Linux 6.9 or later), it reads
                              files that are held here by itself, as fast as the disk. Whoever
                              has such a file open while it is written elsewhere goes on with
                              the bytes it had
      --log FILE              where the log goes: $XDG_STATE_HOME/marfa/store.log (which is in
                              ~/.local/state unless you set that), and of another store
                              NAME-MARK.log. One over 8 MiB is set aside as NAME.log.1 when
                              a mount starts
      -o OPTIONS              options of libfuse and the kernel, such as allow_other
      --json                  say where everything is as JSON

    Examples:
      marfa-mount ~/Marfa                       the default store
      marfa-mount ~/Marfa --server https://marfa.example.org --key-file key
      marfa-mount trips.db ~/Trips              a store of its own, made when missing
      marfa-mount --reader trips.db ~/Look      a second mount, to look only
      marfa-mount -f --budget 500M ~/Marfa      in the foreground, with a small budget
      marfa-mount ~/Marfa --local-names '+*.part,*.bak'
    """

  private static let unmount = """
    marfa-mount unmount FOLDER|STORE [--force] [--json]

    Ends a mount, or all mounts of a store, and returns when nothing of it runs any more. What
    was written is kept. When a program uses the mount, it says which, and nothing is changed.

      --force    unmount all the same; programs with files open there get errors from then on
      --json     say what was unmounted as JSON

    Examples:
      marfa-mount unmount ~/Marfa
      marfa-mount unmount trips.db
    """

  private static let status = """
    marfa-mount status [STORE] [--json]

    How a store stands, mounted or not: where it is mounted and by whom, its server and, when
    it is not online, why and what to do; its items and files, what waits in the queue, which
    bytes are here, and files kept after a crash.

    STORE is a store's file or any path in its mount; without it, the default store.

    Examples:
      marfa-mount status
      marfa-mount status ~/Trips/Norway
      marfa-mount status --json | jq .queue.total
    """

  private static let queue = """
    marfa-mount queue [STORE] [--limit NUMBER] [--wait] [--json]

    The writes that wait to be sent, in their order, and why one does not move. A store
    without a server keeps them until it has one.

      --limit NUMBER   show so many: 100, at most 10000
      --wait           wait until everything is sent, and show how far it is on a terminal. It
                       ends with 4 when some of it can't be sent as things are, and with 5
                       without a key that the server accepts

    A write is queued, sending, blocked (it needs you: another key, a decision), refused (the
    server won't have it) or dead (it failed five times). See release, withdraw and discard.

    Examples:
      marfa-mount queue --wait && systemctl poweroff
      marfa-mount queue
      marfa-mount queue trips.db --limit 10
      marfa-mount queue --json | jq '.writes[] | select(.state == "refused")'
    """

  private static let cache = """
    marfa-mount cache [STORE] [--json]

    Which bytes of files are on this device, how many may be, and which attachments are not
    here, by the reason why.

    Examples:
      marfa-mount cache
      marfa-mount cache --json | jq .not_held
    """

  private static let budget = """
    marfa-mount budget [default|keep-all|SIZE] [--store STORE] [--json]

    Shows how many bytes of fetched files stay on this device, or chooses it. What is over a
    new budget is let go at once, the files read longest ago first. Never let go are files a
    program has open, files whose upload waits, and attachments kept outside the budget.

      default     the larger of 2 GiB and a tenth of the volume, leaving a twentieth free
      keep-all    every file fetched stays
      SIZE        500M, 2GiB, 1.5T, or bytes. K, M, G, T count in 1024s, KB, MB, … in 1000s

    Examples:
      marfa-mount budget
      marfa-mount budget 20G
      marfa-mount budget keep-all --store trips.db
    """

  static let item = """
    ITEM is one of:
      an item's id        01890a5d-ac96-774b-bcce-b302099a8057 (getfattr -n user.marfa.id DIR)
      a path in a mount   ~/Marfa/Norway
      names from the top  Norway/Bergen, in the default store or the one --store names,
                          mounted or not
    """

  private static let attachment = """
      --title TITLE           what the file is called: its own name
      --mime TYPE/SUBTYPE     its MIME type: by its name and its content
      --type TYPE             its item type, core.file or one under it: by its MIME type
      --tier library|feed     its tier: library
      --store STORE           the store that is meant: the default one
      --json                  say what was made as JSON
    """

  private static let attach = """
    marfa-mount attach ITEM FILE... [OPTION]...

    Attaches copies of files to an item; the originals are not touched. It is what cp into the
    item's directory does, with a say in the file's title and types.

    \(item)

    \(attachment)

    Examples:
      marfa-mount attach ~/Marfa/Norway fjord.jpg
      marfa-mount attach Norway --store trips.db ticket.pdf --title 'Ticket to Bergen'
      marfa-mount attach ~/Marfa/Norway *.jpg
    """

  private static let embed = """
    marfa-mount embed ITEM FILE [OPTION]...

    Attaches a copy of a file to an item and adds ![[title]] to the end of the item's text,
    which shows it there. If the text can't be changed, the file stays attached, and the error
    says so.

    \(item)

    \(attachment)

    Examples:
      marfa-mount embed ~/Marfa/Norway fjord.jpg
      marfa-mount embed ~/Marfa/Norway IMG_2044.jpg --title 'The fjord at noon'
    """

  private static let add = """
    marfa-mount add FILE... [--tag TAG]... [OPTION]...

    Brings in copies of files that are attached to no item. They are at the top of the mount.

      --tag TAG               a tag of each; may be given again
    \(attachment)

    Examples:
      marfa-mount add scan.pdf --tag inbox --tag 2026
      marfa-mount add --store trips.db *.gpx
    """
}
