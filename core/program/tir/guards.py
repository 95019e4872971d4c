"""Which indices must be tested at run time, and what an access outside yields.

The rule is TileLang's own (docs/program.md): an element of *global* memory whose index cannot be proved in range is
tested at both ends; a load outside yields the buffer's safe value (else 0), a store outside does nothing. An index that
is provably negative counts from the end, as in Python. Copies test their non-unit dimensions on any scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from core.program.expressions import cast, constant
from core.program.nodes import Expr, Scope
from core.program.tir.context import Context


@dataclass(frozen=True, slots=True)
class Access:
    """The indices of one element and the dimensions to test."""

    indices: tuple[Expr, ...]
    guard: tuple[int, ...]


def scalar_index(context: Context, index: Any) -> Any:
    """The index of one lane of a vector access: `base + lane * stride` of a Ramp, the value of a Broadcast."""
    kind = type(index).__name__
    if kind == "Ramp":
        return scalar_index(context, index.base) + context.lane * index.stride
    if kind == "Broadcast":
        return scalar_index(context, index.value)
    return index


def wrapped_index(context: Context, index: Any, extent: Any) -> Any:
    """`index`, counted from the end when it is provably negative."""
    if context.prover.is_nonnegative(index):
        return index
    return extent + index if context.prover.is_negative(index) else index


def element_access(context: Context, buffer: Any, indices: Sequence[Any]) -> Access:
    """Indices of a load or store of one element of a TIR buffer, and the guard TileLang's rule gives it."""
    from core.program.tir.expressions import convert

    guarded = context.buffer(buffer).scope is Scope.GLOBAL
    converted: list[Expr] = []
    guard: list[int] = []
    for dim, raw in enumerate(indices):
        extent = buffer.shape[dim]
        index = scalar_index(context, raw)
        lower = context.prover.is_nonnegative(index)
        if not lower and context.prover.is_negative(index):
            index = extent + index
            lower = context.prover.is_nonnegative(index)
        if guarded and not (lower and context.prover.is_below(index, extent)):
            guard.append(dim)
        converted.append(convert(context, index))
    return Access(tuple(converted), tuple(guard))


def region_guard(
    context: Context, shape: Sequence[Any], mins: Sequence[Any], extents: Sequence[Any]
) -> tuple[int, ...]:
    """Dimensions in which a region is not provably inside its buffer."""
    prover = context.prover
    return tuple(
        dim
        for dim, (size, start, extent) in enumerate(zip(shape, mins, extents, strict=True))
        if not (prover.is_nonnegative(start) and prover.is_at_most(start + extent, size))
    )


def fill_value(context: Context, buffer: Any, dtype: str) -> Expr:
    """What an element of `buffer` outside its shape reads as, converted to `dtype`."""
    from core.program.tir.expressions import convert

    safe = context.safe_values.get(buffer.data)
    if safe is None:
        return cast(constant(0), dtype)
    # The FFI hands a literal of an annotation over as a plain number.
    if isinstance(safe, (bool, int, float)):
        return cast(constant(safe, "float32" if isinstance(safe, float) else "int32"), dtype)
    return cast(convert(context, safe), dtype)
