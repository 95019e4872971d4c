"""Copies that must not go through the bulk tensor copy engine."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from core.codegen.tir.rebuild import with_span


def without_tma(prim_func: Any, memories: Collection[Any]) -> Any:
    """Marks every copy from or to memory of these data variables with `disable_tma`. Spans are carried over."""
    from tvm import tirx

    def mark(stmt: Any) -> Any:
        call = stmt.value
        if getattr(getattr(call, "op", None), "name", "") != "tl.tileop.copy":
            return None
        sides = (call.args[side].args[0].buffer.data for side in (0, 1))
        if not any(side.same_as(memory) for side in sides for memory in memories):
            return None
        annotations = {**(call.annotations or {}), "disable_tma": tirx.IntImm("int32", 1)}
        return with_span(tirx.Evaluate(tirx.Call(call.dtype, call.op, call.args, annotations)), stmt)

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, mark, ["tirx.Evaluate"])
    return prim_func.with_body(body, prim_func.span)


def laid_out(prim_func: Any) -> list[Any]:
    """Data variables of the tensor parameters that a launch gives a layout (`T.annotate_layout`)."""
    from tvm import tirx

    tensors = [buffer.data for buffer in prim_func.buffer_map.values()]
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, tirx.SBlock) and "layout_map" in node.annotations:
            annotated = node.annotations["layout_map"].keys()
            found.extend(data for data in tensors if any(data.same_as(one) for one in annotated))

    tirx.stmt_functor.post_order_visit(prim_func.body, visit)
    return found
