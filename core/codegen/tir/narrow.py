"""Integer arithmetic that wraps in its own type, for pipelines and code generators that widen it.

C computes 8- and 16-bit operators in int; TVM's narrowing of 64-bit expressions takes a widened uint32 for signed.
"""

from __future__ import annotations

from typing import Any

_OPERATORS = ("tirx.Add", "tirx.Sub", "tirx.Mul")
_CALLS = ("tirx.shift_left", "tirx.bitwise_not")
_WIDER = {"int8": "int32", "uint8": "int32", "int16": "int32", "uint16": "int32"}


def wrap(prim_func: Any) -> tuple[Any, bool]:
    """Computes 8- and 16-bit `+ - * << ~` in int32 and casts back; masks uint32 values that become int64.

    Returns:
        The function, and whether anything changed.
    """
    from tvm import tirx

    changed = False

    def rewrite(expr: Any) -> Any:
        nonlocal changed
        dtype = str(expr.dtype)
        if isinstance(expr, tirx.Cast):
            if dtype != "int64" or str(expr.value.dtype) != "uint32":
                return None
            changed = True
            return tirx.bitwise_and(expr, tirx.IntImm("int64", 0xFFFFFFFF))
        wide = _WIDER.get(dtype)
        if wide is None:
            return None
        if isinstance(expr, tirx.Call):
            if getattr(expr.op, "name", "") not in _CALLS:
                return None
            changed = True
            return tirx.Cast(dtype, tirx.Call(wide, expr.op, [tirx.Cast(wide, one) for one in expr.args]))
        changed = True
        return tirx.Cast(dtype, type(expr)(tirx.Cast(wide, expr.a), tirx.Cast(wide, expr.b)))

    body = tirx.stmt_functor.ir_transform(prim_func.body, None, rewrite, [*_OPERATORS, "tirx.Call", "tirx.Cast"])
    return (prim_func.with_body(body, prim_func.span), True) if changed else (prim_func, False)
