"""Time of one block, of a wave of blocks, and of the launch.

A unit's pipes (matrix, vector, shared memory, its port to the cache) are shared by the blocks it holds: `r` blocks need
`r` times what one needs. A block also has a chain of dependent steps that takes its time however idle the pipes are.
The longer of the two decides, with a soft maximum, since nothing overlaps perfectly.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from math import ceil

from core.program.expressions import dtype_bits
from core.tiling.cost.machine import Machine
from core.tiling.cost.matrix import product_cost
from core.tiling.cost.memory import Traffic, sector_bytes
from core.tiling.cost.occupancy import Residency
from core.tiling.cost.vector import reduction_cost, work_seconds
from core.tiling.profile import LaunchProfile

#: Exponent of the soft maximum: two equal terms take 2 ** (1 / 8) = 9% longer than one.
_SHARPNESS = 8.0
_GROUP_WAVES = 4


@dataclass(slots=True)
class Body:
    """What one execution of a loop's body takes; seconds of a unit's pipes unless said otherwise.

    Attributes:
        latency: of dependent steps, seconds.
        loaded: bytes that copies bring in; `stored`: bytes that leave.
        staged: bytes of the loads that a pipeline of stages can run ahead with.
        in_flight: products run while the same threads do something else.
    """

    matrix: float = 0.0
    vector: float = 0.0
    special: float = 0.0
    shared: float = 0.0
    latency: float = 0.0
    loaded: float = 0.0
    staged: float = 0.0
    stored: float = 0.0
    in_flight: bool = False


@dataclass(slots=True)
class Bodies:
    """Every loop's body, and what was assumed on the way."""

    each: list[Body]
    assumptions: dict[str, None] = field(default_factory=dict)


def soft_maximum(values: Iterable[float]) -> float:
    """A maximum that is a little more where several values are near it."""
    found = [value for value in values if value > 0]
    most = max(found, default=0.0)
    if not most:
        return 0.0
    return float(most * sum((value / most) ** _SHARPNESS for value in found) ** (1 / _SHARPNESS))


def bodies(launch: LaunchProfile, residency: Residency, m: Machine) -> Bodies:
    """What each loop's body takes."""
    each = [Body() for _ in launch.loops]
    found = Bodies(each)
    feed = m.feed_bytes_per_s(sum(buffer.total_bytes for buffer in launch.buffers))
    # A register that does not fit is written and read back in every turn of the loops that compute.
    spill = 2 * 4 * residency.spilled * residency.threads / feed
    for loop in {product.loop for product in launch.products} | {reduction.loop for reduction in launch.reductions}:
        each[loop].shared += spill
        each[loop].latency += spill
    for product in launch.products:
        cost = product_cost(product, residency.threads, m)
        body = each[product.loop]
        body.matrix += cost.seconds
        body.shared += cost.shared_bytes / feed
        body.latency += cost.latency
        body.in_flight |= product.in_flight
        if cost.assumption:
            found.assumptions[cost.assumption] = None
    for work in launch.vector:
        seconds = work_seconds(work, m)
        if work.kind == "special":
            each[work.loop].special += seconds
        else:
            each[work.loop].vector += seconds
    for reduction in launch.reductions:
        seconds, latency = reduction_cost(reduction, residency.threads, m)
        each[reduction.loop].vector += seconds
        each[reduction.loop].latency += latency
    for touched in launch.shared:
        each[touched.loop].shared += touched.bytes / feed
        each[touched.loop].latency += m.cost["barrier_s"]
    if m.exchanges_in_memory:
        _exchange(launch, each)
    for access in launch.accesses:
        body, moved = each[access.loop], sector_bytes(access, m)
        if access.mode == "read":
            body.loaded += moved
            if access.onchip == "shared":
                body.staged += moved
        else:
            body.stored += moved
        if access.onchip == "shared":
            body.shared += access.bytes / feed
    return found


def _exchange(launch: LaunchProfile, each: list[Body]) -> None:
    """Results of products that vector work in the same loop reads, and operands that it makes, go by global memory."""
    vector = {entry.loop for entry in launch.vector} | {entry.loop for entry in launch.reductions}
    for product in launch.products:
        if product.loop not in vector:
            continue
        handed = product.m * product.n * dtype_bits(product.accumulator_dtype) / 8
        if product.a_scope == "fragment":
            handed += product.m * product.k * dtype_bits(product.a_dtype) / 8
        each[product.loop].loaded += handed
        each[product.loop].stored += handed


@dataclass(frozen=True, slots=True)
class Step:
    """One execution of a loop's body: seconds of the unit's pipes, bytes through its port, and the time it takes.

    Attributes:
        seconds: with nothing else on the unit.
        start_seconds: beside that, each time the loop is entered (a pipeline fills).
    """

    matrix: float
    vector: float
    shared: float
    moved: float
    seconds: float
    start_seconds: float


