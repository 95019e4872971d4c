"""Index expressions as sums of multiples of parallel axes and a rest that no axis changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import gcd

from core.program.expressions import add, constant, constant_int, is_integer, multiply
from core.program.intervals import Interval, bounds
from core.program.nodes import Binary, BinaryOp, Cast, Const, Expr, Var


@dataclass(frozen=True, slots=True)
class Affine:
    """`rest + sum(factor * axis)`; factors are never 0."""

    factors: Mapping[int, int]
    rest: Expr


class Indices:
    """Takes index expressions apart.

    Args:
        axis_of: the axis a variable is, or None.
        definition_of: the value of a `Let` variable that varies along axes and is pure index arithmetic, or None.
        varies: whether an expression depends on an axis.
        extent_of: the extent of an axis.
        ranges: intervals of variables.
    """

    def __init__(
        self,
        axis_of: Callable[[Var], int | None],
        definition_of: Callable[[Var], Expr | None],
        varies: Callable[[Expr], bool],
        extent_of: Callable[[int], int],
        ranges: Mapping[Var, Interval],
    ) -> None:
        self._axis_of = axis_of
        self._definition_of = definition_of
        self._varies = varies
        self._extent_of = extent_of
        self._ranges = ranges

    def affine(self, expr: Expr) -> Affine | None:
        """The expression taken apart; None when it is not of that form."""
        if not self._varies(expr):
            return Affine({}, expr)
        if isinstance(expr, Var):
            axis = self._axis_of(expr)
            if axis is not None:
                return Affine({axis: 1}, Const(expr.dtype, 0))
            definition = self._definition_of(expr)
            return None if definition is None else self.affine(definition)
        if isinstance(expr, Cast) and is_integer(expr.dtype) and is_integer(expr.a.dtype):
            inner = self.affine(expr.a)
            if inner is None:
                return None
            rest = inner.rest
            value = constant_int(rest)
            return replace(inner, rest=Const(expr.dtype, value) if value is not None else Cast(expr.dtype, rest))
        if not isinstance(expr, Binary):
            return None
        a, b = self.affine(expr.a), self.affine(expr.b)
        if a is None or b is None:
            return None
        match expr.op:
            case BinaryOp.ADD:
                return _sum(a, b, 1)
            case BinaryOp.SUB:
                return _sum(a, b, -1)
            case BinaryOp.MUL:
                factor, other = (a, b) if constant_int(a.rest) is not None and not a.factors else (b, a)
                by = constant_int(factor.rest)
                if factor.factors or by is None:
                    return None
                return _scaled(other, by)
            case BinaryOp.FLOOR_DIV | BinaryOp.FLOOR_MOD | BinaryOp.DIV | BinaryOp.MOD:
                divisor = constant_int(b.rest)
                if b.factors or divisor is None or divisor < 1:
                    return None
                truncates = expr.op in (BinaryOp.DIV, BinaryOp.MOD)
                interval = bounds(expr.a, self._ranges) if truncates else None
                if truncates and (interval is None or interval.low < 0):
                    return None
                return self._divided(a, divisor, wants_quotient=expr.op in (BinaryOp.FLOOR_DIV, BinaryOp.DIV))
        return None

    def _divided(self, a: Affine, divisor: int, *, wants_quotient: bool) -> Affine | None:
        """`a // divisor` or `a % divisor`, rounding down, where one of its parts takes no part in the division."""
        if all(factor % divisor == 0 for factor in a.factors.values()):
            if wants_quotient:
                factors = {axis: factor // divisor for axis, factor in a.factors.items()}
                return Affine(
                    factors, Binary(a.rest.dtype, BinaryOp.FLOOR_DIV, a.rest, constant(divisor, a.rest.dtype))
                )
            return Affine({}, Binary(a.rest.dtype, BinaryOp.FLOOR_MOD, a.rest, constant(divisor, a.rest.dtype)))
        # What the divisor divides passes through; the rest of the axes must stay below it.
        whole = {axis: factor for axis, factor in a.factors.items() if factor % divisor == 0}
        part = {axis: factor for axis, factor in a.factors.items() if factor % divisor}
        low, high = self.axes_interval(part)
        if _common_divisor(a.rest) % divisor or low < 0 or high >= divisor:
            return None
        if wants_quotient:
            value = constant_int(a.rest)
            rest = (
                Const(a.rest.dtype, value // divisor)
                if value is not None
                else Binary(a.rest.dtype, BinaryOp.FLOOR_DIV, a.rest, constant(divisor, a.rest.dtype))
            )
            return Affine({axis: factor // divisor for axis, factor in whole.items()}, rest)
        return Affine(part, Const(a.rest.dtype, 0))

    def axes_interval(self, factors: Mapping[int, int]) -> tuple[int, int]:
        """Least and greatest value of `sum(factor * axis)`."""
        ends = [(0, factor * (self._extent_of(axis) - 1)) for axis, factor in factors.items()]
        return sum(min(pair) for pair in ends), sum(max(pair) for pair in ends)


def _sum(a: Affine, b: Affine, sign: int) -> Affine:
    factors = {axis: a.factors.get(axis, 0) + sign * b.factors.get(axis, 0) for axis in {*a.factors, *b.factors}}
    rest = add(a.rest, b.rest if sign == 1 else multiply(b.rest, constant(-1, b.rest.dtype)))
    return Affine({axis: factor for axis, factor in factors.items() if factor}, rest)


def _scaled(a: Affine, by: int) -> Affine:
    factors = {axis: factor * by for axis, factor in a.factors.items() if by}
    return Affine(factors, multiply(a.rest, constant(by, a.rest.dtype)))


def _common_divisor(expr: Expr) -> int:
    """A number that divides the expression whatever its variables are; 0 for the literal 0."""
    match expr:
        case Const(value=value):
            return abs(int(value))
        case Cast(a=a):
            return _common_divisor(a)
        case Binary(op=BinaryOp.ADD | BinaryOp.SUB, a=a, b=b):
            return gcd(_common_divisor(a), _common_divisor(b))
        case Binary(op=BinaryOp.MUL, a=a, b=b):
            return _common_divisor(a) * _common_divisor(b)
    return 1
