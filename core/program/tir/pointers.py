"""Pointers to an element, as atomics and predicates over a row take them."""

from __future__ import annotations

from typing import Any

from core.program.expressions import constant_ints
from core.program.nodes import Load
from core.program.tir import guards
from core.program.tir.context import Context


def pointed_load(context: Context, pointer: Any) -> Load | None:
    """The element behind `tl.access_ptr(load, ...)` or `tirx.address_of(load)`; None for any other pointer."""
    from core.program.tir.expressions import load

    name = getattr(getattr(pointer, "op", None), "name", "")
    if name not in ("tl.access_ptr", "tirx.address_of"):
        return None
    target = pointer.args[0]
    return load(context, target) if type(target).__name__ == "BufferLoad" else None


def pointed_run(context: Context, pointer: Any, count: int) -> list[Load] | None:
    """The `count` elements that lie one after the other from a pointer on; None when that cannot be told.

    They may go on into the next rows only from the start of a packed buffer of constant shape.
    """
    first = pointed_load(context, pointer)
    if first is None:
        return None
    tir_load = pointer.args[0]
    *outer, last = tir_load.indices
    shape = constant_ints(first.buffer.shape)
    if shape is None or count <= shape[-1]:
        if not first.buffer.is_packed:
            return None
        return [_element(context, tir_load.buffer, [*outer, last + lane]) for lane in range(count)]
    if not first.buffer.is_packed or any(context.prover.constant(index) != 0 for index in tir_load.indices):
        return None
    return [_element(context, tir_load.buffer, _unravel(lane, shape)) for lane in range(count)]


def _unravel(linear: int, shape: tuple[int, ...]) -> list[Any]:
    from tilelang import tvm

    indices: list[Any] = []
    for size in reversed(shape):
        indices.insert(0, tvm.tirx.IntImm("int32", linear % size))
        linear //= size
    return indices


def _element(context: Context, tir_buffer: Any, indices: list[Any]) -> Load:
    buffer = context.buffer(tir_buffer)
    access = guards.element_access(context, tir_buffer, indices)
    fill = guards.fill_value(context, tir_buffer, buffer.dtype) if access.guard else None
    return Load(buffer.dtype, buffer, access.indices, access.guard, fill)
