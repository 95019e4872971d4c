"""What the environment says about the cache: where it is, how large it may grow, whether it is used at all."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from core.errors import TileHALError

DEFAULT_LIMIT_BYTES = 4 * 2**30

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?)B?\s*", re.IGNORECASE)

_YES = ("1", "true", "yes", "on")
_NO = ("", "0", "false", "no", "off")


@dataclass(frozen=True, slots=True)
class Settings:
    """`root`: folder of the cache; `limit_bytes`: most it may hold; `enabled`: whether it is used."""

    root: Path
    limit_bytes: int
    enabled: bool


def from_environment() -> Settings:
    """Reads `TILEHAL_CACHE_DIR`, `TILEHAL_CACHE_LIMIT` and `TILEHAL_DISABLE_CACHE`.

    Raises:
        TileHALError: a variable holds something that is not a size, or not a yes or no.
    """
    folder = os.environ.get("TILEHAL_CACHE_DIR", "")
    limit = os.environ.get("TILEHAL_CACHE_LIMIT", "")
    disabled = os.environ.get("TILEHAL_DISABLE_CACHE", "").strip().lower()
    if disabled not in (*_YES, *_NO):
        raise TileHALError(f"TILEHAL_DISABLE_CACHE={disabled!r} is neither yes nor no", hint="set it to 1, or unset it")
    return Settings(
        root=Path(folder).expanduser().absolute() if folder else _default_root(),
        limit_bytes=parse_size(limit, "TILEHAL_CACHE_LIMIT") if limit else DEFAULT_LIMIT_BYTES,
        enabled=disabled in _NO,
    )


def _default_root() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("tilehal", appauthor=False)


def parse_size(text: str, name: str) -> int:
    """Bytes meant by `512MiB`, `4 GB`, `1.5G` or `1000000`. Binary units have an `i`. `name` is for the error.

    Raises:
        TileHALError: it is not a size.
    """
    match = _SIZE.fullmatch(text)
    unit = match.group(2).upper() if match else "?"
    if match is None or unit not in _UNITS:
        raise TileHALError(f"{name}={text!r} is not a size", hint="write bytes, or a number with a unit: 500MB, 4GiB")
    return int(float(match.group(1)) * _UNITS[unit])


def format_size(size_bytes: float) -> str:
    """`size_bytes` for people: `812 B`, `14.2 KiB`, `3.1 GiB`."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} B"
    for unit in ("KiB", "MiB", "GiB"):
        size_bytes /= 1024
        if size_bytes < 1024:
            return f"{size_bytes:.1f} {unit}"
    return f"{size_bytes / 1024:.1f} TiB"
