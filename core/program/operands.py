"""Operands of tile operators whose shapes or types do not fit each other."""

from __future__ import annotations

from typing import NoReturn

from core.errors import ShapeMismatch
from core.program.expressions import constant_int, dtype_bits, is_float
from core.program.nodes import Gemm, Im2Col, Reduce, Region, Scan, Stmt, Transpose
from core.program.printer import region_text


def _extents(region: Region) -> list[int | None]:
    return [constant_int(extent) for extent in region.extents]


def _differ(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a != b


def check_operands(stmt: Stmt) -> None:
    """Checks one statement; statements without operands pass. The two sides of copies were paired before.

    Raises:
        ShapeMismatch: the user's line.
    """
    match stmt:
        case Gemm():
            _gemm(stmt)
        case Reduce():
            _reduce(stmt)
        case Scan(src=src, dst=dst, dim=dim):
            _require_dimension(stmt, "scan", src, dim)
            _require_same(stmt, "scan", src, dst, _extents(src))
        case Transpose(src=src, dst=dst):
            if src.buffer.rank < 2:
                _mismatch(stmt, f"transpose of {region_text(src)}, which has one dimension", "give it two or more")
            *outer, rows, columns = _extents(src)
            _require_same(stmt, "transpose", src, dst, [*outer, columns, rows])
        case Im2Col(src=src, dst=dst):
            if src.buffer.rank != 4 or dst.buffer.rank < 2:
                _mismatch(stmt, f"im2col of {region_text(src)} into {region_text(dst)}", "the source is (N, H, W, C)")


def _gemm(stmt: Gemm) -> None:
    a, b, c = stmt.a.buffer.dtype, stmt.b.buffer.dtype, stmt.c.buffer.dtype
    both_narrow = dtype_bits(a) == dtype_bits(b) == 8 and is_float(a) == is_float(b)
    if a != b and not both_narrow:
        _mismatch(stmt, f"gemm of {a} and {b}", "convert one of the operands: both must have the same type")
    if is_float(a) and not is_float(c):
        _mismatch(stmt, f"gemm of {a} operands into {c}", "accumulate in float32")
    expected = {
        "A": (stmt.a, (stmt.k, stmt.m) if stmt.transpose_a else (stmt.m, stmt.k)),
        "B": (stmt.b, (stmt.n, stmt.k) if stmt.transpose_b else (stmt.k, stmt.n)),
        "C": (stmt.c, (stmt.m, stmt.n)),
    }
    for role, (region, shape) in expected.items():
        extents = _extents(region)
        outer, inner = extents[:-2], extents[-2:]
        if len(inner) < 2 or any(_differ(a, b) for a, b in zip(inner, shape, strict=True)):
            _mismatch(
                stmt,
                f"gemm of {stmt.m} x {stmt.n} x {stmt.k}: {role} is {region_text(region)}",
                f"{role} must be {shape[0]} x {shape[1]}: check the tile shapes and transpose_A / transpose_B",
            )
        if any(_differ(extent, 1) for extent in outer):
            _mismatch(stmt, f"gemm: {role} is {region_text(region)}, a stack of matrices", "multiply one at a time")


def _reduce(stmt: Reduce) -> None:
    _require_dimension(stmt, f"reduce_{stmt.kind}", stmt.src, stmt.dim)
    extents = _extents(stmt.src)
    dropped = extents[: stmt.dim] + extents[stmt.dim + 1 :] or [1]
    kept = [*extents[: stmt.dim], 1, *extents[stmt.dim + 1 :]]
    found = _extents(stmt.dst)
    for expected in (dropped, kept):
        if len(found) == len(expected) and not any(_differ(a, b) for a, b in zip(found, expected, strict=True)):
            return
    _mismatch(
        stmt,
        f"reduce_{stmt.kind} of {region_text(stmt.src)} over dimension {stmt.dim} into {region_text(stmt.dst)}",
        f"the destination must be {_sizes(dropped)} or {_sizes(kept)}",
    )


def _sizes(extents: list[int | None]) -> str:
    return "(" + ", ".join("?" if extent is None else str(extent) for extent in extents) + ")"


def _require_dimension(stmt: Stmt, operation: str, region: Region, dim: int) -> None:
    if not 0 <= dim < region.buffer.rank:
        _mismatch(
            stmt,
            f"{operation} over dimension {dim} of {region_text(region)}, which has {region.buffer.rank}",
            f"dimensions are 0 to {region.buffer.rank - 1}, or negative from the end",
        )


def _require_same(stmt: Stmt, operation: str, src: Region, dst: Region, expected: list[int | None]) -> None:
    found = _extents(dst)
    if len(found) != len(expected) or any(_differ(a, b) for a, b in zip(found, expected, strict=True)):
        _mismatch(
            stmt, f"{operation} of {region_text(src)} into {region_text(dst)}", f"the result is {_sizes(expected)}"
        )


def _mismatch(stmt: Stmt, message: str, hint: str) -> NoReturn:
    raise ShapeMismatch(message, hint=hint, location=stmt.location)
