/// The server's tables. Rows keep their JSON as it is sent, so that a page is joined rather than made.
enum Schema {
  static let sql = """
    CREATE TABLE IF NOT EXISTS items (
      n INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      type TEXT NOT NULL,
      tier TEXT NOT NULL,
      state TEXT NOT NULL,
      version INTEGER NOT NULL,
      properties TEXT NOT NULL,
      source TEXT NOT NULL,
      source_id TEXT,
      occurred_at TEXT NOT NULL,
      created_at TEXT NOT NULL,
      updated_at TEXT NOT NULL,
      tags TEXT NOT NULL DEFAULT '[]',
      extensions TEXT NOT NULL DEFAULT '{}',
      -- The state before the bin, and the item whose trashing took it along.
      before TEXT,
      taken_by TEXT,
      -- What the create said, to tell a repeat from another row under its id.
      made_of TEXT NOT NULL,
      -- The bytes it names, and whether naming them lends their read (contract "Blobs").
      blob TEXT,
      lends INTEGER NOT NULL DEFAULT 0,
      item TEXT NOT NULL,
      metadata TEXT NOT NULL
    );
    CREATE INDEX IF NOT EXISTS items_by_blob ON items (blob) WHERE blob IS NOT NULL;
    CREATE INDEX IF NOT EXISTS items_by_taker ON items (taken_by) WHERE taken_by IS NOT NULL;
    -- Every version of an item's fields: the base of a merge.
    CREATE TABLE IF NOT EXISTS versions (
      id TEXT NOT NULL, version INTEGER NOT NULL, properties TEXT NOT NULL, PRIMARY KEY (id, version)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS edges (
      n INTEGER PRIMARY KEY AUTOINCREMENT,
      id TEXT NOT NULL UNIQUE,
      source TEXT NOT NULL,
      target TEXT NOT NULL,
      type TEXT NOT NULL,
      version INTEGER NOT NULL,
      properties TEXT NOT NULL,
      created_at TEXT NOT NULL,
      edge TEXT NOT NULL,
      UNIQUE (type, source, target)
    );
    CREATE INDEX IF NOT EXISTS edges_out ON edges (source, type, n);
    CREATE INDEX IF NOT EXISTS edges_in ON edges (target, type, n);
    CREATE INDEX IF NOT EXISTS edges_of_type ON edges (type, n);
    CREATE TABLE IF NOT EXISTS blobs (
      hash TEXT PRIMARY KEY, mime TEXT NOT NULL, size INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS uploads (key TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY (key, hash)) WITHOUT ROWID;
    -- The log. `data` is the event without its name; `type` the item's or the edge's source's type.
    CREATE TABLE IF NOT EXISTS events (
      id INTEGER PRIMARY KEY AUTOINCREMENT,
      event TEXT NOT NULL, type TEXT NOT NULL, edge_type TEXT, data TEXT NOT NULL
    );
    -- The record of keyed writes; `body` is null once its result is no longer retained.
    CREATE TABLE IF NOT EXISTS replies (
      owner TEXT NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL, status INTEGER, body TEXT,
      PRIMARY KEY (owner, key)
    ) WITHOUT ROWID;
    -- Signed links as they were given.
    CREATE TABLE IF NOT EXISTS links (
      token TEXT PRIMARY KEY, target TEXT NOT NULL, hash TEXT NOT NULL, place TEXT NOT NULL, expires INTEGER NOT NULL
    ) WITHOUT ROWID;
    -- Items that were here once.
    CREATE TABLE IF NOT EXISTS gone (id TEXT PRIMARY KEY) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    """
}
