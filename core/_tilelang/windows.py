"""Windows of images, as the copy engine is to be told of them.

A tensor map for im2col says where the first pixel of a window may be, as offsets from the first and the last pixel of
an image: `-padding` and `padding - (kernel - 1) * dilation`. TileLang 0.1.15 says `-padding` both times
(`src/cuda/op/copy.cc`), which is right for convolutions that keep the images' size only; others fetch wrong pixels,
silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: By parameter, padding and stride: the last offset of each window that is copied from it.
Windows = Mapping[tuple[int, int, int], frozenset[int]]

_IM2COL = ("tl.tileop.im2col", "tl.tileop.c2d_im2col")


def image_windows(prim_func: Any) -> Windows:
    """The windows of a traced kernel's im2col copies from its parameters."""
    from tvm import tirx

    found: dict[tuple[int, int, int], set[int]] = {}
    memories = [
        prim_func.buffer_map[param].data if param in prim_func.buffer_map else None for param in prim_func.params
    ]

    def visit(node: Any) -> None:
        if type(node).__name__ != "Call" or getattr(node.op, "name", "") not in _IM2COL:
            return
        kernel, stride, dilation, padding = (int(value) for value in node.args[4:8])
        memory = node.args[0].args[0].buffer.data
        for position, known in enumerate(memories):
            if known is not None and known.same_as(memory):
                found.setdefault((position, padding, stride), set()).add(last_offset(kernel, dilation, padding))

    tirx.stmt_functor.post_order_visit(prim_func.body, visit)
    return {key: frozenset(offsets) for key, offsets in found.items()}


def last_offset(kernel: int, dilation: int, padding: int) -> int:
    """Where, from the last pixel of a line or column, the first pixel of a window may be at most."""
    return padding - (kernel - 1) * dilation