def steps(launch: LaunchProfile, each: list[Body], residency: Residency, port: float, m: Machine) -> list[Step]:
    """What one execution of each loop's body takes; `port` is the bytes a second that a unit can take in."""
    resident_waves = max(1, residency.threads // m.lanes) if m.simt else m.sub_units
    waves_each = resident_waves / m.sub_units
    issue = waves_each / (waves_each + 1.0) if m.simt else 1.0
    contexts = 2.0 if m.split_units else max(1.0, resident_waves / _GROUP_WAVES)
    found = []
    for loop, body in zip(launch.loops, each, strict=True):
        feed, work = max(body.matrix, body.shared), (body.vector + body.special) / issue
        compute = max(feed, work) + min(feed, work) / (contexts + body.in_flight) + body.latency
        stages = max(2, loop.stages) if m.plans_memory else loop.stages
        arrival = m.cost["memory_latency_s"] + body.loaded / port if body.loaded else 0.0
        leave = body.stored / port
        start = 0.0
        if stages >= 1 and body.staged:
            seconds = max(compute + leave, body.staged / port, (arrival + compute) / stages)
            start = arrival
        else:
            seconds = compute + arrival + leave
        vector = soft_maximum((body.vector, body.special))
        found.append(Step(body.matrix, vector, body.shared, body.loaded + body.stored, seconds, start))
    return found


@dataclass(frozen=True, slots=True)
class BlockTime:
    """One block on one unit: seconds of each pipe, and of the chain of dependent steps."""

    matrix: float
    vector: float
    shared: float
    port: float
    chain: float

    def together(self, blocks: int) -> float:
        """Seconds in which a unit that holds `blocks` of them finishes all."""
        pipes = (self.matrix, self.vector, self.shared, self.port)
        return soft_maximum((*(blocks * pipe for pipe in pipes), self.chain))


def block_time(launch: LaunchProfile, each: list[Step], trips: tuple[float, ...], port: float, m: Machine) -> BlockTime:
    """The time of a block that runs each loop `trips` times."""
    matrix = vector = shared = moved = 0.0
    # Roles (threads that do different things) run side by side: the longest of their chains counts.
    chains: dict[str, float] = {"": m.cost["block_start_s"]}
    for loop, step, runs in zip(launch.loops, each, trips, strict=True):
        if not runs:
            continue
        matrix += runs * step.matrix
        vector += runs * step.vector
        shared += runs * step.shared
        moved += runs * step.moved
        starts = 1.0 if loop.ahead or loop.parent < 0 else trips[loop.parent]
        seconds = runs * step.seconds + starts * step.start_seconds
        chains[loop.role] = chains.get(loop.role, 0.0) + seconds
    chain = chains.pop("") + max(chains.values(), default=0.0)
    return BlockTime(matrix, vector, shared, moved / port, chain)


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
    launch: LaunchProfile,
    times: list[BlockTime],
    residency: Residency,
    traffic: Traffic,
    m: Machine,
) -> LaunchTime:
    """The time of a whole launch from the times of the blocks that stand for its grid, in launch order."""
    blocks = launch.blocks
    if not blocks:
        return LaunchTime(m.cost["launch_s"], 0, {"launch": m.cost["launch_s"]})
    resident = residency.blocks or 1
    slots = m.units * resident
    waves = ceil(blocks / slots)
    mean = _mean(times)
    if len(times) == 1:
        full, rest = divmod(blocks, slots)
        busy = full * mean.together(resident) + (mean.together(ceil(rest / m.units)) if rest else 0.0)
    elif blocks <= slots:
        busy = max(time.together(ceil(blocks / m.units)) for time in times)
    else:
        held = min(resident, ceil(blocks / m.units))
        busy = blocks / (m.units * held) * mean.together(held)
        longest = max(times, key=lambda time: time.chain).together(1)
        busy = max(busy + times[-1].together(1) / 2, longest)
    share = blocks / min(blocks, m.units)
    cache = traffic.cache_bytes * blocks / m.l2_bytes_per_s
    memory = traffic.memory_bytes / m.memory_bytes_per_s
    seconds = soft_maximum((busy, cache, memory))
    terms = {
        "matrix": mean.matrix * share,
        "vector": mean.vector * share,
        "shared": mean.shared * share,
        "l2": max(cache, mean.port * share),
        "memory": memory,
        "latency": mean.chain * waves,
        "launch": m.cost["launch_s"],
    }
    return LaunchTime(seconds + m.cost["launch_s"], waves, terms)


def _mean(times: list[BlockTime]) -> BlockTime:
    count = len(times)
    return BlockTime(
        sum(t.matrix for t in times) / count,
        sum(t.vector for t in times) / count,
        sum(t.shared for t in times) / count,
        sum(t.port for t in times) / count,
        sum(t.chain for t in times) / count,
    )
