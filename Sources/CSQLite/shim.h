/// SQLite, and the two destructor constants the importer cannot translate (they are casts of integers to functions).
#pragma once
#include <sqlite3.h>

/// Binds bytes that outlive the step; SQLite keeps the pointer and copies nothing.
static inline int marfa_bind_blob(sqlite3_stmt *s, int i, const void *p, int n) {
  // A NULL pointer would bind NULL, and an empty blob is a value.
  return p == 0 || n == 0 ? sqlite3_bind_zeroblob(s, i, 0) : sqlite3_bind_blob(s, i, p, n, SQLITE_STATIC);
}

/// Binds bytes that SQLite copies at once.
static inline int marfa_bind_blob_copy(sqlite3_stmt *s, int i, const void *p, int n) {
  return p == 0 || n == 0 ? sqlite3_bind_zeroblob(s, i, 0) : sqlite3_bind_blob(s, i, p, n, SQLITE_TRANSIENT);
}

/// Binds UTF-8 text that SQLite copies at once.
static inline int marfa_bind_text(sqlite3_stmt *s, int i, const char *p, int n) {
  return sqlite3_bind_text(s, i, p, n, SQLITE_TRANSIENT);
}

/// `sqlite3_db_config(SQLITE_DBCONFIG_DEFENSIVE)` is variadic in C.
static inline int marfa_db_defensive(sqlite3 *db) {
  return sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, (int *)0);
}
