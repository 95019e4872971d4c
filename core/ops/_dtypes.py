"""What types the operators compute: each factory declares its own with these (`@kernel(dtypes=...)`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

#: What is computed in float32 inside: other types would lose digits, or mean something else.
FLOATS = ("float16", "bfloat16", "float32")
EIGHT_BIT_FLOATS = ("float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")

#: Types that sums of products can be kept in, by type of the operands: each holds every operand exactly. The first is
#: what they are kept in unless said otherwise.
_SUMS = {
    "float8_e4m3fn": ("float32", "float16", "float64"),
    "float8_e5m2": ("float32", "float16", "float64"),
    "float16": ("float32", "float16", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float32", "float64"),
    "float64": ("float64",),
    "int8": ("int32", "int64"),
    "uint8": ("int32", "uint32", "int64", "uint64"),
    "int16": ("int32", "int64"),
    "uint16": ("int32", "uint32", "int64", "uint64"),
    "int32": ("int32", "int64"),
    "uint32": ("uint32", "int64", "uint64"),
    "int64": ("int64",),
    "uint64": ("uint64",),
}
_RESULT = {"int8": "int32", "uint8": "int32", "float8_e4m3fn": "float16", "float8_e5m2": "float16"}


def sum_dtype(dtype: str) -> str:
    """What a product of these operands is accumulated in, unless said otherwise."""
    return _SUMS[dtype][0]


def result_dtype(dtype: str) -> str:
    """What a product of these operands is stored as, unless said otherwise."""
    return _RESULT.get(dtype, dtype)


def _operands(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Types of operands whose sums can be kept in `accum_dtype`."""
    accum_dtype = arguments["accum_dtype"]
    return tuple(dtype for dtype, sums in _SUMS.items() if accum_dtype is None or str(accum_dtype) in sums)


def _results(arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """Types that sums can be rounded or widened to. Sums of floats have no meaning as integers."""
    floats = (*FLOATS, "float64", *EIGHT_BIT_FLOATS)
    return (*INTEGERS, *floats) if arguments["dtype"] in INTEGERS else floats


#: Of a matrix product: of its sums, its operands and its result.
PRODUCT: Mapping[str, tuple[str, ...] | Callable[[Mapping[str, Any]], tuple[str, ...]]] = {
    "accum_dtype": ("float16", "float32", "float64", "int32", "uint32", "int64", "uint64"),
    "dtype": _operands,
    "out_dtype": _results,
}
