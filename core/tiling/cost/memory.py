"""Bytes that move between a unit, the cache behind the units and global memory.

Blocks that run at the same time and read the same tile fetch it from global memory once. Which blocks those are follows
from the launch order: consecutive blocks, along the first axis of the grid or in the panels of a swizzle. What a wave
of blocks reads again of an earlier one is still in the cache when a wave's tiles fit there.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from core.tiling.cost.machine import Machine
from core.tiling.profile import GlobalAccess, LaunchProfile
from core.tiling.profile.records import NEIGHBOURS

#: By so much more than its part of a tensor a block may read and still read nothing twice: tiles at the ends.
_ENDS = 1.1


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one launch moves.

    Attributes:
        unit_bytes: bytes of one block through its unit's port, whole sectors.
        cache_bytes: bytes of one block that the cache delivers or takes; a copy for several blocks counts once.
        memory_bytes: bytes of the whole launch from and to global memory.
    """

    unit_bytes: float
    cache_bytes: float
    memory_bytes: float


def sector_bytes(access: GlobalAccess, m: Machine) -> float:
    """Bytes of one execution, every run rounded up to whole sectors."""
    run = access.run_bytes
    if run <= 0:
        return 0.0
    sector = m.cost["sector_bytes"]
    return access.bytes * ceil(run / sector) * sector / run


def run_bytes(access: GlobalAccess) -> float:
    """Bytes of one piece of an access, at least one."""
    return max(1.0, access.run_bytes)


def traffic(launch: LaunchProfile, trips: tuple[float, ...], slots: int, m: Machine) -> Traffic:
    """Traffic of a launch whose blocks run each loop `trips` times, `slots` blocks at a time."""
    blocks = launch.blocks
    waves = max(1.0, blocks / slots)
    in_wave = concurrent(launch, min(slots, blocks))
    unit = cache = 0.0
    wave_bytes = 0.0
    least = 0.0
    read: dict[tuple[str, tuple[int, ...]], float] = {}
    for access in launch.accesses:
        executed = sector_bytes(access, m) * trips[access.loop]
        if not executed:  # a branch that no block takes
            continue
        unit += executed
        cache += executed / access.receivers
        repeats = _repeats(access, launch, trips)
        axes = [axis for axis in range(len(launch.grid)) if f"axis{axis}" in access.varies]
        parts = prod(launch.grid[axis] / access.shares[axis] for axis in axes)
        whole = prod(size or 1 for size in access.shape) * access.bits / 8
        if access.window or access.fills:
            # The windows of neighbouring pixels overlap: a block reads its part of the images once for each of their
            # places.
            repeats *= max(1.0, access.bytes * trips[access.loop] / repeats / (whole / parts))
        distinct = executed / repeats * max(1.0, m.cost["memory_line_bytes"] / run_bytes(access)) ** 0.5
        if access.mode == "read":
            key = (access.tensor, access.shares)
            before, own = read.get(key, 0.0), access.bytes * trips[access.loop] / repeats
            # Once a block has read its part of the tensor, it reads a second time what is in the cache still, as far
            # as all blocks' tiles fit.
            if before and before + own > _ENDS * whole / parts:
                distinct *= max(0.0, 1.0 - m.l2_bytes / (executed * min(slots, blocks)))
            read[key] = before + own
        everything = distinct * parts
        if access.neighbours:
            # Beyond the blocks that were looked at, a rectangle of tiles grows as its root in both directions.
            held = min(slots, blocks)
            wave_bytes += distinct * min(held, access.neighbours * max(1.0, held / NEIGHBOURS) ** 0.5)
        else:
            wave_bytes += distinct * prod(max(1.0, in_wave[axis] / access.shares[axis]) for axis in axes)
        least += min(everything, whole * executed / max(1.0, access.bytes * trips[access.loop]))
    again = max(0.0, wave_bytes * waves - least)
    kept = min(1.0, m.l2_bytes / wave_bytes) if wave_bytes and m.l2_bytes else 0.0
    return Traffic(unit, cache, least + again * (1.0 - kept))


def concurrent(launch: LaunchProfile, blocks: int) -> tuple[float, ...]:
    """How many different indices along each axis `blocks` consecutive blocks have."""
    grid = launch.grid
    if launch.panel > 0 and len(grid) >= 2:
        inner, outer = (1, 0) if launch.order == "row" else (0, 1)
        depth = min(launch.panel, grid[inner], blocks)
        counts = [1.0] * len(grid)
        counts[inner] = float(depth)
        rest = blocks / depth
        counts[outer] = min(float(grid[outer]), max(1.0, rest))
        rest /= counts[outer]
        counts[inner] = min(float(grid[inner]), counts[inner] * max(1.0, rest))
        left = blocks / max(1.0, grid[0] * grid[1])
        for axis in range(2, len(grid)):
            counts[axis] = min(float(grid[axis]), max(1.0, left))
            left /= counts[axis]
        return tuple(counts)
    counts = []
    left = float(blocks)
    for size in grid:
        counts.append(min(float(size), max(1.0, left)))
        left /= max(1, size)
    return tuple(counts)


def _repeats(access: GlobalAccess, launch: LaunchProfile, trips: tuple[float, ...]) -> float:
    """How often a block executes an access with the same address: the loops around it that the address leaves out."""
    repeats = 1.0
    index = access.loop
    while index > 0:
        loop = launch.loops[index]
        if f"loop{index}" not in access.varies:
            outer = trips[loop.parent] if loop.parent >= 0 else 1.0
            repeats *= max(1.0, trips[index] / outer) if outer else 1.0
        index = loop.parent
    return repeats
