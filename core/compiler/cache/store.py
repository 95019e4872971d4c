"""Looking up, making once, publishing, and carrying on without the cache when the disk does not play along."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from core.compiler.cache import entry, eviction, flight, private, refusals, session
from core.compiler.cache.entry import Damaged, Manifest, Missing, Stage, Summary
from core.compiler.cache.trouble import CacheWarning, Trouble, out_of_space
from core.compiler.serialize import UnknownSchema
from core.errors import BuildFailed, Location, TileHALError

T = TypeVar("T")

#: Changes when the layout of the cache folder changes: versions of TileHAL that differ in it do not see each other.
LAYOUT = "v1"

_KEY = re.compile(r"[0-9a-f]{16,128}")
_MAINTAIN_EVERY_S = 600.0
_STAMP = "maintained"
_TAG = (
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# Kernels that TileHAL compiled. Everything here can be made again; delete it whenever you like.\n"
)


class Store:
    """Entries of any kind below `base`: how they are found, made, kept and lost. `Cache` says what is in them.

    Attributes:
        base: the folder the user knows; root: the part of it that this layout uses.
        hits, misses: look-ups of this process by stage. damaged: damaged entries it set aside.
    """

    def __init__(self, base: Path, limit_bytes: int, enabled: bool) -> None:
        self.base = base
        self.root = base / LAYOUT
        self.limit_bytes = limit_bytes
        self.enabled = enabled
        self.trouble = Trouble(base)
        self.hits: Counter[str] = Counter()
        self.misses: Counter[str] = Counter()
        self.damaged = 0
        self._told_damaged: set[Path] = set()
        self._stored_bytes = 0

    # ------------------------------------------------------------------------------------------------ one entry

    def obtain(
        self,
        stage: Stage,
        key: str,
        read: Callable[[Path, Manifest], T | None],
        fill: Callable[[Path | None], T],
        origin: Location | None = None,
    ) -> tuple[T, bool]:
        """Looks the entry up, and under the key's lock once more before it is made by `fill`.

        `fill` gets an empty folder in the cache's file system, or None where the cache cannot be written.
        """
        if not self.enabled:
            self.misses[stage] += 1
            return fill(None), False
        found = self._find(stage, checked(key), read)
        if found is None:
            self._raise_refusal(stage, key, origin)
            with flight.alone(self.root / eviction.LOCKS / f"{stage}-{key}.lock", f"{stage} {key}"):
                found = self._find(stage, key, read, repair=True)
                if found is None:
                    self._raise_refusal(stage, key, origin)
                    self.misses[stage] += 1
                    return self._make(stage, key, fill, origin), False
        self.hits[stage] += 1
        return found, True

    def _make(self, stage: Stage, key: str, fill: Callable[[Path | None], T], origin: Location | None) -> T:
        work: Path | None = None
        with self.trouble.tolerated("nothing can be written there"):
            work = self._own_session().new_folder(f"{stage}-{key[:12]}")
        try:
            made = fill(work)
        except TileHALError as error:
            if work is not None:
                with self.trouble.tolerated("a failure could not be noted"):
                    if isinstance(error, BuildFailed):  # its message names files in that folder
                        self._own_session().keep()
                    if not out_of_space(error, self.base):
                        refusals.remember(self.root, stage, key, error, self._own_session().folder, origin)
            raise
        if work is not None:
            refusals.forget(self.root, stage, key)
            self._after_store()
        return made

    def _find(
        self, stage: Stage, key: str, read: Callable[[Path, Manifest], T | None], *, repair: bool = False
    ) -> T | None:
        """The entry, or None. With `repair` (the key's lock is held) what is there and cannot be used is removed."""
        folder = eviction.folder_of(self.root, stage, key)
        try:
            if stage != "lowered" and folder.is_dir():
                self._use(f"{stage}/{key}", folder)
            manifest = entry.read_manifest(folder, stage, key)
            found = read(folder, manifest)
        except (Missing, FileNotFoundError):
            return None
        except UnknownSchema:
            found = None
        except (Damaged, KeyError, ValueError, TypeError, AttributeError) as error:
            if repair:
                self._set_aside(stage, key, folder, str(error) or type(error).__name__)
            return None
        except OSError as error:
            self.trouble.tell(f"an entry could not be read ({entry.error_text(error)})")
            return None
        if found is None:
            if repair:
                with self.trouble.tolerated("an old entry could not be removed"):
                    entry.remove(folder, self._own_session().new_path("stale"))
            return None
        eviction.touch(folder)
        return found

    def _use(self, name: str, folder: Path) -> None:
        """Protects an entry from eviction *before* it is checked: what passes the check then stays."""
        # A cache that cannot be written cannot evict either.
        with contextlib.suppress(OSError):
            eviction.touch(folder)
            self._own_session().mark_used(name)

    def _set_aside(self, stage: Stage, key: str, folder: Path, reason: str) -> None:
        if folder in self._told_damaged:  # it could not be moved away before
            return
        self._told_damaged.add(folder)
        self.damaged += 1
        aside = self.root / eviction.QUARANTINE / f"{stage}-{key}-{time.time_ns()}"
        with self.trouble.tolerated("a damaged entry could not be set aside"):
            aside.parent.mkdir(parents=True, exist_ok=True)
            os.rename(folder, aside)
            os.utime(aside)  # from now on it is kept for a day
            self._told_damaged.discard(folder)
        warnings.warn(
            f"TileHAL's cache held a damaged entry, which is made again: {reason} (in {folder})",
            CacheWarning,
            stacklevel=2,
        )

    def _raise_refusal(self, stage: Stage, key: str, origin: Location | None) -> None:
        error = refusals.recall(self.root, stage, key, origin)
        if error is not None:
            self.hits["refused"] += 1
            raise error

    # ------------------------------------------------------------------------------------------------ writing

    def fill_folder(self, work: Path | None, stage: Stage, key: str, build: Callable[[Path], Summary]) -> Path:
        """Calls `build` with an empty folder and returns where the files are in the end."""
        if work is not None:
            try:
                summary = build(work)
            except (OSError, TileHALError) as error:
                if not out_of_space(error, self.base):
                    raise
                self.trouble.tell("the disk is full")
                shutil.rmtree(work, ignore_errors=True)
            else:
                # Not published, it serves this process from where it is, and goes with its session.
                return self.publish(work, stage, key, summary) or work
        folder = private.new_folder()
        try:
            build(folder)
        except BuildFailed:
            private.keep(folder)
            raise
        return folder

    def publish(self, work: Path, stage: Stage, key: str, summary: Summary) -> Path | None:
        """Seals a filled folder and moves it to its place, which it returns.

        None when the disk refused: then `work` is still where it was.
        """
        final = eviction.folder_of(self.root, stage, key)
        published: Path | None = None
        with self.trouble.tolerated("a kernel could not be written"):
            manifest = entry.write_manifest(work, stage, key, summary)
            if stage != "lowered":
                self._own_session().mark_used(f"{stage}/{key}")
            try:
                entry.publish(work, final)
            except FileExistsError:
                # Only where locks do not work. Ours is newer and known to be sound.
                entry.remove(final, self._own_session().new_path("replaced"))
                entry.publish(work, final)
            published = final
            self._stored_bytes += manifest.size_bytes
        return published

    def _own_session(self) -> session.Session:
        tag = self.base / "CACHEDIR.TAG"
        if not tag.exists():
            # Native code that will be loaded: nobody else's business, unless the user made the folder.
            self.base.mkdir(parents=True, exist_ok=True, mode=0o700)
            tag.write_text(_TAG, encoding="ascii")
        return session.current(self.root)

    def _after_store(self) -> None:
        """Sweeps and evicts, when enough was stored or enough time has passed."""
        stamp = self.root / _STAMP
        with contextlib.suppress(OSError):
            due = not stamp.exists() or abs(time.time() - stamp.stat().st_mtime) > _MAINTAIN_EVERY_S
            if due or self._stored_bytes > self.limit_bytes // 20:
                self.maintain()

    def maintain(self) -> None:
        """Sweeps what dead processes left and evicts down to the limit; does nothing while another process does it.

        Raises:
            OSError: the cache cannot be written.
        """
        own = self._own_session()
        with flight.alone_or_not_at_all(self.root / eviction.LOCKS / "maintenance.lock") as mine:
            if mine:
                (self.root / _STAMP).touch()
                self._stored_bytes = 0
                eviction.sweep(self.root, own)
                eviction.evict(self.root, self.limit_bytes, own)


def checked(key: str) -> str:
    """The key, when it can be one: it becomes a path."""
    # Also catches a digest cut short or in capitals, which would never be found again.
    if not _KEY.fullmatch(key):
        raise ValueError(f"{key!r} is not a cache key: it must be 16 to 128 lower-case hexadecimal digits")
    return key
