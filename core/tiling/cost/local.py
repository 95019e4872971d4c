"""Fragments that lie in the threads' local memory, since registers hold next to nothing of them.

Spills of a few times a thread's registers were measured, and `body` has them by the way of shared memory. Far beyond
that nothing was measured. Local memory is global memory: such a kernel is forecast to move all of it at every pass over
the fragments, through the caches.
"""

from __future__ import annotations

from dataclasses import replace

from core.tiling.cost.body import Body
from core.tiling.cost.machine import Machine
from core.tiling.cost.memory import Traffic
from core.tiling.cost.occupancy import Residency
from core.tiling.profile import LaunchProfile

_REGISTER_BYTES = 4


def add_local(launch: LaunchProfile, each: list[Body], residency: Residency) -> None:
    """Adds what a block reads and writes of its threads' local memory to the loops that pass over fragments."""
    for loop, count in _passes(launch).items():
        each[loop].loaded += count * _block_bytes(residency)
        each[loop].stored += count * _block_bytes(residency)


def with_local(
    moved: Traffic, launch: LaunchProfile, trips: tuple[float, ...], residency: Residency, slots: int, m: Machine
) -> Traffic:
    """The traffic of a launch with that of its local memory, of which the cache keeps what fits."""
    held = _block_bytes(residency)
    if not held:
        return moved
    each = 2 * held * sum(count * trips[loop] for loop, count in _passes(launch).items())
    missed = 1.0 - min(1.0, (m.l2_bytes or 0.0) / (held * min(slots, launch.blocks)))
    return replace(
        moved,
        unit_bytes=moved.unit_bytes + each,
        cache_bytes=moved.cache_bytes + each,
        memory_bytes=moved.memory_bytes + each * launch.blocks * missed,
    )


def _block_bytes(residency: Residency) -> float:
    return _REGISTER_BYTES * residency.local * residency.threads


def _passes(launch: LaunchProfile) -> dict[int, float]:
    """How often one execution of each loop's body passes over the block's fragments."""
    largest = max((work.elements for work in launch.vector), default=0)
    found: dict[int, float] = {}
    for loop in (*(r.loop for r in launch.reductions), *(w.loop for w in launch.vector if 2 * w.elements >= largest)):
        found[loop] = found.get(loop, 0.0) + 1.0
    return found or {0: 1.0}
