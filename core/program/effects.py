"""Which storages a body reads and writes."""

from __future__ import annotations

from core.program import walk
from core.program.nodes import (
    AtomicElement,
    AtomicExpr,
    AtomicTile,
    Buffer,
    Const,
    Copy,
    Expr,
    Fill,
    Gemm,
    Im2Col,
    Load,
    Reduce,
    ReducerFinalize,
    ReducerInit,
    ReducerUpdate,
    Region,
    Scan,
    Stmt,
    Store,
    Transpose,
)


def statement_effects(stmt: Stmt) -> tuple[list[Buffer], list[Buffer]]:
    """Buffers read and buffers written by one statement itself, nested statements excluded."""
    reads: list[Buffer] = []
    writes: list[Buffer] = []
    skipped: Expr | None = None
    match stmt:
        case Copy(src=src, dst=dst) | Scan(src=src, dst=dst) | Transpose(src=src, dst=dst) | Im2Col(src=src, dst=dst):
            reads.append(src.buffer)
            writes.append(dst.buffer)
        case ReducerFinalize(src=src, dst=dst):
            reads.append(src.buffer)
            writes.append(dst.buffer)
        case Fill(dst=dst) | ReducerInit(dst=dst):
            writes.append(dst.buffer)
        case Gemm(a=a, b=b, c=c, clear=clear):
            reads += [a.buffer, b.buffer]
            writes.append(c.buffer)
            if not (isinstance(clear, Const) and clear.value):
                reads.append(c.buffer)
        case Reduce(src=src, dst=dst, clear=clears):
            reads.append(src.buffer)
            writes.append(dst.buffer)
            if not clears:
                reads.append(dst.buffer)
        case AtomicTile(value=value, dst=dst):
            if isinstance(value, Region):
                reads.append(value.buffer)
            reads.append(dst.buffer)
            writes.append(dst.buffer)
        case AtomicElement(kind=kind, target=target):
            skipped = target
            writes.append(target.buffer)
            if kind != "store":
                reads.append(target.buffer)
        case Store(buffer=buffer):
            writes.append(buffer)
        case ReducerUpdate(buffer=buffer):
            reads.append(buffer)
            writes.append(buffer)
    for expr in walk.expressions(stmt):
        if expr is skipped:
            continue
        if isinstance(expr, Load):
            reads.append(expr.buffer)
        elif isinstance(expr, AtomicExpr) and expr.kind != "load":
            writes.append(expr.target.buffer)
    return reads, writes


def buffer_effects(body: tuple[Stmt, ...]) -> tuple[set[int], set[int]]:
    """`id` of every storage that `body` reads and of every one it writes."""
    reads: set[int] = set()
    writes: set[int] = set()
    for stmt in walk.statements(body):
        read, written = statement_effects(stmt)
        reads.update(id(buffer.storage) for buffer in read)
        writes.update(id(buffer.storage) for buffer in written)
    return reads, writes
