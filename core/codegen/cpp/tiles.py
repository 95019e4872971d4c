"""Tile operators, each as loops around calls of the preamble."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from core.codegen.cpp.rows import ONE, Side, copy_rows, element_type, fill_rows, is_one, outer_loops
from core.codegen.cpp.types import cpp_type, is_float, is_integer, is_narrow_float
from core.errors import ShapeMismatch, UnsupportedOp
from core.program.nodes import (
    AtomicTile,
    Buffer,
    Const,
    Copy,
    Fill,
    Gemm,
    Im2Col,
    Reduce,
    ReducerFinalize,
    ReducerInit,
    ReducerUpdate,
    Region,
    Scan,
    Transpose,
)

if TYPE_CHECKING:
    from core.codegen.cpp.block import BlockWriter

#: Reduction kinds and the preamble's operator for each; the second when NaN must propagate.
_OPERATORS: Mapping[str, tuple[str, str]] = {
    "sum": ("Sum", "Sum"),
    "abssum": ("AbsSum", "AbsSum"),
    "max": ("Max", "MaxNan"),
    "min": ("Min", "MinNan"),
    "absmax": ("AbsMax", "AbsMaxNan"),
    "bitand": ("BitAnd", "BitAnd"),
    "bitor": ("BitOr", "BitOr"),
    "bitxor": ("BitXor", "BitXor"),
}


def operator_name(kind: str, writer: BlockWriter, *, nan_propagate: bool = False) -> str:
    """The preamble's class for a reduction kind."""
    found = _OPERATORS.get(kind)
    if found is None:
        raise UnsupportedOp(f"reduction {kind} is not known", location=writer.expressions.location)
    return f"tile::{found[nan_propagate]}"


def _copy(writer: BlockWriter, stmt: Copy) -> None:
    writer.out.mark(stmt.location, f"copy {stmt.src.buffer.name} -> {stmt.dst.buffer.name}")
    copy_rows(writer, stmt.src, stmt.dst, stmt.extents, stmt.src_dims, stmt.dst_dims, stmt.src_guard, stmt.dst_guard,
               stmt.fill)  # fmt: skip


def _fill(writer: BlockWriter, stmt: Fill) -> None:
    writer.out.mark(stmt.location, f"fill {stmt.dst.buffer.name}")
    fill_rows(writer, stmt.dst, writer.expressions.element(stmt.value), stmt.guard)


# ---------------------------------------------------------------------------------------------------- gemm


def _matrix(writer: BlockWriter, region: Region, *, transposed: bool, constant: bool) -> str:
    expressions = writer.expressions
    element = element_type(region.buffer, writer)
    row, column = region.buffer.strides[-2], region.buffer.strides[-1]
    if transposed:
        row, column = column, row
    kind = f"const {element}" if constant else element
    pointer = expressions.pointer(region.buffer, region.mins)
    return f"tile::Matrix<{kind}>{{{pointer}, {expressions.index(row)}, {expressions.index(column)}}}"


def gemm_accumulator(stmt: Gemm) -> str:
    """The C++ type in which a product is accumulated: C's dtype, unsigned where integers must wrap."""
    dtype = stmt.c.buffer.dtype
    if is_narrow_float(dtype):
        return "float"  # sums may be wider than C, and a product of narrow floats is exact in float
    if is_integer(dtype):
        return f"uint{max(32, int(dtype.removeprefix('u').removeprefix('int')))}_t"
    return cpp_type(dtype, stmt.location).element


def _gemm(writer: BlockWriter, stmt: Gemm) -> None:
    a, b, c = stmt.a, stmt.b, stmt.c
    transposes = f"{'^T' if stmt.transpose_a else ''} @ {b.buffer.name}{'^T' if stmt.transpose_b else ''}"
    writer.out.mark(stmt.location, f"gemm {c.buffer.name} += {a.buffer.name}{transposes}")
    if c.buffer.dtype == "bool" or "bool" in (a.buffer.dtype, b.buffer.dtype):
        raise UnsupportedOp("a matrix product of bools has no meaning", location=stmt.location)
    left = _matrix(writer, a, transposed=stmt.transpose_a, constant=True)
    right = _matrix(writer, b, transposed=stmt.transpose_b, constant=True)
    out = _matrix(writer, c, transposed=False, constant=False)
    clear = writer.expressions.value(stmt.clear)
    with writer.out.call(f"tile::gemm<{gemm_accumulator(stmt)}>"):
        writer.out.line(f"{left},")
        writer.out.line(f"{right},")
        writer.out.line(f"{out}, {stmt.m}, {stmt.n}, {stmt.k}, {clear}, panels);")


# ---------------------------------------------------------------------------------------------------- reductions


