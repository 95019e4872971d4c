"""Tiles of kernels that live on memory bandwidth on NVIDIA GPUs: reductions along rows, element-wise work."""

from __future__ import annotations

from core.hardware import Chip
from core.tiling import KernelShape, TileRule
from core.tiling.proposals import elementwise_tiles, row_tiles


def reduction_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """Rows per block by their length; a long row whole or in parts; threads that each hold a few vectors of it."""
    return TileRule(
        "cuda.row-tile",
        "a block holds a few thousand elements; its threads a few 16-byte vectors of a row each",
        values=row_tiles(chip, kernel),
    )


def elementwise_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """A few thousand elements a block, in rows that a warp reads with whole vectors."""
    return TileRule(
        "cuda.elementwise-tile",
        "a few thousand elements a block: 16-byte accesses, several per thread",
        values=elementwise_tiles(chip, kernel),
    )
