"""Floating-point operations and global memory traffic of a launch, counted as the kernel says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

from core.program import walk
from core.program.evaluate import evaluate
from core.program.expressions import dtype_bits, is_float
from core.program.nodes import (
    AtomicElement,
    AtomicTile,
    Binary,
    Buffer,
    Copy,
    Expr,
    Fill,
    For,
    Gemm,
    If,
    Im2Col,
    Launch,
    Let,
    Load,
    Math,
    Parallel,
    Reduce,
    ReducerUpdate,
    Region,
    Scan,
    Scope,
    Stmt,
    Store,
    Transpose,
    Var,
    While,
)

#: Points of a grid axis at which loop extents that depend on it are evaluated; their mean stands for the axis.
_SAMPLES = 16


@dataclass
class Traffic:
    """Counts of one call. `known` turns False when a size without a value was met; the counts are then lower bounds."""

    flops: float = 0.0
    bytes_read: float = 0.0
    bytes_written: float = 0.0
    known: bool = True


@dataclass
class _Walk:
    traffic: Traffic
    environment: dict[Var | str, int]
    parallel: dict[Var, int] = field(default_factory=dict)  # surrounding T.Parallel variables and their extents


def count(launch: Launch, environment: dict[Var | str, int], traffic: Traffic) -> None:
    """Adds one launch's counts to `traffic`."""
    extents = [evaluate(extent, environment) for _, extent in launch.grid]
    if any(extent is None for extent in extents):
        traffic.known = False
        return
    sizes = [max(0, extent) for extent in extents if extent is not None]
    blocks = prod(sizes)
    points = list(_sample_points(launch, sizes))
    for point in points:
        values = dict(environment)
        values.update(zip((var for var, _ in launch.grid), point, strict=True))
        walk_state = _Walk(traffic, values)
        _count_body(walk_state, launch.body, blocks / len(points))


