"""Quantities with units: reading them as people write them, printing them as people read them.

A dimension is the suffix of the field that holds the figure: `bytes`, `bytes_per_s`, `hz`, `ops_per_s`. Binary prefixes
(KiB) and decimal ones (KB) are both understood and never confused: `64 KiB` is 65536 bytes, `64 KB` is 64000.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from typing import Literal

Dimension = Literal["bytes", "bytes_per_s", "hz", "ops_per_s"]

_DECIMAL = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40}


def _spellings(*units: str, binary: bool = False) -> dict[str, int]:
    found = {prefix + unit: 10**power for unit in units for prefix, power in _DECIMAL.items()}
    if binary:
        found |= {prefix + unit: 2**power for unit in units for prefix, power in _BINARY.items()}
    return found


_UNITS: dict[Dimension, dict[str, int]] = {
    "bytes": _spellings("B", binary=True),
    "bytes_per_s": _spellings("B/s", binary=True),
    "hz": _spellings("Hz"),
    "ops_per_s": _spellings("FLOP/s", "FLOPS", "OP/s", "OPS"),
}
_EXAMPLES: dict[Dimension, str] = {
    "bytes": "192 KiB, 80 GB",
    "bytes_per_s": "4.8 TB/s",
    "hz": "1.83 GHz",
    "ops_per_s": "989.4 TFLOP/s, 624 TOP/s",
}
_QUANTITY = re.compile(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*")


def dimension_of(field: str) -> Dimension | None:
    """The dimension a field's name ends with, or None for a plain number (`capacity_bytes` -> `bytes`)."""
    for dimension in ("bytes_per_s", "ops_per_s", "bytes", "hz"):
        if field == dimension or field.endswith("_" + dimension):
            return dimension
    return None


def spellings(dimension: Dimension) -> tuple[str, ...]:
    """Every unit that a quantity of this dimension may be written in (`B`, `kB`, ..., `TiB`)."""
    return tuple(_UNITS[dimension])


def parse(text: str, dimension: Dimension) -> int | float:
    """Reads a quantity such as `192 KiB` in the base unit of its dimension (bytes, bytes/s, Hz, operations/s).

    A bare number is in the base unit already. Bytes come back as an int, everything else as a float.

    Raises:
        ValueError: not a number, an unknown unit, or a fraction of a byte.
    """
    match = _QUANTITY.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a quantity (examples: {_EXAMPLES[dimension]})")
    number, unit = match.groups()
    factor = _UNITS[dimension].get(unit) if unit else 1
    if factor is None:
        raise ValueError(f"unknown unit {unit!r} in {text!r} (examples: {_EXAMPLES[dimension]})")
    try:
        value = Decimal(number) * factor
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not a quantity") from error
    if dimension != "bytes":
        return float(value)
    if value != value.to_integral_value():
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(value)


def format_bytes(value: float) -> str:
    """`227 KiB`, `80 GB`: the binary or decimal spelling that is shorter, binary when both are as short."""
    if value < 1024:
        return f"{value:g} B"
    binary = _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))
    decimal = _scaled(value, 1000, ("B", "kB", "MB", "GB", "TB"))
    return decimal if len(decimal.replace(" ", "")) + 1 < len(binary.replace(" ", "")) else binary


def format_quantity(value: float, dimension: Dimension | None) -> str:
    """A figure as people read it, four significant digits, e.g. `4.8 TB/s`; a plain number when it has no dimension."""
    if dimension == "bytes":
        return format_bytes(value)
    if dimension == "bytes_per_s":
        return _scaled(value, 1000, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s"))
    if dimension == "hz":
        return _scaled(value, 1000, ("Hz", "kHz", "MHz", "GHz"))
    if dimension == "ops_per_s":
        return _scaled(value, 1000, ("OP/s", "kOP/s", "MOP/s", "GOP/s", "TOP/s"))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    index = 0
    # The second test keeps 1023.97 KiB from printing as "1024 KiB".
    while index < len(units) - 1 and (value >= base or float(f"{value:.4g}") >= base):
        value /= base
        index += 1
    digits = f"{value:.4g}" if value < 10000 else f"{value:.0f}"
    return f"{digits} {units[index]}"
