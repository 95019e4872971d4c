"""Narrow integer arithmetic that wraps, for code generators that print C (whose operators widen to int)."""

from __future__ import annotations

from typing import Any

_OPERATORS = ("tirx.Add", "tirx.Sub", "tirx.Mul")
_NARROW = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32"}


def wrap(prim_func: Any) -> tuple[Any, bool]:
    """Computes 8- and 16-bit `+ - *` in int32 and casts each result back, so that it wraps as TIR says.

    Returns:
        The function, and whether anything changed.
    """
    from tvm import tirx

    changed = False

    def rewrite(expr: Any) -> Any:
        nonlocal changed
        wide = _NARROW.get(str(expr.dtype))
        if wide is None:
            return None
        changed = True
        operands = (tirx.Cast(wide, expr.a), tirx.Cast(wide, expr.b))
        return tirx.Cast(str(expr.dtype), type(expr)(*operands))

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, rewrite, list(_OPERATORS))
    return (prim_func.with_body(body, prim_func.span), True) if changed else (prim_func, False)
