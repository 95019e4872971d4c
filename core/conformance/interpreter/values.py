"""Scalar arithmetic by docs/program.md: Python ints that wrap, NumPy floats rounded after each operation."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np

from core.program.expressions import dtype_bits, is_float, is_integer, is_unsigned_integer
from core.program.nodes import BinaryOp, CompareOp

Scalar = Any  # bool, int, or a NumPy float of the expression's dtype

_SPECIAL = {
    name: np.dtype(getattr(ml_dtypes, name))
    for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
}


def numpy_dtype(dtype: str) -> np.dtype[Any]:
    """The NumPy dtype of a TileLang one."""
    return _SPECIAL[dtype] if dtype in _SPECIAL else np.dtype(dtype)


def wrap(value: int, dtype: str) -> int:
    """An integer modulo 2^width, in the type's range."""
    bits = dtype_bits(dtype)
    value &= (1 << bits) - 1
    return value if is_unsigned_integer(dtype) or value < 1 << (bits - 1) else value - (1 << bits)


def rounded(value: Any, dtype: str) -> Scalar:
    """A real number as `dtype`: to nearest, ties to even; float8 saturates."""
    if dtype == "float64":
        return np.float64(value)
    with np.errstate(all="ignore"):
        narrow = np.float32(value)
        if dtype == "float32":
            return narrow
        kind = numpy_dtype(dtype)
        if dtype.startswith("float8") and not math.isnan(narrow):
            finfo: Any = ml_dtypes.finfo
            largest = float(finfo(kind).max)
            narrow = np.float32(min(max(float(narrow), -largest), largest))
        return narrow.astype(kind)


def cast(value: Scalar, source: str, dtype: str) -> Scalar:
    """`Cast`."""
    if dtype == "bool":
        return bool(value != 0)
    if is_integer(dtype):
        if not is_float(source):
            return wrap(int(value), dtype)
        real = float(value)
        return wrap(int(real), dtype) if math.isfinite(real) else 0
    if is_float(source) and source != "float64":
        return rounded(np.float32(value), dtype)
    return rounded(np.float64(value) if source == "float64" else int(value), dtype)


def reinterpret(value: Scalar, source: str, dtype: str) -> Scalar:
    """The same bits as another type."""
    bits = np.array([value], dtype=numpy_dtype(source)).view(numpy_dtype(dtype))
    return from_numpy(bits[0], dtype)


def from_numpy(value: Any, dtype: str) -> Scalar:
    """An element of an array as a scalar of this module."""
    if dtype == "bool":
        return bool(value)
    return int(value) if is_integer(dtype) else value


def _wide(value: Scalar, dtype: str) -> Any:
    """The type an operation is computed in before it is rounded."""
    return np.float64(value) if dtype == "float64" else np.float32(value)


