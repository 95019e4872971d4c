"""Elements that iterations of a `Parallel` share: what is added up into one of them, and over which variables.

`s[i] = s[i] + x[i, j]` over i and j adds up over j. In a fragment that is an update of a running total
(:func:`with_updates`), a tile operation. What has no such form is right when the iterations that share an element run
one after the other (:func:`accumulated_over`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from core.program import walk
from core.program.expressions import constant_int
from core.program.nodes import (
    Binary,
    BinaryOp,
    Buffer,
    Cast,
    Expr,
    For,
    If,
    Let,
    Load,
    Parallel,
    ReducerUpdate,
    Scope,
    Stmt,
    Storage,
    Store,
    Var,
)

#: Operators of running totals.
_KINDS = {BinaryOp.ADD: "sum", BinaryOp.MAX: "max", BinaryOp.MIN: "min"}
#: Applied twice with one operand, they give what they gave.
_IDEMPOTENT = frozenset({BinaryOp.MAX, BinaryOp.MIN, BinaryOp.BIT_AND, BinaryOp.BIT_OR})
#: An iteration of a `Parallel` has these to itself.
_PRIVATE = (Scope.LOCAL, Scope.VAR)


@dataclass(frozen=True, slots=True)
class Total:
    """`store` combines `value` into the element it writes; `operation` is None when it is no single operator."""

    store: Store
    operation: BinaryOp | None
    value: Expr


def with_updates(loop: Parallel) -> Parallel:
    """The loop with every sum, maximum or minimum over some of its iterations, in a fragment, as a `ReducerUpdate`.

    The fragment is used in no other way inside of the loop.
    """
    names = _Names(loop)
    uses: dict[Storage, int] = {}
    for stmt in walk.statements(loop.body):
        touched = [expr.buffer.storage for expr in walk.expressions(stmt) if isinstance(expr, Load)]
        if isinstance(stmt, Store | ReducerUpdate):
            touched.append(stmt.buffer.storage)
        touched += [region.buffer.storage for region in walk.regions(stmt)]
        for storage in touched:
            uses[storage] = uses.get(storage, 0) + 1

    def rewritten(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Parallel | For):
            return replace(stmt, body=tuple(map(rewritten, stmt.body)))
        if isinstance(stmt, If):
            return replace(stmt, then=tuple(map(rewritten, stmt.then)), otherwise=tuple(map(rewritten, stmt.otherwise)))
        if not isinstance(stmt, Store) or stmt.buffer.scope is not Scope.FRAGMENT or stmt.guard:
            return stmt
        total = _total(stmt)
        if total is None or total.operation not in _KINDS or uses[stmt.buffer.storage] != 2:
            return stmt
        if not names.shared(stmt.indices):
            return stmt
        kind = _KINDS[total.operation]
        return ReducerUpdate(stmt.buffer, stmt.indices, kind, total.value, location=stmt.location)

    made = rewritten(loop)
    assert isinstance(made, Parallel)
    return made


def accumulated_over(loop: Parallel) -> frozenset[Var]:
    """The loop's variables whose iterations may read, to write it, an element that another one writes.

    Found are elements read at the indices they are written at; whether two iterations have the same ones is told from
    the indices, and taken for granted where it cannot be.
    """
    names = _Names(loop)
    read: set[tuple[Buffer, tuple[Expr, ...]]] = set()
    for stmt in walk.statements(loop.body):
        read.update((expr.buffer, expr.indices) for expr in walk.expressions(stmt) if isinstance(expr, Load))
    found: set[Var] = set()
    for stmt in walk.statements(loop.body):
        if isinstance(stmt, Store) and stmt.buffer.scope not in _PRIVATE and (stmt.buffer, stmt.indices) in read:
            found |= names.not_told_apart(stmt.indices)
    return frozenset(found)


def races(loop: Parallel) -> Iterator[tuple[Store, Var]]:
    """Stores of shared or global memory that certainly accumulate over a variable of the loop, and that variable."""
    names = _Names(loop)

    def certain(body: Sequence[Stmt]) -> Iterator[Store]:
        for stmt in body:
            if isinstance(stmt, Store):
                yield stmt
            elif isinstance(stmt, For | Parallel):
                yield from certain(stmt.body)

    for store in certain(loop.body):
        if store.buffer.scope not in (Scope.SHARED, Scope.GLOBAL):
            continue
        total = _total(store)
        shared = names.shared(store.indices) if total is not None else []
        if total is None or not shared:
            continue
        if total.operation not in _IDEMPOTENT or any(var in names.behind(total.value) for var in shared):
            yield store, shared[0]


def _total(store: Store) -> Total | None:
    """What a store adds up; None when it does not read the element it writes."""

    def is_own(expr: Expr) -> bool:
        return isinstance(expr, Load) and expr.buffer is store.buffer and expr.indices == store.indices

    if not any(is_own(expr) for expr in walk.subexpressions(store.value)):
        return None
    value = store.value
    if isinstance(value, Binary):
        for own, other in ((value.a, value.b), (value.b, value.a)):
            commutes = value.op in _KINDS or value.op in _IDEMPOTENT
            alone = not any(is_own(expr) for expr in walk.subexpressions(other))
            if is_own(own) and alone and (commutes or own is value.a):
                return Total(store, value.op, other)
    return Total(store, None, value)


class _Names:
    """What the variables of a loop and of what is inside of it stand for."""

    def __init__(self, loop: Parallel) -> None:
        self.lets: dict[Var, Expr] = {}
        self.extents: dict[Var, int | None] = {}
        self.loop = {
            var: constant_int(extent)
            for inner in (loop, *walk.statements(loop.body))
            if isinstance(inner, Parallel)
            for var, extent in zip(inner.vars, inner.extents, strict=True)
        }
        self.extents |= self.loop
        self.own = loop.vars
        for stmt in walk.statements(loop.body):
            if isinstance(stmt, Let):
                self.lets[stmt.var] = stmt.value
            elif isinstance(stmt, For):
                self.extents[stmt.var] = constant_int(stmt.extent)

    def behind(self, expr: Expr) -> set[Var]:
        """The variables an expression depends on, through every name."""
        found: set[Var] = set()
        for item in walk.subexpressions(expr):
            if isinstance(item, Var) and item not in found:
                found.add(item)
                if item in self.lets:
                    found |= self.behind(self.lets[item])
        return found

    def shared(self, indices: Sequence[Expr]) -> list[Var]:
        """Variables of parallel loops, of more than one iteration, that no index depends on."""
        used = set().union(*map(self.behind, indices))
        return [var for var, extent in self.loop.items() if var not in used and extent is not None and extent > 1]

    def not_told_apart(self, indices: Sequence[Expr]) -> set[Var]:
        """Variables of the loop whose iterations may have the same indices."""
        linear = [form for form in map(self._linear, indices) if form is not None]
        apart = {var for var, extent in self.extents.items() if extent == 1}
        while True:
            more = set().union(*(self._places(form, apart) for form in linear)) - apart
            if not more:
                return set(self.own) - apart
            apart |= more

    def _places(self, form: Mapping[Var, int], apart: set[Var]) -> set[Var]:
        """The variables of a sum that its value tells apart, like the digits of a number; `apart` are known."""
        reach = 0
        moving = [(abs(factor), var) for var, factor in form.items() if factor and var not in apart]
        moving.sort(key=lambda one: one[0])
        for factor, var in moving:
            extent = self.extents[var]
            if extent is None or factor <= reach:
                return set()
            reach += factor * (extent - 1)
        return {var for _, var in moving}

    def _linear(self, expr: Expr) -> dict[Var, int] | None:
        """Factors of the variables that iterations differ in; None when it is no sum of multiples of them."""
        if not self.behind(expr) & set(self.extents) and not any(
            isinstance(item, Load) for item in walk.subexpressions(expr)
        ):
            return {}
        match expr:
            case Var() if expr in self.extents:
                return {expr: 1}
            case Var() if expr in self.lets:
                return self._linear(self.lets[expr])
            case Cast(a=a):
                return self._linear(a)
            case Binary(op=BinaryOp.ADD | BinaryOp.SUB as op, a=a, b=b):
                left, right = self._linear(a), self._linear(b)
                if left is None or right is None:
                    return None
                sign = -1 if op is BinaryOp.SUB else 1
                return {v: left.get(v, 0) + sign * right.get(v, 0) for v in (*left, *right)}
            case Binary(op=BinaryOp.MUL, a=a, b=b):
                for one, other in ((a, b), (b, a)):
                    factor, form = constant_int(other), self._linear(one)
                    if factor is not None and form is not None:
                        return {var: value * factor for var, value in form.items()}
        return None
