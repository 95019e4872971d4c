"""C++ types of TileLang's dtypes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from core.errors import Location, UnsupportedOp


@dataclass(frozen=True, slots=True)
class CppType:
    """How a dtype is spelled in the generated code.

    Attributes:
        value: type of a value in an expression.
        element: type of an element in memory.
        size_bytes: size of an element.
    """

    value: str
    element: str
    size_bytes: int


_TYPES: Mapping[str, CppType] = {
    "bool": CppType("bool", "boolean", 1),
    **{f"{sign}int{bits}": CppType(f"{sign}int{bits}_t", f"{sign}int{bits}_t", bits // 8)
       for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float64": CppType("double", "double", 8),
    "float32": CppType("float", "float", 4),
    "float16": CppType("float16", "float16", 2),
    "bfloat16": CppType("bfloat16", "bfloat16", 2),
    "float8_e4m3": CppType("float8_e4m3fn", "float8_e4m3fn", 1),
    "float8_e4m3fn": CppType("float8_e4m3fn", "float8_e4m3fn", 1),
    "float8_e5m2": CppType("float8_e5m2", "float8_e5m2", 1),
}  # fmt: skip

#: Types defined by the preamble in namespace `tile`; generated code names them without it.
PREAMBLE_TYPES = ("boolean", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


def cpp_type(dtype: str, location: Location | None = None) -> CppType:
    """The C++ type of a dtype.

    Raises:
        UnsupportedOp: C++ code has no such type (4-bit types, vectors, tf32, ...), with the user's line.
    """
    found = _TYPES.get(dtype)
    if found is None:
        raise UnsupportedOp(
            f"dtype {dtype} has no C++ type here",
            hint=f"use one of {', '.join(_TYPES)}",
            location=location,
        )
    return found


def is_narrow_float(dtype: str) -> bool:
    """Whether values of the dtype are computed in float and rounded after every operation."""
    return dtype in ("float16", "bfloat16") or dtype.startswith("float8")


def is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat"))


def is_integer(dtype: str) -> bool:
    """Whether the dtype is an integer; bool is not."""
    return dtype.startswith(("int", "uint"))


def integer_range(dtype: str) -> tuple[int, int]:
    """Least and greatest value of an integer dtype."""
    bits = int(dtype.removeprefix("u").removeprefix("int"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
