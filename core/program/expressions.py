"""Small arithmetic on view expressions: literals, folding constructors, conversion to Python text."""

from __future__ import annotations

import math

from core.program.nodes import Binary, BinaryOp, Cast, Const, Expr, Var

#: dtypes by family; a dtype not listed is neither.
FLOAT_PREFIXES = ("float", "bfloat", "tfloat")

#: Integers up to this magnitude are exact in the type, so a literal can be converted without rounding.
_EXACT_INTEGERS = {"float64": 2**53, "float32": 2**24, "float16": 2**11, "bfloat16": 2**8}


def is_float(dtype: str) -> bool:
    """Whether the dtype is a floating-point type, 8-bit ones included."""
    return dtype.startswith(FLOAT_PREFIXES)


def is_unsigned_integer(dtype: str) -> bool:
    return dtype.startswith("uint")


def is_integer(dtype: str) -> bool:
    """Whether the dtype is an integer type; bool is not one."""
    return dtype.startswith(("int", "uint"))


def dtype_bits(dtype: str) -> int:
    """Width of one element in bits. A bool takes a byte in memory.

    Raises:
        ValueError: the dtype carries no width.
    """
    if dtype == "bool":
        return 8
    if dtype == "handle":
        return 64
    digits = ""
    for char in dtype.removeprefix("bfloat").removeprefix("tfloat").lstrip("abcdefghijklmnopqrstuvwxyz"):
        if not char.isdigit():
            break
        digits += char
    if not digits:
        raise ValueError(f"no width in dtype {dtype!r}")
    return int(digits)


def constant(value: int | float | bool, dtype: str = "int32") -> Const:
    """A literal."""
    return Const(dtype, value)


def constant_int(expr: Expr) -> int | None:
    """The value of an integer literal, else None."""
    if isinstance(expr, Const) and isinstance(expr.value, int):
        return int(expr.value)
    return None


def constant_ints(exprs: tuple[Expr, ...]) -> tuple[int, ...] | None:
    """The values when all are integer literals, else None."""
    values = tuple(constant_int(expr) for expr in exprs)
    return None if any(value is None for value in values) else tuple(v for v in values if v is not None)


def _wider(a: Expr, b: Expr) -> str:
    """The index type that holds both: an int64 operand makes the result int64."""
    return "int64" if "int64" in (a.dtype, b.dtype) else a.dtype


def _as(expr: Expr, dtype: str) -> Expr:
    if expr.dtype == dtype:
        return expr
    return Const(dtype, expr.value) if isinstance(expr, Const) else Cast(dtype, expr)


def add(a: Expr, b: Expr) -> Expr:
    """`a + b` on index expressions, folded where trivial."""
    x, y = constant_int(a), constant_int(b)
    dtype = _wider(a, b)
    if x is not None and y is not None:
        return Const(dtype, x + y)
    if x == 0:
        return b
    if y == 0:
        return a
    return Binary(dtype, BinaryOp.ADD, _as(a, dtype), _as(b, dtype))


def multiply(a: Expr, b: Expr) -> Expr:
    """`a * b` on index expressions, folded where trivial."""
    x, y = constant_int(a), constant_int(b)
    dtype = _wider(a, b)
    if x is not None and y is not None:
        return Const(dtype, x * y)
    if x == 1:
        return b
    if y == 1:
        return a
    if x == 0 or y == 0:
        return Const(dtype, 0)
    return Binary(dtype, BinaryOp.MUL, _as(a, dtype), _as(b, dtype))


def cast(expr: Expr, dtype: str) -> Expr:
    """`expr` converted to `dtype`: nothing when it has it, a new literal when that loses nothing, else a Cast."""
    if expr.dtype == dtype:
        return expr
    if isinstance(expr, Const):
        value = expr.value
        if dtype == "bool":
            return Const(dtype, bool(value))
        if is_float(dtype):
            exact = _EXACT_INTEGERS.get(dtype, 0)
            if isinstance(value, float) and not math.isfinite(value) and dtype in _EXACT_INTEGERS:
                return Const(dtype, value)
            if float(value).is_integer() and abs(value) <= exact and not _is_negative_zero(value):
                return Const(dtype, float(value))
        elif is_integer(dtype) and isinstance(value, int) and _holds(dtype, int(value)):
            return Const(dtype, int(value))
    return Cast(dtype, expr)


def _is_negative_zero(value: float) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


def _holds(dtype: str, value: int) -> bool:
    bits = dtype_bits(dtype)
    if is_unsigned_integer(dtype):
        return 0 <= value < 1 << bits
    return -(1 << (bits - 1)) <= value < 1 << (bits - 1)


_PYTHON = {
    BinaryOp.ADD: ("+", 1),
    BinaryOp.SUB: ("-", 1),
    BinaryOp.MUL: ("*", 2),
    BinaryOp.FLOOR_DIV: ("//", 2),
    BinaryOp.FLOOR_MOD: ("%", 2),
    BinaryOp.SHIFT_LEFT: ("<<", 0),
    BinaryOp.SHIFT_RIGHT: (">>", 0),
}


def to_python(expr: Expr) -> str:
    """An integer expression as Python text over the names of its variables: `(M + 127) // 128`.

    Raises:
        ValueError: the expression holds something that is not integer arithmetic (a load, a call).
    """
    return _python(expr, 0)


def _python(expr: Expr, precedence: int) -> str:
    if isinstance(expr, Const):
        return str(int(expr.value))
    if isinstance(expr, Var):
        return expr.name
    if isinstance(expr, Cast):
        return _python(expr.a, precedence)
    if isinstance(expr, Binary):
        if expr.op in (BinaryOp.MIN, BinaryOp.MAX):
            return f"{expr.op.value}({_python(expr.a, 0)}, {_python(expr.b, 0)})"
        if expr.op is BinaryOp.DIV:  # truncating; Python has no operator for it
            return f"int({_python(expr.a, 2)} / {_python(expr.b, 3)})"
        if expr.op in _PYTHON:
            symbol, own = _PYTHON[expr.op]
            text = f"{_python(expr.a, own)} {symbol} {_python(expr.b, own + 1)}"
            return f"({text})" if own < precedence else text
    raise ValueError(f"not an integer expression over symbols: {type(expr).__name__}")
