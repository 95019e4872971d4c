"""Files a backend makes besides kernels, kept in the cache: a simulator's objects, precompiled headers."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

from core.compiler import cache


def cached_files(parts: Iterable[str | bytes], make: Callable[[Path], None], *, label: str = "") -> Path:
    """A folder of files from the on-disk cache; when it is not there, `make` fills it, once among all processes.

    Args:
        parts: everything the files depend on: sources, tools and their versions, options, the machine's features.
        make: writes the files into the folder it is given. The folder then moves, so no file may hold its path.
        label: what `tilehal cache list` shows.

    Returns:
        The folder. Its files must not be changed.

    Raises:
        TileHALError: whatever `make` raises, or raised for the same parts less than a day ago.
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode() + data)
    return cache.default().folder(digest.hexdigest(), make, label=label)[0]
