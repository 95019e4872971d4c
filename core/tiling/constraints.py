"""Constraints that rules of several vendors share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from core.tiling.rules import KernelShape, Tiles

if TYPE_CHECKING:
    from core.hardware import Chip


def whole_waves(chip: Chip) -> Callable[[KernelShape, Tiles], str | None]:
    """For `TileRule.forbid`: threads come in whole waves of the chip, and no more than one block may have.

    A limit the descriptor does not know forbids nothing.
    """
    limit = chip.limits.threads_per_block
    wave = chip.main_unit.lanes_per_wave

    def forbid(kernel: KernelShape, tiles: Tiles) -> str | None:
        threads = tiles.get("threads")
        if not isinstance(threads, int):
            return None
        if wave and threads % wave:
            return f"{threads} threads are not whole waves of {wave}"
        if limit and threads > limit:
            return f"{threads} threads, the chip allows {limit} a block"
        return None

    return forbid
