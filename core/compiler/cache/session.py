"""What one process does in the cache: its unfinished folders, and which entries it is using.

A session is a folder with a lock that its process holds until it ends, however it ends. Nothing unfinished lies
anywhere else, so what a killed process leaves behind is recognised by its free lock and swept. The entries whose files
the process may load at any time (built kernels) are listed in it, so that no other process evicts them.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import itertools
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterable
from pathlib import Path

FOLDER = "sessions"

_LOCK = "lock"
_USED = "used"
_UNBORN = "new-"

#: How long the folders of failed builds, damaged entries and refusals are kept.
KEEP_S = 24 * 3600.0


class Session:
    """What this process does in the cache at `root`.

    Raises:
        OSError: the cache cannot be written.
    """

    def __init__(self, root: Path, used: Iterable[str] = ()) -> None:
        self.pid = os.getpid()
        name = f"{self.pid}-{secrets.token_hex(4)}"
        self.folder = root / FOLDER / name
        # Locked before it gets its name: nobody ever sees a session of a living process that is not locked.
        unborn = root / FOLDER / f"{_UNBORN}{name}"
        unborn.mkdir(parents=True)
        self._descriptor = os.open(unborn / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        os.rename(unborn, self.folder)
        self._count = itertools.count(1)
        self._keep = False
        self.used: set[str] = set()
        for name in used:
            self.mark_used(name)
        atexit.register(self.close)

    def new_path(self, label: str) -> Path:
        """A path nobody else uses, in the cache's file system; `label` helps a person who finds something there."""
        return self.folder / f"{next(self._count)}-{label}"

    def new_folder(self, label: str) -> Path:
        """An empty folder for unfinished work."""
        folder = self.new_path(label)
        folder.mkdir()
        return folder

    def keep(self) -> None:
        """Leave the unfinished folders in place when the process ends: an error message refers to one of them."""
        self._keep = True

    def mark_used(self, name: str) -> None:
        """Protects the entry `name` (`built/<key>`) from being evicted while this process lives."""
        if name in self.used:
            return
        self.used.add(name)
        with (self.folder / _USED).open("a", encoding="ascii") as stream:
            stream.write(name + "\n")

    def close(self) -> None:
        """Ends the session. In a child made by fork it does nothing: the session is its parent's."""
        if self.pid != os.getpid() or self._descriptor < 0:
            return
        if not self._keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._descriptor)
        self._descriptor = -1
        atexit.unregister(self.close)


_SESSIONS: dict[Path, Session] = {}
_GUARD = threading.Lock()


def _renew_guard() -> None:
    # A child made by fork has only the thread that forked: another one that held the lock cannot release it.
    global _GUARD
    _GUARD = threading.Lock()


os.register_at_fork(after_in_child=_renew_guard)


def current(root: Path) -> Session:
    """The session of this process in the cache at `root`, begun at the first call.

    Raises:
        OSError: the cache cannot be written.
    """
    with _GUARD:
        found = _SESSIONS.get(root)
        if found is None or found.pid != os.getpid() or not found.folder.exists():
            # A child made by fork goes on using what its parent uses; so do we when somebody deleted the folder.
            used = () if found is None else tuple(found.used)
            if found is not None:
                found.close()
            found = _SESSIONS[root] = Session(root, used)
        return found


def existing(root: Path) -> Session | None:
    """The session of this process, if it has begun one."""
    return _SESSIONS.get(root)


def is_alive(folder: Path) -> bool:
    """Whether the process of the session in `folder` still runs. Unknown counts as alive."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _sessions(root: Path) -> list[Path]:
    try:
        return sorted((root / FOLDER).iterdir())
    except OSError:
        return []


def used_by_others(root: Path, own: Session | None) -> set[str]:
    """Names of the entries that other living processes use."""
    used: set[str] = set()
    for folder in _sessions(root):
        if (own is None or folder != own.folder) and is_alive(folder):
            with contextlib.suppress(OSError):
                used.update((folder / _USED).read_text(encoding="ascii").splitlines())
    return used


def sweep(root: Path, own: Session | None, *, older_than_s: float = KEEP_S) -> int:
    """Removes what dead processes left, when it is older than `older_than_s`; returns how many folders went."""
    swept = 0
    now = time.time()
    for folder in _sessions(root):
        if own is not None and folder == own.folder:
            continue
        age_s = KEEP_S if folder.name.startswith(_UNBORN) else older_than_s
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime <= now - age_s and not is_alive(folder):
                shutil.rmtree(folder, ignore_errors=True)
                swept += 1
    return swept
