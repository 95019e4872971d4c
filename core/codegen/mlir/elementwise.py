"""The view's operators on values, scalar or tensor alike: rounding, wrapping and signs as docs/program.md has them.

Only operations that a tile compiler takes are used; what has no operation of its own is written with others. 16-bit
brain floats and 8-bit floats are computed in float32 and rounded after every operation.
"""

from __future__ import annotations

import math as pymath
from collections.abc import Callable, Mapping

from core.codegen.mlir import float8, ops
from core.codegen.mlir.builder import Builder, Value
from core.codegen.mlir.types import FLOAT8, I1, I32, I64, Scalar, Tensor, element_of, shaped_like, value_type
from core.errors import Location, UnsupportedOp
from core.program.expressions import dtype_bits, is_float, is_integer, is_unsigned_integer
from core.program.nodes import BinaryOp, CompareOp

#: Floats that are computed in float32 and rounded.
_WIDENED = ("bfloat16", *FLOAT8)


class Elementwise:
    """Operators, added where the builder stands."""

    def __init__(self, builder: Builder) -> None:
        self.b = builder

    @property
    def location(self) -> Location | None:
        return self.b.location

    # ------------------------------------------------------------------------------------------------ constants

    def constant_like(self, like: Value, value: bool | int | float, element: Scalar | None = None) -> Value:
        """A constant in the shape of `like`."""
        scalar = self.b.constant(value, element or element_of(like.type))
        if isinstance(like.type, Tensor):
            return ops.fill(self.b, scalar, like.type.static_shape)
        return scalar

    # ------------------------------------------------------------------------------------------------ casts

    def cast(self, x: Value, source: str, target: str) -> Value:
        """`Cast` from one dtype to another."""
        if source == target:
            return x
        if source in FLOAT8:
            return self.cast(float8.decode(self, x, source), "float32", target)
        if target in FLOAT8:
            return float8.encode(self, self.cast(x, source, "float32"), target)
        if target == "bool":
            zero = self.constant_like(x, 0)
            return ops.compare(self.b, "une" if is_float(source) else "ne", x, zero)
        if source == "bool":
            if is_float(target):
                return self.cast(ops.convert(self.b, "extui", x, I32), "int32", target)
            return ops.convert(self.b, "extui", x, value_type(target))
        if is_float(source) and is_float(target):
            return self._float_to_float(x, source, target)
        if is_float(source):
            return self._float_to_integer(x, source, target)
        if is_float(target):
            return self._integer_to_float(x, source, target)
        return self._integer_to_integer(x, source, target)

    def _float_to_float(self, x: Value, source: str, target: str) -> Value:
        narrow, wide = dtype_bits(source), dtype_bits(target)
        if narrow < wide:
            return ops.convert(self.b, "extf", x, value_type(target))
        if narrow > wide:
            return ops.convert(self.b, "truncf", x, value_type(target))
        return self._float_to_float(self._float_to_float(x, source, "float32"), "float32", target)

    def _float_to_integer(self, x: Value, source: str, target: str) -> Value:
        if dtype_bits(source) < 32:
            x = self._float_to_float(x, source, "float32")
        # Through a wider type: a narrow conversion of a vector unit may saturate or round.
        bits = dtype_bits(target)
        through = I64 if bits == 64 or (bits == 32 and is_unsigned_integer(target)) else I32
        wide = ops.convert(self.b, "fptosi", x, through)
        return ops.convert(self.b, "trunci", wide, value_type(target)) if bits < through.bits else wide

    def _integer_to_float(self, x: Value, source: str, target: str) -> Value:
        bits = dtype_bits(source)
        if is_unsigned_integer(source):
            if bits == 64:
                return self._float_to_float_from_wide(ops.convert(self.b, "uitofp", x, Scalar("f32")), target)
            x = ops.convert(self.b, "extui", x, I32 if bits < 32 else I64)
        elif bits < 32:
            x = ops.convert(self.b, "extsi", x, I32)
        return self._float_to_float_from_wide(ops.convert(self.b, "sitofp", x, Scalar("f32")), target)

    def _float_to_float_from_wide(self, x: Value, target: str) -> Value:
        return x if target == "float32" else self._float_to_float(x, "float32", target)

    def _integer_to_integer(self, x: Value, source: str, target: str) -> Value:
        narrow, wide = dtype_bits(source), dtype_bits(target)
        if narrow == wide:
            return x
        if narrow > wide:
            return ops.convert(self.b, "trunci", x, value_type(target))
        name = "extui" if is_unsigned_integer(source) else "extsi"
        return ops.convert(self.b, name, x, value_type(target))

    def reinterpret(self, x: Value, source: str, target: str) -> Value:
        """`Reinterpret`: the same bits."""
        if dtype_bits(source) != dtype_bits(target) or "bool" in (source, target):
            raise UnsupportedOp(f"T.reinterpret from {source} to {target}", location=self.location)
        element = value_type(target, self.location)
        if element_of(x.type) == element:
            return x
        return ops.convert(self.b, "bitcast", x, element)

    # ------------------------------------------------------------------------------------------------ binary

    def binary(self, op: BinaryOp, dtype: str, x: Value, y: Value) -> Value:
        """`Binary` on operands of `dtype` (and one shape)."""
        if dtype == "bool":
            return self._logical(op, x, y)
        if dtype in _WIDENED:
            wide = [self.cast(value, dtype, "float32") for value in (x, y)]
            return self.cast(self.binary(op, "float32", *wide), "float32", dtype)
        if is_float(dtype):
            return self._float_binary(op, x, y)
        if is_integer(dtype):
            return self._integer_binary(op, dtype, x, y)
        raise UnsupportedOp(f"{op.value} of {dtype}", location=self.location)

    def _logical(self, op: BinaryOp, x: Value, y: Value) -> Value:
        names = {BinaryOp.BIT_AND: "andi", BinaryOp.BIT_OR: "ori", BinaryOp.BIT_XOR: "xori"}
        names |= {BinaryOp.MIN: "andi", BinaryOp.MUL: "andi", BinaryOp.MAX: "ori"}
        if op not in names:
            raise UnsupportedOp(f"{op.value} of bool", location=self.location)
        return ops.arith(self.b, names[op], x, y)

    def _float_binary(self, op: BinaryOp, x: Value, y: Value) -> Value:
        names = {
            BinaryOp.ADD: "addf",
            BinaryOp.SUB: "subf",
            BinaryOp.MUL: "mulf",
            BinaryOp.DIV: "divf",
            BinaryOp.MIN: "minnumf",
            BinaryOp.MAX: "maxnumf",
            BinaryOp.MOD: "remf",
        }
        if op in names:
            return ops.arith(self.b, names[op], x, y)
        quotient = ops.math(self.b, "floor", ops.arith(self.b, "divf", x, y))
        if op is BinaryOp.FLOOR_DIV:
            return quotient
        if op is BinaryOp.FLOOR_MOD:
            return ops.arith(self.b, "subf", x, ops.arith(self.b, "mulf", quotient, y))
        raise UnsupportedOp(f"{op.value} of a float", location=self.location)

    def _integer_binary(self, op: BinaryOp, dtype: str, x: Value, y: Value) -> Value:
        unsigned = is_unsigned_integer(dtype)
        names = {
            BinaryOp.ADD: "addi",
            BinaryOp.SUB: "subi",
            BinaryOp.MUL: "muli",
            BinaryOp.BIT_AND: "andi",
            BinaryOp.BIT_OR: "ori",
            BinaryOp.BIT_XOR: "xori",
            BinaryOp.SHIFT_LEFT: "shli",
            BinaryOp.SHIFT_RIGHT: "shrui" if unsigned else "shrsi",
            BinaryOp.MIN: "minui" if unsigned else "minsi",
            BinaryOp.MAX: "maxui" if unsigned else "maxsi",
        }
        if op in names:
            return ops.arith(self.b, names[op], x, y)
        if unsigned and dtype_bits(dtype) < 64:
            # Unsigned division is not taken everywhere; the next signed type holds the operands.
            wide = "int32" if dtype_bits(dtype) < 32 else "int64"
            operands = [self.cast(value, dtype, wide) for value in (x, y)]
            signed = BinaryOp.DIV if op in (BinaryOp.DIV, BinaryOp.FLOOR_DIV) else BinaryOp.MOD
            return self.cast(self._integer_binary(signed, wide, *operands), wide, dtype)
        if unsigned:
            return ops.arith(self.b, "divui" if op in (BinaryOp.DIV, BinaryOp.FLOOR_DIV) else "remui", x, y)
        if op is BinaryOp.DIV:
            return ops.arith(self.b, "divsi", x, y)
        if op is BinaryOp.MOD:
            return ops.arith(self.b, "remsi", x, y)
        quotient = ops.arith(self.b, "divsi", x, y)
        remainder = ops.arith(self.b, "subi", x, ops.arith(self.b, "muli", quotient, y))
        zero = self.constant_like(x, 0)
        differs = ops.compare(self.b, "slt", ops.arith(self.b, "xori", remainder, y), zero)
        inexact = ops.arith(self.b, "andi", ops.compare(self.b, "ne", remainder, zero), differs)
        if op is BinaryOp.FLOOR_DIV:
            lower = ops.arith(self.b, "subi", quotient, self.constant_like(x, 1))
            return ops.select(self.b, inexact, lower, quotient)
        return ops.select(self.b, inexact, ops.arith(self.b, "addi", remainder, y), remainder)

    # ------------------------------------------------------------------------------------------------ comparison

    def compare(self, op: CompareOp, dtype: str, x: Value, y: Value) -> Value:
        """`Compare` of operands of `dtype`: a bool."""
        if dtype in _WIDENED:
            x, y, dtype = self.cast(x, dtype, "float32"), self.cast(y, dtype, "float32"), "float32"
        if dtype == "bool":
            x, y, dtype = self.cast(x, dtype, "int32"), self.cast(y, dtype, "int32"), "int32"
        if is_float(dtype):
            predicate = "une" if op is CompareOp.NE else f"o{op.value}"
        elif op in (CompareOp.EQ, CompareOp.NE):
            predicate = op.value
        else:
            predicate = ("u" if is_unsigned_integer(dtype) else "s") + op.value
        return ops.compare(self.b, predicate, x, y)

    def invert(self, x: Value, dtype: str) -> Value:
        """`Not`: of a bool, or of every bit of an integer."""
        ones = self.constant_like(x, True if dtype == "bool" else -1)
        return ops.arith(self.b, "xori", x, ones)

    # ------------------------------------------------------------------------------------------------ functions

    def function(self, name: str, dtype: str, args: list[Value]) -> Value:
        """`Math`. 16-bit floats compute in float32 and round once."""
        if name in ("isnan", "isinf", "isfinite"):
            raise TypeError("predicates need the argument's dtype: use `classify`")
        if is_integer(dtype):
            return _integer_function(self, name, dtype, args)
        if name == "abs" and dtype not in _WIDENED:
            return ops.math(self.b, "absf", args[0])
        if dtype != "float32" and dtype != "float64":
            wide = [self.cast(x, dtype, "float32") for x in args]
            return self.cast(self.function(name, "float32", wide), "float32", dtype)
        if name in _DIRECT:
            return ops.math(self.b, _DIRECT[name], *args)
        if name in _COMPOSED:
            return _COMPOSED[name](_Maths(self), *args)
        raise UnsupportedOp(f"{name} of {dtype} has no lowering to tile operations", hint=_HINT, location=self.location)

    def classify(self, name: str, dtype: str, x: Value) -> Value:
        """`isnan`, `isinf`, `isfinite`: a bool."""
        if not is_float(dtype):
            return self.constant_like(x, name == "isfinite", I1)
        x = self.cast(x, dtype, "float32")
        if name == "isnan":
            return ops.compare(self.b, "une", x, x)
        magnitude = ops.math(self.b, "absf", x)
        infinity = self.constant_like(x, pymath.inf)
        return ops.compare(self.b, "oeq" if name == "isinf" else "olt", magnitude, infinity)


