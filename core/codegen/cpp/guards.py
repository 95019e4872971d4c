"""When a T.Parallel nest needs no tests: every guarded index of every iteration in range."""

from __future__ import annotations

from dataclasses import replace

from core.codegen.cpp.expressions import Expressions
from core.codegen.cpp.ranges import affine_coefficient
from core.program import walk
from core.program.nodes import (
    AtomicExpr,
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Const,
    Expr,
    For,
    Let,
    Load,
    Parallel,
    Stmt,
    Store,
    Var,
)


def whole_tile_condition(stmt: Parallel, expressions: Expressions) -> str | None:
    """A condition on the whole nest under which all of its guards hold; None when there is none worth testing.

    It is found when each guarded index is linear in the loop variables, and everything else in it is fixed while the
    nest runs.
    """
    loops = _loops(stmt)
    if loops is None:
        return None
    accesses = [access for inner in walk.statements(stmt) for access in _accesses(inner)]
    if not any(guard for _, _, guard in accesses):
        return None
    lets = {id(inner.var): inner.value for inner in walk.statements(stmt) if isinstance(inner, Let)}
    tests: dict[str, None] = {}
    for buffer, indices, guard in accesses:
        for dim in guard:
            ends = _ends(_substituted(indices[dim], lets), loops)
            if ends is None:
                return None
            first, last = ends
            if not expressions.ranges.is_nonnegative(first):
                tests.update(dict.fromkeys(expressions.condition_in_range(first, buffer.shape[dim])[:1]))
            tests.update(dict.fromkeys(expressions.condition_in_range(last, buffer.shape[dim], lower=False)))
    return " && ".join(tests) or None


def _loops(stmt: Parallel) -> dict[int, tuple[Var, Expr]] | None:
    """Variables that run inside the nest, with their extents; None when one starts elsewhere than at 0."""
    loops: dict[int, tuple[Var, Expr]] = {}
    for inner in walk.statements(stmt):
        if isinstance(inner, Parallel):
            loops.update({id(var): (var, extent) for var, extent in zip(inner.vars, inner.extents, strict=True)})
        elif isinstance(inner, For):
            if not (isinstance(inner.start, Const) and inner.start.value == 0):
                return None
            loops[id(inner.var)] = (inner.var, inner.extent)
    return loops


def _accesses(stmt: Stmt) -> list[tuple[Buffer, tuple[Expr, ...], tuple[int, ...]]]:
    found = [(expr.buffer, expr.indices, expr.guard) for expr in walk.expressions(stmt) if isinstance(expr, Load)]
    if isinstance(stmt, Store):
        found.append((stmt.buffer, stmt.indices, stmt.guard))
    return found


def _ends(index: Expr, loops: dict[int, tuple[Var, Expr]]) -> tuple[Expr, Expr] | None:
    """The least and the greatest value of a linear index over the loops."""
    coefficients = affine_coefficient(index, frozenset(loops))
    if coefficients is None:
        return None
    if any(isinstance(expr, Load | AtomicExpr) for expr in walk.subexpressions(index)):
        return None
    first: dict[int, Expr] = {}
    last: dict[int, Expr] = {}
    for key, coefficient in coefficients.items():
        var, extent = loops[key]
        if any(isinstance(expr, Load) or id(expr) in loops for expr in walk.subexpressions(extent)):
            return None
        zero, end = Const(var.dtype, 0), _minus_one(extent)
        first[key], last[key] = (zero, end) if coefficient > 0 else (end, zero)
    return _folded(_substituted(index, first)), _folded(_substituted(index, last))


def _minus_one(extent: Expr) -> Expr:
    if isinstance(extent, Const):
        return Const(extent.dtype, int(extent.value) - 1)
    return Binary(extent.dtype, BinaryOp.SUB, extent, Const(extent.dtype, 1))


def _substituted(expr: Expr, values: dict[int, Expr]) -> Expr:
    if isinstance(expr, Var):
        value = values.get(id(expr))
        return expr if value is None else _substituted(value, values)
    if isinstance(expr, Binary):
        return replace(expr, a=_substituted(expr.a, values), b=_substituted(expr.b, values))
    if isinstance(expr, Cast):
        return replace(expr, a=_substituted(expr.a, values))
    return expr


def _folded(expr: Expr) -> Expr:
    """The expression with its literals added and multiplied out where they meet."""
    if isinstance(expr, Cast):
        inner = _folded(expr.a)
        return Const(expr.dtype, int(inner.value)) if isinstance(inner, Const) else replace(expr, a=inner)
    if not isinstance(expr, Binary):
        return expr
    a, b = _folded(expr.a), _folded(expr.b)
    if isinstance(a, Const) and isinstance(b, Const):
        x, y = int(a.value), int(b.value)
        match expr.op:
            case BinaryOp.ADD:
                return Const(expr.dtype, x + y)
            case BinaryOp.SUB:
                return Const(expr.dtype, x - y)
            case BinaryOp.MUL:
                return Const(expr.dtype, x * y)
    if isinstance(b, Const) and b.value == 0 and expr.op in (BinaryOp.ADD, BinaryOp.SUB):
        return a
    if isinstance(a, Const) and a.value == 0 and expr.op is BinaryOp.ADD:
        return b
    return replace(expr, a=a, b=b)
