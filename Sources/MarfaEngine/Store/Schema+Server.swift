extension Schema {
  /// What a copy of a server knows beyond a copy without one.
  static let version2 = """
    -- This copy's own upload of the bytes was answered. Whether they are `stored` is told by other devices' rows too, and
    -- those may be gone by the time a write that names the bytes is read. It was this copy's key that uploaded them: none
    -- are when another key is used (Sync/KeyMark.swift).
    ALTER TABLE blobs ADD COLUMN uploaded INTEGER NOT NULL DEFAULT 0 CHECK(uploaded IN (0, 1));

    -- 1 from when the server was found to be set back until it has said whether it still has bytes that are here; 2 once they
    -- were queued to be sent again, 3 when it did not have them after that either (Sync/DoubtedBytes.swift).
    ALTER TABLE blobs ADD COLUMN doubted INTEGER NOT NULL DEFAULT 0 CHECK(doubted BETWEEN 0 AND 3);
    CREATE INDEX blobs_doubted ON blobs(hash) WHERE doubted > 0;

    -- The server's members of an item or edge that no other column has, as a JSON object: nothing it carries is dropped.
    -- `seen` is the number of the hydration that brought the row last.
    ALTER TABLE items ADD COLUMN rest TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE items ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE edges ADD COLUMN rest TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE edges ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;

    -- The item whose create was refused: the file or directory is on this device only since, and what it holds is kept.
    ALTER TABLE nodes ADD COLUMN refused BLOB CHECK(refused IS NULL OR (length(refused) = 16 AND item IS NULL));
    CREATE UNIQUE INDEX nodes_refused ON nodes(refused) WHERE refused IS NOT NULL;
    -- The row that the server had last of an item whose file or directory is on this device only since: what differs from
    -- it was done here. `blob` is NULL for bytes that are no server's.
    CREATE TABLE parted(
      node INTEGER PRIMARY KEY REFERENCES nodes(number) ON DELETE CASCADE,
      version INTEGER NOT NULL CHECK(version >= 0),
      title TEXT NOT NULL,
      blob BLOB CHECK(blob IS NULL OR length(blob) = 32)
    ) STRICT;

    -- The directory that what a first hydration brings hangs in until all of it is here: no path leads to it.
    INSERT INTO nodes(number, kind, mode, uid, gid, atime, mtime, ctime)
      VALUES (-1, 1, 448, 0, 0, 0, 0, 0);

    -- The server's row of an item or edge about which a write waits; what is shown is this with those writes laid over
    -- it. An item with waiting writes and no row here is one the server does not have (yet, or any more).
    CREATE TABLE served(
      id BLOB PRIMARY KEY CHECK(length(id) = 16),
      row TEXT NOT NULL                      -- a JSON object
    ) STRICT, WITHOUT ROWID;

    -- An item whose row is to be read from the server, because a write about it was refused or its answer was lost.
    CREATE TABLE owed(
      item BLOB PRIMARY KEY CHECK(length(item) = 16),
      -- The server has told since that it has no such item: when none is read, nothing more is to be found out.
      is_told INTEGER NOT NULL DEFAULT 0 CHECK(is_told IN (0, 1))
    ) STRICT, WITHOUT ROWID;

    -- What the server made where it could not merge: few, and counted each time somebody asks how things stand.
    CREATE INDEX tags_conflicted ON tags(item) WHERE tag = 'conflicted-copy';

    -- The server's catalogue of types.
    CREATE TABLE types(
      name TEXT PRIMARY KEY,
      parent TEXT,
      body_field TEXT,
      row TEXT NOT NULL                      -- as it came
    ) STRICT, WITHOUT ROWID;

    -- 1 from when the server tells of the write's row, by an event or a hydration, after the write first went out. Its
    -- answer may be older than that: the first was lost, and this one repeats it.
    ALTER TABLE writes ADD COLUMN overtaken INTEGER NOT NULL DEFAULT 0 CHECK(overtaken IN (0, 1));

    -- Edges about which a write waits, by what they join on the server: the order of such writes counts there, and they
    -- go with what they join.
    CREATE INDEX served_by_target ON served(json_extract(row, '$.target'))
      WHERE json_extract(row, '$.target') IS NOT NULL;
    CREATE INDEX served_by_source ON served(json_extract(row, '$.source'))
      WHERE json_extract(row, '$.source') IS NOT NULL;

    -- Which version of its item, naming which bytes, a file's staged content began with.
    ALTER TABLE nodes ADD COLUMN staged_version INTEGER;
    ALTER TABLE nodes ADD COLUMN staged_over BLOB CHECK(staged_over IS NULL OR length(staged_over) = 32);
    """

  /// Which writes may go now, kept as they come and go: looking for them must not walk a long queue.
  static let version2Queue = """
    -- What a write waits for, of what is in the queue: `depends_on` (`must`) and `follows`. One that was refused holds up
    -- what must have it, and not what only follows it.
    CREATE TABLE waits(
      ahead INTEGER NOT NULL,
      write INTEGER NOT NULL,
      must INTEGER NOT NULL CHECK(must IN (0, 1)),
      PRIMARY KEY(ahead, write)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX waits_by_write ON waits(write, ahead, must);
    -- 1 while something in `waits` holds it up; the triggers below keep it.
    ALTER TABLE writes ADD COLUMN waits INTEGER NOT NULL DEFAULT 0;

    CREATE TRIGGER waits_in AFTER INSERT ON writes WHEN NEW.follows IS NOT NULL OR NEW.depends_on IS NOT NULL BEGIN
      INSERT INTO waits SELECT number, NEW.number, 0 FROM writes WHERE number = NEW.follows;
      INSERT OR REPLACE INTO waits SELECT a.number, NEW.number, 1
        FROM json_each('[' || coalesce(NEW.depends_on, '') || ']') d JOIN writes a ON a.number = d.value;
      UPDATE writes SET waits = EXISTS(SELECT 1 FROM waits x JOIN writes a ON a.number = x.ahead
        WHERE x.write = writes.number AND (x.must = 1 OR a.state <> 'refused')) WHERE number = NEW.number;
    END;
    CREATE TRIGGER waits_on AFTER UPDATE OF follows, depends_on ON writes BEGIN
      DELETE FROM waits WHERE write = NEW.number;
      INSERT INTO waits SELECT number, NEW.number, 0 FROM writes WHERE number = NEW.follows;
      INSERT OR REPLACE INTO waits SELECT a.number, NEW.number, 1
        FROM json_each('[' || coalesce(NEW.depends_on, '') || ']') d JOIN writes a ON a.number = d.value;
      UPDATE writes SET waits = EXISTS(SELECT 1 FROM waits x JOIN writes a ON a.number = x.ahead
        WHERE x.write = writes.number AND (x.must = 1 OR a.state <> 'refused')) WHERE number = NEW.number;
    END;
    CREATE TRIGGER waits_out AFTER DELETE ON writes BEGIN
      DELETE FROM waits WHERE write = OLD.number;
      UPDATE writes SET waits = EXISTS(SELECT 1 FROM waits x JOIN writes a ON a.number = x.ahead
        WHERE x.write = writes.number AND (x.must = 1 OR a.state <> 'refused'))
        WHERE number IN (SELECT write FROM waits WHERE ahead = OLD.number);
      DELETE FROM waits WHERE ahead = OLD.number;
    END;
    CREATE TRIGGER waits_refused AFTER UPDATE OF state ON writes WHEN (NEW.state = 'refused') <> (OLD.state = 'refused')
    BEGIN
      UPDATE writes SET waits = EXISTS(SELECT 1 FROM waits x JOIN writes a ON a.number = x.ahead
        WHERE x.write = writes.number AND (x.must = 1 OR a.state <> 'refused'))
        WHERE number IN (SELECT write FROM waits WHERE ahead = NEW.number);
    END;
    -- Those that were queued before this version.
    UPDATE writes SET depends_on = depends_on WHERE depends_on IS NOT NULL OR follows IS NOT NULL;

    CREATE INDEX writes_ready ON writes(number) WHERE state = 'queued' AND waits = 0 AND kind <> 'upload_blob';
    CREATE INDEX writes_uploads ON writes(number) WHERE state = 'queued' AND kind = 'upload_blob';
    CREATE INDEX writes_blocked ON writes(number) WHERE state = 'blocked';
    CREATE INDEX writes_refused ON writes(number) WHERE state = 'refused';
    """
}