_HINT = "write it with functions that are lowered: " + "exp, log, sqrt, sin, cos, atan, tanh, erf, pow, floor"

#: Functions with an operation of their own.
_DIRECT = {
    "exp": "exp",
    "exp2": "exp2",
    "expm1": "expm1",
    "log": "log",
    "log2": "log2",
    "log1p": "log1p",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "tanh": "tanh",
    "erf": "erf",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "atan": "atan",
    "floor": "floor",
    "ceil": "ceil",
    "pow": "powf",
    "fma": "fma",
}


class _Maths:
    """float32 arithmetic in few letters, for the functions below."""

    def __init__(self, e: Elementwise) -> None:
        self.e, self.b = e, e.b

    def const(self, like: Value, value: float) -> Value:
        return self.e.constant_like(like, value)

    def add(self, x: Value, y: Value) -> Value:
        return ops.arith(self.b, "addf", x, y)

    def sub(self, x: Value, y: Value) -> Value:
        return ops.arith(self.b, "subf", x, y)

    def mul(self, x: Value, y: Value) -> Value:
        return ops.arith(self.b, "mulf", x, y)

    def div(self, x: Value, y: Value) -> Value:
        return ops.arith(self.b, "divf", x, y)

    def call(self, name: str, *args: Value) -> Value:
        return ops.math(self.b, name, *args)

    def less(self, x: Value, y: Value) -> Value:
        return ops.compare(self.b, "olt", x, y)

    def select(self, condition: Value, x: Value, y: Value) -> Value:
        return ops.select(self.b, condition, x, y)

    def bits(self, x: Value) -> Value:
        return ops.convert(self.b, "bitcast", x, I32)

    def from_bits(self, x: Value) -> Value:
        return ops.convert(self.b, "bitcast", x, Scalar("f32"))

    def integer(self, name: str, x: Value, y: Value | int) -> Value:
        return ops.arith(self.b, name, x, self.e.constant_like(x, y) if isinstance(y, int) else y)


