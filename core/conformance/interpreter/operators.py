"""Tile operators of the interpreter, element by element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from core.conformance.interpreter import values
from core.conformance.interpreter.values import Scalar
from core.program.expressions import is_float
from core.program.nodes import (
    AtomicTile,
    Buffer,
    Copy,
    Expr,
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
    from core.conformance.interpreter.machine import Machine


class _Box:
    """A region with its numbers: where it starts, how long it is, the array behind it."""

    def __init__(self, machine: Machine, region: Region) -> None:
        self.buffer: Buffer = region.buffer
        self.array = machine.array(region.buffer)
        self.mins = [int(machine.value(start)) for start in region.mins]
        self.extents = [int(machine.value(extent)) for extent in region.extents]

    def index(self, dims: Sequence[int], offsets: Sequence[int]) -> list[int]:
        """The element at `offsets` along `dims`."""
        index = list(self.mins)
        for dim, offset in zip(dims, offsets, strict=True):
            index[dim] += offset
        return index

    def holds(self, index: Sequence[int], dims: Sequence[int]) -> bool:
        """Whether the index is inside the buffer on `dims`."""
        return all(0 <= index[dim] < self.array.shape[dim] for dim in dims)

    def get(self, index: Sequence[int]) -> Scalar:
        if not self.holds(index, range(len(index))):
            raise IndexError(f"{self.buffer.name}{list(index)} is outside {list(self.array.shape)}")
        return values.from_numpy(self.array[tuple(index)], self.buffer.dtype)

    def set(self, index: Sequence[int], value: Scalar) -> None:
        if not self.holds(index, range(len(index))):
            raise IndexError(f"{self.buffer.name}{list(index)} is outside {list(self.array.shape)}")
        self.array[tuple(index)] = value


def _copy(machine: Machine, stmt: Copy) -> None:
    src, dst = _Box(machine, stmt.src), _Box(machine, stmt.dst)
    fill = machine.value(stmt.fill)
    moved = []
    for offsets in np.ndindex(*_sizes(machine, stmt.extents)):
        source = src.index(stmt.src_dims, offsets)
        inside = src.holds(source, stmt.src_guard)
        value = values.cast(src.get(source), src.buffer.dtype, dst.buffer.dtype) if inside else fill
        moved.append((dst.index(stmt.dst_dims, offsets), value))
    for target, value in moved:
        if dst.holds(target, stmt.dst_guard):
            dst.set(target, value)


def _sizes(machine: Machine, extents: Sequence[Expr]) -> list[int]:
    return [max(0, int(machine.value(extent))) for extent in extents]


def _fill(machine: Machine, stmt: Fill) -> None:
    dst = _Box(machine, stmt.dst)
    value = machine.value(stmt.value)
    for offsets in np.ndindex(*dst.extents):
        index = dst.index(range(len(dst.extents)), offsets)
        if dst.holds(index, stmt.guard):
            dst.set(index, value)


def _gemm(machine: Machine, stmt: Gemm) -> None:
    a, b, c = (_Box(machine, region) for region in (stmt.a, stmt.b, stmt.c))
    clear = bool(machine.value(stmt.clear))
    wide: Any = np.float64 if is_float(c.buffer.dtype) else object
    left = _matrix(a, (stmt.k, stmt.m) if stmt.transpose_a else (stmt.m, stmt.k), wide)
    right = _matrix(b, (stmt.n, stmt.k) if stmt.transpose_b else (stmt.k, stmt.n), wide)
    product = (left.T if stmt.transpose_a else left) @ (right.T if stmt.transpose_b else right)
    dims = (len(c.mins) - 2, len(c.mins) - 1)
    for i in range(stmt.m):
        for j in range(stmt.n):
            index = c.index(dims, (i, j))
            total = product[i, j] if clear else product[i, j] + wide_value(c.get(index), wide)
            wrapped = values.rounded if wide is np.float64 else values.wrap
            c.set(index, wrapped(total, c.buffer.dtype))


def wide_value(value: Scalar, wide: Any) -> Any:
    """A scalar in the type sums are kept in."""
    return np.float64(value) if wide is np.float64 else int(value)


def _matrix(box: _Box, shape: tuple[int, int], wide: Any) -> np.ndarray[Any, Any]:
    matrix = np.empty(shape, wide)
    dims = (len(box.mins) - 2, len(box.mins) - 1)
    for i, j in np.ndindex(*shape):
        matrix[i, j] = wide_value(box.get(box.index(dims, (i, j))), wide)
    return matrix


def _identity(kind: str, dtype: str) -> Scalar:
    if kind == "max":
        return values.lowest(dtype)
    if kind == "min":
        return values.highest(dtype)
    if kind == "bitand":
        return True if dtype == "bool" else values.wrap(-1, dtype)
    return values.rounded(0, dtype) if is_float(dtype) else (False if dtype == "bool" else 0)


def _reduce(machine: Machine, stmt: Reduce) -> None:
    src, dst = _Box(machine, stmt.src), _Box(machine, stmt.dst)
    dtype = dst.buffer.dtype
    kept = [extent for dim, extent in enumerate(src.extents) if dim != stmt.dim]
    for point in np.ndindex(*kept):
        target = _reduced_index(dst, src, stmt.dim, point)
        total = _identity(stmt.kind, dtype) if stmt.clear else dst.get(target)
        elements = []
        for k in range(src.extents[stmt.dim]):
            index = src.index(range(len(src.mins)), (*point[: stmt.dim], k, *point[stmt.dim :]))
            element = values.cast(src.get(index), src.buffer.dtype, dtype)
            elements.append(abs(element) if stmt.kind in ("abssum", "absmax") else element)
        dst.set(target, _total(stmt.kind.removeprefix("abs"), total, elements, dtype, stmt.nan_propagate))


def _total(kind: str, start: Scalar, elements: Sequence[Scalar], dtype: str, nan_propagate: bool) -> Scalar:
    if is_float(dtype) and kind == "sum":
        return values.rounded(np.sum([np.float64(start), *map(np.float64, elements)]), dtype)
    if nan_propagate and any(np.isnan(np.float64(element)) for element in (start, *elements)):
        return values.rounded(np.nan, dtype)
    for element in elements:
        start = values.combine(kind, start, element, dtype)
    return start


def _reduced_index(dst: _Box, src: _Box, dim: int, point: tuple[int, ...]) -> list[int]:
    if len(dst.mins) == len(src.mins):
        return dst.index(range(len(dst.mins)), (*point[:dim], 0, *point[dim:]))
    return dst.index(range(len(dst.mins)), point or (0,) * len(dst.mins))


def _scan(machine: Machine, stmt: Scan) -> None:
    src, dst = _Box(machine, stmt.src), _Box(machine, stmt.dst)
    dtype = dst.buffer.dtype
    length = src.extents[stmt.dim]
    others = [extent for dim, extent in enumerate(src.extents) if dim != stmt.dim]
    exact = is_float(dtype) and stmt.kind == "sum"
    for point in np.ndindex(*others):
        total: Any = None
        for k in reversed(range(length)) if stmt.reverse else range(length):
            offsets = (*point[: stmt.dim], k, *point[stmt.dim :])
            element: Any = values.cast(src.get(src.index(range(len(src.mins)), offsets)), src.buffer.dtype, dtype)
            element = np.float64(element) if exact else element
            if total is None:
                total = element
            else:
                total = total + element if exact else values.combine(stmt.kind, total, element, dtype)
            dst.set(dst.index(range(len(dst.mins)), offsets), values.rounded(total, dtype) if exact else total)


def _transpose(machine: Machine, stmt: Transpose) -> None:
    src, dst = _Box(machine, stmt.src), _Box(machine, stmt.dst)
    dims = range(len(src.mins))
    elements = {o: src.get(src.index(dims, o)) for o in np.ndindex(*src.extents)}
    for offsets, value in elements.items():
        *outer, i, j = offsets
        dst.set(dst.index(dims, (*outer, j, i)), values.cast(value, src.buffer.dtype, dst.buffer.dtype))


def _im2col(machine: Machine, stmt: Im2Col) -> None:
    src, dst = _Box(machine, stmt.src), _Box(machine, stmt.dst)
    _, height, width, channels = src.array.shape
    reach = stmt.dilation * (stmt.kernel - 1) + 1
    out_height = (height + 2 * stmt.padding - reach) // stmt.stride + 1
    out_width = (width + 2 * stmt.padding - reach) // stmt.stride + 1
    rows, columns = dst.extents[-2:]
    m_step, k_step = int(machine.value(stmt.m_step)), int(machine.value(stmt.k_step))
    dims = (len(dst.mins) - 2, len(dst.mins) - 1)
    for i, j in np.ndindex(rows, columns):
        m, k = m_step * rows + i, k_step * columns + j
        y = m % (out_height * out_width) // out_width * stmt.stride + k // channels // stmt.kernel * stmt.dilation
        x = m % out_width * stmt.stride + k // channels % stmt.kernel * stmt.dilation
        source = [m // (out_height * out_width), y - stmt.padding, x - stmt.padding, k % channels]
        inside = src.holds(source, range(4)) and k < stmt.kernel * stmt.kernel * channels
        value = src.get(source) if inside else values.cast(0, "int32", src.buffer.dtype)
        dst.set(dst.index(dims, (i, j)), values.cast(value, src.buffer.dtype, dst.buffer.dtype))


def _atomic_tile(machine: Machine, stmt: AtomicTile) -> None:
    dst = _Box(machine, stmt.dst)
    src = _Box(machine, stmt.value) if isinstance(stmt.value, Region) else None
    scalar = None if isinstance(stmt.value, Region) else machine.value(stmt.value)
    for offsets in np.ndindex(*_sizes(machine, stmt.extents)):
        target = dst.index(stmt.dst_dims, offsets)
        value = scalar
        if src is not None:
            source = src.index(stmt.value_dims, offsets)
            if not src.holds(source, stmt.value_guard):
                continue
            value = values.cast(src.get(source), src.buffer.dtype, dst.buffer.dtype)
        if dst.holds(target, stmt.guard):
            dst.set(target, values.combine(stmt.kind, dst.get(target), value, dst.buffer.dtype))


def _reducer_init(machine: Machine, stmt: ReducerInit) -> None:
    dst = _Box(machine, stmt.dst)
    start = _identity(stmt.kind, dst.buffer.dtype)
    if stmt.value is not None:
        start = values.combine(stmt.kind, start, machine.value(stmt.value), dst.buffer.dtype)
    for offsets in np.ndindex(*dst.extents):
        dst.set(dst.index(range(len(dst.mins)), offsets), start)


def _reducer_update(machine: Machine, stmt: ReducerUpdate) -> None:
    array = machine.array(stmt.buffer)
    index = tuple(int(machine.value(i)) for i in stmt.indices)
    old = values.from_numpy(array[index], stmt.buffer.dtype)
    array[index] = values.combine(stmt.kind, old, machine.value(stmt.value), stmt.buffer.dtype)


def _reducer_finalize(machine: Machine, stmt: ReducerFinalize) -> None:
    src, dst = _Box(machine, stmt.src), _Box(machine, stmt.dst)
    for offsets in np.ndindex(*src.extents):
        dims = range(len(src.mins))
        dst.set(dst.index(dims, offsets), src.get(src.index(dims, offsets)))


OPERATORS: dict[type, Callable[[Machine, Any], None]] = {
    Copy: _copy,
    Fill: _fill,
    Gemm: _gemm,
    Reduce: _reduce,
    Scan: _scan,
    Transpose: _transpose,
    Im2Col: _im2col,
    AtomicTile: _atomic_tile,
    ReducerInit: _reducer_init,
    ReducerUpdate: _reducer_update,
    ReducerFinalize: _reducer_finalize,
}
