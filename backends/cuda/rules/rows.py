"""Tiles of kernels that live on memory bandwidth on NVIDIA GPUs: reductions along rows, element-wise work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from core.hardware import Chip
from core.tiling import KernelShape, TileRule, Tiles, Value
from core.tiling.constraints import number
from core.tiling.proposals import elementwise_tiles, row_tiles, vector_elements

_STAGED, _DIRECT, _BULK = "staged", "direct", "bulk"
#: The variant for whole rows. Beside `staged`, `direct` leaves out both ways through shared memory and most barriers
#: (docs/operators.md counts them); blocks that stay (`bulk`, or `direct` with workers) are for who asks for them.
_FIRST = _DIRECT
#: Elements of a row that is held whole: measured up to 8192 (tests/tiling/data), parts are behind.
_WHOLE = 16384
#: Accesses of a thread for its part of a row in registers, where the block can have more threads.
_ACCESSES = 4


def reduction_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """Rows per block by their length; a long row whole or in parts; threads that each hold a few vectors of it."""
    variants = {_STAGED, _DIRECT, _BULK} <= set(_options(kernel))
    return TileRule(
        "cuda.row-tile",
        "a block holds a few thousand elements; its threads a few 16-byte vectors of a row each",
        values={**row_tiles(chip, kernel), **(_variants(chip) if variants else {})},
        forbid=_lacking if variants else None,
        leave_out=_leave_out(chip) if variants else None,
    )


def _options(kernel: KernelShape) -> Sequence[Value]:
    """The variants that the kernel comes in."""
    return next((p.choices for p in kernel.parameters.values() if p.key == "variant" and p.choices), ())


def _variants(chip: Chip) -> Mapping[str, Sequence[Value]]:
    units = chip.main_unit.count
    return {
        "variant": (_FIRST, _STAGED),
        "workers": (0,) if units is None else (0, 4 * units, 2 * units, 8 * units),
        "buffers": (1, 3, 2),
    }


def _lacking(kernel: KernelShape, tiles: Tiles) -> str | None:
    """For `TileRule.forbid`: what a variant does not have."""
    variant = tiles.get("variant")
    stay, buffers = bool(number(tiles, "workers")), number(tiles, "buffers") or 1
    if variant == _BULK and not (stay and buffers > 1):
        return f"{_BULK} is for blocks that stay and have two buffers or more"
    if variant == _STAGED and stay:
        return f"{_STAGED} has no blocks that stay"
    if variant != _BULK and buffers > 1:
        return f"buffers are of {_BULK}"
    if variant != _STAGED and not _whole(kernel, tiles):
        return f"{variant} holds rows whole"
    return None


def _leave_out(chip: Chip) -> Callable[[KernelShape, Tiles], str | None]:
    """For `TileRule.leave_out`: what another variant or another number of threads is preferred to."""
    most_threads = chip.limits.threads_per_block or 1024

    def leave_out(kernel: KernelShape, tiles: Tiles) -> str | None:
        variant, length = tiles.get("variant"), kernel.dimensions.get("N", 0)
        threads = number(tiles, "threads") or 1
        whole = _whole(kernel, tiles)
        if variant == _STAGED and whole and _FIRST != _STAGED:
            return f"whole rows are for {_FIRST}"
        if not whole and length <= _WHOLE:
            return f"rows of {length} elements are held whole"
        if variant == _DIRECT and number(tiles, "workers"):
            return f"blocks of {_DIRECT} stay when asked to"
        most = _ACCESSES * vector_elements(kernel)
        if variant != _STAGED and length > most * threads and threads < most_threads:
            return f"{length} elements are more than {most} for each of {threads} threads"
        return None

    return leave_out


def _whole(kernel: KernelShape, tiles: Tiles) -> bool:
    return (number(tiles, "N") or 0) >= kernel.dimensions.get("N", 0)


def elementwise_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """A few thousand elements a block, in rows that a warp reads with whole vectors."""
    return TileRule(
        "cuda.elementwise-tile",
        "a few thousand elements a block: 16-byte accesses, several per thread",
        values=elementwise_tiles(chip, kernel),
        leave_out=_less_than_a_vector,
    )


def _less_than_a_vector(kernel: KernelShape, tiles: Tiles) -> str | None:
    """For `TileRule.leave_out`: threads with less than one access of 16 bytes each."""
    elements = (number(tiles, "M") or 1) * (number(tiles, "N") or 1)
    threads, vector = number(tiles, "threads") or 1, vector_elements(kernel)
    if elements < threads * vector:
        return f"{elements} elements are less than an access of 16 bytes for each of {threads} threads"
    return None