def _round_to_even(m: _Maths, x: Value) -> Value:
    """Adding 2^23 leaves no room for a fraction: the addition itself rounds to nearest, ties to even."""
    magnitude = m.call("absf", x)
    big = m.const(x, 2.0**23)
    rounded = m.sub(m.add(magnitude, big), big)
    return m.select(m.less(magnitude, big), _with_sign(m, rounded, x), x)


def _with_sign(m: _Maths, magnitude: Value, sign: Value) -> Value:
    bits = m.integer("ori", m.integer("andi", m.bits(magnitude), 0x7FFFFFFF), m.integer("andi", m.bits(sign), -(2**31)))
    return m.from_bits(bits)


def _trunc(m: _Maths, x: Value) -> Value:
    return m.select(m.less(x, m.const(x, 0.0)), m.call("ceil", x), m.call("floor", x))


def _sigmoid(m: _Maths, x: Value) -> Value:
    one = m.const(x, 1.0)
    return m.div(one, m.add(one, m.call("exp", ops.negf(m.b, x))))


def _sinh(m: _Maths, x: Value) -> Value:
    """Near 0 from expm1, which keeps the digits; far from it as half the difference of two halved arguments."""
    grown = m.call("expm1", m.call("absf", x))
    one = m.const(x, 1.0)
    near = m.mul(m.const(x, 0.5), m.add(grown, m.div(grown, m.add(grown, one))))
    half = m.call("exp", m.mul(m.const(x, 0.5), m.call("absf", x)))
    far = m.mul(m.mul(m.const(x, 0.5), half), half)
    return _with_sign(m, m.select(m.less(m.call("absf", x), m.const(x, 30.0)), near, far), x)


