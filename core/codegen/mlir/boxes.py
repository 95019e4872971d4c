"""How an access walks memory: which axis moves which dimension, and the part of the tile that exists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from core.codegen.mlir import ops
from core.codegen.mlir.affine import Affine
from core.codegen.mlir.builder import Value
from core.codegen.mlir.liveness import is_on_chip
from core.codegen.mlir.ops import Extent
from core.program.intervals import bounds
from core.program.nodes import Buffer, Compare, CompareOp, Expr, Load, Logical, LogicalOp, Not, Storage, Var
from core.program.walk import subexpressions

if TYPE_CHECKING:
    from core.codegen.mlir.context import Context

_NONE: Mapping[Storage, Value] = MappingProxyType({})


@dataclass(slots=True)
class Window:
    """The iterations of a tile that take part: per axis from `low` to below `high`, all of it when `tests` hold."""

    lows: dict[int, list[Extent]] = field(default_factory=dict)
    highs: dict[int, list[Extent]] = field(default_factory=dict)
    tests: list[Value] = field(default_factory=list)

    def bound(self, c: Context, axis: int) -> tuple[Extent, Extent]:
        """Start and size along an axis; the size may be 0, never negative."""
        extent = c.axes[axis].extent
        low: Extent = 0
        for value in self.lows.get(axis, ()):
            low = ops.max_index(c.b, low, value)
        high: Extent = extent
        for value in self.highs.get(axis, ()):
            high = ops.min_index(c.b, high, value)
        if low == 0:
            return 0, high if isinstance(high, int) and high >= 0 else ops.max_index(c.b, high, 0)
        low = ops.min_index(c.b, low, extent)
        return low, ops.max_index(c.b, ops.sub_index(c.b, high, low), 0)

    def test(self, c: Context) -> Value | None:
        """Whether any of it takes part, as far as scalars say."""
        total: Value | None = None
        for value in self.tests:
            total = value if total is None else ops.arith(c.b, "andi", total, value)
        return total


def proved(c: Context, index: Expr, size: Expr) -> tuple[bool, bool]:
    """Whether an index is provably not negative, and provably below the size."""
    interval, extent = bounds(index, c.ranges), bounds(size, c.ranges)
    if interval is None:
        return False, False
    return interval.low >= 0, extent is not None and interval.high < extent.low


def guarded_dims(c: Context, buffer: Buffer, indices: Sequence[Expr], guard: Sequence[int]) -> tuple[int, ...]:
    """Dimensions to test: those named and, where the access may not be reached at all, those not proved in range."""
    if not c.speculative and not c.conditions:
        return tuple(guard)
    unproved = [d for d in range(len(indices)) if not all(proved(c, indices[d], buffer.shape[d]))]
    return tuple(sorted({*guard, *unproved}))


def add_guard(c: Context, window: Window, affine: Affine, index: Expr, size: Expr) -> bool:
    """Narrows the window to the iterations whose index is in [0, size). False when it has no such form."""
    factors = [(axis, factor) for axis, factor in affine.factors.items() if c.axes[axis].extent > 1]
    low_proved, high_proved = proved(c, index, size)
    if low_proved and high_proved:
        return True
    if not factors:
        # Axes of extent 1 stand at 0.
        rest, extent = c.index(affine.rest), c.index(size)
        if not low_proved:
            window.tests.append(_compare(c, "sge", rest, 0))
        if not high_proved:
            window.tests.append(_compare(c, "slt", rest, extent))
        return True
    if len(factors) > 1 or factors[0][1] < 1:
        return False
    axis, factor = factors[0]
    rest, extent = c.index(affine.rest), c.index(size)
    if not low_proved:
        window.lows.setdefault(axis, []).append(ops.ceildiv_index(c.b, ops.sub_index(c.b, 0, rest), factor))
    if not high_proved:
        window.highs.setdefault(axis, []).append(ops.ceildiv_index(c.b, ops.sub_index(c.b, extent, rest), factor))
    return True


def add_condition(
    c: Context, window: Window, expr: Expr, holds: bool, scalars: Mapping[Storage, Value] = _NONE
) -> bool:
    """Narrows the window to the iterations where a condition holds (or does not). False when it has no such form.

    The window may have been narrowed in part when the answer is False.

    Args:
        scalars: what single elements on the chip held when the branch was entered.
    """
    for item in subexpressions(expr):
        if isinstance(item, Load) and is_on_chip(item.buffer):
            # Its value was taken when the branch was entered; the buffer may hold another one by now.
            storage = item.buffer.storage
            if storage in c.private or storage not in scalars or c.values.get(storage) is not scalars[storage]:
                return False
    if isinstance(expr, Not) and expr.dtype == "bool":
        return add_condition(c, window, expr.a, not holds, scalars)
    if not c.axes_of(expr):
        value = c.scalar(expr)
        window.tests.append(value if holds else c.elementwise.invert(value, "bool"))
        return True
    if isinstance(expr, Var):
        definition = c.definitions.get(expr)
        return definition is not None and add_condition(c, window, definition, holds)
    if isinstance(expr, Logical) and (expr.op is LogicalOp.AND) == holds:
        return all(add_condition(c, window, side, holds, scalars) for side in (expr.a, expr.b))
    if not isinstance(expr, Compare) or not expr.a.dtype.startswith("int"):
        return False
    a, b = c.indices.affine(expr.a), c.indices.affine(expr.b)
    if a is None or b is None:
        return False
    op = expr.op if holds else _NEGATED[expr.op]
    # factor * axis `op` difference
    factors = {axis: a.factors.get(axis, 0) - b.factors.get(axis, 0) for axis in {*a.factors, *b.factors}}
    moving = [(axis, factor) for axis, factor in factors.items() if factor and c.axes[axis].extent > 1]
    if len(moving) != 1 or abs(moving[0][1]) != 1 or op is CompareOp.NE:
        return False
    axis, sign = moving[0]
    difference = ops.sub_index(c.b, c.index(b.rest), c.index(a.rest))
    if sign < 0:
        difference, op = ops.sub_index(c.b, 0, difference), _SWAPPED[op]
    lows, highs = window.lows.setdefault(axis, []), window.highs.setdefault(axis, [])
    after = ops.add_index(c.b, difference, 1)
    if op in (CompareOp.GE, CompareOp.EQ):
        lows.append(difference)
    if op is CompareOp.GT:
        lows.append(after)
    if op is CompareOp.LT:
        highs.append(difference)
    if op in (CompareOp.LE, CompareOp.EQ):
        highs.append(after)
    return True


def _compare(c: Context, predicate: str, x: Extent, y: Extent) -> Value:
    return ops.compare(c.b, predicate, ops.index_value(c.b, x), ops.index_value(c.b, y))


_NEGATED = {
    CompareOp.EQ: CompareOp.NE,
    CompareOp.NE: CompareOp.EQ,
    CompareOp.LT: CompareOp.GE,
    CompareOp.GE: CompareOp.LT,
    CompareOp.GT: CompareOp.LE,
    CompareOp.LE: CompareOp.GT,
}
_SWAPPED = {
    CompareOp.EQ: CompareOp.EQ,
    CompareOp.NE: CompareOp.NE,
    CompareOp.LT: CompareOp.GT,
    CompareOp.GT: CompareOp.LT,
    CompareOp.LE: CompareOp.GE,
    CompareOp.GE: CompareOp.LE,
}