def _reduce(writer: BlockWriter, stmt: Reduce) -> None:
    writer.out.mark(stmt.location, f"{stmt.kind} of {stmt.src.buffer.name} -> {stmt.dst.buffer.name}")
    operator = operator_name(stmt.kind, writer, nan_propagate=stmt.nan_propagate)
    _check_operator(writer, stmt.kind, stmt.dst.buffer)
    src, dst = stmt.src, stmt.dst
    kept = [axis for axis in range(len(src.extents)) if axis != stmt.dim]
    pairs = _paired(writer, src, kept, dst)
    element = element_type(dst.buffer, writer)
    element_type(src.buffer, writer)
    index = writer.expressions.index
    identity = f"{operator}::identity<{element}>()"
    last_kept = pairs[-1][0] if pairs else -1
    with ExitStack() as stack:
        rounds_each_step = is_narrow_float(dst.buffer.dtype) and stmt.kind in ("sum", "abssum")
        if last_kept < stmt.dim or rounds_each_step:
            # The reduced axis is the innermost, or must be so that a sum is rounded once: one call per element.
            loops = [(None if is_one(src.extents[axis]) else stack.enter_context(writer.counter(src.extents[axis])))
                     for axis, _ in pairs]  # fmt: skip
            source = Side(src, tuple(axis for axis, _ in pairs))
            target = Side(dst, tuple(dim for _, dim in pairs))
            out = writer.expressions.access(dst.buffer, dst.mins, target.extra(loops))
            start = identity if stmt.clear else out
            step, count = index(src.buffer.strides[stmt.dim]), index(src.extents[stmt.dim])
            row = f"{source.pointer(writer, loops)}, {step}, {count}"
            writer.out.line(f"{out} = tile::reduce_row<{operator}, {element}>({start}, {row});")
            return
        # An outer axis is reduced: rows are combined one after the other.
        if stmt.clear:
            fill_rows(writer, dst, identity)
        order = sorted([*(axis for axis, _ in pairs[:-1]), stmt.dim])
        loops_by_axis = {
            axis: None if is_one(src.extents[axis]) else stack.enter_context(writer.counter(src.extents[axis]))
            for axis in order
        }
        source = Side(src, tuple(order))
        target_dims = tuple(dict(pairs).get(axis) for axis in order)
        target = Side(dst, target_dims)
        counters = [loops_by_axis[axis] for axis in order]
        inner_axis, inner_dim = pairs[-1]
        dst_step, src_step = index(dst.buffer.strides[inner_dim]), index(src.buffer.strides[inner_axis])
        writer.out.line(
            f"tile::combine_row<{operator}>({target.pointer(writer, counters)}, {dst_step}, "
            f"{source.pointer(writer, counters)}, {src_step}, {index(src.extents[inner_axis])});"
        )


def _paired(writer: BlockWriter, src: Region, kept: Sequence[int], dst: Region) -> list[tuple[int, int]]:
    """(source axis, destination dimension) for every kept axis longer than one, in order."""
    long_axes = [axis for axis in kept if not is_one(src.extents[axis])]
    long_dims = [dim for dim, extent in enumerate(dst.extents) if not is_one(extent)]
    if len(long_axes) != len(long_dims):
        raise ShapeMismatch(
            f"{dst.buffer.name} must have the shape of {src.buffer.name} without the reduced dimension",
            location=writer.expressions.location,
        )
    return list(zip(long_axes, long_dims, strict=True))


def _check_operator(writer: BlockWriter, kind: str, buffer: Buffer) -> None:
    if kind.startswith("bit") and is_float(buffer.dtype):
        raise UnsupportedOp(f"{kind} of {buffer.dtype} has no meaning", location=writer.expressions.location)


def _scan(writer: BlockWriter, stmt: Scan) -> None:
    writer.out.mark(stmt.location, f"cumulative {stmt.kind} of {stmt.src.buffer.name} -> {stmt.dst.buffer.name}")
    operator = operator_name(stmt.kind, writer)
    src, dst = stmt.src, stmt.dst
    index = writer.expressions.index
    others = [axis for axis in range(len(src.extents)) if axis != stmt.dim]
    source, target = Side(src, tuple(others)), Side(dst, tuple(others))
    element_type(src.buffer, writer)
    element_type(dst.buffer, writer)
    with ExitStack() as stack:
        loops = [None if is_one(src.extents[axis]) else stack.enter_context(writer.counter(src.extents[axis]))
                 for axis in others]  # fmt: skip
        writer.out.line(
            f"tile::scan_line<{operator}>({target.pointer(writer, loops)}, {index(dst.buffer.strides[stmt.dim])}, "
            f"{source.pointer(writer, loops)}, {index(src.buffer.strides[stmt.dim])}, {index(src.extents[stmt.dim])}, "
            f"{'true' if stmt.reverse else 'false'});"
        )


def _reducer_init(writer: BlockWriter, stmt: ReducerInit) -> None:
    writer.out.mark(stmt.location, f"start {stmt.kind} in {stmt.dst.buffer.name}")
    operator = operator_name(stmt.kind, writer)
    _check_operator(writer, stmt.kind, stmt.dst.buffer)
    element = element_type(stmt.dst.buffer, writer)
    value = f"{operator}::identity<{element}>()"
    if stmt.value is not None:
        value = f"{operator}::combine<{element}>({value}, {writer.expressions.element(stmt.value)})"
    fill_rows(writer, stmt.dst, value)


