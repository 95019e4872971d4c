"""TIR statements inside a launch to view statements."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from core.errors import UnsupportedOp
from core.program import expressions as view
from core.program import walk
from core.program.nodes import (
    Assert,
    For,
    If,
    Let,
    LoopKind,
    OpaqueStmt,
    Parallel,
    ReducerUpdate,
    Scope,
    Stmt,
    Store,
    Var,
    VarKind,
    While,
)
from core.program.sharing import with_updates
from core.program.tir import blocks, calls, guards, spans
from core.program.tir.context import DIALECT_SCOPES, Context
from core.program.tir.expressions import convert
from core.program.tir.intrinsics import convert_call_name
from core.program.tir.tileops import annotations_of, as_bool

_SERIAL, _PARALLEL, _VECTORIZED, _UNROLLED, _THREAD_BINDING = range(5)
_LOOP_KINDS = {_SERIAL: LoopKind.SERIAL, _VECTORIZED: LoopKind.VECTORIZED, _UNROLLED: LoopKind.UNROLLED}


def convert_body(context: Context, stmt: Any) -> tuple[Stmt, ...]:
    """A statement or sequence as a tuple of statements, in order."""
    out: list[Stmt] = []
    with ExitStack() as assumptions:
        _append(context, stmt, out, assumptions)
    return tuple(out)


def _append(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    kind = type(stmt).__name__
    if kind == "SeqStmt":
        seq = list(stmt.seq)
        for item, location in zip(seq, spans.sequence_locations(seq, context.location), strict=True):
            with context.at(location):
                _append_located(context, item, out, assumptions)
        return
    with context.at(spans.sequence_locations([stmt], context.location)[0]):
        _append_located(context, stmt, out, assumptions)


def _append_located(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    kind = type(stmt).__name__
    if kind == "SeqStmt":
        _append(context, stmt, out, assumptions)
        return
    converter = _CONVERTERS.get(kind)
    if converter is None:
        out.append(context.opaque_stmt(kind, str(stmt)))
        return
    converter(context, stmt, out, assumptions)


# -- bindings and stores ---------------------------------------------------------------------------------------------


def _bind(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    value = stmt.value
    if type(value).__name__ == "Call" and convert_call_name(value) == "tl.launch_thread_idx":
        blocks.bind_thread(context, stmt.var, int(value.args[0]))
        return
    if blocks.waits_for_loop(context, value):
        context.pending.append((stmt.var, value, context.location))
        return
    out.append(make_let(context, stmt.var, value))


def make_let(context: Context, variable: Any, value: Any) -> Let:
    """Binds a variable to a value, and tells the prover when the value cannot change."""
    converted = convert(context, value)
    context.prover.bind_value(variable, value)
    return Let(context.declare(variable, VarKind.LET), converted, location=context.location)


def _store(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    lanes = _lanes(stmt)
    if lanes == 1:
        out.append(_store_element(context, stmt))
        return
    if context.lane is not None:
        out.append(context.opaque_stmt("BufferStore", str(stmt)))
        return
    from tilelang import tvm

    # A slice assignment: one iteration per lane. Into a private array it is a loop: what a `Parallel` writes there is
    # private to its iterations and lost after it.
    private = context.buffer(stmt.buffer).scope is Scope.LOCAL
    lane = tvm.tirx.Var("lane", "int32")
    context.prover.bind_range(lane, 0, lanes)
    variable = context.declare(lane, VarKind.LOOP if private else VarKind.PARALLEL)
    context.lane = lane
    try:
        body = (_store_element(context, stmt),)
    finally:
        context.lane = None
    extent = view.constant(lanes)
    if private:
        start = view.constant(0)
        out.append(For(LoopKind.VECTORIZED, variable, start, extent, body, location=context.location))
    else:
        out.append(Parallel((variable,), (extent,), body, location=context.location))


def _lanes(stmt: Any) -> int:
    for index in stmt.indices:
        kind = type(index).__name__
        if kind in ("Ramp", "Broadcast"):
            return int(index.lanes)
    return 1


def _store_element(context: Context, stmt: Any) -> Stmt:
    buffer = context.buffer(stmt.buffer)
    if stmt.predicate is not None or buffer.scope in DIALECT_SCOPES:
        return context.opaque_stmt("BufferStore", str(stmt))
    access = guards.element_access(context, stmt.buffer, stmt.indices)
    value = view.cast(convert(context, stmt.value), buffer.dtype)
    return Store(buffer, access.indices, value, access.guard, location=context.location)


# -- loops and branches ----------------------------------------------------------------------------------------------


def _for(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    kind = int(stmt.kind)
    if kind == _THREAD_BINDING:
        blocks.bind_thread_loop(context, stmt)
        _append(context, stmt.body, out, assumptions)
        return
    if stmt.step is not None and context.prover.constant(stmt.step) != 1:
        out.append(context.opaque_stmt("For", str(stmt)))
        return
    if kind == _PARALLEL:
        out.append(_parallel(context, stmt))
        return
    annotations = annotations_of(stmt.annotations)
    stages = annotations.pop("num_stages", 0)
    start, extent = convert(context, stmt.min), convert(context, stmt.extent)
    context.prover.bind_range(stmt.loop_var, stmt.min, stmt.extent)
    variable = context.declare(stmt.loop_var, VarKind.LOOP, "i")
    location = context.location
    body = _loop_body(context, stmt.body)
    pipelined = stages or "tl_pipeline_order" in annotations
    out.append(
        For(
            kind=LoopKind.PIPELINED if pipelined else _LOOP_KINDS[kind],
            var=variable,
            start=start,
            extent=extent,
            body=body,
            num_stages=int(stages),
            annotations=annotations,
            location=location,
        )
    )


def _loop_body(context: Context, body: Any) -> tuple[Stmt, ...]:
    """The body of a loop, opened by the bindings that waited for its variable."""
    ready = [item for item in context.pending if not blocks.waits_for_loop(context, item[1])]
    context.pending = [item for item in context.pending if item not in ready]
    lets: list[Stmt] = []
    while ready:
        for item in list(ready):
            variable, value, location = item
            with context.at(location):
                lets.append(make_let(context, variable, value))
            ready.remove(item)
        again = [item for item in context.pending if not blocks.waits_for_loop(context, item[1])]
        context.pending = [item for item in context.pending if item not in again]
        ready = again
    return (*lets, *convert_body(context, body))


def _parallel(context: Context, stmt: Any) -> Stmt:
    location = context.location
    annotations = annotations_of(stmt.annotations)
    variables: list[Var] = []
    extents = []
    starts: list[Stmt] = []
    loop = stmt
    while True:
        extents.append(convert(context, loop.extent))
        context.prover.bind_range(loop.loop_var, loop.min, loop.extent)
        if context.prover.constant(loop.min) == 0:
            variables.append(context.declare(loop.loop_var, VarKind.PARALLEL, "i"))
        else:
            counter = Var(str(loop.loop_var.dtype), context.names.unique(loop.loop_var.name, "i"), VarKind.PARALLEL)
            variables.append(counter)
            start = view.add(convert(context, loop.min), counter)
            starts.append(Let(context.declare(loop.loop_var, VarKind.LET, "i"), start, location=location))
        inner = loop.body
        if type(inner).__name__ != "For" or int(inner.kind) != _PARALLEL or inner.annotations:
            break
        if blocks.mentions(inner.extent, context, variables) or blocks.mentions(inner.min, context, variables):
            break
        loop = inner
    body = (*starts, *_loop_body(context, loop.body))
    made = with_updates(Parallel(tuple(variables), tuple(extents), body, annotations, location=location))
    _check_reducers(context, made)
    return made


def _check_reducers(context: Context, loop: Parallel) -> None:
    """A legacy reducer ends as its operator's result of what each thread made: other updates have no meaning."""
    kinds = {context.storages[data]: kind for data, kind in context.reducers.items() if data in context.storages}
    for stmt in walk.statements(loop):
        if isinstance(stmt, ReducerUpdate) and kinds.get(stmt.buffer.storage, stmt.kind) != stmt.kind:
            own = kinds[stmt.buffer.storage]
            raise UnsupportedOp(
                f"{stmt.buffer.name} is a reducer of {own}, and is updated with {stmt.kind}",
                hint=f"update it with its own operator, or allocate it with op={stmt.kind!r}",
                location=stmt.location,
            )


