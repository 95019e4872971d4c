"""Boxes of buffers as rows: loops over the outer axes, a call of the preamble for each innermost one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.codegen.cpp.types import cpp_type
from core.program.nodes import Buffer, Const, Expr, Region

if TYPE_CHECKING:
    from core.codegen.cpp.block import BlockWriter

ONE = Const("int32", 1)


def is_one(extent: Expr) -> bool:
    """Whether an extent is the literal 1."""
    return isinstance(extent, Const) and extent.value == 1


@dataclass(frozen=True, slots=True)
class Side:
    """One region of a row-wise operation and the buffer dimension each axis walks (None: the axis does not move it)."""

    region: Region
    dims: tuple[int | None, ...]

    def step(self, axis: int) -> Expr:
        """Elements from one position of the axis to the next."""
        dim = self.dims[axis]
        return Const("int32", 0) if dim is None else self.region.buffer.strides[dim]

    def extra(self, counters: Sequence[str | None]) -> list[tuple[str, Expr]]:
        """Offset terms of the outer axes' counters; None stands for an axis without a loop."""
        return [
            (counter, self.region.buffer.strides[dim])
            for counter, dim in zip(counters, self.dims, strict=False)
            if counter is not None and dim is not None
        ]

    def pointer(self, writer: BlockWriter, counters: Sequence[str | None]) -> str:
        """Pointer to the first element of the row."""
        return writer.expressions.pointer(self.region.buffer, self.region.mins, self.extra(counters))

    def row_tests(self, writer: BlockWriter, counters: Sequence[str | None], guard: Sequence[int]) -> str:
        """The condition that the row exists: guarded dimensions other than the one the innermost axis walks."""
        tests = []
        inner = self.dims[-1] if self.dims else None
        for dim in guard:
            if dim == inner:
                continue
            extent = self.region.buffer.shape[dim]
            walked = [c for c, d in zip(counters, self.dims, strict=False) if d == dim and c is not None]
            if walked:
                index = writer.expressions.index(self.region.mins[dim])
                position = walked[0] if index == "0" else f"{index} + {walked[0]}"
                if not writer.expressions.ranges.is_nonnegative(self.region.mins[dim]):
                    tests.append(f"{position} >= 0")
                tests.append(f"{position} < {writer.expressions.index(extent)}")
            else:
                tests += writer.expressions.condition_in_range(self.region.mins[dim], extent)
        return " && ".join(tests)

    def row_span(self, writer: BlockWriter, extent: Expr, guard: Sequence[int]) -> str | None:
        """The part of the row that exists, when the innermost axis walks a guarded dimension."""
        dim = self.dims[-1] if self.dims else None
        if dim is None or dim not in guard:
            return None
        index = writer.expressions.index
        return f"tile::inside({index(self.region.mins[dim])}, {index(extent)}, {index(self.region.buffer.shape[dim])})"


def _merged(extents: list[Expr], sides: list[Side], guarded: Sequence[set[int]]) -> tuple[list[Expr], list[Side]]:
    """Joins the two innermost axes while they are one run of memory on every side and nothing tests them."""
    while len(extents) >= 2 and all(isinstance(extent, Const) for extent in extents[-2:]):
        inner = int(extents[-1].value)  # type: ignore[attr-defined]  # a Const, as just tested
        for side, guard in zip(sides, guarded, strict=True):
            outer_dim, inner_dim = side.dims[-2], side.dims[-1]
            if outer_dim in guard or inner_dim in guard:
                return extents, sides
            outer_step, inner_step = side.step(len(extents) - 2), side.step(len(extents) - 1)
            if not (isinstance(outer_step, Const) and isinstance(inner_step, Const)):
                return extents, sides
            if int(outer_step.value) != int(inner_step.value) * inner:
                return extents, sides
        total = Const("int32", int(extents[-2].value) * inner)  # type: ignore[attr-defined]  # a Const, as just tested
        extents = [*extents[:-2], total]
        sides = [Side(side.region, (*side.dims[:-2], side.dims[-1])) for side in sides]
    return extents, sides


