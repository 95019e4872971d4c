"""What lowering adds to the shared memory that a kernel declares: workspaces, barriers, alignment; a bound from above.

A reduction whose row is spread over more than 32 threads passes partial results through a word per thread. Copies that
complete at barriers need some, in static memory, which is filled up to where dynamic memory begins; tiles for such
copies begin at multiples of the same figure (`cost.shared_granule_bytes`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.program.expressions import dtype_bits
from core.tiling.cost.split import has_barriers, versioned
from core.tiling.profile import LaunchProfile, Reduction

if TYPE_CHECKING:
    from core.hardware import Chip

#: Threads that pass partial results by shuffles alone: TileLang counts on no wider waves.
_SHUFFLED = 32
#: Rows of an accumulator that one wave holds, and neighbours in a row that a thread holds where it has as many.
_WAVE_ROWS = 16
_NEIGHBOURS = 4


def added_bytes(launch: LaunchProfile, chip: Chip) -> int:
    """Shared memory of a block beside the tiles that the kernel allocates, bytes."""
    lanes = chip.main_unit.lanes_per_wave
    if lanes is None or launch.threads is None or all(m.owner != "block" for m in chip.memories_for_scope("shared")):
        return 0
    granule = int(chip.cost.get("shared_granule_bytes", 0))
    tiles = [b.total_bytes for b in versioned(launch, chip) if b.scope.startswith("shared") and b.first >= 0]
    gaps = sorted(-size % granule for size in tiles) if granule else []
    return _workspace(launch, lanes) + sum(gaps[:-1]) + (granule if has_barriers(launch, chip) else 0)


def _workspace(launch: LaunchProfile, lanes: int) -> int:
    """Bytes for partial results. Reductions of one loop keep theirs; those of several statements have one in turn."""
    together: dict[int, int] = {}
    largest = 0
    for reduction in launch.reductions:
        size = _partials(reduction, launch, lanes)
        outermost = _outermost(launch, reduction.loop)
        if outermost:
            together[outermost] = together.get(outermost, 0) + size
        largest = max(largest, size, together.get(outermost, 0))
    return largest


def _partials(reduction: Reduction, launch: LaunchProfile, lanes: int) -> int:
    threads = launch.computing_threads(reduction.loop) or 0
    if reduction.accumulator:
        # A row lies in a few neighbouring lanes of a wave of 32, and all over a wave of 64.
        across = lanes > _SHUFFLED or threads // lanes > -(-reduction.rows // _WAVE_ROWS)
    else:
        held = max(1, min(_NEIGHBOURS, reduction.rows * reduction.length // threads))
        across = min(threads, reduction.length // held) > _SHUFFLED
    return threads * dtype_bits(reduction.dtype) // 8 if across else 0


def _outermost(launch: LaunchProfile, loop: int) -> int:
    """The loop of the block's own statements that a loop is in, itself if it is one; 0 outside of any."""
    while loop and launch.loops[loop].parent > 0:
        loop = launch.loops[loop].parent
    return loop
