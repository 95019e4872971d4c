"""The store of tuned results: an SQLite file that many processes read and write.

Readers ask once per compiled kernel and must not wait: what concerns one kernel is read once, and again only when
somebody has written. A row is written whole or not at all, so a full disk or a killed process loses at most the
candidate it was about.
"""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from core.errors import TuningStoreError
from core.tuning.environment import Environment
from core.tuning.results.records import STATUSES, Key, Outcome, Result, in_order
from core.tuning.results.schema import open_store, store_error

T = TypeVar("T")

#: One column per field of an outcome, in their order.
_NAMES = tuple(field.name for field in fields(Outcome))
_COLUMNS = ", ".join(_NAMES)
_PROBLEM = "kernel, fingerprint, arguments, dtypes, options, chip, facts, structural"


class Store:
    """Tuned results in one file. Safe under threads, forks and processes; the file is made when first written to.

    Every method raises TuningStoreError when the file cannot be read or written.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._process = 0
        #: Device and inode of the file that is open: another may take its place.
        self._file = (0, 0)
        self._writes = 0
        #: What was read, by what was asked, and the state of the file it was read in.
        self._read: dict[tuple[str, ...], tuple[Result, ...]] = {}
        self._read_in: tuple[int, int] = (-1, -1)

    def __repr__(self) -> str:
        return f"<Store {self.path}>"

    # ------------------------------------------------------------------------------------------------ reading

    def lookup(self, key: Key) -> Result | None:
        """What is known of exactly this key, environment included; None when nothing is."""
        return next((found for found in self.same_arguments(key) if found.key.environment == key.environment), None)

    def same_arguments(self, key: Key) -> tuple[Result, ...]:
        """What is known of this key in any environment."""
        return self._cached(
            ("same", key.kernel, key.fingerprint, key.chip, key.options, key.arguments),
            "kernel = ? AND fingerprint = ? AND chip = ? AND options = ? AND arguments = ?",
        )

    def headings(self, key: Key) -> tuple[Result, ...]:
        """The results of the same kernel, chip and options for all arguments and environments, without outcomes.

        :meth:`same_arguments` of a key among them has the outcomes.
        """
        return self._cached(
            ("headings", key.kernel, key.fingerprint, key.chip, key.options),
            "kernel = ? AND fingerprint = ? AND chip = ? AND options = ?",
            outcomes=False,
        )

    def _cached(self, wanted: tuple[str, ...], where: str, *, outcomes: bool = True) -> tuple[Result, ...]:
        """Results read once, and again when somebody has written; the first word of `wanted` is no value of `where`."""
        with self._lock:
            connection = self._reader()
            if connection is None:
                return ()
            with self._reported("read"):
                state = (int(connection.execute("PRAGMA data_version").fetchone()[0]), self._writes)
                if state != self._read_in:
                    self._read.clear()
                    self._read_in = state
                if wanted not in self._read:
                    self._read[wanted] = tuple(_results(connection, where, wanted[1:], outcomes=outcomes))
                return self._read[wanted]

    def results(self, *, kernel: str | None = None, chip: str | None = None) -> tuple[Result, ...]:
        """Everything, or what belongs to one kernel or chip (a vendor alone means all of its chips)."""
        with self._lock:
            connection = self._reader()
            if connection is None:
                return ()
            with self._reported("read"):
                where, values = _selection(kernel, chip)
                return tuple(_results(connection, where, values))

    # ------------------------------------------------------------------------------------------------ writing

    def record(self, key: Key, outcome: Outcome, *, structural: Iterable[str] = ()) -> None:
        """Stores what became of one candidate, in place of what was known of it."""
        self.add([Result(key, (outcome,), tuple(structural))])

    def add(self, results: Iterable[Result], *, keep_newer: bool = False) -> int:
        """Stores results in one transaction; returns how many outcomes were written.

        Args:
            keep_newer: leave alone what was measured later than what is given (an import).
        """

        def write(connection: sqlite3.Connection) -> int:
            written = 0
            for result in results:
                problem = _problem(connection, result)
                for outcome in result.outcomes:
                    written += _write_outcome(connection, problem, outcome, keep_newer=keep_newer)
            return written

        return self._write(write)

    def clear(self, *, kernel: str | None = None, chip: str | None = None) -> int:
        """Removes the results of a kernel or chip, or all. Returns how many."""
        if not self.path.exists():
            return 0

        def write(connection: sqlite3.Connection) -> int:
            where, values = _selection(kernel, chip)
            removed = connection.execute(f"DELETE FROM problems WHERE {where}", values).rowcount
            connection.execute("DELETE FROM environments WHERE id NOT IN (SELECT environment FROM problems)")
            return removed

        return self._write(write)

    def close(self) -> None:
        """Closes the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------------------------------------ connection

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock, self._reported("written"):
            connection = self._opened() or self._open(create=True)
            self._writes += 1
            connection.execute("BEGIN IMMEDIATE")
            try:
                done = work(connection)
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            return done

    def _reader(self) -> sqlite3.Connection | None:
        """The connection, or None while there is no file. A look-up makes none."""
        found = self._opened()
        if found is not None or not self.path.exists():
            return found
        with self._reported("read"):
            return self._open(create=False)

    def _opened(self) -> sqlite3.Connection | None:
        """The connection, if it is open to the file that is there.

        One that a parent process opened before a fork must not be touched by its child. One to a file that was removed
        is closed: what it wrote nobody would find. Where there is another file now, closing would take that one's
        journal along, which SQLite knows by name only.
        """
        if self._connection is None or self._process != os.getpid():
            return None
        there = _identity(self.path)
        if there == (0, 0):
            self._connection.close()
            self._connection = None
        elif there != self._file:
            raise TuningStoreError(
                f"the store of tuned results {self.path} was replaced while this process had it open",
                hint="start the process again",
            )
        return self._connection

    def _open(self, *, create: bool) -> sqlite3.Connection:
        self._connection = open_store(self.path, create=create)
        self._process = os.getpid()
        self._file = _identity(self.path)
        self._read_in = (-1, -1)
        return self._connection

    @contextmanager
    def _reported(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise store_error(error, self.path, doing) from error


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode of a file; zeros where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino


def _selection(kernel: str | None, chip: str | None) -> tuple[str, tuple[str, ...]]:
    conditions, values = ["1"], []
    if kernel is not None:
        conditions.append("kernel = ?")
        values.append(kernel)
    if chip is not None:
        conditions.append("(chip = ? OR substr(chip, 1, length(?) + 1) = ? || ':')")
        values += [chip] * 3
    return " AND ".join(conditions), tuple(values)


def _results(
    connection: sqlite3.Connection, where: str, values: tuple[Any, ...], *, outcomes: bool = True
) -> Iterator[Result]:
    found = connection.execute(
        f"SELECT problems.id, {_PROBLEM} FROM problems JOIN environments ON environments.id = environment"
        f" WHERE {where} ORDER BY kernel, chip, fingerprint, arguments, problems.id",
        values,
    ).fetchall()
    for problem, kernel, fingerprint, arguments, dtypes, options, chip, facts, structural in found:
        query = f"SELECT {_COLUMNS} FROM outcomes WHERE problem = ?"
        rows = connection.execute(query, (problem,)).fetchall() if outcomes else []
        try:
            key = Key(
                kernel=kernel,
                fingerprint=fingerprint,
                arguments=arguments,
                dtypes=_names(dtypes),
                chip=chip,
                environment=_environment(facts),
                options=options,
            )
            result = Result(key, in_order([_outcome(row) for row in rows]), _names(structural))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise sqlite3.DatabaseError(f"what it holds of {kernel} is malformed: {error}") from error
        yield result


@functools.lru_cache(maxsize=64)
def _environment(facts: str) -> Environment:
    return Environment.from_json(json.loads(facts))


@functools.lru_cache(maxsize=64)
def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _outcome(row: tuple[Any, ...]) -> Outcome:
    tiles, status, median_s, low_s, high_s, samples, reason, details, *rest = row
    if status not in STATUSES or (median_s is not None and not isinstance(median_s, float)):
        raise ValueError(f"an outcome of {status!r} and {median_s!r} s")
    return Outcome(json.loads(tiles), status, median_s, low_s, high_s, samples, reason, json.loads(details), *rest)


def _problem(connection: sqlite3.Connection, result: Result) -> int:
    """The row of a key, made when there is none."""
    key = result.key
    facts = json.dumps(key.environment.to_json(), sort_keys=True)
    connection.execute(
        "INSERT INTO environments (digest, facts) VALUES (?, ?) ON CONFLICT DO NOTHING", (key.environment.digest, facts)
    )
    (environment,) = connection.execute(
        "SELECT id FROM environments WHERE digest = ?", (key.environment.digest,)
    ).fetchone()
    identity = (key.kernel, key.fingerprint, key.arguments, key.options, key.chip, environment)
    dtypes, structural = json.dumps(list(key.dtypes)), json.dumps(list(result.structural))
    # What was known of dtypes and structure stays when the new result says nothing of them.
    connection.execute(
        "INSERT INTO problems (kernel, fingerprint, arguments, options, chip, environment, dtypes, structural)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
        " dtypes = CASE excluded.dtypes WHEN '[]' THEN dtypes ELSE excluded.dtypes END,"
        " structural = CASE excluded.structural WHEN '[]' THEN structural ELSE excluded.structural END",
        (*identity, dtypes, structural),
    )
    (problem,) = connection.execute(
        "SELECT id FROM problems WHERE kernel = ? AND fingerprint = ? AND arguments = ? AND options = ? AND chip = ?"
        " AND environment = ?",
        identity,
    ).fetchone()
    return int(problem)


def _write_outcome(connection: sqlite3.Connection, problem: int, outcome: Outcome, *, keep_newer: bool) -> int:
    values = (
        problem,
        outcome.identity,
        outcome.status,
        outcome.median_s,
        outcome.low_s,
        outcome.high_s,
        outcome.samples,
        outcome.reason,
        json.dumps(dict(outcome.details), sort_keys=True, default=str),
        outcome.compile_s,
        outcome.place,
        outcome.predicted_s,
        outcome.measured_at,
        outcome.source,
    )
    updates = ", ".join(f"{name} = excluded.{name}" for name in _NAMES if name != "tiles")
    older = " WHERE excluded.measured_at > outcomes.measured_at" if keep_newer else ""
    cursor = connection.execute(
        f"INSERT INTO outcomes (problem, {_COLUMNS}) VALUES ({', '.join('?' * len(values))})"
        f" ON CONFLICT DO UPDATE SET {updates}{older}",
        values,
    )
    return cursor.rowcount


# -------------------------------------------------------------------------------------------------- the user's store


@functools.lru_cache(maxsize=8)
def _store_at(path: Path) -> Store:
    return Store(path)


def default_store() -> Store:
    """The store of this user: the file `TILEHAL_TUNING_STORE` names, else `tuned.sqlite` in the user's data folder."""
    named = os.environ.get("TILEHAL_TUNING_STORE", "")
    return _store_at(Path(named).expanduser().absolute() if named else _default_path())


@functools.cache
def _default_path() -> Path:
    from platformdirs import user_data_path

    return user_data_path("tilehal", appauthor=False) / "tuned.sqlite"
