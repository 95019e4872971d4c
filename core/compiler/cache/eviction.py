"""Keeping the cache within its limit: what lies there, and which of it goes first."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from core.compiler.cache import entry, refusals, session
from core.compiler.cache.entry import MANIFEST, STAGES, Stage

#: Folders of the cache that hold no entries.
LOCKS = "locks"
QUARANTINE = "quarantine"

#: An entry's time of use is written at most this often.
TOUCH_INTERVAL_S = 3600.0

#: Eviction goes on to this share of the limit, so that it is not needed again at once.
_LOW_WATER = 0.9


@dataclass(frozen=True, slots=True)
class Found:
    """An entry as seen from outside: its folder, bytes on disk, and when it was last used (Unix time)."""

    stage: Stage
    key: str
    folder: Path
    size_bytes: int
    used_s: float

    @property
    def name(self) -> str:
        """How sessions call it."""
        return f"{self.stage}/{self.key}"


def folder_of(root: Path, stage: str, key: str) -> Path:
    """Where the entry with this key lies; two digits of fan-out keep folders short."""
    return root / stage / key[:2] / key


def scan(root: Path) -> Iterator[Found]:
    """Every entry in the cache, sound or not."""
    for stage in STAGES:
        for folder in (root / stage).glob("[0-9a-f][0-9a-f]/*"):
            yield Found(stage, folder.name, folder, entry.size_on_disk(folder), last_use(folder))


def last_use(folder: Path) -> float:
    """When the entry was last used, within :data:`TOUCH_INTERVAL_S`: the time of its manifest."""
    for path in (folder / MANIFEST, folder):
        with contextlib.suppress(OSError):
            return path.stat().st_mtime
    return 0.0


def touch(folder: Path) -> None:
    """Notes that the entry is used now. Failure (a read-only cache) changes nothing but the order of eviction."""
    with contextlib.suppress(OSError):
        manifest = folder / MANIFEST
        if time.time() - manifest.stat().st_mtime > TOUCH_INTERVAL_S:
            os.utime(manifest)


def evict(root: Path, limit_bytes: int, own: session.Session) -> int:
    """Removes least recently used entries until the cache is within its limit; returns how many went.

    An entry that a living process uses stays, even when the limit cannot be kept then.
    """
    entries = sorted(scan(root), key=lambda found: found.used_s)
    total = sum(found.size_bytes for found in entries)
    if total <= limit_bytes:
        return 0
    used = own.used | session.used_by_others(root, own)
    evicted = 0
    for found in entries:
        if total <= limit_bytes * _LOW_WATER:
            break
        # Asked again at the last moment: somebody may have begun to use it since.
        if found.name in used or last_use(found.folder) != found.used_s:
            continue
        with contextlib.suppress(OSError):
            entry.remove(found.folder, own.new_path("evicted"))
            total -= found.size_bytes
            evicted += 1
    return evicted


def sweep(root: Path, own: session.Session | None, *, older_than_s: float = session.KEEP_S) -> None:
    """Removes what nobody needs any more: dead sessions, damaged entries, refusals and locks of a day ago."""
    session.sweep(root, own, older_than_s=older_than_s)
    refusals.sweep(root, older_than_s=older_than_s)
    oldest = time.time() - older_than_s
    for folder in (root / QUARANTINE).glob("*"):
        with contextlib.suppress(OSError):
            if folder.stat().st_mtime <= oldest:
                shutil.rmtree(folder, ignore_errors=True)
    # Whatever the caller's age: a lock file removed while somebody takes it costs a duplicate build (not more: entries
    # appear by a rename), so only those go that nobody has made anything under for long.
    for lock in (root / LOCKS).glob("*.lock"):
        with contextlib.suppress(OSError):
            if lock.stat().st_mtime <= time.time() - session.KEEP_S:
                lock.unlink()
