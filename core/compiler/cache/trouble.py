"""When the disk does not play along: the cache is only a help, so trouble is told once and lived with."""

from __future__ import annotations

import contextlib
import errno
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path

from core.compiler.cache.entry import error_text
from core.errors import TileHALError

#: Below this much free space a failed build is taken for a full disk.
_LITTLE_SPACE_BYTES = 2**20
_NO_SPACE = re.compile(r"No space left on device|Disk quota exceeded|File too large", re.IGNORECASE)


class CacheWarning(UserWarning):
    """The cache could not be used, or an entry was damaged. Compilation went on without it."""


class Trouble:
    """Tells about the cache at `base`, once for each process and cache: the first reason explains the others."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._told = False

    def tell(self, reason: str) -> None:
        """Warns that the cache is not used, and why, unless that was said before."""
        if self._told:
            return
        self._told = True
        warnings.warn(
            f"TileHAL compiles without its cache in {self._base}: {reason}. "
            "Set TILEHAL_CACHE_DIR to another folder, or TILEHAL_DISABLE_CACHE=1 to do without on purpose.",
            CacheWarning,
            stacklevel=2,
        )

    @contextlib.contextmanager
    def tolerated(self, what: str) -> Iterator[None]:
        """Turns the disk's refusal into that one warning; the body is only ever an attempt to keep something."""
        try:
            yield
        except OSError as error:
            self.tell(f"{what} ({error_text(error)})")


def out_of_space(error: OSError | TileHALError, folder: Path) -> bool:
    """Whether a build below `folder` failed because the disk is full, as the system or the compiler says."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if _NO_SPACE.search(error.message):
        return True
    try:
        return shutil.disk_usage(folder).free < _LITTLE_SPACE_BYTES
    except OSError:
        return False
