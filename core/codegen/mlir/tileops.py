"""Tile operations: copies, fills, products, reductions, scans, transposes, reducers, atomics on tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from core.codegen.mlir import ops
from core.codegen.mlir.builder import Value
from core.codegen.mlir.context import Context
from core.codegen.mlir.elementwise import zero_of
from core.codegen.mlir.lanes import Axis, Lanes
from core.codegen.mlir.types import FLOAT8, value_type
from core.program.expressions import add, constant, constant_int, dtype_bits, is_float, is_unsigned_integer, multiply
from core.program.intervals import Interval
from core.program.nodes import (
    AtomicTile,
    Binary,
    BinaryOp,
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
    Transpose,
    Var,
    VarKind,
)

# -- walking regions -------------------------------------------------------------------------------------------------


@contextmanager
def _axes(c: Context, extents: Sequence[int]) -> Iterator[list[Var]]:
    """New axes with variables of our own, for the time of one tile operation."""
    base = len(c.axes)
    made = [Var("int32", f"e{position}", VarKind.PARALLEL) for position in range(len(extents))]
    for var, extent in zip(made, extents, strict=True):
        c.axes.append(Axis(var, extent))
        c.ranges[var] = Interval(0, extent - 1, True, frozenset({var}))
    c.memory.forget()
    try:
        yield made
    finally:
        del c.axes[base:]
        for var in made:
            del c.ranges[var]
        c.memory.forget()


def _extents(c: Context, extents: Sequence[Expr]) -> list[int]:
    found = [constant_int(extent) for extent in extents]
    if any(extent is None for extent in found):
        raise c.unsupported(
            "a tile whose extent is not known at compile time", "use static tile sizes and let tails be"
        )
    return [extent for extent in found if extent is not None]


def _walked(region: Region, dims: Sequence[int], variables: Sequence[Var]) -> list[Expr]:
    """Index expressions of a region whose dimensions `dims` are walked by variables."""
    indices: list[Expr] = list(region.mins)
    for dim, var in zip(dims, variables, strict=True):
        indices[dim] = add(indices[dim], var)
    return indices


def _read(c: Context, region: Region) -> Value:
    """A region as a tensor of its extents, its full rank."""
    extents = _extents(c, region.extents)
    with _axes(c, extents) as variables:
        indices = _walked(region, range(len(extents)), variables)
        lanes = c.memory.load(Load(region.buffer.dtype, region.buffer, tuple(indices)))
        return c.align(lanes, [c.axes.index(axis) for axis in c.axes[-len(extents) :]])


def _write(c: Context, region: Region, value: Value) -> None:
    """Stores a tensor of a region's extents to it."""
    extents = _extents(c, region.extents)
    value = ops.reshape(c.b, value, extents)
    base = len(c.axes)
    with _axes(c, extents) as variables:
        indices = _walked(region, range(len(extents)), variables)
        c.memory.store(region.buffer, indices, Lanes(value, tuple(range(base, base + len(extents)))))


# -- copies and fills ------------------------------------------------------------------------------------------------


def _copy(c: Context, stmt: Copy) -> None:
    if stmt.src.buffer is stmt.dst.buffer and stmt.src == stmt.dst:
        return
    extents = _extents(c, stmt.extents)
    src_dims, dst_dims = list(stmt.src_dims), list(stmt.dst_dims)
    if not extents and stmt.src.buffer.rank and stmt.dst.buffer.rank:
        # One element still moves as a tile: the scalar unit need not see it.
        extents, src_dims, dst_dims = [1], [stmt.src.buffer.rank - 1], [stmt.dst.buffer.rank - 1]
    with _axes(c, extents) as variables:
        source = Load(
            stmt.src.buffer.dtype,
            stmt.src.buffer,
            tuple(_walked(stmt.src, src_dims, variables)),
            stmt.src_guard,
            _source_fill(stmt),
        )
        lanes = c.specialise(c.memory.load(source))
        value = c.elementwise.cast(lanes.value, stmt.src.buffer.dtype, stmt.dst.buffer.dtype)
        target = _walked(stmt.dst, dst_dims, variables)
        c.memory.store(stmt.dst.buffer, target, Lanes(value, lanes.axes), stmt.dst_guard)


def _source_fill(stmt: Copy) -> Expr:
    """What elements outside yield, in the source's dtype: the conversion that follows gives `fill`."""
    dtype = stmt.src.buffer.dtype
    if isinstance(stmt.fill, Const) and stmt.fill.dtype != dtype:
        if is_float(dtype) and dtype not in FLOAT8:
            return Const(dtype, float(stmt.fill.value))
        return Const(dtype, int(stmt.fill.value) if math.isfinite(float(stmt.fill.value)) else 0)
    return stmt.fill


