"""The SQLite file behind the store: how it is opened, its tables, and how an older one becomes this version's."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.errors import TuningStoreError

#: "TiHL": marks the file as a store of tuned results.
APPLICATION_ID = 0x5469484C
#: How long a statement waits for another process's transaction, which takes milliseconds.
BUSY_TIMEOUT_S = 20.0

#: What brings a file from the version before to this one; `PRAGMA user_version` says where it is. Never edit one that
#: was released: add the next.
MIGRATIONS: Mapping[int, Sequence[str]] = {
    1: (
        "CREATE TABLE environments (id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, facts TEXT NOT NULL)",
        """CREATE TABLE problems (
            id INTEGER PRIMARY KEY,
            kernel TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            arguments TEXT NOT NULL,
            dtypes TEXT NOT NULL,
            options TEXT NOT NULL,
            chip TEXT NOT NULL,
            environment INTEGER NOT NULL REFERENCES environments (id),
            structural TEXT NOT NULL,
            UNIQUE (kernel, fingerprint, chip, options, arguments, environment)
        )""",
        """CREATE TABLE outcomes (
            problem INTEGER NOT NULL REFERENCES problems (id) ON DELETE CASCADE,
            tiles TEXT NOT NULL,
            status TEXT NOT NULL,
            median_s REAL,
            low_s REAL,
            high_s REAL,
            samples INTEGER NOT NULL,
            reason TEXT NOT NULL,
            details TEXT NOT NULL,
            compile_s REAL,
            place INTEGER,
            predicted_s REAL,
            measured_at REAL NOT NULL,
            source TEXT NOT NULL,
            PRIMARY KEY (problem, tiles)
        ) WITHOUT ROWID""",
    ),
}
VERSION = max(MIGRATIONS)


def open_store(path: Path, *, create: bool) -> sqlite3.Connection:
    """A connection to the store, which is brought to this version first.

    Args:
        create: make the file where there is none. Without it, a file that is not there is an OSError.

    Raises:
        sqlite3.Error, OSError: it cannot be opened or made.
        TuningStoreError: it is no store, or one of a newer TileHAL.
    """
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not stat.S_ISREG(path.stat().st_mode):
        raise TuningStoreError(f"{path} is no file", hint="name another with TILEHAL_TUNING_STORE")
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, cached_statements=64
    )
    try:
        if _version(connection) != VERSION:
            _migrate(connection, path)
        # Readers never wait for the writer. Where a file system cannot do it, SQLite stays with its older journal.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Brings the file to this version, whole or not at all; of several processes at once, one does it."""
    with_application = int(connection.execute("PRAGMA application_id").fetchone()[0])
    has_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if has_tables and with_application != APPLICATION_ID:
        raise TuningStoreError(
            f"{path} is a database, but no store of tuned results", hint="name another file with TILEHAL_TUNING_STORE"
        )
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = _version(connection)  # again: another process may have been first
        if found > VERSION:
            raise TuningStoreError(
                f"{path} was written by a newer TileHAL: its schema is {found}, this one knows {VERSION}",
                hint="update tilehal, or name another file with TILEHAL_TUNING_STORE",
                details={"schema": found, "known": VERSION},
            )
        for version in range(found + 1, VERSION + 1):
            for statement in MIGRATIONS[version]:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def store_error(error: sqlite3.Error | OSError, path: Path, doing: str) -> TuningStoreError:
    """What the file system or SQLite refused, with what to do about it."""
    text = str(error)
    if isinstance(error, OSError):
        text = error.strerror or text
    lowered = text.lower()
    if "full" in lowered or "no space" in lowered or "quota" in lowered:
        hint = "make room, or name a file on another disk with TILEHAL_TUNING_STORE; everything stored before is intact"
    elif "locked" in lowered:
        hint = "another process holds it: end that, and run again"
    elif "not a database" in lowered:
        hint = f"name another file; if this was one, it is damaged: move it away ({path}), and import what you exported"
    elif any(word in lowered for word in ("malformed", "no such", "already exists")):
        hint = f"it is damaged: move it away ({path}), and import what you exported"
    elif "readonly" in lowered or "unable to open" in lowered or "permission" in lowered:
        where = path if os.path.exists(path) else path.parent
        hint = f"make {where} writable, or name another file with TILEHAL_TUNING_STORE"
    else:
        hint = "name another file with TILEHAL_TUNING_STORE"
    return TuningStoreError(f"the store of tuned results {path} cannot be {doing}: {text}", hint=hint)
