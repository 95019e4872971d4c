"""Statements in loops whose rounds write some of the same elements: where order may matter between them.

A statement in a loop is taken to write other elements in every round, or the same by the same threads. That is seen
not to be so where its place moves by less than its own width, or where a loop variable and one of its own are mixed in
an index (`(i + k) % n`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from core.codegen.cpp.ranges import affine_coefficient
from core.program.expressions import constant_int
from core.program.nodes import (
    Binary,
    Buffer,
    Cast,
    Copy,
    Expr,
    Fill,
    For,
    Launch,
    Let,
    Load,
    Parallel,
    Scope,
    Stmt,
    Storage,
    Store,
    Var,
)
from core.program.walk import children, expressions, statements, subexpressions


@dataclass(frozen=True, slots=True)
class _Loop:
    var: Var
    extent: int | None


def rewritten(launch: Launch) -> set[tuple[int, Storage]]:
    """`id` of statements (all of a `T.Parallel` is one), and memory of which several of their rounds touch elements.

    Those are rounds that write the same elements; that read elements of shared memory which the round before has
    written; and copies from shared memory to the same elements of a tensor in every round, which come in no order where
    they are done in bulk.
    """
    values = {stmt.var: stmt.value for stmt in statements(launch) if isinstance(stmt, Let)}
    return {(id(unit), storage) for unit, _ in _looped(launch.body, ()) for storage in _crossed(unit)} | {
        (id(unit), buffer.storage)
        for unit, loops in _looped(launch.body, ())
        for buffer, indices, extents, own, in_bulk in _writes(unit)
        if any(
            _overlap([_substituted(one, values) for one in indices], extents, own, loops[at:], in_bulk=in_bulk)
            for at in range(len(loops))
        )
    }


def _looped(body: Sequence[Stmt], loops: tuple[_Loop, ...]) -> Iterator[tuple[Stmt, tuple[_Loop, ...]]]:
    """Statements in loops, each with the loops around it, outermost first."""
    for stmt in body:
        if isinstance(stmt, For):
            yield from _looped(stmt.body, (*loops, _Loop(stmt.var, constant_int(stmt.extent))))
        elif children(stmt) and not isinstance(stmt, Parallel):
            yield from _looped(children(stmt), loops)
        elif loops:
            yield stmt, loops


def _crossed(unit: Stmt) -> Iterator[Storage]:
    """Shared memory of which a `T.Parallel` reads other elements than it writes: those of the round before."""
    inside = tuple(statements(unit)) if isinstance(unit, Parallel) else ()
    loads = [one for stmt in inside for one in expressions(stmt) if isinstance(one, Load)]
    for stmt in inside:
        if isinstance(stmt, Store) and stmt.buffer.scope is Scope.SHARED:
            same = (one for one in loads if one.buffer.storage is stmt.buffer.storage)
            if any(one.indices != stmt.indices for one in same):
                yield stmt.buffer.storage


_Write = tuple[Buffer, Sequence[Expr], Sequence[int | None], tuple[_Loop, ...], bool]


def _writes(unit: Stmt) -> Iterator[_Write]:
    """What a statement writes: from which element on, how many in each dimension, with which loops of its own."""
    if isinstance(unit, Copy | Fill):
        region = unit.dst
        in_bulk = (
            isinstance(unit, Copy) and region.buffer.scope is Scope.GLOBAL and unit.src.buffer.scope is Scope.SHARED
        )
        yield region.buffer, region.mins, [constant_int(extent) for extent in region.extents], (), in_bulk
        return
    own: list[_Loop] = []
    for stmt in statements(unit):
        if isinstance(stmt, Parallel):
            own += [_Loop(var, constant_int(extent)) for var, extent in zip(stmt.vars, stmt.extents, strict=True)]
        elif isinstance(stmt, For):
            own.append(_Loop(stmt.var, constant_int(stmt.extent)))
        elif isinstance(stmt, Store) and stmt.buffer.scope in (Scope.GLOBAL, Scope.SHARED):
            yield stmt.buffer, stmt.indices, [1] * len(stmt.indices), tuple(own), False


def _overlap(
    indices: Sequence[Expr],
    extents: Sequence[int | None],
    own: Sequence[_Loop],
    loops: Sequence[_Loop],
    *,
    in_bulk: bool,
) -> bool:
    """Whether rounds of the first of `loops`, the others being inside it, are seen to write some element twice."""
    first, inner = loops[0], (*loops[1:], *own)
    found, moves = False, False
    for index, extent in zip(indices, extents, strict=True):
        used = {id(one) for one in subexpressions(index)}
        if id(first.var) not in used:
            continue
        moves = True
        coefficients = affine_coefficient(index, frozenset({id(first.var), *(id(one.var) for one in inner)}))
        if coefficients is None:
            if not any(id(one.var) in used for one in inner):
                return False
            found = True
            continue
        steps = [(abs(coefficients.get(id(one.var), 0)), one.extent) for one in inner]
        if extent is None or any(step and count is None for step, count in steps):
            return False
        width = extent + sum(step * ((count or 1) - 1) for step, count in steps)
        if width <= abs(coefficients.get(id(first.var), 0)):
            return False
        found = True
    return found or (in_bulk and not moves)


def _substituted(expr: Expr, values: dict[Var, Expr]) -> Expr:
    """An index with what names stand for put in."""
    match expr:
        case Var() if expr in values:
            return _substituted(values[expr], values)
        case Binary(dtype=dtype, op=op, a=a, b=b):
            return Binary(dtype, op, _substituted(a, values), _substituted(b, values))
        case Cast(dtype=dtype, a=a):
            return Cast(dtype, _substituted(a, values))
    return expr
