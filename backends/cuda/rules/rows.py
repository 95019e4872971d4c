"""Tiles of kernels that live on memory bandwidth on NVIDIA GPUs: reductions along rows, element-wise work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from core.hardware import Chip
from core.program import dtype_bits
from core.tiling import KernelShape, TileRule, Value
from core.tiling.constraints import power_of_two

#: One load or store of a thread.
_VECTOR_BYTES = 16
#: Elements of a block's tile: enough to hide the latency of memory, few enough for several blocks on a unit.
_SMALLEST_TILE, _LARGEST_TILE = 1024, 16384
#: Elements of a row per thread: at most what registers hold beside copies of them.
_MOST_HELD = 64
#: Rows longer than this may also be walked over in parts.
_LONG = 4096
_THREADS = (128, 256, 512, 1024, 64, 32)


def reduction_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """Rows per block by their length; a long row whole or in parts; threads that each hold a few vectors of it."""
    return TileRule(
        "cuda.row-tile",
        "a block holds a few thousand elements; its threads a few 16-byte vectors of a row each",
        values=_rows(chip, kernel),
    )


def _rows(chip: Chip, kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    length = power_of_two(kernel.dimensions.get("N", _SMALLEST_TILE))
    vector = _VECTOR_BYTES // _element_bytes(kernel)
    rows = [count for count in (1, 2, 4, 8, 16, 32, 64) if _SMALLEST_TILE <= count * length <= _LARGEST_TILE]
    rows = rows or ([1] if length > _LARGEST_TILE else [64])
    parts = [part for part in (8192, 4096, 2048) if part < length] if length > _LONG else []
    # Rows longer than 256 vectors have work for more threads; parts of a row for as many as its shortest part.
    most = min(max(256, length // vector), chip.limits.threads_per_block or max(_THREADS))
    fewest = min([length, *parts]) // _MOST_HELD * (2 if parts else 1)
    threads = [count for count in _THREADS if fewest <= count <= most and 2 * count <= max(rows) * length]
    return {"M": rows, "N": (length, *parts), "threads": threads or [min(_THREADS)]}


def elementwise_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """A few thousand elements a block, in rows that a warp reads with whole vectors."""
    return TileRule(
        "cuda.elementwise-tile",
        "a few thousand elements a block: 16-byte accesses, several per thread",
        values={"M": (8, 4, 16, 32, 2, 1), "N": (512, 256, 1024, 128, 64), "threads": (128, 256)},
    )


def _element_bytes(kernel: KernelShape) -> int:
    """Bytes of an element of the narrowest tensor, which decides how many a vector has; 1 at least."""
    return min((max(1, dtype_bits(dtype) // 8) for dtype in kernel.dtypes), default=2)
