"""Operations of element expressions, as `T.Parallel` loops hold them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import prod

from core.program import walk
from core.program.expressions import is_float
from core.program.nodes import Binary, BinaryOp, Cast, Choose, Expr, Load, Math, Scope, Var, VarKind

#: Functions that cost about as much as an addition; every other one is `special`.
_CHEAP = frozenset({"abs", "floor", "ceil", "trunc", "round", "nearbyint", "fma", "clamp", "copysign"})


def parallel_variables(exprs: Iterable[Expr]) -> set[Var]:
    """The variables of `T.Parallel` loops that expressions use."""
    return {
        inner
        for expr in exprs
        for inner in walk.subexpressions(expr)
        if isinstance(inner, Var) and inner.kind is VarKind.PARALLEL
    }


def loads(root: Expr) -> Iterator[Load]:
    """Loads from global and shared memory in an expression, each address once."""
    seen: set[tuple[int, tuple[Expr, ...]]] = set()
    for expr in walk.subexpressions(root):
        if isinstance(expr, Load) and expr.buffer.scope in (Scope.GLOBAL, Scope.SHARED):
            key = (id(expr.buffer), expr.indices)
            if key not in seen:
                seen.add(key)
                yield expr


def operations(root: Expr, parallel: Mapping[Var, int]) -> Iterator[tuple[str, str, int]]:
    """(kind, dtype, elements) of an expression's operations; the kinds are those of `VectorWork`.

    A part that leaves out a parallel variable is computed once for all its values; a product that is added to
    something is one operation with the addition. There is one entry for each set of loops: a sum over unlike tile
    sizes would not be a product of tile parameters.
    """
    fused: set[int] = set()
    counts: dict[tuple[str, str, frozenset[Var]], int] = {}
    for expr in walk.subexpressions(root):
        kind = _kind(expr)
        if kind is None or id(expr) in fused:
            continue
        if isinstance(expr, Binary) and expr.op in (BinaryOp.ADD, BinaryOp.SUB):
            factors = [part for part in (expr.a, expr.b) if isinstance(part, Binary) and part.op is BinaryOp.MUL]
            if factors:
                fused.add(id(max(factors, key=lambda part: len(parallel_variables((part,))))))
        used = frozenset(parallel_variables((expr,)) & parallel.keys())
        dtype = expr.a.dtype if isinstance(expr, Cast) and is_float(expr.a.dtype) else expr.dtype
        counts[kind, dtype, used] = counts.get((kind, dtype, used), 0) + 1
    for (kind, dtype, used), count in counts.items():
        yield kind, dtype, count * prod(parallel[var] for var in used)


def _kind(expr: Expr) -> str | None:
    """The class of work of one expression node; None for index arithmetic and what costs nothing."""
    match expr:
        case Math(function=function):
            return "arithmetic" if function in _CHEAP else "special"
        case Binary(op=BinaryOp.DIV, dtype=dtype) if is_float(dtype):
            return "divide"
        case Binary(dtype=dtype) if is_float(dtype):
            return "arithmetic"
        case Choose(dtype=dtype) if is_float(dtype):
            return "arithmetic"
        case Cast(a=a, dtype=dtype) if is_float(dtype) or is_float(a.dtype):
            return "convert"
    return None
