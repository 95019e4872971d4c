"""Static checks of a view: what provably cannot mean anything is refused, with the user's line.

Tails are no mistake: a tile that hangs over the end of a tensor is guarded. Refused is what no guard makes sense of: an
on-chip buffer overrun in an iteration that certainly runs, a fill past the end of a tensor, a tile that lies wholly
outside one, operands whose shapes do not fit each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

from core.errors import Location, ShapeMismatch, UnsupportedOp
from core.program import walk
from core.program.effects import statement_effects
from core.program.expressions import constant_int
from core.program.intervals import Interval, Ranges, bounds, loop_range
from core.program.lifetimes import buffer_bytes
from core.program.nodes import (
    Break,
    Buffer,
    Choose,
    Compare,
    Continue,
    Expr,
    Fill,
    For,
    If,
    Launch,
    Let,
    Load,
    Logical,
    Parallel,
    ReducerUpdate,
    Region,
    Scope,
    Stmt,
    Storage,
    Store,
    ThreadReturn,
    Var,
    View,
    While,
)
from core.program.operands import check_operands
from core.program.printer import element_text, expression_text, region_text
from core.program.sharing import races

_ON_CHIP = (Scope.SHARED, Scope.FRAGMENT, Scope.LOCAL, Scope.VAR, Scope.REDUCER)


def check(view: View) -> None:
    """Checks every statement of a view.

    Raises:
        ShapeMismatch: a size below 0; a view of more bytes than its memory has; a region or index provably outside its
            buffer, or beyond the type it is counted in; operands whose shapes do not fit.
        UnsupportedOp: `break`, `continue` or `T.thread_return` out of a `T.Parallel`; an element of shared or global
            memory that iterations of one certainly add up into.
    """
    memories: dict[Storage, Buffer] = {}
    for parameter in view.parameters:
        if parameter.buffer is not None:
            _check_sizes(parameter.buffer)
            memories[parameter.buffer.storage] = parameter.buffer
    for workspace in view.workspaces:
        _check_sizes(workspace)
        memories[workspace.storage] = workspace
    for launch in view.launches:
        for buffer in launch.buffers:
            memories.setdefault(buffer.storage, buffer)
        if launch.threads is None or prod(launch.threads) > 1:
            _check_races(launch)
    for stmt in walk.statements(view):
        reads, writes = statement_effects(stmt)
        for buffer in (*reads, *writes):
            _check_view(buffer, memories.get(buffer.storage, buffer), stmt.location)
    _body(view.body, _State({}, certain=True, in_parallel=False, loop_inside=False))


def _check_races(launch: Launch) -> None:
    """An element that every iteration of a `T.Parallel` adds to: threads overwrite each other's sums."""
    for stmt in walk.statements(launch):
        for store, var in races(stmt) if isinstance(stmt, Parallel) else ():
            element = element_text(store.buffer, store.indices)
            raise UnsupportedOp(
                f"every iteration over {var.name} reads {element} and writes it: a T.Parallel runs them at the same"
                " time, and the sum is lost",
                hint=f"use T.atomic_add({element}, ...), or T.reduce_sum of a fragment, or a T.serial loop over"
                f" {var.name}",
                location=store.location,
            )


def _check_sizes(buffer: Buffer) -> None:
    for size in map(constant_int, (*buffer.shape, *buffer.strides)):
        if size is not None and size < 0:
            raise ShapeMismatch(
                f"{buffer.name} has a dimension or stride of {size}",
                hint="give the kernel sizes of 0 or more",
                location=buffer.location,
            )


def _check_view(view: Buffer, memory: Buffer, location: Location | None) -> None:
    """A view of more bytes than there are: behind a tensor or a tile lies memory of something else."""
    if view is memory:
        return
    wanted, there = buffer_bytes(view, {}), buffer_bytes(memory, {})
    if wanted is not None and there is not None and wanted > there:
        raise ShapeMismatch(
            f"{view.name} is a view of {wanted:,} bytes ({_shape(view)} {view.dtype}) of {memory.name}, which has"
            f" {there:,} ({_shape(memory)} {memory.dtype})",
            hint=f"give {view.name} a shape with no more bytes than {memory.name}",
            location=location,
        )


