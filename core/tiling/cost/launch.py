"""The time of a whole launch: waves of blocks over the units, and what the chip as a whole cannot exceed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from core.tiling.cost.block import BlockTime, mean_time
from core.tiling.cost.body import soft_maximum
from core.tiling.cost.machine import Machine
from core.tiling.cost.memory import Traffic
from core.tiling.cost.occupancy import Residency
from core.tiling.profile import LaunchProfile


@dataclass(frozen=True, slots=True)
class LaunchTime:
    """One launch.

    Attributes:
        waves: whole passes over the units.
        terms: seconds each limit would take alone.
    """

    seconds: float
    waves: int
    terms: dict[str, float]


def launch_time(
    launch: LaunchProfile, times: Sequence[BlockTime], residency: Residency, traffic: Traffic, m: Machine
) -> LaunchTime:
    """The time of a launch from the times of the blocks that stand for its grid, in launch order."""
    blocks = launch.blocks
    resident = residency.blocks or 1
    slots = m.slots(resident, launch.cluster)
    waves = ceil(blocks / slots)
    mean = mean_time(times)
    passes = blocks / slots
    if len(times) == 1:
        full, rest = divmod(blocks, slots)
        busy = full * mean.together(resident, passes, m)
        if rest:
            busy += mean.together(ceil(rest / m.units), passes, m)
    elif blocks <= slots:
        busy = max(time.together(ceil(blocks / m.units), passes, m) for time in times)
    else:
        held = min(resident, ceil(blocks / m.units))
        busy = blocks / (m.units * held) * mean.together(held, passes, m)
        longest = max(time.together(1, passes, m) for time in times)
        busy = max(busy + times[-1].together(1, passes, m) / 2, longest)
    share = blocks / min(blocks, m.units)
    # Peak rates hold at a clock that a chip whose matrix pipes are all busy cannot keep.
    sustained = mean.matrix * blocks / m.units / m.cost["matrix_share"]
    cache = traffic.cache_bytes * blocks / m.l2_bytes_per_s
    memory = traffic.memory_bytes / m.memory_bytes_per_s
    seconds = soft_maximum((busy, sustained, cache, memory))
    terms = {
        "matrix": max(sustained, mean.matrix * share),
        "vector": (mean.vector + mean.fill) * share,
        "shared": mean.shared * share,
        "l2": max(cache, mean.port * share),
        "memory": memory,
        "latency": mean.chain * waves,
        "launch": m.cost["launch_s"],
    }
    return LaunchTime(seconds + m.cost["launch_s"], waves, terms)
