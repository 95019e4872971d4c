"""Looking into the cache from outside: what `tilehal cache` shows, checks and clears."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.compiler.cache import entry, eviction, refusals, session
from core.compiler.cache.entry import Damaged, Manifest, Missing, Stage, Summary


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One entry.

    Attributes:
        stage: `lowered`, `built` or `files`. key: its cache key.
        kernel, target, route: what it is. detail: its source language, or the toolchain that built it.
        size_bytes: bytes on disk. created_s, used_s: Unix times; `used_s` is exact to an hour.
        folder: where its files are. damaged: why it cannot be used, or an empty string.
    """

    stage: Stage
    key: str
    kernel: str
    target: str
    route: str
    detail: str
    size_bytes: int
    created_s: float
    used_s: float
    folder: Path
    damaged: str = ""

    def to_json(self) -> dict[str, Any]:
        """The entry as JSON-able data."""
        return {**asdict(self), "folder": str(self.folder)}


@dataclass(frozen=True, slots=True)
class CacheStats:
    """What is in the cache, and what this process got from it.

    Attributes:
        root: its folder. limit_bytes: most it may hold. enabled: whether it is used.
        entries, size_bytes: by stage (`lowered`, `built`, `files`): how many, and their bytes on disk.
        refusals: remembered failures on disk.
        hits, misses: look-ups of this process by stage; a remembered failure is a hit of `refused`.
        damaged: damaged entries this process found and set aside.
    """

    root: Path
    limit_bytes: int
    enabled: bool
    entries: dict[str, int]
    size_bytes: dict[str, int]
    refusals: int
    hits: dict[str, int]
    misses: dict[str, int]
    damaged: int

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON-able data."""
        return {**asdict(self), "root": str(self.root)}


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was removed: entries, and their bytes on disk; and how many stayed because a living process uses them."""

    entries: int
    size_bytes: int
    in_use: int


def entries(root: Path, *, check: bool) -> Iterator[CacheEntry]:
    """Every entry; with `check` every byte of it is compared with its manifest."""
    for found in eviction.scan(root):
        manifest = Manifest(found.stage, found.key, found.used_s, Summary(), {})
        damaged = ""
        try:
            manifest = entry.read_manifest(found.folder, found.stage, found.key)
            if check:
                entry.check_files(found.folder, manifest, again=True)
        except Missing:
            continue
        except (Damaged, OSError) as error:
            damaged = entry.error_text(error) if isinstance(error, OSError) else str(error)
        yield CacheEntry(
            stage=found.stage,
            key=found.key,
            **asdict(manifest.summary),
            size_bytes=found.size_bytes,
            created_s=manifest.created_s,
            used_s=found.used_s,
            folder=found.folder,
            damaged=damaged,
        )


def clear(
    root: Path,
    *,
    keys: Collection[str] | None,
    stage: Stage | None,
    target: str | None,
    older_than_s: float | None,
    force: bool,
) -> Cleared:
    """Removes the entries that fit every given condition; see :meth:`core.compiler.cache.Cache.clear`."""
    everything = keys is None and stage is None and target is None and older_than_s is None
    own = session.existing(root)
    used = session.used_by_others(root, own) | (own.used if own is not None else set())
    latest = time.time() - (older_than_s or 0.0)
    removed = size_bytes = in_use = 0
    for found in list(entries(root, check=False)):
        if (
            (keys is not None and found.key not in keys)
            or (stage is not None and found.stage != stage)
            or (target is not None and not _is_for(found.target, target))
            or (older_than_s is not None and found.used_s > latest)
        ):
            continue
        if f"{found.stage}/{found.key}" in used and not force:
            in_use += 1
            continue
        with contextlib.suppress(FileNotFoundError):  # another process removed it first
            entry.remove(found.folder, session.current(root).new_path("cleared"))
            removed += 1
            size_bytes += found.size_bytes
    if everything:
        eviction.sweep(root, own, older_than_s=0.0)
        shutil.rmtree(root / eviction.QUARANTINE, ignore_errors=True)
    return Cleared(removed, size_bytes, in_use)


def _is_for(chip: str, target: str) -> bool:
    """Whether `target` (`cuda`, or `cuda:h200`) covers the chip an entry is for (`cuda:h200`)."""
    return chip == target or chip.split(":")[0] == target


def stats(root: Path) -> tuple[dict[str, int], dict[str, int], int]:
    """Entries by stage, bytes by stage, and the number of refusals."""
    counts: dict[str, int] = dict.fromkeys(entry.STAGES, 0)
    sizes: dict[str, int] = dict.fromkeys(entry.STAGES, 0)
    for found in eviction.scan(root):
        counts[found.stage] += 1
        sizes[found.stage] += found.size_bytes
    return counts, sizes, refusals.count(root)