def _truncated_division(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def binary(op: BinaryOp, a: Scalar, b: Scalar, dtype: str) -> Scalar:
    """`Binary`."""
    if is_float(dtype):
        return _float_binary(op, _wide(a, dtype), _wide(b, dtype), dtype)
    x, y = int(a), int(b)
    match op:
        case BinaryOp.ADD:
            result = x + y
        case BinaryOp.SUB:
            result = x - y
        case BinaryOp.MUL:
            result = x * y
        case BinaryOp.DIV:
            result = _truncated_division(x, y)
        case BinaryOp.MOD:
            result = x - _truncated_division(x, y) * y
        case BinaryOp.FLOOR_DIV:
            result = x // y
        case BinaryOp.FLOOR_MOD:
            result = x % y
        case BinaryOp.MIN:
            result = min(x, y)
        case BinaryOp.MAX:
            result = max(x, y)
        case BinaryOp.BIT_AND:
            result = x & y
        case BinaryOp.BIT_OR:
            result = x | y
        case BinaryOp.BIT_XOR:
            result = x ^ y
        case BinaryOp.SHIFT_LEFT:
            result = x << y
        case BinaryOp.SHIFT_RIGHT:
            result = x >> y
    return bool(result) if dtype == "bool" else wrap(result, dtype)


def _float_binary(op: BinaryOp, x: Any, y: Any, dtype: str) -> Scalar:
    with np.errstate(all="ignore"):
        match op:
            case BinaryOp.ADD:
                return rounded(x + y, dtype)
            case BinaryOp.SUB:
                return rounded(x - y, dtype)
            case BinaryOp.MUL:
                return rounded(x * y, dtype)
            case BinaryOp.DIV:
                return rounded(x / y, dtype)
            case BinaryOp.MIN:
                return rounded(np.fmin(x, y), dtype)
            case BinaryOp.MAX:
                return rounded(np.fmax(x, y), dtype)
            case BinaryOp.FLOOR_DIV:
                return rounded(np.floor(x / y), dtype)
    raise NotImplementedError(f"{op} of {dtype}")


def compare(op: CompareOp, a: Scalar, b: Scalar) -> bool:
    """`Compare`: with a NaN only NE is true."""
    match op:
        case CompareOp.EQ:
            return bool(a == b)
        case CompareOp.NE:
            return bool(a != b)
        case CompareOp.LT:
            return bool(a < b)
        case CompareOp.LE:
            return bool(a <= b)
        case CompareOp.GT:
            return bool(a > b)
    return bool(a >= b)


def _erf(x: Any) -> Any:
    return math.erf(float(x))


_FLOAT_FUNCTIONS: dict[str, Any] = {
    **{
        name: getattr(np, name)
        for name in "exp exp2 expm1 log log2 log10 log1p sqrt tanh sin cos tan sinh cosh".split()
    },
    **{name: getattr(np, name) for name in "floor ceil trunc copysign hypot fmod nextafter".split()},
    **{f"a{name}": getattr(np, f"arc{name}") for name in "sin cos tan sinh cosh tanh".split()},
    "atan2": np.arctan2,
    "exp10": lambda x: 10.0**x,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": lambda x: 1 / x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": _erf,
    "round": np.rint,
    "nearbyint": np.rint,
    "abs": np.abs,
    "pow": np.power,
    "ldexp": lambda x, e: np.ldexp(x, int(e)),
    "fma": lambda a, b, c: a * b + c,
    "clamp": lambda x, low, high: x if np.isnan(x) else min(max(x, low), high),
}


def math_function(function: str, args: tuple[Scalar, ...], arg_dtype: str, dtype: str) -> Scalar:
    """`Math`, computed in float64 and rounded once."""
    if function in ("isnan", "isinf", "isfinite"):
        return bool(getattr(np, function)(np.float64(args[0])))
    if not is_float(arg_dtype):
        return _integer_function(function, [int(arg) for arg in args], arg_dtype, dtype)
    with np.errstate(all="ignore"):
        if function == "nextafter" and arg_dtype == "float32":
            return np.nextafter(np.float32(args[0]), np.float32(args[1]))
        return rounded(_FLOAT_FUNCTIONS[function](*(np.float64(arg) for arg in args)), dtype)


def _integer_function(function: str, args: list[int], arg_dtype: str, dtype: str) -> int:
    bits = dtype_bits(arg_dtype)
    unsigned = args[0] & ((1 << bits) - 1)
    match function:
        case "abs":
            return wrap(abs(args[0]), dtype)
        case "popcount":
            return unsigned.bit_count()
        case "clz":
            return bits - unsigned.bit_length()
        case "pow":
            return wrap(args[0] ** args[1], dtype)
        case "clamp":
            return min(max(args[0], args[1]), args[2])
        case "fma":
            return wrap(args[0] * args[1] + args[2], dtype)
    raise NotImplementedError(f"{function} of {arg_dtype}")


def lowest(dtype: str) -> Scalar:
    """The identity of `max`."""
    if is_float(dtype):
        return rounded(-math.inf, dtype)
    return 0 if is_unsigned_integer(dtype) or dtype == "bool" else -(1 << (dtype_bits(dtype) - 1))


def highest(dtype: str) -> Scalar:
    """The identity of `min`."""
    if is_float(dtype):
        return rounded(math.inf, dtype)
    bits = dtype_bits(dtype)
    return True if dtype == "bool" else (1 << bits) - 1 if is_unsigned_integer(dtype) else (1 << (bits - 1)) - 1


_COMBINE = {
    "add": BinaryOp.ADD,
    "sum": BinaryOp.ADD,
    "max": BinaryOp.MAX,
    "min": BinaryOp.MIN,
    "or": BinaryOp.BIT_OR,
    "bitand": BinaryOp.BIT_AND,
    "bitor": BinaryOp.BIT_OR,
    "bitxor": BinaryOp.BIT_XOR,
}


def combine(kind: str, a: Scalar, b: Scalar, dtype: str) -> Scalar:
    """One step of a reduction or atomic."""
    return binary(_COMBINE[kind], a, b, dtype)
