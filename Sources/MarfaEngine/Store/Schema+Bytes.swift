extension Schema {
  /// Files of which parts are here.
  static let version2Bytes = """
    -- A file under partial/, named by its hash: which of its blocks are in, and have been on the disk since before this
    -- row said so. The row goes with the file, and before it.
    CREATE TABLE partials(
      hash BLOB PRIMARY KEY CHECK(length(hash) = 32) REFERENCES blobs(hash) ON DELETE CASCADE,
      size INTEGER NOT NULL CHECK(size > 0),        -- of the whole
      blocks BLOB NOT NULL,                         -- runs of 64 KiB blocks (Blobs/BlockSet.swift)
      bytes INTEGER NOT NULL CHECK(bytes >= 0)      -- in them
    ) STRICT, WITHOUT ROWID;

    -- One more number kept twice:
    --   'partial'      SELECT count(*), sum(bytes) FROM partials
    INSERT INTO counters VALUES ('partial', 0, 0);
    CREATE TRIGGER partials_in AFTER INSERT ON partials BEGIN
      UPDATE counters SET count = count + 1, bytes = bytes + NEW.bytes WHERE name = 'partial';
    END;
    CREATE TRIGGER partials_out AFTER DELETE ON partials BEGIN
      UPDATE counters SET count = count - 1, bytes = bytes - OLD.bytes WHERE name = 'partial';
    END;
    CREATE TRIGGER partials_on AFTER UPDATE OF bytes ON partials BEGIN
      UPDATE counters SET bytes = bytes + NEW.bytes - OLD.bytes WHERE name = 'partial';
    END;
    """
}
