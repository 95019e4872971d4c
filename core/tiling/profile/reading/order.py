"""Tile orders that a kernel computes itself from the index of its block."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from core.tiling.profile.formula import Formula, array_value, names_in, value_of
from core.tiling.profile.records import NEIGHBOURS, Loop


def rounds(condition: Formula, loop: int, loops: Sequence[Loop]) -> Formula | None:
    """How often `loop` runs to some purpose when its whole body stands under `condition`.

    A persistent block takes tile `turn * blocks + block` in each turn while that is below the number of tiles: a turn
    too many does nothing, so the condition says how many there are. None for a condition of another form.
    """
    match condition:
        case ("lt", ("add", block, ("mul", _, _) as turns), int(tiles)) if turns[1] == f"loop{loop}":
            return rounds(("lt", ("add", turns, block), tiles), loop, loops)
        case ("lt", ("add", ("mul", turn, int(blocks)), block), int(tiles)) if turn == f"loop{loop}" and blocks > 0:
            most = loops[loop].trips
            if f"loop{loop}" in names_in(block) or not isinstance(most, int) or most * blocks < tiles:
                return None
            return ("floordiv", ("add", ("sub", tiles, block), ("sub", blocks, 1)), blocks)
    return None


def divisors(formula: Formula) -> dict[int, int] | None:
    """The grid axes of an address by what they are divided by; None where they are folded in another way."""
    match formula:
        case int() | float() | str():
            return {}
        case ("floordiv", str(name), int(divisor)) if name.startswith("axis"):
            return {int(name.removeprefix("axis")): divisor}
        case (("add" | "sub" | "mul"), a, b):
            left, right = divisors(a), divisors(b)
            if left is None or right is None or left.keys() & right.keys():
                return None
            both = {**left, **right}
            return both if len(both) <= 1 else None
    return {} if not any(name.startswith("axis") for name in names_in(formula)) else None


def different(address: Sequence[Formula], grid: tuple[int, ...], loops: Sequence[Loop]) -> float:
    """How many different addresses the first blocks have, out of `NEIGHBOURS`; loops stand in their middle."""
    import numpy

    count = max(1, min(NEIGHBOURS, prod(grid)))
    index = numpy.arange(count)
    names: dict[str, Any] = {}
    for axis, size in enumerate(grid):
        names[f"axis{axis}"] = index % max(1, size)
        index = index // max(1, size)
    for position, loop in enumerate(loops):
        names[f"loop{position}"] = 0
        middle = {name: float(value if isinstance(value, int) else value[0]) for name, value in names.items()}
        names[f"loop{position}"] = int(value_of(loop.trips, middle)) // 2
    columns = [numpy.broadcast_to(array_value(formula, names), (count,)) for formula in address]
    found = numpy.unique(numpy.stack(columns), axis=1).shape[1]
    return float(found * NEIGHBOURS / count)
