"""Walking the tile-level view: sub-statements, the expressions of a statement, sub-expressions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from core.program.nodes import Expr, For, If, Launch, Parallel, Region, Stmt, View, While

#: Fields of a statement that hold nested statements.
_BODIES = frozenset({"body", "then", "otherwise"})


#: Names of each node class's fields: walking asks for them at every node.
_FIELDS: dict[type, tuple[str, ...]] = {}


def _field_names(cls: type[Stmt] | type[Expr]) -> tuple[str, ...]:
    found = _FIELDS.get(cls)
    if found is None:
        found = _FIELDS[cls] = tuple(field.name for field in fields(cls))
    return found


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside a statement, in source order."""
    if isinstance(stmt, If):
        return stmt.then + stmt.otherwise
    if isinstance(stmt, For | While | Parallel | Launch):
        return stmt.body
    return ()


def statements(root: View | Stmt | tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Every statement under `root`, outer before inner, in source order; `root` itself when it is a statement."""
    body = root.body if isinstance(root, View) else (root,) if isinstance(root, Stmt) else root
    pending: list[Stmt] = list(reversed(body))
    while pending:
        stmt = pending.pop()
        yield stmt
        pending.extend(reversed(children(stmt)))


def expressions(stmt: Stmt) -> Iterator[Expr]:
    """Every expression of a statement itself and their sub-expressions; nested statements are left out."""
    for name in _field_names(type(stmt)):
        if name not in _BODIES:
            yield from _inside(getattr(stmt, name))


def subexpressions(expr: Expr) -> Iterator[Expr]:
    """`expr` and everything inside it."""
    yield expr
    for name in _field_names(type(expr)):
        yield from _inside(getattr(expr, name))


def regions(stmt: Stmt) -> Iterator[Region]:
    """The regions a statement names."""
    for name in _field_names(type(stmt)):
        value = getattr(stmt, name)
        if isinstance(value, Region):
            yield value


def _inside(value: object) -> Iterator[Expr]:
    if isinstance(value, Expr):
        yield from subexpressions(value)
    elif isinstance(value, Region):
        yield from _inside(value.mins)
        yield from _inside(value.extents)
    elif isinstance(value, tuple):
        for item in value:
            if isinstance(item, Expr | Region | tuple):
                yield from _inside(item)
