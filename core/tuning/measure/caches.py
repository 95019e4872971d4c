"""The caches that a measurement with cold caches has to empty: how large they are, and reading something else."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from core.compiler.cache.settings import parse_size
from core.tuning.measure.host import Call

if TYPE_CHECKING:
    import torch

#: Where nobody says how large the caches are.
UNKNOWN_CACHE_BYTES = 64 * 2**20


def cache_bytes(device: torch.device | str) -> int:
    """Bytes of the last cache before a device's memory; `UNKNOWN_CACHE_BYTES` where nothing says.

    Asked of torch for an accelerator (`L2_cache_size`), of Linux for the CPU. `TILEHAL_CPU_CACHE_SIZE` overrules Linux:
    a virtual machine may list the whole of a cache that it has only a part of, or no cache at all.

    Raises:
        TileHALError: the variable holds something that is not a size.
    """
    import torch

    where = torch.device(device)
    if where.type == "cpu":
        said = os.environ.get("TILEHAL_CPU_CACHE_SIZE", "")
        return parse_size(said, "TILEHAL_CPU_CACHE_SIZE") if said else _listed_cache_bytes() or UNKNOWN_CACHE_BYTES
    properties = getattr(torch, where.type).get_device_properties(where)
    return int(getattr(properties, "L2_cache_size", 0)) or UNKNOWN_CACHE_BYTES


def host_flush(size_bytes: int) -> Call:
    """A function that reads so many bytes of its own through the CPU's caches."""
    import torch

    buffer = torch.zeros(max(1, size_bytes // 4), dtype=torch.float32)
    return buffer.amax


def _listed_cache_bytes() -> int | None:
    """The largest cache that Linux lists for the first CPU."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            text = path.read_text().strip()
            sizes.append(int(text[:-1]) * units[text[-1]])
    return max(sizes, default=None)
