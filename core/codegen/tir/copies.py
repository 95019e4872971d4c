"""Copies that must not go through the bulk tensor copy engine."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def without_tma(prim_func: Any, memories: Collection[Any]) -> Any:
    """Marks every copy from or to memory of these data variables with `disable_tma`. Spans are carried over."""
    from tilelang.ir import get_stmt_span, set_stmt_span
    from tvm import tirx

    def mark(stmt: Any) -> Any:
        call = stmt.value
        if getattr(getattr(call, "op", None), "name", "") != "tl.tileop.copy":
            return None
        sides = (call.args[side].args[0].buffer.data for side in (0, 1))
        if not any(side.same_as(memory) for side in sides for memory in memories):
            return None
        annotations = {**(call.annotations or {}), "disable_tma": tirx.IntImm("int32", 1)}
        marked = tirx.Evaluate(tirx.Call(call.dtype, call.op, call.args, annotations))
        span = get_stmt_span(stmt)
        if span is not None:
            set_stmt_span(marked, span)
        return marked

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, mark, ["tirx.Evaluate"])
    return prim_func.with_body(body, prim_func.span)
