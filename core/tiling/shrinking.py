"""Smaller than anything that was proposed: stages go first, then the tiles inside the loops, then those of the grid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from core.errors import TileHALError
from core.tiling.parameters import Value
from core.tiling.profile import Profile
from core.tiling.rules import KernelShape, Tiles
from core.tiling.verdict import Candidate

#: What `kernel.config` says chose a value that was made smaller here.
SHRUNK = "shrunk"


def smaller(
    start: Candidate, shape: KernelShape, overrides: Tiles, profile: Callable[[Tiles], Profile | TileHALError]
) -> Iterator[tuple[Candidate, Profile]]:
    """Candidates that need less and less memory, one step after the other, with what each does.

    The user's numbers stay. A tile inside the loops (K of a matrix product) is one that changes the bytes of a block
    and not the number of blocks. Steps that cannot be traced are left out.

    Args:
        profile: what a configuration does, or the error it is traced with.
    """
    candidate = start
    free = {name: parameter for name, parameter in shape.parameters.items() if name not in overrides}
    stages = [name for name, parameter in free.items() if parameter.role in ("stages", "buffers")]
    tiles = [name for name, parameter in free.items() if parameter.role == "tile"]
    inner = [name for name in tiles if _inside(name, start, shape, profile)]
    for group, step in ((stages, _one_less), (inner, _half), ([name for name in tiles if name not in inner], _half)):
        while True:
            ways = [(name, value) for name in group if (value := step(shape, name, candidate.tiles[name])) is not None]
            if not ways:
                break
            # The largest gives way first; of equals, the one named first.
            name, value = max(ways, key=lambda way: way[1])
            candidate = _changed(candidate, name, value)
            found = profile(candidate.tiles)
            if not isinstance(found, TileHALError):
                yield candidate, found


def _inside(
    name: str, start: Candidate, shape: KernelShape, profile: Callable[[Tiles], Profile | TileHALError]
) -> bool:
    value = _half(shape, name, start.tiles[name])
    if value is None:
        return False
    before, after = profile(start.tiles), profile({**start.tiles, name: value})
    if isinstance(before, TileHALError) or isinstance(after, TileHALError):
        return False
    return [launch.grid for launch in before.launches] == [launch.grid for launch in after.launches]


def _one_less(shape: KernelShape, name: str, value: Value) -> int | None:
    """The next lower depth; 1 and 0 keep one copy alike."""
    return _allowed(shape, name, value - 1) if isinstance(value, int) and value > 1 else None


def _half(shape: KernelShape, name: str, value: Value) -> int | None:
    """Half a tile, in whole multiples of what the parameter wants."""
    if not isinstance(value, int) or value < 2:
        return None
    half = value // 2
    return _allowed(shape, name, half - half % shape.parameters[name].multiple)


def _allowed(shape: KernelShape, name: str, value: int) -> int | None:
    return value if value > 0 and shape.parameters[name].refuse(value) is None else None


def _changed(candidate: Candidate, name: str, value: int) -> Candidate:
    return replace(
        candidate,
        tiles={**candidate.tiles, name: value},
        chosen_by={**candidate.chosen_by, name: SHRUNK},
    )
