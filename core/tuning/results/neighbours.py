"""How far a measured shape is from another: an unmeasured shape takes its neighbour's result rather than a guess.

A measured shape stands for its class: every shape whose dimensions lie within an octave of it, a factor of two either
way. Arguments that change what a block does, not only how many blocks there are, count double (`Result.structural`),
and whatever is no dimension (a dtype, a flag) must be equal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import log2, sqrt
from typing import Any

from core.errors import TuningError

#: How far any one dimension may be, in octaves.
MOST_OCTAVES = 1.0
#: How much more an argument that changes the block's own work counts.
STRUCTURAL_WEIGHT = 2.0
#: Elements of a dimension that wide accesses want whole multiples of (16 bytes of float16), and what it costs, in
#: octaves, that one of two shapes has them and the other has not: an aligned neighbour is taken first.
ALIGNMENT = 8
UNALIGNED_OCTAVES = 0.5


def distance(known: Mapping[str, Any], asked: Mapping[str, Any], structural: Collection[str] = ()) -> float | None:
    """Octaves between two shapes (Euclidean over the dimensions), or None when neither says anything of the other.

    Args:
        known, asked: arguments by name; whole numbers above 0 are dimensions, everything else must be equal.
        structural: arguments that count double.
    """
    if known.keys() != asked.keys():
        return None
    total = 0.0
    for name, value in known.items():
        other = asked[name]
        if type(value) is type(other) and value == other:
            continue
        if not (_is_dimension(value) and _is_dimension(other)):
            return None
        octaves = abs(log2(value / other)) * (STRUCTURAL_WEIGHT if name in structural else 1.0)
        if octaves > MOST_OCTAVES:
            return None
        if (value % ALIGNMENT == 0) != (other % ALIGNMENT == 0):
            octaves += UNALIGNED_OCTAVES
        total += octaves**2
    return sqrt(total)


def reach(value: int, *, structural: bool) -> tuple[int, int]:
    """The smallest and largest extent of one dimension that a shape with `value` stands for."""
    factor = 2 ** (MOST_OCTAVES / (STRUCTURAL_WEIGHT if structural else 1.0))
    return -int(-value // factor), int(value * factor)


def covering(low: int, high: int) -> list[int]:
    """The fewest extents that stand for every one from `low` to `high`: `covering(16, 8192)` is 32, 128, ..., 8192.

    Raises:
        TuningError: the range is empty, or begins below 1.
    """
    if not 1 <= low <= high:
        raise TuningError(f"there is nothing from {low} to {high} to cover", hint="for example 16..8192")
    factor = int(2**MOST_OCTAVES)
    found = [min(high, factor * low)]
    while reach(found[-1], structural=False)[1] < high:
        found.append(min(high, factor * factor * found[-1]))
    return found


def _is_dimension(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