def _cosh(m: _Maths, x: Value) -> Value:
    half = m.call("exp", m.mul(m.const(x, 0.5), m.call("absf", x)))
    far = m.mul(m.mul(m.const(x, 0.5), half), half)
    return m.add(far, m.div(m.const(x, 0.25), far))


def _asin(m: _Maths, x: Value) -> Value:
    one = m.const(x, 1.0)
    return m.call("atan", m.div(x, m.call("sqrt", m.mul(m.sub(one, x), m.add(one, x)))))


def _acos(m: _Maths, x: Value) -> Value:
    one = m.const(x, 1.0)
    return m.mul(m.const(x, 2.0), m.call("atan", m.call("sqrt", m.div(m.sub(one, x), m.add(one, x)))))


def _asinh(m: _Maths, x: Value) -> Value:
    a = m.call("absf", x)
    one = m.const(x, 1.0)
    square = m.mul(a, a)
    small = m.call("log1p", m.add(a, m.div(square, m.add(one, m.call("sqrt", m.add(square, one))))))
    large = m.add(m.call("log", a), m.const(x, pymath.log(2.0)))
    return _with_sign(m, m.select(m.less(a, m.const(x, 1e9)), small, large), x)


def _acosh(m: _Maths, x: Value) -> Value:
    over = m.sub(x, m.const(x, 1.0))
    root = m.call("sqrt", m.add(m.mul(m.const(x, 2.0), over), m.mul(over, over)))
    return m.call("log1p", m.add(over, root))


def _atanh(m: _Maths, x: Value) -> Value:
    one = m.const(x, 1.0)
    return m.mul(m.const(x, 0.5), m.call("log1p", m.div(m.mul(m.const(x, 2.0), x), m.sub(one, x))))