def _while(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    condition = as_bool(convert(context, stmt.condition))
    with context.assuming(stmt.condition):
        body = convert_body(context, stmt.body)
    out.append(While(condition, body, location=context.location))


def _if(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    if stmt.else_case is None and blocks.is_print_by_one_thread(context, stmt):
        _append(context, stmt.then_case, out, assumptions)
        return
    condition = as_bool(convert(context, stmt.condition))
    with context.assuming(stmt.condition):
        then = convert_body(context, stmt.then_case)
    otherwise: tuple[Stmt, ...] = ()
    if stmt.else_case is not None:
        with context.assuming(stmt.condition, negated=True):
            otherwise = convert_body(context, stmt.else_case)
    out.append(If(condition, then, otherwise, location=context.location))


# -- blocks, attributes, assertions ----------------------------------------------------------------------------------


def _block(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    block = stmt.block
    if block.iter_vars or block.match_buffers or block.init is not None:
        out.append(context.opaque_stmt("SBlock", str(stmt)))
        return
    blocks.enter_block(context, block)
    _append(context, block.body, out, assumptions)


def _attribute(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    key = str(stmt.attr_key)
    if key in blocks.SCHEDULING_ATTRIBUTES:
        context.current_launch.annotations[blocks.SCHEDULING_ATTRIBUTES[key]] = str(stmt.value)
    else:
        out.append(context.opaque_stmt(f"AttrStmt {key}", str(stmt.value)))
    _append(context, stmt.body, out, assumptions)


def _assert(context: Context, stmt: Any, out: list[Stmt], assumptions: ExitStack) -> None:
    message = " ".join(str(getattr(part, "value", part)) for part in stmt.message_parts)
    in_launch = context.launch is not None
    out.append(Assert(as_bool(convert(context, stmt.condition)), message, in_launch, location=context.location))
    context.prover.assume(assumptions, stmt.condition)


_CONVERTERS: dict[str, Callable[[Context, Any, list[Stmt], ExitStack], None]] = {
    "Bind": _bind,
    "BufferStore": _store,
    "For": _for,
    "While": _while,
    "IfThenElse": _if,
    "SBlockRealize": _block,
    "AttrStmt": _attribute,
    "AssertStmt": _assert,
    "Evaluate": calls.evaluate,
}

__all__ = ["OpaqueStmt", "convert_body", "make_let"]
