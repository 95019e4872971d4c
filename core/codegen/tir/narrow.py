"""Integer arithmetic that wraps in its own type, for pipelines and code generators that widen it.

C computes 8- and 16-bit operators in int; TVM's simplifier moves a widening cast inside unsigned 32-bit arithmetic, as
if that could not wrap.
"""

from __future__ import annotations

from typing import Any

_OPERATORS = ("tirx.Add", "tirx.Sub", "tirx.Mul")
_WIDER = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32"}


def wrap(prim_func: Any) -> tuple[Any, bool]:
    """Computes 8- and 16-bit `+ - *` in int32, and unsigned 32-bit ones that are widened in int64, and casts back.

    Returns:
        The function, and whether anything changed.
    """
    from tvm import tirx

    changed = False

    def explicit(expr: Any, wide: str) -> Any:
        nonlocal changed
        changed = True
        operands = (tirx.Cast(wide, expr.a), tirx.Cast(wide, expr.b))
        return tirx.Cast(str(expr.dtype), type(expr)(*operands))

    def rewrite(expr: Any) -> Any:
        if isinstance(expr, tirx.Cast):
            inner = expr.value
            if str(expr.dtype) in ("int64", "uint64") and str(inner.dtype) == "uint32" and _is_operator(inner):
                return tirx.Cast(str(expr.dtype), explicit(inner, "int64"))
            return None
        wide = _WIDER.get(str(expr.dtype))
        return None if wide is None else explicit(expr, wide)

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, rewrite, [*_OPERATORS, "tirx.Cast"])
    return (prim_func.with_body(body, prim_func.span), True) if changed else (prim_func, False)


def _is_operator(expr: Any) -> bool:
    from tvm import tirx

    return isinstance(expr, (tirx.Add, tirx.Sub, tirx.Mul))
