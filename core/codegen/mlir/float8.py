"""8-bit floats as integer arithmetic on their bits: exact decoding, encoding that rounds once and saturates."""

from __future__ import annotations

import math as pymath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.codegen.mlir import ops
from core.codegen.mlir.builder import Value
from core.codegen.mlir.types import F32, I8, I32

if TYPE_CHECKING:
    from core.codegen.mlir.elementwise import Elementwise


@dataclass(frozen=True, slots=True)
class _Format:
    """An 8-bit float: mantissa bits, exponent bias, largest finite value, the code of NaN, and of infinity if any."""

    mantissa_bits: int
    bias: int
    largest: float
    nan: int
    infinity: int | None

    @property
    def least_normal(self) -> float:
        return 2.0 ** (1 - self.bias)

    @property
    def step(self) -> float:
        """Distance between subnormal numbers."""
        return self.least_normal * 2.0**-self.mantissa_bits


_E4M3 = _Format(3, 7, 448.0, 0x7F, None)
_E5M2 = _Format(2, 15, 57344.0, 0x7F, 0x7C)


def _format(dtype: str) -> _Format:
    return _E5M2 if dtype == "float8_e5m2" else _E4M3


def decode(e: Elementwise, x: Value, dtype: str) -> Value:
    """The float32 of each code."""
    b, f = e.b, _format(dtype)
    code = ops.convert(b, "extsi", x, I32)

    def const(value: int) -> Value:
        return e.constant_like(code, value)

    magnitude = ops.arith(b, "andi", code, const(0x7F))
    shift = 23 - f.mantissa_bits
    exponent = const((127 - f.bias) << 23)
    normal = ops.convert(
        b, "bitcast", ops.arith(b, "addi", ops.arith(b, "shli", magnitude, const(shift)), exponent), F32
    )
    counted = ops.convert(b, "sitofp", magnitude, F32)
    subnormal = ops.arith(b, "mulf", counted, e.constant_like(normal, f.step))
    small = ops.compare(b, "slt", magnitude, const(1 << f.mantissa_bits))
    value = ops.select(b, small, subnormal, normal)
    nan = e.constant_like(value, pymath.nan)
    if f.infinity is None:
        value = ops.select(b, ops.compare(b, "eq", magnitude, const(f.nan)), nan, value)
    else:
        infinite = ops.compare(b, "eq", magnitude, const(f.infinity))
        value = ops.select(b, infinite, e.constant_like(value, pymath.inf), value)
        value = ops.select(b, ops.compare(b, "sgt", magnitude, const(f.infinity)), nan, value)
    negative = ops.compare(b, "slt", code, const(0))
    return ops.select(b, negative, ops.negf(b, value), value)


def encode(e: Elementwise, x: Value, dtype: str) -> Value:
    """The code nearest to each float32, ties to even; what is too large becomes the largest finite value."""
    b, f = e.b, _format(dtype)
    bits = ops.convert(b, "bitcast", x, I32)

    def const(value: int) -> Value:
        return e.constant_like(bits, value)

    magnitude = ops.arith(b, "minnumf", ops.math(b, "absf", x), e.constant_like(x, f.largest))
    raw = ops.convert(b, "bitcast", magnitude, I32)
    shift = 23 - f.mantissa_bits
    odd = ops.arith(b, "andi", ops.arith(b, "shrsi", raw, const(shift)), const(1))
    rounding = ops.arith(b, "addi", odd, const((1 << (shift - 1)) - 1))
    rounded = ops.arith(b, "shrsi", ops.arith(b, "addi", raw, rounding), const(shift))
    normal = ops.arith(b, "subi", rounded, const((127 - f.bias) << f.mantissa_bits))
    # Where the sum's last bit is worth one subnormal step, the addition itself rounds.
    magic = 2.0**23 * f.step
    shifted = ops.arith(b, "addf", magnitude, e.constant_like(x, magic))
    exponent = 23 + round(pymath.log2(f.step)) + 127
    subnormal = ops.arith(b, "subi", ops.convert(b, "bitcast", shifted, I32), const(exponent << 23))
    small = ops.compare(b, "olt", magnitude, e.constant_like(x, f.least_normal))
    code = ops.select(b, small, subnormal, normal)
    code = ops.select(b, ops.compare(b, "une", x, x), const(f.nan), code)
    sign = ops.arith(b, "andi", ops.arith(b, "shrsi", bits, const(24)), const(0x80))
    return ops.convert(b, "trunci", ops.arith(b, "ori", code, sign), I8)