def _fill(c: Context, stmt: Fill) -> None:
    _fill_region(c, stmt.dst, c.evaluate(stmt.value), stmt.guard)


def _fill_region(c: Context, region: Region, value: Lanes, guard: Sequence[int] = ()) -> None:
    extents = _extents(c, region.extents)
    base = len(c.axes)
    with _axes(c, extents) as variables:
        indices = _walked(region, range(len(extents)), variables)
        tile = c.align(value, range(base, base + len(extents)))
        c.memory.store(region.buffer, indices, Lanes(tile, tuple(range(base, base + len(extents)))), guard)


# -- products --------------------------------------------------------------------------------------------------------


def clear(c: Context, stmt: Gemm) -> None:
    """Zeros in a product's accumulator."""
    dtype = stmt.c.buffer.dtype
    _fill_region(c, stmt.c, Lanes(c.b.constant(zero_of(dtype), value_type(dtype))))


def _gemm(c: Context, stmt: Gemm) -> None:
    c.facts.matmuls += 1
    for region in (stmt.a, stmt.b, stmt.c):
        c.check_dtype(region.buffer.dtype)
    a = _operand(c, stmt.a, stmt.transpose_a)
    b = _operand(c, stmt.b, stmt.transpose_b)
    dtype = stmt.c.buffer.dtype
    wide = "float32" if dtype in ("float16", "bfloat16") else dtype
    shape = [stmt.m, stmt.n]
    zero = ops.fill(c.b, c.b.constant(zero_of(wide), value_type(wide)), shape)
    if isinstance(stmt.clear, Const) and stmt.clear.value:
        total = zero
    else:
        total = c.elementwise.cast(ops.reshape(c.b, _read(c, stmt.c), shape), dtype, wide)
        if not isinstance(stmt.clear, Const):
            kept = total
            total = ops.if_else(c.b, c.scalar(stmt.clear), lambda: [zero], lambda: [kept])[0]
    product = c.dialect.matmul(c.b, a, b, total)
    _write(c, stmt.c, c.elementwise.cast(product, wide, dtype))


def _operand(c: Context, region: Region, transposed: bool) -> Value:
    value = _read(c, region)
    extents = _extents(c, region.extents)
    value = ops.reshape(c.b, value, extents[-2:])
    dtype = region.buffer.dtype
    if dtype in FLOAT8:
        # Exact: both 8-bit formats lie within float16, and the products within float32.
        value = c.elementwise.cast(value, dtype, "float16")
    return ops.transpose(c.b, value, [1, 0]) if transposed else value


# -- reductions and scans --------------------------------------------------------------------------------------------


def _identity(kind: str, dtype: str) -> bool | int | float:
    if kind in ("max", "min"):
        if is_float(dtype):
            return -math.inf if kind == "max" else math.inf
        bits = dtype_bits(dtype)
        if dtype == "bool":
            return kind == "min"
        if is_unsigned_integer(dtype):
            return 0 if kind == "max" else (1 << bits) - 1
        return -(1 << (bits - 1)) if kind == "max" else (1 << (bits - 1)) - 1
    if kind == "bitand":
        return -1 if dtype != "bool" else True
    return zero_of(dtype)


def _combiner(c: Context, kind: str, dtype: str, *, nan_propagate: bool = False) -> Callable[[Value, Value], Value]:
    names = {
        "sum": BinaryOp.ADD,
        "abssum": BinaryOp.ADD,
        "max": BinaryOp.MAX,
        "absmax": BinaryOp.MAX,
        "min": BinaryOp.MIN,
        "bitand": BinaryOp.BIT_AND,
        "bitor": BinaryOp.BIT_OR,
        "bitxor": BinaryOp.BIT_XOR,
    }
    if kind not in names or (kind.startswith("bit") and is_float(dtype)):
        raise c.unsupported(f"a {kind} reduction of {dtype}")
    if nan_propagate and is_float(dtype) and kind in ("max", "absmax", "min"):
        return lambda x, y: ops.arith(c.b, "minimumf" if kind == "min" else "maximumf", x, y)
    return lambda x, y: c.elementwise.binary(names[kind], dtype, x, y)


def _accumulator(dtype: str) -> str:
    """The dtype a reduction is computed in: narrow floats in float32."""
    return "float32" if is_float(dtype) and dtype not in ("float32", "float64") else dtype


