"""The cost model: what one launch takes on a chip, from its profile and the chip's descriptor alone.

docs/cost-model.md describes each term with its formula and where its figures come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.tiling.cost.block import Rates, block_time, steps
from core.tiling.cost.body import bodies
from core.tiling.cost.launch import LaunchTime, launch_time
from core.tiling.cost.local import add_local, with_local
from core.tiling.cost.machine import Machine, machine
from core.tiling.cost.memory import traffic
from core.tiling.cost.occupancy import Residency, demands, memory_bytes, peak_bytes, residency
from core.tiling.cost.split import BULK_BYTES, added_threads
from core.tiling.prediction import Prediction
from core.tiling.profile import LaunchProfile, Profile

if TYPE_CHECKING:
    from core.hardware import Chip

__all__ = ["BULK_BYTES", "added_threads", "demands", "memory_bytes", "peak_bytes", "predict"]


def predict(profile: Profile, chip: Chip) -> Prediction:
    """The predicted time of one call on a chip. No device is asked and nothing is compiled.

    Args:
        profile: what the kernel does with its tiles.

    Raises:
        DescriptorError: the chip describes no compute unit.
    """
    m = machine(chip)
    assumptions: dict[str, None] = dict.fromkeys(profile.unknown)
    launches = [launch for launch in profile.launches if launch.blocks > 0]  # one without blocks is none
    parts = [_launch(launch, m, assumptions) for launch in launches]
    terms: dict[str, float] = {}
    memory: dict[str, int] = {}
    for time, resident in parts:
        for name, seconds in time.terms.items():
            terms[name] = terms.get(name, 0.0) + seconds
        for name, size in resident.memory_bytes.items():
            memory[name] = max(memory.get(name, 0), size)
    main = max(parts, key=lambda part: part[0].seconds, default=None)
    return Prediction(
        seconds=sum(time.seconds for time, _ in parts),
        bound=max(terms, key=lambda name: terms[name], default="launch"),
        terms=terms,
        memory_bytes=memory,
        blocks=sum(launch.blocks for launch in launches),
        blocks_per_unit=main[1].blocks if main else None,
        waves=main[0].waves if main else None,
        assumptions=tuple(assumptions),
    )


def _launch(launch: LaunchProfile, m: Machine, assumptions: dict[str, None]) -> tuple[LaunchTime, Residency]:
    """The time of one launch and what its blocks take; what was assumed is added to `assumptions`."""
    resident = residency(launch, m)
    each = bodies(launch, resident, m)
    add_local(launch, each.each, resident)
    assumptions.update(each.assumptions)
    assumptions.update((m.assumed[name], None) for name in _figures(launch, m) if name in m.assumed)
    slots = m.units * (resident.blocks or 1)
    samples = launch.trips()
    if len(set(samples)) == 1:
        samples = samples[:1]
    mean = tuple(sum(column) / len(samples) for column in zip(*samples, strict=True))
    moved = with_local(traffic(launch, mean, slots, m), launch, mean, resident, slots, m)
    active = max(1, min(m.units, launch.blocks))
    port = min(m.l2_port_bytes_per_s, m.l2_bytes_per_s / active)
    missed = min(1.0, moved.memory_bytes / (moved.unit_bytes * launch.blocks)) if moved.unit_bytes else 0.0
    latency = m.cost["l2_latency_s"] + missed * (m.cost["memory_latency_s"] - m.cost["l2_latency_s"])
    rates = Rates(port, min(port, m.memory_bytes_per_s / (active * missed)) if missed else port, latency)
    step = steps(launch, each.each, resident, rates, m)
    times = [block_time(launch, step, trips, resident, rates, m) for trips in samples]
    return launch_time(launch, times, resident, moved, m), resident


def _figures(launch: LaunchProfile, m: Machine) -> list[str]:
    """Names of the figures that a prediction of this launch rests on."""
    names = ["units", "clock_hz", "launch_s", "block_start_s"]
    if launch.accesses:
        names += ["memory_bytes_per_s", "memory_share", "memory_latency_s", "l2_bytes_per_s", "l2_port_bytes_per_cycle"]
    if launch.products:
        names += ["matrix_share", "shared_bytes_per_s", "product_latency_s"]
    if launch.vector or launch.reductions:
        names += ["vector_per_s"]
        kinds = {work.kind for work in launch.vector}
        names += [f"vector_cost_{kind}" for kind in ("special", "divide", "convert", "index") if kind in kinds]
    if m.simt:
        names += ["register_overhead"]
    return names
