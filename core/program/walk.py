"""Walking the tile-level view."""

from __future__ import annotations

from collections.abc import Iterator

from core.program.nodes import For, If, Launch, Parallel, Stmt, View, While


def children(stmt: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside a statement, in source order."""
    if isinstance(stmt, If):
        return stmt.then + stmt.otherwise
    if isinstance(stmt, (For, While, Parallel, Launch)):
        return stmt.body
    return ()


def statements(root: View | Stmt) -> Iterator[Stmt]:
    """Every statement under `root`, outer before inner, in source order; `root` itself when it is a statement."""
    pending: list[Stmt] = list(reversed(root.body)) if isinstance(root, View) else [root]
    while pending:
        stmt = pending.pop()
        yield stmt
        pending.extend(reversed(children(stmt)))
