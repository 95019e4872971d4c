"""Names of TVM's and TileLang's intrinsic functions, and what they are in the view."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from core.program.nodes import Binary, BinaryOp, Const, Expr, Math

#: Call name -> function of a Math node. `__exp` and its kin are the same functions with a licence to be approximate.
MATH_CALLS: dict[str, str] = {
    **{
        f"tirx.{name}": name
        for name in (
            "exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt tanh sigmoid erf sin cos tan sinh cosh asin acos "
            "atan asinh acosh atanh atan2 floor ceil trunc round nearbyint fmod pow copysign hypot ldexp nextafter "
            "isnan isinf isfinite popcount clz"
        ).split()
    },
    "tirx.fabs": "abs",
    "tirx.abs": "abs",
    "tl.fma": "fma",
    "tl.clamp": "clamp",
    "tl.fast_rcp": "rcp",
    "tl.ieee_frsqrt": "rsqrt",
    **{f"tl.__{name}": name for name in "exp exp10 log log2 log10 sin cos tan".split()},
    "tl.pow_of_int": "pow",
}

BINARY_CALLS: dict[str, BinaryOp] = {
    "tirx.bitwise_and": BinaryOp.BIT_AND,
    "tirx.bitwise_or": BinaryOp.BIT_OR,
    "tirx.bitwise_xor": BinaryOp.BIT_XOR,
    "tirx.shift_left": BinaryOp.SHIFT_LEFT,
    "tirx.shift_right": BinaryOp.SHIFT_RIGHT,
}


def _binary(op: BinaryOp) -> Callable[[str, tuple[Expr, ...]], Expr]:
    return lambda dtype, args: Binary(dtype, op, args[0], args[1])


def _math(function: str) -> Callable[[str, tuple[Expr, ...]], Expr]:
    return lambda dtype, args: Math(dtype, function, args)


#: IEEE operations with an explicit rounding mode; only round-to-nearest-even has a node.
ROUND_TO_NEAREST_CALLS: dict[str, Callable[[str, tuple[Expr, ...]], Expr]] = {
    "tl.ieee_add": _binary(BinaryOp.ADD),
    "tl.ieee_sub": _binary(BinaryOp.SUB),
    "tl.ieee_mul": _binary(BinaryOp.MUL),
    "tl.ieee_fdiv": _binary(BinaryOp.DIV),
    "tl.ieee_fmaf": _math("fma"),
    "tl.ieee_frcp": lambda dtype, args: Binary(dtype, BinaryOp.DIV, Const(dtype, 1.0), args[0]),
    "tl.ieee_fsqrt": _math("sqrt"),
}


def convert_call_name(call: Any) -> str:
    """The name of the operation a call applies."""
    operation = call.op
    return str(getattr(operation, "name", None) or getattr(operation, "name_hint", operation))
