"""Regions (`tl.region`) and how the two sides of a copy walk together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import ShapeMismatch
from core.program.nodes import Buffer, Expr, Region, Scope
from core.program.tir import guards
from core.program.tir.context import Context

_REGION_CALLS = ("tl.region", "tl.tileop.region")


@dataclass(frozen=True, slots=True)
class TirRegion:
    """A region still in TIR: the buffer of the view, and TIR mins (wrapped), extents (simplified) and shape."""

    buffer: Buffer
    tir_buffer: Any
    mins: tuple[Any, ...]
    extents: tuple[Any, ...]

    @property
    def shape(self) -> Sequence[Any]:
        return tuple(self.tir_buffer.shape)


def is_region(expr: Any) -> bool:
    return getattr(getattr(expr, "op", None), "name", "") in _REGION_CALLS


def parse_region(context: Context, call: Any) -> TirRegion:
    """Reads `tl.region(load, mask, extent...)`."""
    load, extents = call.args[0], tuple(call.args[2:])
    tir_buffer = load.buffer
    mins = []
    for index, extent in zip(load.indices, tir_buffer.shape, strict=True):
        start = index.base if type(index).__name__ == "Ramp" else index
        mins.append(guards.wrapped_index(context, start, extent))
    simplified = tuple(e if type(e).__name__ == "IntImm" else context.prover.simplify(e) for e in extents)
    return TirRegion(context.buffer(tir_buffer), tir_buffer, tuple(mins), simplified)


def to_region(context: Context, region: TirRegion) -> Region:
    """The region as a node."""
    from core.program.tir.expressions import convert_all

    return Region(region.buffer, convert_all(context, region.mins), convert_all(context, region.extents))


def convert_region(context: Context, call: Any) -> Region:
    return to_region(context, parse_region(context, call))


# -- the two sides of a copy -----------------------------------------------------------------------------------------

#: How near a scope is to the arithmetic: the nearer side of a copy gives the iteration space.
_NEARNESS = {Scope.FRAGMENT: 2, Scope.LOCAL: 2, Scope.SHARED: 1}


@dataclass(frozen=True, slots=True)
class Pairing:
    """How source and destination walk together (see `nodes.Copy`)."""

    extents: tuple[Expr, ...]
    src_dims: tuple[int, ...]
    dst_dims: tuple[int, ...]
    src_guard: tuple[int, ...]
    dst_guard: tuple[int, ...]


def pair(context: Context, operation: str, src: TirRegion, dst: TirRegion) -> Pairing:
    """Pairs the non-unit dimensions of two regions in order.

    Raises:
        ShapeMismatch: a different number of non-unit dimensions, or extents that are not provably equal. TileLang takes
            the nearer scope's extents whatever the other side says, and so reads or writes outside the slice written.
    """
    from core.program.tir.expressions import convert_all

    prover = context.prover
    src_dims = tuple(d for d, extent in enumerate(src.extents) if prover.constant(extent) != 1)
    dst_dims = tuple(d for d, extent in enumerate(dst.extents) if prover.constant(extent) != 1)
    if len(src_dims) != len(dst_dims):
        raise ShapeMismatch(
            f"{operation} of {_describe(src)} to {_describe(dst)}: {len(src_dims)} and {len(dst_dims)} dimensions "
            "longer than 1 cannot be paired",
            hint="both sides must have the same extents once dimensions of extent 1 are left out",
            location=context.location,
        )
    src_nearer = _NEARNESS.get(src.buffer.scope, 0) >= _NEARNESS.get(dst.buffer.scope, 0)
    for src_dim, dst_dim in zip(src_dims, dst_dims, strict=True):
        a, b = src.extents[src_dim], dst.extents[dst_dim]
        if not prover.are_equal(a, b):
            verb = "are" if prover.constant(a) is not None and prover.constant(b) is not None else "may be"
            near, far = (src, dst) if src_nearer else (dst, src)
            raise ShapeMismatch(
                f"{operation} of {_describe(src)} to {_describe(dst)}: extents {a} and {b} {verb} unequal",
                hint=f"TileLang would ignore the extents written for {far.buffer.name} and use those of "
                f"{near.buffer.name}; give both sides the same extents, or the start only "
                "(T.copy(A[i, 0], tile): what lies outside the tensor is guarded), or write a T.Parallel with an if",
                location=context.location,
                details={"src": list(map(str, src.extents)), "dst": list(map(str, dst.extents))},
            )
    base, base_dims = (src, src_dims) if src_nearer else (dst, dst_dims)
    extents = tuple(base.extents[dim] for dim in base_dims)
    return Pairing(
        convert_all(context, extents),
        src_dims,
        dst_dims,
        _copy_guard(context, src, src_dims),
        _copy_guard(context, dst, dst_dims),
    )


def _copy_guard(context: Context, region: TirRegion, walked: tuple[int, ...]) -> tuple[int, ...]:
    """Copies test the dimensions they walk on any scope; the others only on global memory, like element accesses."""
    outside = guards.region_guard(context, region.shape, region.mins, region.extents)
    if region.buffer.scope is Scope.GLOBAL:
        return outside
    return tuple(dim for dim in outside if dim in walked)


def _describe(region: TirRegion) -> str:
    shape = ", ".join(map(str, region.extents))
    return f"{region.buffer.name} ({shape})"
