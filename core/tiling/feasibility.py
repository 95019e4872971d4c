"""Whether a chip can hold and launch a candidate, judged by its profile: the limits that are known before lowering.

The same limits as in `core.program.capacity`, which judges one traced program and explains more, with what lowering is
known to add to shared memory (`core.tiling.cost.shared`). The rest only lowering can tell; a candidate that fails there
gives way to the next, visibly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from core.program.capacity import judged_limit_bytes
from core.tiling.cost import demands, memory_bytes
from core.tiling.profile import LaunchProfile, OnChipBuffer, Profile

if TYPE_CHECKING:
    from core.hardware import Chip

#: Buffers named in a reason, the largest first.
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Misfit:
    """Why a chip cannot have a candidate. `excess_bytes`: how much too large, where a memory is what is too small."""

    reason: str
    excess_bytes: int | None = None


def misfit(profile: Profile, chip: Chip, *, grid_known: bool = True) -> Misfit | None:
    """The first limit of the chip that a program is over, or None.

    Args:
        grid_known: False where sizes were assumed for symbolic dimensions: a call says how many blocks there are.
    """
    for launch in profile.launches:
        # Smaller tiles make more blocks: where there are too many, how large a tile is does not matter.
        found = _grid(launch, chip) if grid_known else None
        found = found or _memory(launch, chip) or _threads(launch, chip)
        if found is not None:
            return found
    return None


def _memory(launch: LaunchProfile, chip: Chip) -> Misfit | None:
    sizes = memory_bytes(launch, chip)
    for memory, buffers in demands(launch, chip):
        limit, needed = judged_limit_bytes(memory, chip), sizes[memory.name]
        if limit is not None and needed > limit:
            text = f"{needed:,} bytes of {memory.name} memory, a block may have {limit:,}: {_largest(buffers)}"
            return Misfit(text, needed - limit)
    return None


def _largest(buffers: Iterable[OnChipBuffer]) -> str:
    used = sorted((one for one in buffers if one.first >= 0), key=lambda one: -one.total_bytes)
    named = [
        f"{one.name} {one.versions} x {one.bytes:,}" if one.versions > 1 else f"{one.name} {one.bytes:,}"
        for one in used[:_NAMED]
    ]
    return ", ".join(named) + (", ..." if len(used) > _NAMED else "")


def _threads(launch: LaunchProfile, chip: Chip) -> Misfit | None:
    threads, limits = launch.threads, chip.limits
    if threads is None:
        return None
    if limits.threads_per_block is not None and threads > limits.threads_per_block:
        return Misfit(f"{threads} threads, a block may have {limits.threads_per_block}")
    if limits.thread_multiple is not None and threads % limits.thread_multiple:
        return Misfit(f"{threads} threads are not whole waves of {limits.thread_multiple}")
    return None


def _grid(launch: LaunchProfile, chip: Chip) -> Misfit | None:
    limits = chip.limits
    for axis, blocks, limit in zip("xyz", launch.grid, limits.grid_dim or (), strict=False):
        if blocks > limit:
            return Misfit(f"{blocks:,} blocks along {axis}, a grid may have {limit:,}")
    blocks = prod(launch.grid)
    if limits.grid_blocks is not None and blocks > limits.grid_blocks:
        return Misfit(f"{blocks:,} blocks, a grid may have {limits.grid_blocks:,}")
    return None
