"""Operations of element expressions, as `T.Parallel` loops hold them.

A *bound* variable is one that a `Let` inside such a loop binds: it stands for the parallel variables it depends on.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from math import prod

from core.program import walk
from core.program.expressions import constant_int, is_float
from core.program.nodes import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Choose,
    Compare,
    Expr,
    Let,
    Load,
    Math,
    Parallel,
    Scope,
    Store,
    Var,
    VarKind,
)

#: Parallel variables by the variables bound to what depends on them.
Bound = Mapping[Var, frozenset[Var]]

#: Functions that cost about as much as an addition; every other one is `special`.
_CHEAP = frozenset({"abs", "floor", "ceil", "trunc", "round", "nearbyint", "fma", "clamp", "copysign"})

_DIVISIONS = frozenset({BinaryOp.DIV, BinaryOp.FLOOR_DIV})
_REMAINDERS = frozenset({BinaryOp.MOD, BinaryOp.FLOOR_MOD})
#: Instructions of an integer division: by a constant (the high part of a product, a shift, the sign), by a variable.
_BY_CONSTANT, _BY_VARIABLE = 3, 20
#: Instructions of an access by its own address: the 64 bits of a pointer, and the access.
_POINTER, _ACCESS = 2, 1


def parallel_variables(exprs: Iterable[Expr], bound: Bound) -> set[Var]:
    """The variables of `T.Parallel` loops that expressions depend on."""
    found: set[Var] = set()
    for expr in exprs:
        for inner in walk.subexpressions(expr):
            if isinstance(inner, Var):
                found |= {inner} if inner.kind is VarKind.PARALLEL else bound.get(inner, frozenset())
    return found


def loads(root: Expr) -> Iterator[Load]:
    """Loads from global and shared memory in an expression, each address once."""
    seen: set[tuple[int, tuple[Expr, ...]]] = set()
    for expr in walk.subexpressions(root):
        if isinstance(expr, Load) and expr.buffer.scope in (Scope.GLOBAL, Scope.SHARED):
            key = (id(expr.buffer), expr.indices)
            if key not in seen:
                seen.add(key)
                yield expr


def operations(root: Expr, parallel: Mapping[Var, int], bound: Bound) -> Iterator[tuple[str, str, int]]:
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
                fused.add(id(max(factors, key=lambda part: len(parallel_variables((part,), bound)))))
        used = frozenset(parallel_variables((expr,), bound) & parallel.keys())
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


def filled(loop: Parallel) -> tuple[Buffer, ...]:
    """Shared buffers that a parallel loop fills from global memory; none where it reads anything on chip.

    TileLang tells a copy that threads make themselves by this (`SimtProducerDetector` of
    `src/cuda/transform/ws_analysis.cc`).
    """
    found: dict[int, Buffer] = {}
    from_global = False
    for stmt in walk.statements(loop):
        if isinstance(stmt, Store) and stmt.buffer.scope is Scope.SHARED:
            found[id(stmt.buffer)] = stmt.buffer
        for expr in walk.expressions(stmt):
            if isinstance(expr, Load):
                if expr.buffer.scope is not Scope.GLOBAL:
                    return ()
                from_global = True
    return tuple(found.values()) if from_global else ()


def scattered(loop: Parallel) -> bool:
    """Whether neighbours along the innermost variable of a parallel loop need not be neighbours in memory.

    That is so where an index divides it. Threads then find out for each element where it lies, and load it by itself.
    """
    bound: dict[Var, frozenset[Var]] = {}
    for stmt in walk.statements(loop):
        for expr in walk.expressions(stmt):
            if loop.vars[-1] in _divided(expr, bound):
                return True
        if isinstance(stmt, Let):
            bound[stmt.var] = frozenset(parallel_variables((stmt.value,), bound))
    return False


def uneven(expr: Expr, bound: Bound, divided: Container[Var]) -> bool:
    """Whether a value does not grow evenly from element to element: what does is divided in it.

    Args:
        divided: bound variables of which this is so.
    """
    for inner in walk.subexpressions(expr):
        if inner in divided if isinstance(inner, Var) else _divided(inner, bound):
            return True
    return False


def _divided(expr: Expr, bound: Bound) -> set[Var]:
    """The parallel variables that a division or remainder of integers divides."""
    if isinstance(expr, Binary) and expr.op in _DIVISIONS | _REMAINDERS and not is_float(expr.dtype):
        return parallel_variables((expr.a,), bound)
    return set()


def index_instructions(root: Expr, bound: Bound, divided: Container[Var]) -> Iterator[tuple[Expr, int]]:
    """(expression, instructions) of what a thread does to find the elements of an expression and to load them.

    What grows evenly costs nothing: compilers step along with it.
    """
    fused: set[int] = set()
    for expr in walk.subexpressions(root):
        if (is_float(expr.dtype) and not isinstance(expr, Load)) or not uneven(expr, bound, divided):
            continue
        if isinstance(expr, Binary) and expr.op in (BinaryOp.ADD, BinaryOp.SUB):
            fused.update(id(part) for part in (expr.a, expr.b) if isinstance(part, Binary) and part.op is BinaryOp.MUL)
        count = 0 if id(expr) in fused else _instructions(expr)
        if count:
            yield expr, count


def _instructions(expr: Expr) -> int:
    """Integer instructions of one node. A comparison takes the conjunction with another along."""
    match expr:
        case Binary(op=op, b=b) if op in _DIVISIONS or op in _REMAINDERS:
            divisor = constant_int(b)
            if divisor is None:
                return _BY_VARIABLE
            # A shift or a mask; a remainder is what is left of the quotient's multiple.
            return 1 if divisor > 0 and divisor & (divisor - 1) == 0 else _BY_CONSTANT + (op in _REMAINDERS)
        case Binary(dtype=dtype):
            return 0 if dtype == "bool" else 1
        case Compare() | Choose() | Cast():
            return 1
        case Load(buffer=buffer, guard=guard) if buffer.scope in (Scope.GLOBAL, Scope.SHARED):
            return buffer.rank - 1 + _POINTER + _ACCESS + len(guard)
    return 0
