"""Loops with `Break` and `Continue`, rewritten without them: what follows an exit runs under a flag."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from core.program.nodes import (
    Break,
    Buffer,
    Const,
    Continue,
    Expr,
    For,
    If,
    Load,
    Logical,
    LogicalOp,
    Not,
    Scope,
    Stmt,
    Storage,
    Store,
    While,
)
from core.program.walk import children

_ZERO = Const("int32", 0)


def has_exit(body: Sequence[Stmt]) -> bool:
    """Whether a `Break` or `Continue` of this loop (not of a nested one) is inside."""
    return any(
        isinstance(stmt, Break | Continue) or (isinstance(stmt, If) and has_exit(children(stmt))) for stmt in body
    )


def without_exits(loop: For | While) -> tuple[tuple[Stmt, ...], tuple[Buffer, ...]]:
    """The loop without exits, with what stands before it, and the flags it uses.

    `skip` is set for the rest of an iteration, `left` for good: a loop that counts runs on with nothing to do.
    """
    skip, left = _flag("skip"), _flag("left")
    body = (_set(skip, False), *_guarded(loop.body, skip, left))
    running = Not("bool", _get(left))
    if isinstance(loop, While):
        rewritten: Stmt = replace(loop, condition=Logical("bool", LogicalOp.AND, running, loop.condition), body=body)
    else:
        rewritten = replace(loop, body=(If(condition=running, then=body, location=loop.location),))
    return (_set(left, False), rewritten), (skip, left)


def _guarded(body: Sequence[Stmt], skip: Buffer, left: Buffer) -> tuple[Stmt, ...]:
    """Statements in order, those after an exit only where it was not taken."""
    done: list[Stmt] = []
    for position, stmt in enumerate(body):
        if isinstance(stmt, Break):
            return (*done, _set(left, True), _set(skip, True))
        if isinstance(stmt, Continue):
            return (*done, _set(skip, True))
        if isinstance(stmt, If) and has_exit(children(stmt)):
            then, otherwise = _guarded(stmt.then, skip, left), _guarded(stmt.otherwise, skip, left)
            done.append(replace(stmt, then=then, otherwise=otherwise))
            rest = _guarded(body[position + 1 :], skip, left)
            if rest:
                done.append(If(condition=Not("bool", _get(skip)), then=rest, location=stmt.location))
            return tuple(done)
        done.append(stmt)
    return tuple(done)


def _flag(name: str) -> Buffer:
    one = Const("int32", 1)
    return Buffer(name, "bool", (one,), (one,), Storage(name, Scope.VAR, "local.var"))


def _set(flag: Buffer, value: bool) -> Store:
    return Store(flag, (_ZERO,), Const("bool", value))


def _get(flag: Buffer) -> Expr:
    return Load("bool", flag, (_ZERO,))