def outer_loops(writer: BlockWriter, stack: ExitStack, extents: Sequence[Expr]) -> list[str | None]:
    """Opens a loop for each axis but the last; unit axes get none."""
    return [None if is_one(extent) else stack.enter_context(writer.counter(extent)) for extent in extents[:-1]]


def element_type(buffer: Buffer, writer: BlockWriter) -> str:
    """The C++ type of the buffer's elements; refuses a dtype that has none."""
    return cpp_type(buffer.dtype, buffer.location or writer.expressions.location).element


def copy_rows(
    writer: BlockWriter,
    src: Region,
    dst: Region,
    extents: Sequence[Expr],
    src_dims: Sequence[int],
    dst_dims: Sequence[int],
    src_guard: Sequence[int],
    dst_guard: Sequence[int],
    fill: Expr,
) -> None:
    source, target = Side(src, tuple(src_dims) or (None,)), Side(dst, tuple(dst_dims) or (None,))
    axes = list(extents) or [ONE]
    axes, (source, target) = _merged(axes, [source, target], [set(src_guard), set(dst_guard)])
    element_type(src.buffer, writer)
    element_type(dst.buffer, writer)
    index = writer.expressions.index
    count = index(axes[-1])
    last = len(axes) - 1
    steps = index(target.step(last)), index(source.step(last))
    with ExitStack() as stack:
        read = source.row_span(writer, axes[-1], src_guard)
        write = target.row_span(writer, axes[-1], dst_guard)
        if len(axes) > 1 and (read or write):
            # The part of a row that exists is the same in every row.
            stack.enter_context(writer.out.block(""))
            if read:
                writer.out.line(f"const tile::Span read = {read};")
                read = "read"
            if write:
                writer.out.line(f"const tile::Span write = {write};")
                write = "write"
        counters = outer_loops(writer, stack, axes)
        row_read = source.row_tests(writer, counters, src_guard)
        row_written = target.row_tests(writer, counters, dst_guard)
        arguments = [target.pointer(writer, counters), source.pointer(writer, counters)]
        prefix = f"if ({row_written}) " if row_written else ""
        if not (read or write or row_read):
            if steps == ("1", "1"):
                writer.out.line(f"{prefix}tile::copy_row({arguments[0]}, {arguments[1]}, {count});")
            else:
                writer.out.line(
                    f"{prefix}tile::copy_row({arguments[0]}, {steps[0]}, {arguments[1]}, {steps[1]}, {count});"
                )
            return
        whole = f"tile::Span{{0, {count}}}"
        read = read or whole
        if row_read:
            read = f"{row_read} ? {read} : tile::Span{{0, 0}}"
        writer.out.line(
            f"{prefix}tile::copy_row({arguments[0]}, {steps[0]}, {arguments[1]}, {steps[1]}, {write or whole}, {read},"
            f" {writer.expressions.element(fill)});"
        )


def fill_rows(writer: BlockWriter, dst: Region, value: str, guard: Sequence[int] = ()) -> None:
    dims = tuple(d for d, extent in enumerate(dst.extents) if not is_one(extent))
    axes: list[Expr] = [dst.extents[d] for d in dims] or [ONE]
    axes, (target,) = _merged(axes, [Side(dst, dims or (None,))], [set(guard)])
    element_type(dst.buffer, writer)
    index = writer.expressions.index
    with ExitStack() as stack:
        write = target.row_span(writer, axes[-1], guard) or f"tile::Span{{0, {index(axes[-1])}}}"
        counters = outer_loops(writer, stack, axes)
        exists = target.row_tests(writer, counters, guard)
        step = index(target.step(len(axes) - 1))
        call = f"tile::fill_row({target.pointer(writer, counters)}, {step}, {write}, {value});"
        writer.out.line(f"if ({exists}) {call}" if exists else call)
