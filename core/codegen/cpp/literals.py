"""Literals."""

from __future__ import annotations

import math
import struct

from core.codegen.cpp.types import integer_range, is_float, is_narrow_float
from core.program.nodes import Const


def zero(dtype: str) -> Const:
    """0 of a dtype."""
    return Const(dtype, False if dtype == "bool" else 0.0 if is_float(dtype) else 0)


def literal(expr: Const, kind: str, *, plain: bool) -> str:
    """A constant as C++, of exactly the type `kind`; a float is its value rounded once to its dtype.

    `plain` leaves the type off an integer that an int holds: in index arithmetic the surrounding type does not matter.
    """
    dtype, value = expr.dtype, expr.value
    if dtype == "bool":
        return "true" if value else "false"
    if is_float(dtype):
        return _float(float(value), dtype, kind)
    number = int(value)
    if plain and abs(number) < 2**31:
        return str(number)
    if dtype == "int32":
        return str(number) if number > -(2**31) else "INT32_MIN"
    if dtype == "int64" and number == integer_range(dtype)[0]:
        return "INT64_MIN"
    suffix = "ull" if number > 2**63 - 1 else "ll" if abs(number) > 2**31 - 1 else ""
    return f"{kind}({number}{suffix})"


def _float(value: float, dtype: str, kind: str) -> str:
    if dtype == "float32":
        value = struct.unpack("f", struct.pack("f", value))[0]  # an infinity where it is too large
    if not math.isfinite(value):
        text = "tile::nan" if math.isnan(value) else "-tile::infinity" if value < 0 else "tile::infinity"
        return text if dtype == "float32" else f"{kind}({text})"
    if dtype == "float32":
        return f"{_shortest_float32(value)}f"
    text = _with_point(repr(value))
    return f"{kind}({text})" if is_narrow_float(dtype) else text


def _shortest_float32(value: float) -> str:
    for digits in range(1, 10):
        text = f"{value:.{digits}g}"
        if struct.unpack("f", struct.pack("f", float(text)))[0] == value:
            return _with_point(text)
    return _with_point(repr(value))


def _with_point(text: str) -> str:
    return text if any(mark in text for mark in ".e") else text + ".0"
