"""The time of one block on one unit.

A unit's pipes (matrix, vector, shared memory, its port to the cache) are shared by the blocks it holds: `r` blocks need
`r` times what one needs. A block also has a chain of dependent steps that takes its time however idle the pipes are.
The longer of the two decides. Copies that nobody runs ahead with are a phase of their own: blocks that started together
copy together and compute together, the more so the fewer there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from core.tiling.cost.body import Body, soft_maximum, threads_of
from core.tiling.cost.machine import Machine
from core.tiling.cost.matrix import GROUP_WAVES
from core.tiling.cost.occupancy import Residency
from core.tiling.profile import LaunchProfile


@dataclass(frozen=True, slots=True)
class Rates:
    """What one unit gets, with all units at work.

    Attributes:
        port: bytes per second through its port.
        mixed: the same of what comes partly from the cache, partly from memory, as this launch does.
        latency: seconds until such a load arrives.
    """

    port: float
    mixed: float
    latency: float


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of a loop's body.

    Attributes:
        matrix, vector, shared: seconds of the unit's pipes.
        fill: of the vector pipe too, for work on elements of which none waits for another.
        moved: bytes through the unit's port; `awaited` are those of them that nothing of the same block overlaps.
        seconds: of the chain, with nothing else on the unit and without waiting for the awaited bytes to move.
        start_seconds: beside that, each time the loop is entered (a pipeline fills).
    """

    matrix: float
    vector: float
    fill: float
    shared: float
    moved: float
    awaited: float
    seconds: float
    start_seconds: float


def steps(launch: LaunchProfile, each: Sequence[Body], residency: Residency, rates: Rates, m: Machine) -> list[Step]:
    """What one execution of each loop's body takes."""
    found = []
    for index, (loop, body) in enumerate(zip(launch.loops, each, strict=True)):
        waves = max(1, threads_of(launch, index, residency) // m.lanes) if m.simt else m.sub_units
        waves_each = waves / m.sub_units
        contexts = 2.0 if m.split_units else max(1.0, waves / GROUP_WAVES)
        feed, work = max(body.matrix, body.shared), body.vector / issue(waves_each, m) + body.special
        if body.waits:
            work += body.fill
        overlap = contexts + body.in_flight * m.cost["in_flight_contexts"]
        compute = max(feed, work) + min(feed, work) / overlap + body.latency
        stages = m.stages(loop.stages)
        latency = rates.latency if body.loaded else 0.0
        # Loads for which a thread has no registers begin when others have come.
        filling = latency * (1.0 + residency.waits)
        if body.waits:
            compute += filling
        if stages >= 1 and body.staged:
            rest = body.loaded - body.staged
            transfer = body.staged / rates.port
            # A stage is free again when it has arrived and what it held has been used.
            turnover = (latency + compute) / stages
            sharp = m.cost["load_sharpness"]
            # Threads that fill a tile element by element wait for the last of its loads before they go on.
            ahead = filling + body.fill if body.fill and not body.waits else 0.0
            seconds = max(compute, (transfer**sharp + turnover**sharp) ** (1 / sharp), ahead)
            start = max(latency, ahead) + transfer
            if stages == 1:
                seconds = start + compute
            awaited = rest + body.stored
        else:
            seconds = compute + (0.0 if body.waits else latency) + (latency if body.window else 0.0)
            start, awaited = 0.0, body.loaded + body.stored
        vector = soft_maximum((body.vector, body.special))
        found.append(
            Step(body.matrix, vector, body.fill, body.shared, body.loaded + body.stored, awaited, seconds, start)
        )
    return found


def issue(waves: float, m: Machine) -> float:
    """The part of its vector rate that a sub-unit with so many waves reaches: one wave waits for its own results."""
    return waves / (waves + m.cost["issue_waves"]) if m.simt else 1.0


@dataclass(frozen=True, slots=True)
class BlockTime:
    """One block: seconds of each pipe, of the chain of dependent steps, and of the copies that it waits for.

    Attributes:
        waves: of the block on each sub-unit.
    """

    matrix: float
    vector: float
    fill: float
    shared: float
    port: float
    copies: float
    chain: float
    waves: float

    def together(self, blocks: int, passes: float, m: Machine) -> float:
        """Seconds in which a unit that holds `blocks` of them finishes all.

        Args:
            passes: how many times in a row the unit does that. Few blocks that start together copy and compute in step
                with each other; in many passes they drift apart.
        """
        vector = self.vector / issue(self.waves * blocks, m) + self.fill
        compute = soft_maximum((*(blocks * pipe for pipe in (self.matrix, vector, self.shared)), self.chain))
        copies = blocks * self.copies
        in_step = min(1.0, m.cost["in_step_blocks"] / blocks) ** 2
        if blocks > 1:
            in_step *= min(1.0, m.cost["in_step_passes"] / max(1.0, passes)) ** 0.5
        both = max(compute, copies) + in_step * min(compute, copies)
        return soft_maximum((both, blocks * self.port))


def block_time(
    launch: LaunchProfile,
    each: Sequence[Step],
    trips: tuple[float, ...],
    residency: Residency,
    rates: Rates,
    m: Machine,
) -> BlockTime:
    """The time of a block that runs each loop `trips` times."""
    matrix = vector = fill = shared = moved = awaited = 0.0
    # Roles (threads that do different things) run side by side: the longest of their chains counts.
    chains: dict[str, float] = {"": m.cost["block_start_s"] + (launch.cluster > 1) * m.cost["cluster_s"]}
    for loop, step, runs in zip(launch.loops, each, trips, strict=True):
        if not runs:
            continue
        matrix += runs * step.matrix
        vector += runs * step.vector
        fill += runs * step.fill
        shared += runs * step.shared
        moved += runs * step.moved
        awaited += runs * step.awaited
        starts = 1.0 if loop.ahead or loop.parent < 0 else trips[loop.parent]
        seconds = runs * step.seconds + starts * step.start_seconds
        chains[loop.role] = chains.get(loop.role, 0.0) + seconds
    chain = chains.pop("") + max(chains.values(), default=0.0)
    waves = residency.threads / m.lanes / m.sub_units if m.simt else 1.0
    return BlockTime(matrix, vector, fill, shared, moved / rates.port, awaited / rates.mixed, chain, waves)


def mean_time(times: Sequence[BlockTime]) -> BlockTime:
    """The mean of several blocks, term by term."""
    count = len(times)
    return BlockTime(
        sum(t.matrix for t in times) / count,
        sum(t.vector for t in times) / count,
        sum(t.fill for t in times) / count,
        sum(t.shared for t in times) / count,
        sum(t.port for t in times) / count,
        sum(t.copies for t in times) / count,
        sum(t.chain for t in times) / count,
        times[0].waves,
    )
