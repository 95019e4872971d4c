"""Single flight: of all threads and processes that want one entry, one makes it and the others wait for it."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import FileLock

_LOG = logging.getLogger("tilehal.cache")

_POLL_S = 0.02
_TELL_AFTER_S = 10.0


class _KeyLock:
    """The lock of one key among the threads of this process, and how many of them hold or want it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0


_KEYS: dict[Path, _KeyLock] = {}
_KEYS_GUARD = threading.Lock()


def _forget_locks() -> None:
    # A child made by fork has only the thread that forked: whoever held these locks is not there to release them.
    global _KEYS_GUARD
    _KEYS_GUARD = threading.Lock()
    _KEYS.clear()


os.register_at_fork(after_in_child=_forget_locks)


@contextlib.contextmanager
def alone(path: Path, what: str) -> Iterator[None]:
    """Holds the lock file `path` (created when missing) against all threads and processes of this machine.

    Where no lock can be had (a read-only cache, a file system without locks), only the threads of this process are
    kept apart. That costs duplicate work at worst: entries appear by a rename, whoever makes them.
    """
    with _KEYS_GUARD:
        key_lock = _KEYS.setdefault(path, _KeyLock())
        key_lock.users += 1
    try:
        with key_lock.lock, _across_processes(path, what):
            yield
    finally:
        with _KEYS_GUARD:
            key_lock.users -= 1
            if key_lock.users == 0:
                _KEYS.pop(path, None)


@contextlib.contextmanager
def _across_processes(path: Path, what: str) -> Iterator[None]:
    lock = _file_lock(path)
    held = False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = _acquire(lock, _TELL_AFTER_S)
        if not held:
            _LOG.info("waiting for another process that makes %s", what)
            held = _acquire(lock, -1)
    except (OSError, NotImplementedError) as error:
        _LOG.debug("no lock for %s: %s", what, error)
    try:
        yield
    finally:
        if held:
            lock.release()


@contextlib.contextmanager
def alone_or_not_at_all(path: Path) -> Iterator[bool]:
    """Like :func:`alone`, but gives False at once when somebody else holds the lock or none can be had."""
    lock = _file_lock(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        held = _acquire(lock, 0)
    except (OSError, NotImplementedError):
        held = False
    try:
        yield held
    finally:
        if held:
            lock.release()


def _file_lock(path: Path) -> FileLock:
    # Not imported at the top: it costs 20 ms, which a compilation that hits the cache need not pay.
    from filelock import FileLock

    return FileLock(path, thread_local=False, poll_interval=_POLL_S)


def _acquire(lock: FileLock, timeout_s: float) -> bool:
    """Whether the lock was got within `timeout_s` seconds (negative: wait as long as it takes)."""
    from filelock import Timeout

    try:
        lock.acquire(timeout=timeout_s)
    except Timeout:
        return False
    return True
