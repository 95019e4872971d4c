"""Seconds of the matrix pipe, and the bytes that feed it from shared memory.

Which instruction a product becomes decides both. A group of four waves works on 64 rows at a time where the chip has
such an instruction and the tile has that many rows; it reads its operands from shared memory itself, once for each
group. Otherwise each wave loads the rows and columns of its own part into registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from core.program.expressions import dtype_bits
from core.tiling.cost.machine import Machine
from core.tiling.profile import MatrixProduct

#: Waves of a group that issues one instruction together.
GROUP_WAVES = 4


@dataclass(frozen=True, slots=True)
class ProductCost:
    """One execution of a product on one unit.

    Attributes:
        seconds: of the matrix pipe, at its full rate for this instruction's shape.
        shared_bytes: read from shared memory.
        latency: from the last operand to the result, nothing overlapped.
        grouped: issued by groups of waves.
        assumption: what was assumed of the rate, or None.
    """

    seconds: float
    shared_bytes: float
    latency: float
    grouped: bool
    assumption: str | None


def product_cost(product: MatrixProduct, threads: int, m: Machine) -> ProductCost:
    """The cost of a product that `threads` threads compute."""
    rate, assumption = m.matrix_per_s(product.a_dtype, product.accumulator_dtype)
    a_bytes, b_bytes = dtype_bits(product.a_dtype) / 8, dtype_bits(product.b_dtype) / 8
    types = (product.a_dtype, product.b_dtype, product.accumulator_dtype)
    waves = max(1, threads // m.lanes) if m.simt else 1
    wait = 0.0 if product.in_flight else m.cost["product_latency_s"]
    group = m.matrix_instruction(*types, warpgroup=True)
    if (
        group is not None
        and m.simt
        and product.m >= group.m
        and waves % GROUP_WAVES == 0
        and product.b_scope == "shared"
    ):
        rows, columns = _parts(product.m, product.n, waves // GROUP_WAVES, group.m, 8, product.policy)
        m_each, n_each = ceil(product.m / rows), ceil(product.n / columns)
        steps = ceil(m_each / group.m)
        choices = group.n_choices or (group.n,)
        n_instruction = max((n for n in choices if n_each % n == 0), default=choices[0])
        issued = steps * group.m * rows * ceil(n_each / n_instruction) * n_instruction * columns
        per_step = group.m * a_bytes * (product.a_scope == "shared") * ceil(n_each / n_instruction) + n_each * b_bytes
        shared = rows * columns * steps * per_step * product.k
        return ProductCost(2.0 * issued * product.k / rate, shared, wait, True, assumption)
    instruction = m.matrix_instruction(*types, warpgroup=False)
    step_m, step_n, step_k = (instruction.m, instruction.n, instruction.k) if instruction else (1, 1, 1)
    rows, columns = _parts(product.m, product.n, waves, step_m, step_n, product.policy)
    m_each = ceil(ceil(product.m / rows) / step_m) * step_m
    n_each = ceil(ceil(product.n / columns) / step_n) * step_n
    issued = m_each * rows * n_each * columns * ceil(product.k / step_k) * step_k
    share = m.cost["wave_matrix_share"] if group is not None else 1.0
    # Waves are dealt out to the sub-units: too few leave some of the pipe idle.
    busy = min(1.0, waves / m.sub_units) if m.simt else 1.0
    reads = waves * product.k * (m_each * a_bytes * (product.a_scope == "shared") + n_each * b_bytes)
    steps = ceil(product.k / step_k)
    latency = wait + steps * m.cost["shared_latency_s"] * (product.b_scope == "shared")
    return ProductCost(2.0 * issued / (rate * share * busy), reads, latency, False, assumption)


@lru_cache(maxsize=4096)
def _parts(rows: int, columns: int, workers: int, step_m: int, step_n: int, policy: int) -> tuple[int, int]:
    """How `workers` share a tile: parts along the rows and along the columns.

    `policy` 1 prefers rows, 2 columns; 0 the squarest parts. Parts are whole instructions where that is possible.
    """
    best: tuple[float, tuple[int, int]] | None = None
    for m_parts in range(1, workers + 1):
        if workers % m_parts:
            continue
        n_parts = workers // m_parts
        m_each, n_each = rows / m_parts, columns / n_parts
        waste = max(1.0, step_m / m_each) * max(1.0, step_n / n_each)
        if policy == 1:
            score = -float(m_parts)
        elif policy == 2:
            score = -float(n_parts)
        else:
            score = max(m_each, n_each) / min(m_each, n_each)
        key = waste * 1e6 + score
        if best is None or key < best[0]:
            best = (key, (m_parts, n_parts))
    assert best is not None
    return best[1]
