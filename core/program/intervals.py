"""Bounds of index expressions over the values their variables take, and whether the bounds are reached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from core.program.nodes import Binary, BinaryOp, Cast, Const, Expr, Var


@dataclass(frozen=True, slots=True)
class Interval:
    """Values from `low` to `high`.

    Attributes:
        exact: both ends are reached when the variables take all their values independently.
        variables: what the value depends on; two intervals with a common variable are not independent.
    """

    low: int
    high: int
    exact: bool
    variables: frozenset[Var] = frozenset()


Ranges = Mapping[Var, Interval]


def loop_range(var: Var, start: Interval | None, extent: Interval | None) -> Interval | None:
    """The interval of a loop variable; None when the trip count is not known or the loop may not run at all."""
    if start is None or extent is None or extent.low < 1:
        return None
    known = extent.low == extent.high and start.low == start.high
    return Interval(start.low, start.high + extent.high - 1, known, frozenset({var}))


def bounds(expr: Expr, ranges: Ranges) -> Interval | None:
    """The interval of an expression; None when it reads memory or a variable without a range."""
    match expr:
        case Const(value=value):
            return Interval(value, value, True) if isinstance(value, int) else None
        case Var():
            return ranges.get(expr)
        case Cast(a=a):
            return bounds(a, ranges)
        case Binary(op=op, a=a, b=b):
            x, y = bounds(a, ranges), bounds(b, ranges)
            return None if x is None or y is None else _combine(op, x, y)
    return None


def _combine(op: BinaryOp, x: Interval, y: Interval) -> Interval | None:
    variables = x.variables | y.variables
    exact = x.exact and y.exact and not x.variables & y.variables
    match op:
        case BinaryOp.ADD:
            return Interval(x.low + y.low, x.high + y.high, exact, variables)
        case BinaryOp.SUB:
            return Interval(x.low - y.high, x.high - y.low, exact, variables)
        case BinaryOp.MUL:
            corners = [a * b for a in (x.low, x.high) for b in (y.low, y.high)]
            return Interval(min(corners), max(corners), exact, variables)
        case BinaryOp.MIN:
            return Interval(min(x.low, y.low), min(x.high, y.high), exact, variables)
        case BinaryOp.MAX:
            return Interval(max(x.low, y.low), max(x.high, y.high), exact, variables)
        case BinaryOp.FLOOR_DIV if y.low == y.high > 0:
            return Interval(x.low // y.low, x.high // y.low, exact, variables)
        case BinaryOp.FLOOR_MOD if y.low == y.high > 0:
            if x.low // y.low == x.high // y.low:
                return Interval(x.low % y.low, x.high % y.low, exact, variables)
            return replace(Interval(0, y.low - 1, False), variables=variables)
    return None