def _reducer_update(writer: BlockWriter, stmt: ReducerUpdate) -> None:
    writer.out.mark(stmt.location)
    operator = operator_name(stmt.kind, writer)
    element = element_type(stmt.buffer, writer)
    target = writer.expressions.access(stmt.buffer, stmt.indices)
    value = writer.expressions.element(stmt.value)
    writer.out.line(f"{target} = {operator}::combine<{element}>({target}, {value});")


def _reducer_finalize(writer: BlockWriter, stmt: ReducerFinalize) -> None:
    src, dst = stmt.src, stmt.dst
    if src.buffer is dst.buffer:
        return  # the loops of one block have already added everything up
    writer.out.mark(stmt.location, f"result of {src.buffer.name} -> {dst.buffer.name}")
    source_dims = [d for d, extent in enumerate(src.extents) if not is_one(extent)]
    target_dims = [d for d, extent in enumerate(dst.extents) if not is_one(extent)]
    if len(source_dims) != len(target_dims):
        raise ShapeMismatch(f"{src.buffer.name} and {dst.buffer.name} differ in shape", location=stmt.location)
    extents = [src.extents[d] for d in source_dims]
    copy_rows(writer, src, dst, extents, source_dims, target_dims, (), (), Const(dst.buffer.dtype, 0))


# ---------------------------------------------------------------------------------------------------- data movement


def _transpose(writer: BlockWriter, stmt: Transpose) -> None:
    writer.out.mark(stmt.location, f"transpose {stmt.src.buffer.name} -> {stmt.dst.buffer.name}")
    src, dst = stmt.src, stmt.dst
    rank = len(src.extents)
    # Rows of the destination: its last axis walks the source's last but one.
    source_dims = (*range(rank - 2), rank - 1, rank - 2)
    extents = [src.extents[d] for d in source_dims]
    zero = Const(dst.buffer.dtype, 0.0 if is_float(dst.buffer.dtype) else 0)
    copy_rows(writer, src, dst, extents, source_dims, tuple(range(rank)), (), (), zero)


def _im2col(writer: BlockWriter, stmt: Im2Col) -> None:
    writer.out.mark(stmt.location, f"im2col {stmt.src.buffer.name} -> {stmt.dst.buffer.name}")
    src, dst = stmt.src.buffer, stmt.dst
    index = writer.expressions.index
    element_type(dst.buffer, writer)
    batch, height, width, channels = (index(extent) for extent in src.shape)
    strides = [index(stride) for stride in src.strides]
    rows, columns = dst.extents[-2], dst.extents[-1]
    step = index(dst.buffer.strides[-2]), index(dst.buffer.strides[-1])
    with writer.out.call("tile::im2col"):
        writer.out.line(f"{writer.expressions.pointer(dst.buffer, dst.mins)}, {step[0]}, {step[1]}, ")
        writer.out.line(f"{writer.expressions.names.of(src)}, tile::Image{{{batch}, {height}, {width}, "
                        f"{channels}, {', '.join(strides)}}},")  # fmt: skip
        writer.out.line(
            f"int64_t({index(stmt.m_step)}) * {index(rows)}, {index(rows)}, "
            f"int64_t({index(stmt.k_step)}) * {index(columns)}, {index(columns)}, "
            f"{stmt.kernel}, {stmt.stride}, {stmt.dilation}, {stmt.padding});"
        )


def _atomic_tile(writer: BlockWriter, stmt: AtomicTile) -> None:
    writer.out.mark(stmt.location, f"atomic {stmt.kind} into {stmt.dst.buffer.name}")
    dst = stmt.dst
    element = element_type(dst.buffer, writer)
    axes = [*stmt.extents, ONE]
    target = Side(dst, (*stmt.dst_dims, None))
    with ExitStack() as stack:
        counters = outer_loops(writer, stack, axes)
        tests = [target.row_tests(writer, counters, stmt.guard)]
        if isinstance(stmt.value, Region):
            source = Side(stmt.value, (*stmt.value_dims, None))
            tests.append(source.row_tests(writer, counters, stmt.value_guard))
            element_type(stmt.value.buffer, writer)
            read = writer.expressions.access(stmt.value.buffer, stmt.value.mins, source.extra(counters))
            value = f"tile::convert<{element}>({read})"
        else:
            value = writer.expressions.element(stmt.value)
        exists = " && ".join(test for test in tests if test)
        call = f"tile::atomic_{stmt.kind}<{element}>({target.pointer(writer, counters)}, {value});"
        writer.out.line(f"if ({exists}) {call}" if exists else call)


OPERATIONS: Mapping[type, Callable[[BlockWriter, Any], None]] = {
    Copy: _copy,
    Fill: _fill,
    Gemm: _gemm,
    Reduce: _reduce,
    Scan: _scan,
    Transpose: _transpose,
    Im2Col: _im2col,
    ReducerInit: _reducer_init,
    ReducerUpdate: _reducer_update,
    ReducerFinalize: _reducer_finalize,
    AtomicTile: _atomic_tile,
}
