"""Bounds of a row: what the ceilings that were measured in the same run allow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from core.bench.contenders import COPY, CUBLAS, TORCH

#: Operators whose arithmetic is the matrix unit's. That of the others has no ceiling here.
MATRIX = ("gemm", "attention", "mla")
#: Operators that write next to nothing: of what the rows of the standard suite move, at most 3%.
READING = ("mla",)


def raise_ceilings(ceilings: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """Raises the ceilings to the fastest library product, and the fastest copy, that the rows themselves have."""
    for row in rows:
        for name, entry in row["contenders"].items():
            if "cold" not in entry:
                continue
            seconds = entry["cold"]["median_s"]
            if name == CUBLAS or (name == TORCH and row["operator"] == "gemm"):
                known = ceilings["ops_per_s"].get(row["dtype"], 0.0)
                ceilings["ops_per_s"][row["dtype"]] = max(known, row["flops"] / seconds)
            if name == COPY:
                ceilings["bytes_per_s"] = max(ceilings["bytes_per_s"], row["bytes_moved"] / seconds)


def _bytes_per_s(row: dict[str, Any], ceilings: dict[str, Any]) -> float:
    """The bandwidth that bounds a row: a copy's, or for operators that only read the higher one of copy and sum."""
    copied: float = ceilings["bytes_per_s"]
    return max(copied, ceilings.get("read_bytes_per_s", 0.0)) if row["operator"] in READING else copied


def bounded(row: dict[str, Any], ceilings: dict[str, Any]) -> dict[str, Any]:
    """The row with its bound: the shortest time that the ceilings allow, and which share of that rate each reaches.

    Arithmetic that is not done by the matrix unit has no ceiling here: such rows are bounded by memory alone.
    """
    memory_s = row["bytes_moved"] / _bytes_per_s(row, ceilings)
    rate = ceilings["ops_per_s"].get(row["dtype"]) if row["operator"] in MATRIX else None
    compute_s = row["flops"] / rate if rate else 0.0
    bound_s = max(memory_s, compute_s)
    row["bound"] = {
        "seconds": bound_s,
        "memory_s": memory_s,
        "compute_s": compute_s,
        "limited_by": "memory" if memory_s >= compute_s else "compute",
    }
    for entry in row["contenders"].values():
        for l2 in ("cold", "warm"):
            if l2 in entry:
                entry[l2]["share_of_bound"] = bound_s / entry[l2]["median_s"]
    return row
