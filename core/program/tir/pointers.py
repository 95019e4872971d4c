"""Pointers to an element, as atomics and predicates over a row take them."""

from __future__ import annotations

from typing import Any

from core.program.nodes import Load
from core.program.tir.context import Context


def pointed_load(context: Context, pointer: Any) -> Load | None:
    """The element behind `tl.access_ptr(load, ...)` or `tirx.address_of(load)`; None for any other pointer."""
    from core.program.tir.expressions import load

    name = getattr(getattr(pointer, "op", None), "name", "")
    if name not in ("tl.access_ptr", "tirx.address_of"):
        return None
    target = pointer.args[0]
    return load(context, target) if type(target).__name__ == "BufferLoad" else None
