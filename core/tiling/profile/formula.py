"""Small formulas over a launch's grid and loops: how often a loop runs in the block at one point of the grid.

A formula is a number, a name (`axis0` is the block's index along the grid's first axis, `loop2` the value of the
variable of the profile's third loop) or a tuple `(operator, operand, ...)`. Formulas are plain data, so that the ones
of two traces can be compared number by number (see `core.tiling.profile.family`). So that an axis divided by 1 does not
look unlike one divided by 2, an axis is always written divided: `("floordiv", "axis0", 1)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from core.program.nodes import (
    Binary,
    BinaryOp,
    Cast,
    Choose,
    Compare,
    Const,
    Expr,
    Logical,
    Not,
    Var,
    VarKind,
)

Formula: TypeAlias = "int | float | str | tuple[Formula, ...]"

_OPERATORS = {
    BinaryOp.ADD: "add",
    BinaryOp.SUB: "sub",
    BinaryOp.MUL: "mul",
    BinaryOp.FLOOR_DIV: "floordiv",
    BinaryOp.FLOOR_MOD: "floormod",
    BinaryOp.DIV: "truncdiv",
    BinaryOp.MOD: "truncmod",
    BinaryOp.MIN: "min",
    BinaryOp.MAX: "max",
    BinaryOp.SHIFT_LEFT: "shift_left",
    BinaryOp.SHIFT_RIGHT: "shift_right",
}


def formula_of(expr: Expr, names: Mapping[Var | str, Formula]) -> Formula | None:
    """The formula of an integer or boolean expression; None when it depends on what `names` does not give.

    The lesser of a known and an unknown number is taken for the known one, its most: `min(lengths[b], N)` is N, the
    longest there may be.

    Args:
        names: formulas of variables; symbolic dimensions and scalar parameters may be given by name instead.
    """
    match expr:
        case Const(value=value):
            return int(value) if isinstance(value, int) else None
        case Var(name=name, kind=kind):
            if expr in names:
                return names[expr]
            return names.get(name) if kind in (VarKind.SYMBOL, VarKind.SCALAR) else None
        case Cast(a=a):
            return formula_of(a, names)
        case Binary(op=BinaryOp.BIT_AND | BinaryOp.BIT_OR as op, a=a, b=b, dtype="bool"):
            joined = "and" if op is BinaryOp.BIT_AND else "or"
            return _combine(joined, formula_of(a, names), formula_of(b, names))
        case Binary(op=BinaryOp.MIN, a=a, b=b):
            bounds = [bound for bound in (formula_of(a, names), formula_of(b, names)) if bound is not None]
            return _combine("min", *bounds) if len(bounds) == 2 else next(iter(bounds), None)
        case Binary(op=op, a=a, b=b):
            return _combine(_OPERATORS.get(op), formula_of(a, names), formula_of(b, names))
        case Compare(op=op, a=a, b=b):
            return _combine(op.value, formula_of(a, names), formula_of(b, names))
        case Logical(op=op, a=a, b=b):
            return _combine(op.value, formula_of(a, names), formula_of(b, names))
        case Not(a=a, dtype="bool"):
            return _combine("eq", formula_of(a, names), 0)
        case Choose(condition=condition, a=a, b=b):
            return _combine("choose", formula_of(condition, names), formula_of(a, names), formula_of(b, names))
    return None


def _combine(operator: str | None, *operands: Formula | None) -> Formula | None:
    known = tuple(operand for operand in operands if operand is not None)
    if operator is None or len(known) != len(operands):
        return None
    if operator == "floordiv" and isinstance(known[0], tuple) and known[0][0] == "floordiv" and known[0][2] == 1:
        return ("floordiv", known[0][1], known[1])  # an axis, which stands for itself divided by one
    if operator == "and" and any(isinstance(operand, int) for operand in known):
        rest = [operand for operand in known if not isinstance(operand, int)]
        if len(rest) == 1:
            return rest[0] if all(operand for operand in known if isinstance(operand, int)) else 0
    formula = (operator, *known)
    return value_of(formula, {}) if all(isinstance(operand, int | float) for operand in known) else formula


def value_of(formula: Formula, names: Mapping[str, float]) -> float:
    """The value of a formula where `names` gives every name in it; a division by zero counts as zero.

    Raises:
        KeyError: a name without a value.
        ValueError: an operator that is none.
    """
    if isinstance(formula, int | float):
        return formula
    if isinstance(formula, str):
        return names[formula]
    operator, *operands = formula
    a, *rest = (value_of(operand, names) for operand in operands)
    b = rest[0] if rest else 0
    match operator:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "floordiv":
            return a // b if b else 0
        case "floormod":
            return a % b if b else 0
        case "truncdiv":
            return int(a / b) if b else 0
        case "truncmod":
            return a - b * int(a / b) if b else 0
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "shift_left":
            return int(a) << int(b)
        case "shift_right":
            return int(a) >> int(b)
        case "eq":
            return float(a == b)
        case "ne":
            return float(a != b)
        case "lt":
            return float(a < b)
        case "le":
            return float(a <= b)
        case "gt":
            return float(a > b)
        case "ge":
            return float(a >= b)
        case "and":
            return float(bool(a) and bool(b))
        case "or":
            return float(bool(a) or bool(b))
        case "choose":
            return b if a else rest[1]
    raise ValueError(f"no operator of formulas: {operator!r}")


def array_value(formula: Formula, names: Mapping[str, Any]) -> Any:
    """The same over arrays: `names` gives numpy arrays or numbers."""
    import numpy

    if isinstance(formula, int | float):
        return formula
    if isinstance(formula, str):
        return names[formula]
    operator, *operands = formula
    values = [array_value(operand, names) for operand in operands]
    match operator:
        case "add":
            return values[0] + values[1]
        case "sub":
            return values[0] - values[1]
        case "mul":
            return values[0] * values[1]
        case "floordiv":
            return values[0] // numpy.where(values[1] == 0, 1, values[1])
        case "floormod":
            return values[0] % numpy.where(values[1] == 0, 1, values[1])
        case "min":
            return numpy.minimum(values[0], values[1])
        case "max":
            return numpy.maximum(values[0], values[1])
        case "choose":
            return numpy.where(values[0], values[1], values[2])
    plain = numpy.frompyfunc(lambda *own: value_of((operator, *own), {}), len(values), 1)
    return numpy.asarray(plain(*values), dtype=float)


def axis(index: int) -> Formula:
    """The block's index along an axis of the grid."""
    return ("floordiv", f"axis{index}", 1)


def names_in(formula: Formula) -> frozenset[str]:
    """The names a formula depends on."""
    if isinstance(formula, str):
        return frozenset((formula,))
    if isinstance(formula, tuple):
        return frozenset().union(*(names_in(operand) for operand in formula[1:]))
    return frozenset()


def renamed(formula: Formula, names: Mapping[str, str]) -> Formula:
    """The formula with other names."""
    if isinstance(formula, str):
        return names.get(formula, formula)
    if isinstance(formula, tuple):
        return (formula[0], *(renamed(operand, names) for operand in formula[1:]))
    return formula
