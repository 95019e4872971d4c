"""The on-disk cache of compiled kernels. docs/cache.md says what is in a key and what the cache promises."""

from __future__ import annotations

from functools import cache as _memoised
from pathlib import Path

from core.compiler.cache import settings
from core.compiler.cache.api import Cache
from core.compiler.cache.inspection import CacheEntry, CacheStats, Cleared
from core.compiler.cache.trouble import CacheWarning

__all__ = ["Cache", "CacheEntry", "CacheStats", "CacheWarning", "Cleared", "default"]


def default() -> Cache:
    """The cache that the environment asks for; the same object as long as the environment says the same.

    Raises:
        TileHALError: `TILEHAL_CACHE_LIMIT` or `TILEHAL_DISABLE_CACHE` cannot be understood.
    """
    wanted = settings.from_environment()
    return _cache(wanted.root, wanted.limit_bytes, wanted.enabled)


@_memoised
def _cache(root: Path, limit_bytes: int, enabled: bool) -> Cache:
    return Cache(root, limit_bytes, enabled=enabled)
