"""Bit functions that the pipeline knows for unsigned integers only."""

from __future__ import annotations

import re
from typing import Any

_LEAST_BITS = 32


def unsigned_popcount(prim_func: Any) -> Any:
    """Counts the bits of a signed integer as those of the unsigned one of its width, which has the same bits.

    The widest cast is last, so that the sign of a narrow one is not counted.
    """
    from tvm import tirx

    def rewrite(call: Any) -> Any:
        dtype = str(call.dtype)
        signed = re.fullmatch(r"int(\d+)", dtype)
        if getattr(call.op, "name", "") != "tirx.popcount" or signed is None:
            return None
        bits = int(signed[1])
        value = tirx.Cast(f"uint{bits}", call.args[0])
        if bits < _LEAST_BITS:
            value = tirx.Cast(f"uint{_LEAST_BITS}", value)
        return tirx.Cast(dtype, tirx.Call(value.dtype, call.op, [value]))

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, rewrite, ["tirx.Call"])
    return prim_func.with_body(body, prim_func.span)
