/// The store's schema, version by version. This file is its documentation: above each table, what a row is; beside each
/// column, what it means.
enum Schema {
  /// `PRAGMA application_id`: the four letters "MRFA", so that a text file or another program's database is told apart.
  static let applicationID: Int64 = 0x4d52_4641

  /// Step N takes a store of `user_version` N to N + 1. A released step is never edited.
  static let migrations: [String] = [version1, version2 + version2Bytes + version2Queue]

  /// `PRAGMA user_version` of a store this program writes.
  static var version: Int { migrations.count }

  /// Times are nanoseconds since 1970, ids are their sixteen bytes, hashes their thirty-two.
  private static let version1 = """
    -- One named value of the store: 'store_id', 'budget', 'keep', ….
    CREATE TABLE settings(
      name TEXT PRIMARY KEY,
      value TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;

    -- An item as a local read shows it: the server's row with every waiting write laid over it.
    CREATE TABLE items(
      number INTEGER PRIMARY KEY,
      id BLOB NOT NULL UNIQUE CHECK(length(id) = 16),
      type TEXT NOT NULL CHECK(type <> ''),
      properties TEXT NOT NULL,             -- a JSON object, members nobody here knows included
      state TEXT NOT NULL DEFAULT 'active'
        CHECK(state = 'active' OR state = 'archived' OR state = 'trashed' OR state = 'revoked'),
      tier TEXT NOT NULL DEFAULT 'library' CHECK(tier IN ('library', 'feed')),
      version INTEGER NOT NULL DEFAULT 0 CHECK(version >= 0),   -- the server's; 0 until it answered the create
      pinned INTEGER NOT NULL DEFAULT 0 CHECK(pinned IN (0, 1))
    ) STRICT;

    -- A tag an item bears.
    CREATE TABLE tags(
      item INTEGER NOT NULL REFERENCES items(number) ON DELETE CASCADE,
      tag TEXT NOT NULL CHECK(tag <> ''),
      PRIMARY KEY(item, tag)
    ) STRICT, WITHOUT ROWID;

    -- An extension's values on an item: one JSON object a namespace.
    CREATE TABLE extensions(
      item INTEGER NOT NULL REFERENCES items(number) ON DELETE CASCADE,
      namespace TEXT NOT NULL CHECK(namespace <> ''),
      value TEXT NOT NULL,
      PRIMARY KEY(item, namespace)
    ) STRICT, WITHOUT ROWID;

    -- An edge as a local read shows it. Its ends need not be items held here, so they are ids and no foreign keys.
    CREATE TABLE edges(
      number INTEGER PRIMARY KEY,
      id BLOB NOT NULL UNIQUE CHECK(length(id) = 16),
      source BLOB NOT NULL CHECK(length(source) = 16),
      target BLOB NOT NULL CHECK(length(target) = 16),
      type TEXT NOT NULL CHECK(type <> ''),
      properties TEXT NOT NULL DEFAULT '{}',
      version INTEGER NOT NULL DEFAULT 0 CHECK(version >= 0)
    ) STRICT;
    CREATE INDEX edges_by_source ON edges(source, type, target);
    CREATE INDEX edges_by_target ON edges(target, type);

    -- Bytes this device knows of. `held` says the file held/HASH is there, whole and verified.
    CREATE TABLE blobs(
      hash BLOB PRIMARY KEY CHECK(length(hash) = 32),
      size INTEGER CHECK(size > 0),          -- NULL until learnt
      mime_type TEXT,
      held INTEGER NOT NULL DEFAULT 0 CHECK(held IN (0, 1)),
      stored INTEGER NOT NULL DEFAULT 0 CHECK(stored IN (0, 1)),   -- the server has answered that it holds them
      held_at INTEGER,
      read_at INTEGER,                       -- the last read, for the budget; NULL until one
      not_held_reason TEXT NOT NULL DEFAULT 'not_fetched' CHECK(not_held_reason IN
        ('not_fetched', 'no_room', 'unreachable', 'rate_limited', 'absent', 'failed', 'not_in_copy')),
      not_held_detail TEXT,                  -- the last error in words
      not_held_at INTEGER,
      CHECK(NOT held OR size IS NOT NULL)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX blobs_missing ON blobs(hash) WHERE held = 0;

    -- A node of the tree: what an inode number names. The root is number 1.
    -- The mode, owner and times are this device's own and go nowhere else.
    CREATE TABLE nodes(
      number INTEGER PRIMARY KEY,                 -- st_ino; counted on in the process, so that a kernel sees none twice
      kind INTEGER NOT NULL CHECK(kind BETWEEN 1 AND 3),   -- 1 directory, 2 file, 3 symbolic link, pipe, socket or device
      item BLOB UNIQUE CHECK(length(item) = 16),  -- the item it shows; NULL: on this device only, or not sealed yet
      local INTEGER NOT NULL DEFAULT 0 CHECK(local IN (0, 1)),  -- never queued: an editor's own file, or under one
      mode INTEGER NOT NULL,                      -- permission bits; of a pipe, socket or device its type, too
      uid INTEGER NOT NULL,
      gid INTEGER NOT NULL,
      atime INTEGER NOT NULL,
      mtime INTEGER NOT NULL,
      ctime INTEGER NOT NULL,
      links INTEGER NOT NULL DEFAULT 1 CHECK(links >= 0),   -- entries that name it (kept twice: count of entries)
      hash BLOB CHECK(length(hash) = 32),         -- a file's sealed bytes; NULL: empty, or staged
      staged BLOB CHECK(length(staged) = 16),     -- its content is staged/NUMBER-UUID, closed or synced, not sealed
      size INTEGER,                               -- of the content; NULL: not learnt yet; a device's number
      target BLOB,                                -- a symbolic link's; of a pipe, socket or device an empty one
      CHECK(hash IS NULL OR staged IS NULL),
      CHECK((kind = 3) = (target IS NOT NULL))
    ) STRICT;
    CREATE INDEX nodes_by_hash ON nodes(hash) WHERE hash IS NOT NULL;
    CREATE INDEX nodes_staged ON nodes(number) WHERE staged IS NOT NULL;
    CREATE INDEX nodes_linked ON nodes(number) WHERE links > 1;

    -- A name in a directory. A listing is one range of the table itself, in the order of `number`, which is the cookie of
    -- readdir(3): the highest of the directory so far and one, and stable while other entries come and go. A lookup is one search of entries_by_name.
    CREATE TABLE entries(
      parent INTEGER NOT NULL REFERENCES nodes(number),
      number INTEGER NOT NULL,
      name BLOB NOT NULL CHECK(length(name) BETWEEN 1 AND 255),
      node INTEGER NOT NULL REFERENCES nodes(number),
      PRIMARY KEY(parent, number)
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX entries_by_name ON entries(parent, name);
    CREATE INDEX entries_by_node ON entries(node);

    -- An extended attribute that is this device's own: any user.* name a program sets that is not ours, and, until a
    -- file has an item, the tags, comment and URL set on it.
    CREATE TABLE attributes(
      node INTEGER NOT NULL REFERENCES nodes(number) ON DELETE CASCADE,
      name BLOB NOT NULL,
      value BLOB NOT NULL,
      PRIMARY KEY(node, name)
    ) STRICT, WITHOUT ROWID;

    -- A write that waits. Accepted ones leave. Its checks and triggers name no list of more than two: SQLite would make a
    -- temporary table for each of those, for each row that is written.
    CREATE TABLE writes(
      number INTEGER PRIMARY KEY AUTOINCREMENT,   -- the order
      kind TEXT NOT NULL CHECK(
        kind = 'upload_blob' OR kind = 'create_item' OR kind = 'create_edge' OR kind = 'update_item' OR kind = 'update_edge'
        OR kind = 'delete_item' OR kind = 'delete_edge' OR kind = 'restore_item' OR kind = 'transition_item'
        OR kind = 'replace_metadata' OR kind = 'merge_metadata' OR kind = 'add_tag' OR kind = 'remove_tag'
        OR kind = 'write_extension' OR kind = 'delete_extension'),
      item BLOB CHECK(length(item) = 16),
      edge BLOB CHECK(length(edge) = 16),
      blob BLOB CHECK(length(blob) = 32),         -- the bytes an upload sends, or a create or update names
      body TEXT NOT NULL DEFAULT '{}',            -- the request's body, without what the row itself says
      base_version INTEGER,                       -- the version it was read at
      idempotency_key BLOB CHECK(length(idempotency_key) = 16),   -- NULL for an upload only
      depends_on TEXT,                            -- the writes that must be answered first: numbers with commas
      follows INTEGER,                            -- the write ahead of it to the same row or edge
      state TEXT NOT NULL DEFAULT 'queued' CHECK(
        state = 'queued' OR state = 'sending' OR state = 'blocked' OR state = 'refused' OR state = 'dead'),
      verdict TEXT,                               -- blocked, refused, dead: why, as a JSON object
      failures INTEGER NOT NULL DEFAULT 0,        -- counted ones; the fifth makes it dead
      gone_out INTEGER NOT NULL DEFAULT 0 CHECK(gone_out IN (0, 1)),   -- its body never changes from then on
      queued_at INTEGER NOT NULL,
      not_before INTEGER NOT NULL,                -- the settling time ends
      CHECK((kind = 'upload_blob') = (idempotency_key IS NULL)),
      CHECK(kind <> 'upload_blob' OR blob IS NOT NULL),
      CHECK(blob IS NULL OR kind = 'upload_blob' OR kind = 'create_item' OR kind = 'update_item'),
      CHECK((kind = 'create_edge' OR kind = 'update_edge' OR kind = 'delete_edge') = (edge IS NOT NULL)),
      CHECK(kind NOT IN ('update_item', 'update_edge') OR base_version IS NOT NULL)
    ) STRICT;
    CREATE INDEX writes_by_item ON writes(item) WHERE item IS NOT NULL;
    CREATE INDEX writes_by_edge ON writes(edge) WHERE edge IS NOT NULL;
    CREATE INDEX writes_by_blob ON writes(blob) WHERE blob IS NOT NULL;

    -- Numbers kept twice, so that a status costs no walk over a million rows. Each is what its triggers below keep it;
    -- the query that mends it stands beside it.
    --   'write.STATE'  SELECT count(*), 0 FROM writes WHERE state = STATE
    --   'upload'       SELECT count(*), sum(size) FROM writes JOIN blobs ON hash = blob WHERE kind = 'upload_blob'
    --                    AND state NOT IN ('refused', 'dead')
    --   'held'         SELECT count(*), sum(size) FROM blobs WHERE held = 1
    CREATE TABLE counters(
      name TEXT PRIMARY KEY,
      count INTEGER NOT NULL,
      bytes INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO counters VALUES ('write.queued', 0, 0), ('write.sending', 0, 0), ('write.blocked', 0, 0),
      ('write.refused', 0, 0), ('write.dead', 0, 0), ('upload', 0, 0), ('held', 0, 0);
    CREATE TRIGGER writes_in AFTER INSERT ON writes BEGIN
      UPDATE counters SET count = count + 1 WHERE name = 'write.' || NEW.state;
    END;
    CREATE TRIGGER writes_out AFTER DELETE ON writes BEGIN
      UPDATE counters SET count = count - 1 WHERE name = 'write.' || OLD.state;
    END;
    CREATE TRIGGER writes_on AFTER UPDATE OF state ON writes WHEN NEW.state <> OLD.state BEGIN
      UPDATE counters SET count = count - 1 WHERE name = 'write.' || OLD.state;
      UPDATE counters SET count = count + 1 WHERE name = 'write.' || NEW.state;
    END;
    CREATE TRIGGER uploads_in AFTER INSERT ON writes
      WHEN NEW.kind = 'upload_blob' AND NEW.state NOT IN ('refused', 'dead') BEGIN
      UPDATE counters SET count = count + 1,
        bytes = bytes + coalesce((SELECT size FROM blobs WHERE hash = NEW.blob), 0) WHERE name = 'upload';
    END;
    CREATE TRIGGER uploads_out AFTER DELETE ON writes
      WHEN OLD.kind = 'upload_blob' AND OLD.state NOT IN ('refused', 'dead') BEGIN
      UPDATE counters SET count = count - 1,
        bytes = bytes - coalesce((SELECT size FROM blobs WHERE hash = OLD.blob), 0) WHERE name = 'upload';
    END;
    CREATE TRIGGER uploads_on AFTER UPDATE OF state ON writes WHEN NEW.kind = 'upload_blob'
      AND (NEW.state NOT IN ('refused', 'dead')) <> (OLD.state NOT IN ('refused', 'dead')) BEGIN
      UPDATE counters SET count = count + iif(NEW.state NOT IN ('refused', 'dead'), 1, -1),
        bytes = bytes + coalesce((SELECT size FROM blobs WHERE hash = NEW.blob), 0)
          * iif(NEW.state NOT IN ('refused', 'dead'), 1, -1) WHERE name = 'upload';
    END;
    CREATE TRIGGER blobs_in AFTER INSERT ON blobs WHEN NEW.held = 1 BEGIN
      UPDATE counters SET count = count + 1, bytes = bytes + NEW.size WHERE name = 'held';
    END;
    CREATE TRIGGER blobs_out AFTER DELETE ON blobs WHEN OLD.held = 1 BEGIN
      UPDATE counters SET count = count - 1, bytes = bytes - OLD.size WHERE name = 'held';
    END;
    CREATE TRIGGER blobs_on AFTER UPDATE OF held ON blobs WHEN NEW.held <> OLD.held BEGIN
      UPDATE counters SET count = count + iif(NEW.held = 1, 1, -1),
        bytes = bytes + iif(NEW.held = 1, NEW.size, -OLD.size) WHERE name = 'held';
    END;

    INSERT INTO nodes(number, kind, mode, uid, gid, atime, mtime, ctime)
      VALUES (1, 1, 493, 0, 0, 0, 0, 0);
    """
}
