"""Tile operators: calls of `tl.tileop.*` to nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from core.program.expressions import cast
from core.program.nodes import (
    AtomicTile,
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
    Stmt,
    Transpose,
)
from core.program.tir import guards, regions
from core.program.tir.context import DIALECT_SCOPES, Context
from core.program.tir.expressions import convert, convert_all

Operator = Callable[[Context, Any], Stmt]


def annotations_of(mapping: Any) -> dict[str, Any]:
    """Annotations as plain Python values where they are plain, else as they are."""
    return {str(key): _plain(value) for key, value in mapping.items()} if mapping else {}


def _plain(value: Any) -> Any:
    if isinstance(value, bool | int | float | str):
        return value
    kind = type(value).__name__
    if kind in ("IntImm", "FloatImm", "StringImm"):
        return value.value if kind != "StringImm" else str(value.value)
    if kind in ("Array", "List", "list", "tuple"):
        return tuple(_plain(item) for item in value)
    return value


def _flag(value: Any) -> bool:
    return bool(getattr(value, "value", value))


def _copy(context: Context, call: Any) -> Stmt:
    src = regions.parse_region(context, call.args[0])
    dst = regions.parse_region(context, call.args[1])
    pairing = regions.pair(context, "copy", src, dst)
    return Copy(
        src=regions.to_region(context, src),
        dst=regions.to_region(context, dst),
        extents=pairing.extents,
        src_dims=pairing.src_dims,
        dst_dims=pairing.dst_dims,
        src_guard=pairing.src_guard,
        dst_guard=pairing.dst_guard,
        fill=guards.fill_value(context, src.tir_buffer, dst.buffer.dtype),
        asynchronous=call.op.name != "tl.tileop.copy",
        annotations=annotations_of(call.annotations),
        location=context.location,
    )


def _fill(context: Context, call: Any) -> Stmt:
    region = regions.parse_region(context, call.args[0])
    guard = guards.region_guard(context, region.shape, region.mins, region.extents)
    value = cast(convert(context, call.args[1]), region.buffer.dtype)
    return Fill(dst=regions.to_region(context, region), value=value, guard=guard, location=context.location)


def _gemm(context: Context, call: Any) -> Stmt:
    args = call.args
    if len(args) not in (13, 19):
        return context.opaque_stmt(call.op.name, str(call))
    # Up to release 0.1.14 strides, offsets and packing were positional (19 arguments); clear_accum is 9th in both.
    a, b, c = (regions.convert_region(context, arg) for arg in args[:3])
    m, n, k = (context.prover.constant(arg) for arg in args[5:8])
    if m is None or n is None or k is None:
        return context.opaque_stmt(call.op.name, str(call))
    return Gemm(
        a=a,
        b=b,
        c=c,
        m=m,
        n=n,
        k=k,
        transpose_a=_flag(args[3]),
        transpose_b=_flag(args[4]),
        clear=cast(convert(context, args[9]), "bool"),
        policy=context.prover.constant(args[8]) or 0,
        annotations=annotations_of(call.annotations),
        location=context.location,
    )


def _reduce(context: Context, call: Any) -> Stmt:
    annotations = annotations_of(call.annotations)
    return Reduce(
        src=regions.convert_region(context, call.args[0]),
        dst=regions.convert_region(context, call.args[1]),
        kind=str(call.args[2].value),
        dim=int(call.args[3]),
        clear=_flag(call.args[4]),
        nan_propagate=bool(annotations.get("nan_propagate", False)),
        location=context.location,
    )


def _scan(kind: str) -> Operator:
    def operator(context: Context, call: Any) -> Stmt:
        return Scan(
            src=regions.convert_region(context, call.args[0]),
            dst=regions.convert_region(context, call.args[1]),
            kind=kind,
            dim=int(call.args[2]),
            reverse=_flag(call.args[3]),
            location=context.location,
        )

    return operator


def _transpose(context: Context, call: Any) -> Stmt:
    return Transpose(
        src=regions.convert_region(context, call.args[0]),
        dst=regions.convert_region(context, call.args[1]),
        location=context.location,
    )


def _im2col(context: Context, call: Any) -> Stmt:
    args = call.args
    numbers = [context.prover.constant(arg) for arg in args[4:8]]
    if any(number is None for number in numbers):
        return context.opaque_stmt(call.op.name, str(call))
    kernel, stride, dilation, padding = (int(number) for number in numbers if number is not None)
    return Im2Col(
        src=regions.convert_region(context, args[0]),
        dst=regions.convert_region(context, args[1]),
        m_step=convert(context, args[2]),
        k_step=convert(context, args[3]),
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        padding=padding,
        location=context.location,
    )


def _atomic(kind: str) -> Operator:
    def operator(context: Context, call: Any) -> Stmt:
        value, target = call.args[0], call.args[1]
        dst = regions.parse_region(context, target)
        order = annotations_of(call.annotations).get("memory_order", 0)
        order = order if isinstance(order, int) else 0
        if not regions.is_region(value):
            dims = tuple(d for d, extent in enumerate(dst.extents) if context.prover.constant(extent) != 1)
            return AtomicTile(
                kind=kind,
                value=cast(convert(context, value), dst.buffer.dtype),
                dst=regions.to_region(context, dst),
                extents=convert_all(context, [dst.extents[d] for d in dims]),
                value_dims=(),
                dst_dims=dims,
                guard=guards.region_guard(context, dst.shape, dst.mins, dst.extents),
                order=order,
                location=context.location,
            )
        src = regions.parse_region(context, value)
        pairing = regions.pair(context, f"atomic {kind}", src, dst)
        return AtomicTile(
            kind=kind,
            value=regions.to_region(context, src),
            dst=regions.to_region(context, dst),
            extents=pairing.extents,
            value_dims=pairing.src_dims,
            dst_dims=pairing.dst_dims,
            guard=pairing.dst_guard,
            value_guard=pairing.src_guard,
            order=order,
            location=context.location,
        )

    return operator


# -- reducers --------------------------------------------------------------------------------------------------------


def _reducer_kind(context: Context, tir_buffer: Any) -> str:
    return context.reducers.get(tir_buffer.data, "sum")


def _reducer_init(context: Context, call: Any) -> Stmt:
    region = regions.parse_region(context, call.args[0])
    value = cast(convert(context, call.args[1]), region.buffer.dtype) if len(call.args) > 1 else None
    return ReducerInit(
        dst=regions.to_region(context, region),
        kind=_reducer_kind(context, region.tir_buffer),
        value=value,
        location=context.location,
    )


def _reducer_update(context: Context, call: Any) -> Stmt:
    target = call.args[0]
    access = guards.element_access(context, target.buffer, target.indices)
    buffer = context.buffer(target.buffer)
    return ReducerUpdate(
        buffer=buffer,
        indices=access.indices,
        kind=_reducer_kind(context, target.buffer),
        value=cast(convert(context, call.args[1]), buffer.dtype),
        location=context.location,
    )


def _reducer_finalize(context: Context, call: Any) -> Stmt:
    src = regions.parse_region(context, call.args[0])
    region = regions.to_region(context, src)
    dst: Region = regions.convert_region(context, call.args[1]) if len(call.args) > 1 else region
    return ReducerFinalize(src=region, dst=dst, kind=_reducer_kind(context, src.tir_buffer), location=context.location)


OPERATORS: Mapping[str, Operator] = {
    "tl.tileop.copy": _copy,
    "tl.tileop.async_copy": _copy,
    "tl.tileop.tma_copy": _copy,
    "tl.tileop.fill": _fill,
    "tl.tileop.gemm": _gemm,
    # In flight until the kernel waits; the wait stays opaque, so that no family takes the order for granted.
    "tl.tileop.wgmma_gemm": _gemm,
    "tl.tileop.reduce": _reduce,
    "tl.tileop.cumsum": _scan("sum"),
    "tl.tileop.cummax": _scan("max"),
    "tl.tileop.transpose": _transpose,
    "tl.tileop.im2col": _im2col,
    "tl.tileop.c2d_im2col": _im2col,
    "tl.tileop.atomicadd": _atomic("add"),
    "tl.tileop.atomicmax": _atomic("max"),
    "tl.tileop.atomicmin": _atomic("min"),
    "tl.tileop.reducer_init": _reducer_init,
    "tl.reducer_update": _reducer_update,
    "tl.tileop.finalize_reducer": _reducer_finalize,
    "tl.tileop.finalize_reducer_v2": _reducer_finalize,
}

#: Annotations of a copy that change what it means rather than how it is done: such a copy stays opaque. One that
#: completes at a barrier, for every block of a cluster perhaps, is what it says once the kernel has waited; the wait is
#: opaque, so a family that needs the order refuses the kernel there.
_MEANINGFUL_COPY_ANNOTATIONS = frozenset({"dst_block"})


def convert_tile_operator(context: Context, call: Any) -> Stmt | None:
    """The node of a tile operator call; None when the call is none. One it does not know becomes opaque."""
    name = call.op.name
    operator = OPERATORS.get(name)
    if operator is None:
        return context.opaque_stmt(name, str(call)) if name.startswith("tl.tileop.") else None
    if operator is _copy and _MEANINGFUL_COPY_ANNOTATIONS.intersection(annotations_of(call.annotations)):
        return context.opaque_stmt(name, str(call))
    if any(context.buffer(arg.args[0].buffer).scope in DIALECT_SCOPES for arg in call.args if regions.is_region(arg)):
        return context.opaque_stmt(name, str(call))
    return operator(context, call)


def as_bool(expr: Expr) -> Expr:
    """A condition: an integer is true when it is not zero."""
    return cast(expr, "bool")