def _atan2(m: _Maths, y: Value, x: Value) -> Value:
    """From the angle of the smaller over the larger magnitude, moved to its octant."""
    ax, ay = m.call("absf", x), m.call("absf", y)
    zero = m.const(x, 0.0)
    larger = ops.arith(m.b, "maxnumf", ax, ay)
    smaller = ops.arith(m.b, "minnumf", ax, ay)
    both_zero = ops.compare(m.b, "oeq", larger, zero)
    angle = m.call("atan", m.div(smaller, m.select(both_zero, m.const(x, 1.0), larger)))
    angle = m.select(m.less(ax, ay), m.sub(m.const(x, pymath.pi / 2), angle), angle)
    negative = ops.compare(m.b, "slt", m.bits(x), m.e.constant_like(m.bits(x), 0))
    angle = m.select(negative, m.sub(m.const(x, pymath.pi), angle), angle)
    return _with_sign(m, angle, y)


def _hypot(m: _Maths, x: Value, y: Value) -> Value:
    ax, ay = m.call("absf", x), m.call("absf", y)
    larger, smaller = ops.arith(m.b, "maxnumf", ax, ay), ops.arith(m.b, "minnumf", ax, ay)
    one = m.const(x, 1.0)
    safe = m.select(m.less(m.const(x, 0.0), larger), larger, one)
    ratio = m.div(smaller, safe)
    return m.mul(larger, m.call("sqrt", m.add(one, m.mul(ratio, ratio))))


def _fmod(m: _Maths, x: Value, y: Value) -> Value:
    return ops.arith(m.b, "remf", x, y)


def _clamp(m: _Maths, x: Value, low: Value, high: Value) -> Value:
    inside = ops.arith(m.b, "minnumf", ops.arith(m.b, "maxnumf", x, low), high)
    return m.select(ops.compare(m.b, "une", x, x), x, inside)


_COMPOSED: Mapping[str, Callable[..., Value]] = {
    "round": _round_to_even,
    "nearbyint": _round_to_even,
    "trunc": _trunc,
    "abs": lambda m, x: m.call("absf", x),
    "rcp": lambda m, x: m.div(m.const(x, 1.0), x),
    "sigmoid": _sigmoid,
    "exp10": lambda m, x: m.call("powf", m.const(x, 10.0), x),
    "log10": lambda m, x: m.mul(m.call("log", x), m.const(x, 1.0 / pymath.log(10.0))),
    "sinh": _sinh,
    "cosh": _cosh,
    "asin": _asin,
    "acos": _acos,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
    "atan2": _atan2,
    "hypot": _hypot,
    "fmod": _fmod,
    "copysign": _with_sign,
    "clamp": _clamp,
}


def _integer_function(e: Elementwise, name: str, dtype: str, args: list[Value]) -> Value:
    x = args[0]
    if name == "abs":
        if is_unsigned_integer(dtype):
            return x
        negative = ops.arith(e.b, "subi", e.constant_like(x, 0), x)
        return ops.arith(e.b, "maxsi", x, negative)
    if name == "clamp":
        return e.binary(BinaryOp.MIN, dtype, e.binary(BinaryOp.MAX, dtype, x, args[1]), args[2])
    if name == "popcount":
        return _popcount(e, dtype, x)
    if name == "clz":
        return _clz(e, dtype, x)
    raise UnsupportedOp(f"{name} of {dtype} has no lowering to tile operations", location=e.location)


def _popcount(e: Elementwise, dtype: str, x: Value) -> Value:
    """Neighbouring counts are added, in fields of 2, 4, 8, ... bits."""
    bits = dtype_bits(dtype)
    total, width = x, 1
    while width < bits:
        mask = sum(((1 << width) - 1) << start for start in range(0, bits, 2 * width))
        field = e.constant_like(x, mask)
        shifted = ops.arith(e.b, "shrui", total, e.constant_like(x, width))
        low, high = ops.arith(e.b, "andi", total, field), ops.arith(e.b, "andi", shifted, field)
        total, width = ops.arith(e.b, "addi", low, high), 2 * width
    return total


def _clz(e: Elementwise, dtype: str, x: Value) -> Value:
    """All bits below the highest one are set; the others are counted."""
    bits, step, spread = dtype_bits(dtype), 1, x
    while step < bits:
        spread = ops.arith(e.b, "ori", spread, ops.arith(e.b, "shrui", spread, e.constant_like(x, step)))
        step *= 2
    return _popcount(e, dtype, e.invert(spread, dtype))


def zero_of(dtype: str) -> int | float:
    """Zero as a Python literal of the dtype's kind."""
    return 0.0 if is_float(dtype) and dtype not in FLOAT8 else 0


def like(x: Value, element: Scalar) -> Scalar | Tensor:
    """`element` in the shape of a value."""
    return shaped_like(x.type, element)
