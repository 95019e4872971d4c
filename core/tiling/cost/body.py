"""What one execution of a loop's body takes of a unit: seconds of its pipes, bytes, and latencies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from core.program.expressions import dtype_bits
from core.tiling.cost.machine import Machine
from core.tiling.cost.matrix import product_cost
from core.tiling.cost.memory import sector_bytes
from core.tiling.cost.occupancy import Residency
from core.tiling.cost.split import filled_by_threads
from core.tiling.cost.vector import reduction_cost, work_seconds
from core.tiling.profile import LaunchProfile

#: Exponent of the soft maximum: two equal terms take 2 ** (1 / 8) = 9% longer than one.
_SHARPNESS = 8.0
#: Spilled registers from which on each is moved twice as often, and how often one of a product's accumulators is.
_MANY_SPILLS = 250
_PRODUCT_SPILLS = 16


@dataclass(slots=True)
class Body:
    """One loop's body.

    Attributes:
        matrix, vector, special, shared: seconds of the unit's pipes.
        latency: of dependent steps, seconds.
        loaded, stored: bytes from and to global memory, whole sectors.
        staged: bytes of `loaded` that a pipeline of stages can run ahead with.
        fill: seconds of the vector pipe for filling tiles element by element.
        waits: the threads that compute do that too, and wait for what they load; others run ahead of them.
        window: windows are copied in bulk: where nothing runs ahead, other loads begin when they have come.
        in_flight: products run while the same threads do something else.
    """

    matrix: float = 0.0
    vector: float = 0.0
    special: float = 0.0
    shared: float = 0.0
    latency: float = 0.0
    loaded: float = 0.0
    staged: float = 0.0
    fill: float = 0.0
    stored: float = 0.0
    waits: bool = False
    window: bool = False
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


def threads_of(launch: LaunchProfile, loop: int, residency: Residency) -> int:
    """The threads that run a loop's body."""
    return dict(launch.roles).get(launch.loops[loop].role, residency.threads)


def bodies(launch: LaunchProfile, residency: Residency, m: Machine) -> Bodies:
    """What each loop's body takes."""
    each = [Body() for _ in launch.loops]
    found = Bodies(each)
    feed = m.feed_bytes_per_s(sum(buffer.total_bytes for buffer in launch.buffers))
    for product in launch.products:
        cost = product_cost(product, threads_of(launch, product.loop, residency), m)
        body = each[product.loop]
        body.matrix += cost.seconds
        body.shared += cost.shared_bytes / feed
        body.latency += cost.latency
        body.in_flight |= product.in_flight
        if cost.assumption:
            found.assumptions[cost.assumption] = None
    ahead = set(filled_by_threads(launch, m.chip).values())
    for work in launch.vector:
        seconds = work_seconds(work, m)
        if work.fills:
            each[work.loop].fill += seconds
        elif work.kind == "special":
            each[work.loop].special += seconds
        else:
            each[work.loop].vector += seconds
    for reduction in launch.reductions:
        seconds, latency = reduction_cost(reduction, threads_of(launch, reduction.loop, residency), m)
        each[reduction.loop].vector += seconds
        each[reduction.loop].latency += latency
    for touched in launch.shared:
        each[touched.loop].shared += touched.bytes / feed
        each[touched.loop].latency += m.cost["barrier_s"]
    for access in launch.accesses:
        body, moved = each[access.loop], sector_bytes(access, m)
        if access.mode == "read":
            body.loaded += moved
            if access.onchip == "shared" or (access.fills and access.loop in ahead):
                body.staged += moved
            body.waits |= bool(access.fills) and access.loop not in ahead
            body.window |= access.window and m.cost["copy_threads"] > 0
        else:
            body.stored += moved
        if access.onchip == "shared":
            body.shared += access.bytes / feed
    if m.exchanges_in_memory:
        _exchange(launch, each)
    if residency.spilled:
        _spill(launch, each, residency, feed)
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


def _spill(launch: LaunchProfile, each: list[Body], residency: Residency, feed: float) -> None:
    """Registers that do not fit are written and read back, by the same way as shared memory.

    Once for each pass over the fragments; accumulators of a product move together, whichever of them is short.
    """
    bytes_each = 2 * 4 * residency.spilled * residency.threads
    with_products = {product.loop for product in launch.products}
    vector = [work for work in launch.vector if work.kind != "index" and not work.fills]
    largest = max((work.elements for work in vector), default=0)
    passes: dict[int, float] = {}
    for loop in (*(r.loop for r in launch.reductions), *(w.loop for w in vector if 2 * w.elements >= largest)):
        passes[loop] = passes.get(loop, 0.0) + 1.0 + residency.spilled / _MANY_SPILLS
    for loop in passes.keys() | with_products:
        times = _PRODUCT_SPILLS if loop in with_products else 0 if with_products else passes[loop]
        seconds = bytes_each * times / feed
        each[loop].shared += seconds
        each[loop].latency += seconds
