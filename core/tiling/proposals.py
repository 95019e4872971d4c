"""Values that rules of several vendors propose for waves of threads: rows of reductions, tiles of element-wise work.

Such kernels live on memory bandwidth: a tile is good when every thread moves whole vectors, several of them, and when
several blocks share a unit. Nothing here is about one vendor; figures come from the descriptor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from core.program.expressions import dtype_bits
from core.tiling.constraints import power_of_two
from core.tiling.parameters import Value
from core.tiling.rules import KernelShape

if TYPE_CHECKING:
    from core.hardware import Chip

#: One load or store of a thread.
_VECTOR_BYTES = 16
#: Elements of a block's tile: enough to hide the latency of memory, few enough for several blocks on a unit.
_SMALLEST_TILE, _LARGEST_TILE = 1024, 16384
#: Elements of a row per thread: at most what registers hold beside copies of them.
_MOST_HELD = 64
#: Rows longer than this may also be walked over in parts.
_LONG, _PARTS = 4096, (8192, 4096, 2048)
_THREADS = (128, 256, 512, 1024, 64, 32)


def row_tiles(chip: Chip, kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    """For reductions along rows (N) of a matrix (M x N): rows per block by their length, and threads for them.

    A row is taken whole, as the power of two that holds it; a long one also in parts.
    """
    length = power_of_two(kernel.dimensions.get("N", _SMALLEST_TILE))
    rows = [count for count in (1, 2, 4, 8, 16, 32, 64) if _SMALLEST_TILE <= count * length <= _LARGEST_TILE]
    rows = rows or ([1] if length > _LARGEST_TILE else [64])
    parts = [part for part in _PARTS if part < length] if length > _LONG else []
    # Rows of more than 256 vectors have work for more threads; parts of a row for as many as its shortest part.
    most = min(max(256, length // vector_elements(kernel)), chip.limits.threads_per_block or max(_THREADS))
    fewest = max(min([length, *parts]) // _MOST_HELD * (2 if parts else 1), chip.main_unit.lanes_per_wave or 1)
    threads = [count for count in _THREADS if fewest <= count <= most and 2 * count <= max(rows) * length]
    return {"M": rows, "N": (length, *parts), "threads": threads or [fewest]}


def elementwise_tiles(chip: Chip, kernel: KernelShape) -> Mapping[str, Sequence[Value]]:
    """For element-wise kernels: a few thousand elements a block, in rows that a wave reads with whole vectors."""
    waves = chip.main_unit.lanes_per_wave or 1
    return {
        "M": (8, 4, 16, 32, 2, 1),
        "N": (512, 256, 1024, 128, 64),
        "threads": tuple(dict.fromkeys(max(count, waves) for count in (128, 256))),
    }


def vector_elements(kernel: KernelShape) -> int:
    """Elements of the kernel's narrowest tensor that one load or store of a thread moves."""
    element = min((max(1, dtype_bits(dtype) // 8) for dtype in kernel.dtypes), default=2)
    return _VECTOR_BYTES // element
