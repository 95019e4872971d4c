"""What a launch takes from outside, and how much memory a buffer spans."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from core.codegen.cpp.types import cpp_type
from core.program import walk
from core.program.effects import buffer_effects
from core.program.nodes import Buffer, Const, Launch, Let, Load, ReducerUpdate, Stmt, Store, Var, VarKind


def element_span(buffer: Buffer) -> int | None:
    """Elements from the first to behind the last one in memory; None when it depends on symbols."""
    span = 1
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        if not (isinstance(extent, Const) and isinstance(stride, Const)):
            return None
        if extent.value == 0:
            return 0
        span += (int(extent.value) - 1) * int(stride.value)
    return span


def byte_span(buffer: Buffer) -> int | None:
    """The same in bytes."""
    span = element_span(buffer)
    return None if span is None else span * cpp_type(buffer.dtype, buffer.location).size_bytes


@dataclass(slots=True)
class Usage:
    """What a launch takes from outside: tensors, and variables bound on the host."""

    buffers: list[Buffer] = field(default_factory=list)
    variables: list[Var] = field(default_factory=list)
    written: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, launch: Launch) -> Usage:
        usage = cls()
        buffers: dict[int, Buffer] = {id(buffer): buffer for buffer in launch.buffers}
        variables: dict[int, Var] = {}
        bound = {id(var) for var, _ in launch.grid}
        for stmt in walk.statements(launch):
            for buffer in mentioned_buffers(stmt):
                buffers.setdefault(id(buffer), buffer)
            for expr in walk.expressions(stmt):
                if isinstance(expr, Var):
                    variables.setdefault(id(expr), expr)
            if isinstance(stmt, Let):
                bound.add(id(stmt.var))
        for buffer in buffers.values():
            for extent in (*buffer.shape, *buffer.strides):
                for expr in walk.subexpressions(extent):
                    if isinstance(expr, Var):
                        variables.setdefault(id(expr), expr)
        outside = (VarKind.SCALAR, VarKind.SYMBOL, VarKind.LET)
        usage.buffers = list(buffers.values())
        usage.variables = [var for var in variables.values() if var.kind in outside and id(var) not in bound]
        usage.written = buffer_effects((launch,))[1]
        return usage


def mentioned_buffers(stmt: Stmt) -> Iterable[Buffer]:
    """Every buffer a statement itself names."""
    for region in walk.regions(stmt):
        yield region.buffer
    if isinstance(stmt, Store | ReducerUpdate):
        yield stmt.buffer
    for expr in walk.expressions(stmt):
        if isinstance(expr, Load):
            yield expr.buffer
