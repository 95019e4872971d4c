"""Seconds of the vector pipe: element operations and reductions."""

from __future__ import annotations

from math import log2

from core.program.expressions import dtype_bits
from core.tiling.cost.machine import Machine
from core.tiling.profile import Reduction, VectorWork

#: Lanes that share a row of an accumulator (the column of `mma`'s C layout takes four lanes).
_ACCUMULATOR_LANES = 4


def work_seconds(work: VectorWork, m: Machine) -> float:
    """Seconds of one unit's vector pipe at full rate."""
    cost = {
        "special": m.cost["vector_cost_special"],
        "divide": m.cost["vector_cost_divide"],
        "convert": m.cost["vector_cost_convert"],
        "index": m.cost["vector_cost_index"],
    }.get(work.kind, 1.0)
    wide = max(1.0, dtype_bits(work.dtype) / 32)
    return work.elements * cost * wide / m.vector_per_s


def lanes_per_row(reduction: Reduction, threads: int) -> int:
    """Threads that share one row of a reduction."""
    if reduction.accumulator:
        return _ACCUMULATOR_LANES
    return max(1, min(threads, threads // max(1, reduction.rows), reduction.length))


def reduction_cost(reduction: Reduction, threads: int, m: Machine) -> tuple[float, float]:
    """(seconds of the vector pipe, latency that nothing in the same block hides) of one execution."""
    elements = reduction.rows * reduction.length
    if not m.simt:
        return elements / m.vector_per_s, 0.0
    lanes = lanes_per_row(reduction, threads)
    rows_each = max(1.0, reduction.rows * lanes / threads)
    in_wave = log2(min(lanes, m.lanes)) if lanes > 1 else 0.0
    across = max(0.0, log2(lanes / m.lanes)) if lanes > m.lanes else 0.0
    shuffles = rows_each * threads * (in_wave + across) * m.cost["vector_cost_shuffle"]
    seconds = (elements + shuffles) / m.vector_per_s
    latency = (in_wave * m.cost["shared_latency_s"]) + rows_each * across * (
        2 * m.cost["barrier_s"] + 2 * m.cost["shared_latency_s"]
    )
    return seconds, latency