def _sample_points(launch: Launch, sizes: list[int]) -> Iterator[tuple[int, ...]]:
    """Grid points that stand for all: along the axes that loop bounds or conditions use, evenly spaced ones."""
    used: set[Var] = set()
    for stmt in walk.statements(launch.body):
        if isinstance(stmt, For | If | While | Parallel | Let):
            used.update(expr for expr in walk.expressions(stmt) if isinstance(expr, Var))
    axes = []
    for (var, _), size in zip(launch.grid, sizes, strict=True):
        if size == 0:
            return
        steps = min(size, _SAMPLES) if var in used else 1
        axes.append([(2 * i + 1) * size // (2 * steps) for i in range(steps)])

    def points(rest: list[list[int]]) -> Iterator[tuple[int, ...]]:
        if not rest:
            yield ()
            return
        for value in rest[0]:
            for tail in points(rest[1:]):
                yield (value, *tail)

    yield from points(axes)


def _count_body(state: _Walk, body: tuple[Stmt, ...], weight: float) -> None:
    for stmt in body:
        _count(state, stmt, weight)


def _count(state: _Walk, stmt: Stmt, weight: float) -> None:
    match stmt:
        case For(var=var, start=start, extent=extent, body=body):
            trips = evaluate(extent, state.environment)
            first = evaluate(start, state.environment)
            if trips is None:
                state.traffic.known = False
            elif trips > 0:
                values = dict(state.environment)
                if first is not None:
                    values[var] = first + trips // 2
                inner = _Walk(state.traffic, values, state.parallel)
                _count_body(inner, body, weight * trips)
        case Parallel(vars=variables, extents=extents, body=body):
            sizes = [evaluate(extent, state.environment) for extent in extents]
            if any(size is None for size in sizes):
                state.traffic.known = False
            else:
                named = {v: s for v, s in zip(variables, sizes, strict=True) if s is not None}
                _count_body(_Walk(state.traffic, state.environment, {**state.parallel, **named}), body, weight)
        case While(body=body):
            state.traffic.known = False
            _count_body(state, body, weight)
        case If(condition=condition, then=then, otherwise=otherwise):
            taken = evaluate(condition, state.environment)
            if taken is None or taken:
                _count_body(state, then, weight)
            if not taken:
                _count_body(state, otherwise, weight)
        case Let(var=var, value=value):
            known = evaluate(value, state.environment)
            if known is not None:
                state.environment[var] = known
            _count_expressions(state, stmt, weight)
        case _:
            _count_operator(state, stmt, weight)
            _count_expressions(state, stmt, weight)


def _count_operator(state: _Walk, stmt: Stmt, weight: float) -> None:
    traffic = state.traffic
    iterations = weight * prod(state.parallel.values())
    match stmt:
        case Copy(src=src, dst=dst):
            _move(state, src, dst, weight)
        case Im2Col(src=src, dst=dst):
            # A tile of pixels and terms is of the image tensor, which the statement names as a whole.
            traffic.bytes_read += weight * _elements(state, dst) * _itemsize(src.buffer)
        case Transpose(src=src, dst=dst) | Scan(src=src, dst=dst):
            _move(state, src, dst, weight)
            if isinstance(stmt, Scan):
                traffic.flops += weight * _elements(state, src)
        case Fill(dst=dst):
            if dst.buffer.scope is Scope.GLOBAL:
                traffic.bytes_written += weight * _bytes(state, dst)
        case Gemm(a=a, b=b, c=c, m=m, n=n, k=k):
            traffic.flops += iterations * 2.0 * m * n * k
            for region in (a, b):
                if region.buffer.scope is Scope.GLOBAL:
                    traffic.bytes_read += weight * _bytes(state, region)
            if c.buffer.scope is Scope.GLOBAL:
                traffic.bytes_written += weight * _bytes(state, c)
        case Reduce(src=src):
            traffic.flops += weight * _elements(state, src)
            if src.buffer.scope is Scope.GLOBAL:
                traffic.bytes_read += weight * _bytes(state, src)
        case AtomicTile(value=value, dst=dst):
            traffic.flops += weight * _elements(state, dst)
            if dst.buffer.scope is Scope.GLOBAL:
                traffic.bytes_written += weight * _bytes(state, dst)
            if isinstance(value, Region) and value.buffer.scope is Scope.GLOBAL:
                traffic.bytes_read += weight * _bytes(state, value)
        case AtomicElement(target=target):
            traffic.flops += iterations
            if target.buffer.scope is Scope.GLOBAL:
                traffic.bytes_written += iterations * _itemsize(target.buffer)
        case Store(buffer=buffer, indices=indices):
            if buffer.scope is Scope.GLOBAL:
                traffic.bytes_written += weight * _distinct(state, indices) * _itemsize(buffer)
        case ReducerUpdate():
            traffic.flops += iterations


def _count_expressions(state: _Walk, stmt: Stmt, weight: float) -> None:
    """Float arithmetic once per iteration; loads from global memory once per distinct set of indices."""
    iterations = weight * prod(state.parallel.values())
    target = stmt.target if isinstance(stmt, AtomicElement) else None
    seen: set[tuple[int, tuple[Expr, ...]]] = set()
    for expr in walk.expressions(stmt):
        if isinstance(expr, Binary | Math) and is_float(expr.dtype):
            state.traffic.flops += iterations
        elif isinstance(expr, Load) and expr is not target and expr.buffer.scope is Scope.GLOBAL:
            key = (id(expr.buffer), expr.indices)
            if key not in seen:
                seen.add(key)
                state.traffic.bytes_read += weight * _distinct(state, expr.indices) * _itemsize(expr.buffer)


def _distinct(state: _Walk, indices: tuple[Expr, ...]) -> int:
    """Iterations of the surrounding T.Parallel loops that make different indices."""
    used = {expr for index in indices for expr in walk.subexpressions(index) if isinstance(expr, Var)}
    return prod(extent for var, extent in state.parallel.items() if var in used)


def _move(state: _Walk, src: Region, dst: Region, weight: float) -> None:
    if src.buffer.scope is Scope.GLOBAL:
        state.traffic.bytes_read += weight * _bytes(state, src)
    if dst.buffer.scope is Scope.GLOBAL:
        state.traffic.bytes_written += weight * _bytes(state, dst)


def _elements(state: _Walk, region: Region) -> float:
    """Elements of a region, no more in any dimension than the buffer has."""
    total = prod(state.parallel.values())
    for extent, size in zip(region.extents, region.buffer.shape, strict=True):
        length, limit = evaluate(extent, state.environment), evaluate(size, state.environment)
        if length is None:
            state.traffic.known = False
            return 0.0
        total *= max(0, length if limit is None else min(length, limit))
    return float(total)


def _bytes(state: _Walk, region: Region) -> float:
    return _elements(state, region) * _itemsize(region.buffer)


def _itemsize(buffer: Buffer) -> float:
    return dtype_bits(buffer.dtype) / 8
