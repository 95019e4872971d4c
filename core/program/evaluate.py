"""The value of an index expression, where its variables have values."""

from __future__ import annotations

from collections.abc import Mapping

from core.program.nodes import (
    Binary,
    BinaryOp,
    Cast,
    Choose,
    Compare,
    CompareOp,
    Const,
    Expr,
    Logical,
    LogicalOp,
    Not,
    Var,
    VarKind,
)

#: Values by variable; symbolic dimensions and scalar parameters may be given by name instead.
Environment = Mapping["Var | str", int]


def evaluate(expr: Expr, environment: Environment) -> int | None:
    """The value of an integer or boolean expression; None when it depends on anything `environment` does not give."""
    match expr:
        case Const(value=value):
            return int(value) if isinstance(value, int) else None
        case Var(name=name, kind=kind):
            if expr in environment:
                return environment[expr]
            return environment.get(name) if kind in (VarKind.SYMBOL, VarKind.SCALAR) else None
        case Cast(a=a):
            return evaluate(a, environment)
        case Binary(op=op, a=a, b=b):
            x, y = evaluate(a, environment), evaluate(b, environment)
            return None if x is None or y is None else _binary(op, x, y)
        case Compare(op=op, a=a, b=b):
            x, y = evaluate(a, environment), evaluate(b, environment)
            return None if x is None or y is None else int(_compare(op, x, y))
        case Logical(op=op, a=a, b=b):
            return _logical(op, evaluate(a, environment), evaluate(b, environment))
        case Not(a=a, dtype="bool"):
            x = evaluate(a, environment)
            return None if x is None else int(not x)
        case Choose(condition=condition, a=a, b=b):
            taken = evaluate(condition, environment)
            return None if taken is None else evaluate(a if taken else b, environment)
    return None


def _logical(op: LogicalOp, x: int | None, y: int | None) -> int | None:
    decides = 0 if op is LogicalOp.AND else 1
    if decides in (x, y):
        return decides
    return None if x is None or y is None else 1 - decides


def _binary(op: BinaryOp, x: int, y: int) -> int | None:
    match op:
        case BinaryOp.ADD:
            return x + y
        case BinaryOp.SUB:
            return x - y
        case BinaryOp.MUL:
            return x * y
        case BinaryOp.MIN:
            return min(x, y)
        case BinaryOp.MAX:
            return max(x, y)
        case BinaryOp.BIT_AND:
            return x & y
        case BinaryOp.BIT_OR:
            return x | y
        case BinaryOp.BIT_XOR:
            return x ^ y
        case BinaryOp.SHIFT_LEFT:
            return x << y if y >= 0 else None
        case BinaryOp.SHIFT_RIGHT:
            return x >> y if y >= 0 else None
    if y == 0:
        return None
    match op:
        case BinaryOp.FLOOR_DIV:
            return x // y
        case BinaryOp.FLOOR_MOD:
            return x % y
    quotient = abs(x) // abs(y)
    quotient = quotient if (x < 0) == (y < 0) else -quotient
    return quotient if op is BinaryOp.DIV else x - quotient * y


def _compare(op: CompareOp, x: int, y: int) -> bool:
    match op:
        case CompareOp.EQ:
            return x == y
        case CompareOp.NE:
            return x != y
        case CompareOp.LT:
            return x < y
        case CompareOp.LE:
            return x <= y
        case CompareOp.GT:
            return x > y
    return x >= y