@dataclass(frozen=True, slots=True)
class _State:
    """What is known where a statement stands.

    Attributes:
        ranges: values of the variables in scope.
        certain: the statement runs for every combination of these values.
        in_parallel: inside a `T.Parallel`; loop_inside: and inside a loop that is itself inside it.
    """

    ranges: Ranges
    certain: bool
    in_parallel: bool
    loop_inside: bool


def _body(body: Iterable[Stmt], state: _State) -> None:
    for stmt in body:
        state = _statement(stmt, state)


def _statement(stmt: Stmt, state: _State) -> _State:
    """Checks one statement; what is known after it."""
    check_operands(stmt)
    match stmt:
        case Launch(grid=grid, body=body):
            ranges = dict(state.ranges)
            for var, extent in grid:
                blocks = constant_int(extent)
                if blocks is not None and blocks < 0:
                    # TVM folds in 32 bits: `T.ceildiv` of nearly 2^31 elements is negative.
                    _refuse_wrapped(f"a grid of {blocks} blocks", stmt.location)
                _bind(ranges, loop_range(var, Interval(0, 0, True), bounds(extent, ranges)))
            _body(body, replace(state, ranges=ranges))
        case Parallel(vars=variables, extents=extents, body=body):
            ranges = dict(state.ranges)
            for var, extent in zip(variables, extents, strict=True):
                _bind(ranges, loop_range(var, Interval(0, 0, True), bounds(extent, ranges)))
            _body(body, replace(state, ranges=ranges, in_parallel=True, loop_inside=False))
        case For(var=var, start=start, extent=extent, body=body):
            _elements(stmt, (start, extent), state)
            ranges = dict(state.ranges)
            rounds = constant_int(extent)
            if rounds is not None and rounds < -(2**14):
                # A little below 0 is a loop that runs from 1 to nothing; the tiles of -2^31 elements are these many.
                _refuse_wrapped(f"a loop of {rounds} rounds", stmt.location)
            _bind(ranges, loop_range(var, bounds(start, ranges), bounds(extent, ranges)))
            leaves = any(isinstance(s, Break | Continue | ThreadReturn) for s in walk.statements(body))
            _body(body, replace(state, ranges=ranges, certain=state.certain and not leaves, loop_inside=True))
        case While(body=body):
            _body(body, replace(state, certain=False, loop_inside=True))
        case If(condition=condition, then=then, otherwise=otherwise):
            _elements(stmt, (condition,), state)
            _body(then, replace(state, certain=False))
            _body(otherwise, replace(state, certain=False))
            if any(isinstance(s, ThreadReturn) for s in walk.statements(stmt)):
                return replace(state, certain=False)
        case Let(var=var, value=value):
            _elements(stmt, (value,), state)
            interval = bounds(value, state.ranges)
            if interval is not None:
                return replace(state, ranges={**state.ranges, var: interval})
        case Break() | Continue() if state.in_parallel and not state.loop_inside:
            _refuse_jump("continue" if isinstance(stmt, Continue) else "break", stmt)
        case ThreadReturn() if state.in_parallel:
            _refuse_jump("T.thread_return", stmt)
        case _:
            _regions(stmt, state)
            _elements(stmt, _own_expressions(stmt), state)
    return state


def _bind(ranges: dict[Var, Interval], interval: Interval | None) -> None:
    if interval is not None:
        (var,) = interval.variables
        ranges[var] = interval


def _refuse_jump(word: str, stmt: Stmt) -> None:
    raise UnsupportedOp(
        f"{word} out of a T.Parallel: its iterations run in no order",
        hint="use a serial loop, or an if around the statements to skip",
        location=stmt.location,
    )


# -- 32 bits ---------------------------------------------------------------------------------------------------------


def _check_counted(expr: Expr, state: _State, location: Location | None, extent: int = 1) -> None:
    """Refuses an index, or a side of a comparison, that leaves int32: it would count as below 0.

    Args:
        extent: elements from there on that are accessed.
    """
    interval = bounds(expr, state.ranges) if expr.dtype == "int32" else None
    if interval is None or not interval.exact or not interval.variables:
        return
    low, high = interval.low, interval.high + extent - 1
    if low < -(2**31) or high >= 2**31:
        _refuse_wrapped(f"{expression_text(expr)} reaches {low if low < -(2**31) else high}", location)


def _refuse_wrapped(what: str, location: Location | None) -> None:
    raise ShapeMismatch(
        f"{what}: an int32 that has wrapped around, or will",
        hint="count in int64: make the grid, or the loop's bounds, of `T.int64(size)` in place of `size`, and what is "
        "computed with their variables has 64 bits too",
        location=location,
    )


