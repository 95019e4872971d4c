"""How often the loops of a block run, where that depends on the block: at some blocks that stand for the grid."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from core.tiling.profile.formula import array_value, names_in, value_of

if TYPE_CHECKING:
    from core.tiling.profile.records import Loop

#: Blocks at which loops that depend on the block's index are counted; their mean stands for the grid. A prime: a kernel
#: that divides its index by a power of two is not always met at the same remainder.
_SAMPLES = 19


@lru_cache(maxsize=1024)
def trips(grid: tuple[int, ...], loops: tuple[Loop, ...]) -> tuple[tuple[float, ...], ...]:
    """How often each loop's body runs in a block, in all; see :meth:`LaunchProfile.trips`.

    A loop that others depend on is looked at at `_SAMPLES` points of its run too.
    """
    named = frozenset().union(*(names_in(loop.trips) | names_in(loop.start) for loop in loops))
    if not named:
        counts: list[float] = []
        for loop in loops:
            counts.append(max(0.0, value_of(loop.trips, {})) * (counts[loop.parent] if loop.parent >= 0 else 1.0))
        return (tuple(counts),)
    import numpy

    names: dict[str, Any] = _points(grid, named)
    samples = max([numpy.size(value) for value in names.values()], default=1)
    drivers = [position for position in range(len(loops)) if f"loop{position}" in named]
    runs: list[Any] = []
    for position, loop in enumerate(loops):
        own = numpy.maximum(0.0, numpy.asarray(array_value(loop.trips, names), dtype=float))
        runs.append(own * (runs[loop.parent] if loop.parent >= 0 else 1.0))
        if position in drivers:
            # An array dimension of its own, the sample of blocks being the last.
            part = (numpy.arange(_SAMPLES) + 0.5) / _SAMPLES
            part = part.reshape(-1, *[1] * (drivers.index(position) + 1))
            names[f"loop{position}"] = array_value(loop.start, names) + numpy.floor(part * own)
    means = [_over_blocks(run, samples) for run in runs]
    return tuple(zip(*means, strict=True))


def _over_blocks(run: Any, samples: int) -> list[float]:
    """The mean of an array over all dimensions but the last, which is that of the sampled blocks."""
    import numpy

    run = numpy.atleast_1d(run)
    mean = run.mean(axis=tuple(range(run.ndim - 1)))
    found: list[float] = numpy.broadcast_to(mean, (samples,)).tolist()
    return found


def _points(grid: tuple[int, ...], named: frozenset[str]) -> dict[str, Any]:
    """Blocks that stand for all: along the axes that loops depend on evenly spaced ones, the last axis outermost."""
    import numpy

    used = [axis for axis in range(len(grid)) if f"axis{axis}" in named]
    steps = max(1, round(_SAMPLES ** (1 / max(1, len(used)))))
    values = []
    for axis in used:
        count = max(1, min(grid[axis], steps))
        values.append((2 * numpy.arange(count) + 1) * grid[axis] // (2 * count))
    crossed = numpy.meshgrid(*reversed(values), indexing="ij") if used else []
    return {f"axis{axis}": index.ravel() for axis, index in zip(reversed(used), crossed, strict=True)}