def _reduce(c: Context, stmt: Reduce) -> None:
    dtype = stmt.dst.buffer.dtype
    wide = _accumulator(dtype)
    value = _read(c, stmt.src)
    value = c.elementwise.cast(c.elementwise.cast(value, stmt.src.buffer.dtype, dtype), dtype, wide)
    if stmt.kind in ("abssum", "absmax"):
        value = c.elementwise.function("abs", wide, [value])
    extents = _extents(c, stmt.src.extents)
    dim = stmt.dim % len(extents)
    if len(extents) == 1:
        extents, dim = [1, *extents], 1
        value = ops.reshape(c.b, value, extents)
    total = _reduced(c, value, extents, dim, stmt.kind, wide, nan_propagate=stmt.nan_propagate)
    shape = _extents(c, stmt.dst.extents)
    total = ops.reshape(c.b, total, shape)
    if not stmt.clear:
        old = c.elementwise.cast(_read(c, stmt.dst), dtype, wide)
        total = _combiner(c, stmt.kind, wide, nan_propagate=stmt.nan_propagate)(old, total)
    _write(c, stmt.dst, c.elementwise.cast(total, wide, dtype))


def _reduced(
    c: Context, value: Value, extents: Sequence[int], dim: int, kind: str, dtype: str, *, nan_propagate: bool = False
) -> Value:
    kept = [extent for position, extent in enumerate(extents) if position != dim]
    start = c.b.constant(_identity(kind, dtype), value_type(dtype))
    init = ops.fill(c.b, start, kept)
    return ops.reduce(c.b, value, init, [dim], _combiner(c, kind, dtype, nan_propagate=nan_propagate))


def _scan(c: Context, stmt: Scan) -> None:
    dtype = stmt.dst.buffer.dtype
    wide = _accumulator(dtype)
    value = c.elementwise.cast(c.elementwise.cast(_read(c, stmt.src), stmt.src.buffer.dtype, dtype), dtype, wide)
    extents = _extents(c, stmt.src.extents)
    dim = stmt.dim % len(extents)
    result: Value | None = None
    if stmt.kind == "sum":
        result = c.dialect.cumulative_sum(c.b, value, dim, reverse=stmt.reverse)
    if result is None:
        result = _scanned(c, value, extents, dim, stmt.kind, wide, reverse=stmt.reverse)
    _write(c, stmt.dst, c.elementwise.cast(result, wide, dtype))


def _scanned(
    c: Context, value: Value, extents: Sequence[int], dim: int, kind: str, dtype: str, *, reverse: bool
) -> Value:
    """Each step combines every element with the one 1, 2, 4, ... places before it."""
    combine = _combiner(c, kind, dtype)
    blank = ops.fill(c.b, c.b.constant(_identity(kind, dtype), value_type(dtype)), extents)
    ones = [1] * len(extents)
    step = 1
    while step < extents[dim]:
        start, target = [0] * len(extents), [0] * len(extents)
        (start if reverse else target)[dim] = step
        sizes = [extent - step if position == dim else extent for position, extent in enumerate(extents)]
        part = ops.extract_slice(c.b, value, start, sizes, ones)
        value = combine(value, ops.insert_slice(c.b, part, blank, target, ones))
        step *= 2
    return value


# -- movement --------------------------------------------------------------------------------------------------------


def _transpose(c: Context, stmt: Transpose) -> None:
    value = _read(c, stmt.src)
    rank = len(stmt.src.extents)
    value = ops.transpose(c.b, value, [*range(rank - 2), rank - 1, rank - 2])
    _write(c, stmt.dst, c.elementwise.cast(value, stmt.src.buffer.dtype, stmt.dst.buffer.dtype))


def _im2col(c: Context, stmt: Im2Col) -> None:
    """As the definition in docs/program.md: an element of the tile is an element of the image, or 0 outside."""
    image = stmt.src.buffer
    extents = _extents(c, stmt.dst.extents)
    rows, columns = extents[-2:]
    height, width, channels = _extents(c, image.shape[1:])
    reach = stmt.dilation * (stmt.kernel - 1) + 1
    out_height = (height + 2 * stmt.padding - reach) // stmt.stride + 1
    out_width = (width + 2 * stmt.padding - reach) // stmt.stride + 1
    with _axes(c, [rows, columns]) as (i, j):
        m = add(multiply(stmt.m_step, constant(rows)), i)
        k = add(multiply(stmt.k_step, constant(columns)), j)
        tap = _div(k, channels)
        place = _mod(m, out_height * out_width)
        down, along = (
            multiply(_div(tap, stmt.kernel), constant(stmt.dilation)),
            multiply(_mod(tap, stmt.kernel), constant(stmt.dilation)),
        )
        indices = (
            _div(m, out_height * out_width),
            add(add(multiply(_div(place, out_width), constant(stmt.stride)), down), constant(-stmt.padding)),
            add(add(multiply(_mod(m, out_width), constant(stmt.stride)), along), constant(-stmt.padding)),
            _mod(k, channels),
        )
        lanes = c.memory.load(Load(image.dtype, image, indices, (0, 1, 2), Const(image.dtype, zero_of(image.dtype))))
        target = list(stmt.dst.mins)
        target[-2], target[-1] = add(target[-2], i), add(target[-1], j)
        value = c.elementwise.cast(lanes.value, image.dtype, stmt.dst.buffer.dtype)
        c.memory.store(stmt.dst.buffer, target, Lanes(value, lanes.axes))


