extension Schema {
  /// What a copy of a server knows beyond a copy without one.
  static let version2 = """
    -- The server's members of an item or edge that no other column has, as a JSON object: nothing it carries is dropped.
    -- `seen` is the number of the hydration that brought the row last.
    ALTER TABLE items ADD COLUMN rest TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE items ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE edges ADD COLUMN rest TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE edges ADD COLUMN seen INTEGER NOT NULL DEFAULT 0;

    -- The item whose create was refused: the file or directory is on this device only since, and what it holds is kept.
    ALTER TABLE nodes ADD COLUMN refused BLOB CHECK(refused IS NULL OR (length(refused) = 16 AND item IS NULL));
    CREATE UNIQUE INDEX nodes_refused ON nodes(refused) WHERE refused IS NOT NULL;

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
      item BLOB PRIMARY KEY CHECK(length(item) = 16)
    ) STRICT, WITHOUT ROWID;

    -- The server's catalogue of types.
    CREATE TABLE types(
      name TEXT PRIMARY KEY,
      parent TEXT,
      body_field TEXT,
      row TEXT NOT NULL                      -- as it came
    ) STRICT, WITHOUT ROWID;

    -- Writes that may be sent, in their order.
    CREATE INDEX writes_waiting ON writes(number) WHERE state IN ('queued', 'blocked');
    CREATE INDEX writes_uploads ON writes(number) WHERE kind = 'upload_blob' AND state = 'queued';
    """
}
