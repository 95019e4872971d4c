"""Tile sizes somebody measured on their own Nova N2."""

from __future__ import annotations

from collections.abc import Sequence

from core.hardware import Chip
from core.plugins import hookimpl
from core.tiling import KernelShape, TileRule

#: Higher is called earlier; the owner is 0. These rules come before Nova's own.
priority = 10


@hookimpl
def tilehal_tile_rules(chip: Chip, kernel: KernelShape) -> Sequence[TileRule]:
    """Shorter rows than Nova suggests."""
    return (TileRule("house-rows", "measured in house", prefer=({"N": 512},)),)