def _div(a: Expr, b: int) -> Expr:
    return a if b == 1 else Binary(a.dtype, BinaryOp.FLOOR_DIV, a, constant(b, a.dtype))


def _mod(a: Expr, b: int) -> Expr:
    return Const(a.dtype, 0) if b == 1 else Binary(a.dtype, BinaryOp.FLOOR_MOD, a, constant(b, a.dtype))


# -- reducers and atomics --------------------------------------------------------------------------------------------


def _reducer_init(c: Context, stmt: ReducerInit) -> None:
    dtype = stmt.dst.buffer.dtype
    value = Lanes(c.b.constant(_identity(stmt.kind, dtype), value_type(dtype)))
    if stmt.value is not None:
        (x, y), axes = c.together(value, c.evaluate(stmt.value))
        value = Lanes(_combiner(c, stmt.kind, dtype)(x, y), axes)
    _fill_region(c, stmt.dst, value)


def reducer_update(c: Context, stmt: ReducerUpdate) -> None:
    """Combines the values of all iterations that share an element, then that into the element."""
    dtype = stmt.buffer.dtype
    lanes = c.specialise(c.evaluate(stmt.value))
    kept = frozenset().union(*map(c.axes_of, stmt.indices)) if stmt.indices else frozenset()
    free = [axis for axis in range(len(c.axes)) if axis not in c.points]
    combine = _combiner(c, stmt.kind, dtype)
    value = c.align(lanes, free)
    mask = c.condition_lanes()
    if mask is not None:
        neutral = c.elementwise.constant_like(value, _identity(stmt.kind, dtype))
        value = ops.select(c.b, c.align(mask, free), value, neutral)
    axes = list(free)
    while any(axis not in kept for axis in axes):
        position = next(p for p, axis in enumerate(axes) if axis not in kept)
        extents = c.extents(axes)
        if len(axes) == 1:
            value, extents, position = ops.reshape(c.b, value, [1, *extents]), [1, *extents], 1
            value = ops.extract(c.b, _reduced(c, value, extents, position, stmt.kind, dtype), [0])
            axes = []
            break
        value = _reduced(c, value, extents, position, stmt.kind, dtype)
        del axes[position]
    old = c.memory.load(Load(dtype, stmt.buffer, stmt.indices))
    (x, y), result_axes = c.together(old, Lanes(value, tuple(axes)))
    conditions, c.conditions = c.conditions, []
    try:
        c.memory.store(stmt.buffer, stmt.indices, Lanes(combine(x, y), result_axes))
    finally:
        c.conditions = conditions


def _reducer_finalize(c: Context, stmt: ReducerFinalize) -> None:
    if stmt.src.buffer is not stmt.dst.buffer:
        _write(c, stmt.dst, _read(c, stmt.src))


def _atomic_tile(c: Context, stmt: AtomicTile) -> None:
    extents = _extents(c, stmt.extents)
    value_dims, dst_dims = list(stmt.value_dims), list(stmt.dst_dims)
    if not extents:
        extents, dst_dims = [1], [stmt.dst.buffer.rank - 1]
        value_dims = [stmt.value.buffer.rank - 1] if isinstance(stmt.value, Region) else []
    dtype = stmt.dst.buffer.dtype
    base = len(c.axes)
    with _axes(c, extents) as variables:
        if isinstance(stmt.value, Region):
            if stmt.value_guard:
                raise c.unsupported("an atomic whose source region reaches outside its buffer", "clip the region")
            indices = tuple(_walked(stmt.value, value_dims, variables))
            lanes = c.specialise(c.memory.load(Load(stmt.value.buffer.dtype, stmt.value.buffer, indices)))
            lanes = Lanes(c.elementwise.cast(lanes.value, stmt.value.buffer.dtype, dtype), lanes.axes)
        else:
            lanes = c.evaluate(stmt.value)
            lanes = Lanes(c.elementwise.cast(lanes.value, stmt.value.dtype, dtype), lanes.axes)
        tile = c.align(lanes, range(base, base + len(extents)))
        target = _walked(stmt.dst, dst_dims, variables)
        axes = tuple(range(base, base + len(extents)))
        c.memory.store(stmt.dst.buffer, target, Lanes(tile, axes), stmt.guard, atomic=stmt.kind)


OPERATIONS: Mapping[type, Callable[[Context, Any], None]] = {
    Copy: _copy,
    Fill: _fill,
    Gemm: _gemm,
    Reduce: _reduce,
    Scan: _scan,
    Transpose: _transpose,
    Im2Col: _im2col,
    ReducerInit: _reducer_init,
    ReducerFinalize: _reducer_finalize,
    AtomicTile: _atomic_tile,
}