# -- regions ---------------------------------------------------------------------------------------------------------


def _regions(stmt: Stmt, state: _State) -> None:
    for region in walk.regions(stmt):
        for dim in range(region.buffer.rank):
            start = bounds(region.mins[dim], state.ranges)
            extent, size = constant_int(region.extents[dim]), constant_int(region.buffer.shape[dim])
            _check_counted(region.mins[dim], state, stmt.location, extent or 1)
            if start is None or extent is None or size is None or extent <= 0:
                continue
            if region.buffer.scope in _ON_CHIP:
                overruns = start.low < 0 or start.high + extent > size
                wrong = overruns and start.exact and (state.certain or not start.variables)
            elif isinstance(stmt, Fill):
                wrong = not start.variables and (start.low < 0 or start.high + extent > size)
            else:
                wrong = start.low >= size or start.high + extent <= 0
            if wrong:
                _refuse_region(stmt, region, dim, start, extent, size)


def _refuse_region(stmt: Stmt, region: Region, dim: int, start: Interval, extent: int, size: int) -> None:
    reached = f"{start.low}" if start.low < 0 else f"{start.high + extent - 1}"
    raise ShapeMismatch(
        f"{type(stmt).__name__.lower()} of {region_text(region)} reaches index {reached} of dimension {dim}, "
        f"which has {size} elements",
        hint=f"keep the slice inside {region.buffer.name} ({_shape(region.buffer)}, {_declared(region.buffer)})",
        location=stmt.location,
        details={"buffer": region.buffer.name, "dimension": dim, "extent": extent, "size": size},
    )


def _shape(buffer: Buffer) -> str:
    return " x ".join(expression_text(extent) for extent in buffer.shape)


def _declared(buffer: Buffer) -> str:
    return f"declared at line {buffer.location.line}" if buffer.location else buffer.scope.value


# -- elements --------------------------------------------------------------------------------------------------------


def _own_expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The expressions written in a leaf statement, each once, not their parts."""
    found: list[Expr] = []
    for name in stmt.__dataclass_fields__:
        value = getattr(stmt, name)
        if isinstance(value, Expr):
            found.append(value)
        elif isinstance(value, Region):
            found += [*value.mins, *value.extents]
        elif isinstance(value, tuple):
            found += [item for item in value if isinstance(item, Expr)]
    return tuple(found)


def _elements(stmt: Stmt, exprs: tuple[Expr, ...], state: _State) -> None:
    if isinstance(stmt, Store | ReducerUpdate):
        _element(stmt.buffer, stmt.indices, state, stmt.location)
    for expr in exprs:
        _loads(expr, state, stmt.location)


def _loads(expr: Expr, state: _State, location: Location | None) -> None:
    if isinstance(expr, Load):
        _element(expr.buffer, expr.indices, state, location)
    if isinstance(expr, Compare):
        for side in (expr.a, expr.b):
            _check_counted(side, state, location)
    if isinstance(expr, Choose):
        _loads(expr.condition, state, location)
        maybe = replace(state, certain=False)
        _loads(expr.a, maybe, location)
        _loads(expr.b, maybe, location)
    elif isinstance(expr, Logical):
        _loads(expr.a, state, location)
        _loads(expr.b, replace(state, certain=False), location)
    else:
        for name in expr.__dataclass_fields__:
            value = getattr(expr, name)
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Expr):
                    _loads(item, state, location)


def _element(buffer: Buffer, indices: tuple[Expr, ...], state: _State, location: Location | None) -> None:
    for index in indices:
        _check_counted(index, state, location)
    if not state.certain:
        return
    for dim, index in enumerate(indices):
        interval, size = bounds(index, state.ranges), constant_int(buffer.shape[dim])
        if interval is None or size is None or not interval.exact:
            continue
        if buffer.scope not in _ON_CHIP and interval.variables:
            continue  # guarded
        if interval.low < 0 or interval.high >= size:
            reached = interval.low if interval.low < 0 else interval.high
            raise ShapeMismatch(
                f"{element_text(buffer, indices)}: index {reached} of dimension {dim}, which has {size} elements",
                hint=f"{buffer.name} is {_shape(buffer)}, {_declared(buffer)}; put the access under a condition",
                location=location,
                details={"buffer": buffer.name, "dimension": dim, "index": reached, "size": size},
            )
