"""Tiles of kernels that live on memory bandwidth on NVIDIA GPUs: reductions along rows, element-wise work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backends.cuda.rules import row_blocks
from core.hardware import Chip
from core.tiling import KernelShape, Prediction, TileRule, Tiles, Value
from core.tiling.constraints import number
from core.tiling.proposals import elementwise_tiles, row_tiles, vector_elements

_STAGED, _DIRECT, _BULK = "staged", "direct", "bulk"
#: The variant for whole rows: the fastest on each of the twelve rows that were measured on an H200 (docs/operators.md).
#: Blocks that stay (`bulk`, or `direct` with workers) are there for those who ask for them.
_FIRST = _DIRECT
#: Elements of the longest row that is held whole. Up to 8192 this was measured to be faster than taking it in parts.
_WHOLE = 16384
#: Accesses of a thread for its part of a row in registers, where the block can have more threads.
_ACCESSES = 4
#: Factor on the time of rows that spill: no forecast, but a place behind all that do not.
_BEHIND = 100.0


def reduction_rule(chip: Chip, kernel: KernelShape) -> TileRule:
    """Rows per block by their length; a long row whole or in parts; threads that each hold a few vectors of it."""
    name = "cuda.row-tile"
    reason = "a block holds a few thousand elements; its threads a few 16-byte vectors of a row each"
    tiles = row_tiles(chip, kernel)
    if not {_STAGED, _DIRECT, _BULK} <= set(_options(kernel, "variant")):
        return TileRule(name, reason, values=tiles)
    first = _first(chip, kernel)
    return TileRule(
        name,
        reason,
        values={**tiles, **_variants(chip), "resident": sorted({0, *(number(one, "resident") or 0 for one in first)})},
        prefer=first,
        forbid=_lacking(chip),
        leave_out=_leave_out(chip),
        weigh=_behind(chip),
    )


def _options(kernel: KernelShape, key: str) -> Sequence[Value]:
    """The values that a choice of the kernel has."""
    return next((p.choices for p in kernel.parameters.values() if p.key == key and p.choices), ())


def _variants(chip: Chip) -> Mapping[str, Sequence[Value]]:
    units = chip.main_unit.count
    return {
        "variant": (_FIRST, _STAGED),
        "workers": (0,) if units is None else (0, 4 * units, 2 * units, 8 * units),
        "buffers": (1, 3, 2),
    }


def _asked(chip: Chip, kernel: KernelShape, rows: int, threads: int) -> int:
    """The value of `resident`: blocks that a unit shall hold, or the next smaller number that the kernel takes."""
    held = row_blocks.resident(chip, kernel, rows, threads)
    options = (option for option in _options(kernel, "resident") if isinstance(option, int))
    return max((option for option in options if option <= held), default=0)


def _first(chip: Chip, kernel: KernelShape) -> tuple[Tiles, ...]:
    """For `TileRule.prefer`: the block that `row_blocks` finds, for rows that are held whole."""
    length = kernel.dimensions.get("N", 0)
    if not 0 < length <= _WHOLE:
        return ()
    rows, threads = row_blocks.block(chip, kernel)
    whole: Tiles = {"variant": _FIRST, "N": length, "workers": 0, "buffers": 1}
    return ({**whole, "M": rows, "threads": threads, "resident": _asked(chip, kernel, rows, threads)},)


def _lacking(chip: Chip) -> Callable[[KernelShape, Tiles], str | None]:
    """For `TileRule.forbid`: parameters of another variant, and more blocks than a unit has threads for."""

    def forbid(kernel: KernelShape, tiles: Tiles) -> str | None:
        variant, resident = tiles.get("variant"), number(tiles, "resident") or 0
        stay, buffers = bool(number(tiles, "workers")), number(tiles, "buffers") or 1
        if variant == _BULK and not (stay and buffers > 1):
            return f"{_BULK} is for blocks that stay and have two buffers or more"
        if variant == _STAGED and (stay or resident):
            return f"{_STAGED} has neither blocks that stay nor a number of blocks that a unit shall hold"
        if variant != _BULK and buffers > 1:
            return f"only {_BULK} has several buffers"
        if variant == _STAGED:
            return None
        if not _whole(kernel, tiles):
            return f"{variant} holds rows whole"
        return row_blocks.crowds(chip, number(tiles, "threads") or 1, resident)

    return forbid


def _spills(chip: Chip, kernel: KernelShape, tiles: Tiles) -> str | None:
    """Why registers would not hold the rows, in the variants that keep them there; None where they would."""
    if tiles.get("variant") == _STAGED:
        return None
    rows, threads = number(tiles, "M") or 1, number(tiles, "threads") or 1
    return row_blocks.spills(chip, kernel, rows, threads, number(tiles, "resident") or 0)


def _behind(chip: Chip) -> Callable[[KernelShape, Tiles, Prediction], float]:
    """For `TileRule.weigh`: rows that spill go behind those that do not, where a user's numbers leave little else."""

    def weigh(kernel: KernelShape, tiles: Tiles, prediction: Prediction) -> float:
        return _BEHIND if _spills(chip, kernel, tiles) is not None else 1.0

    return weigh


def _leave_out(chip: Chip) -> Callable[[KernelShape, Tiles], str | None]:
    """For `TileRule.leave_out`: what another variant, number of threads or number of blocks a unit is preferred to."""
    most_threads = chip.limits.threads_per_block or 1024

    def leave_out(kernel: KernelShape, tiles: Tiles) -> str | None:
        variant, length = tiles.get("variant"), kernel.dimensions.get("N", 0)
        threads, resident = number(tiles, "threads") or 1, number(tiles, "resident")
        whole = _whole(kernel, tiles)
        if variant == _STAGED and whole and _FIRST != _STAGED:
            return f"whole rows are for {_FIRST}"
        if not whole and length <= _WHOLE:
            return f"rows of {length} elements are held whole"
        if variant == _DIRECT and number(tiles, "workers"):
            return f"blocks of {_DIRECT} stay when asked to"
        spilling = _spills(chip, kernel, tiles)
        if spilling is not None:
            return spilling
        most = _ACCESSES * vector_elements(kernel)
        if variant != _STAGED and length > most * threads and threads < most_threads:
            return f"{length} elements are more than {most} for each of {threads} threads"
        if resident and resident > _asked(chip, kernel, number(tiles, "M") or 1, threads):
            return f"a unit is not asked to hold {resident} blocks of {threads} threads"
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
