"""Reductions whose rows TileLang's layout inference has no thread layout for; each verdict is what compiling says."""

from __future__ import annotations

import pytest
import tilelang.language as T

import core
from core.program import Program
from core.program.rows import uneven_rows


def reduced(rows: int, row: int, dim: int = 1, threads: int = 128):
    @T.prim_func
    def main(A: T.Tensor((rows, row), "float32"), B: T.Tensor((rows if dim else row,), "float32")):
        with T.Kernel(1, threads=threads):
            a = T.alloc_fragment((rows, row), "float32")
            b = T.alloc_fragment((rows if dim else row,), "float32")
            T.copy(A, a)
            T.reduce_max(a, b, dim=dim)
            T.copy(b, B)

    return main


def product_rows(n: int):
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, n), "float16"), C: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            a, b = T.alloc_shared((64, 64), "float16"), T.alloc_shared((64, n), "float16")
            c, m = T.alloc_fragment((64, n), "float32"), T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)
            T.reduce_max(c, m, dim=1)
            T.copy(m, C)

    return main


def compiles(kernel) -> bool:
    try:
        core.compile(kernel, target="cuda:h200", build=False)
    except core.UnsupportedOp:
        return False
    return True


@pytest.mark.parametrize(
    ("kernel", "extents"),
    [
        (reduced(4, 200), [200]),
        (reduced(4, 256), []),
        (reduced(12, 64), []),
        (reduced(1, 200), [200]),
        (reduced(1, 384), []),  # three for each thread
        (reduced(4, 3072), []),  # 24 for each thread
        (reduced(4, 384), [384]),
        (reduced(16, 200, dim=0), [200]),
        (reduced(96, 64, dim=0), []),
        (product_rows(96), []),  # the accumulator's layout
    ],
)
def test_rows_are_uneven_where_compiling_finds_no_layout(kernel, extents):
    found = list(uneven_rows(Program(kernel).view))
    assert [rows.extent for rows in found] == extents
    assert compiles(kernel) is not bool(extents)


def test_the_hint_gives_the_next_power_of_two_and_the_fill():
    [rows] = uneven_rows(Program(reduced(4, 200)).view)
    assert "256 long" in rows.hint
    assert '-T.infinity("float32"), which leaves the max as it is' in rows.hint


@pytest.mark.parametrize(
    ("kind", "dtype", "fill"),
    [
        ("min", "float16", 'T.infinity("float16")'),
        ("max", "bfloat16", '-T.infinity("bfloat16")'),
        ("max", "int32", 'T.min_value("int32")'),
        ("min", "uint8", 'T.max_value("uint8")'),
        ("max", "float8_e4m3fn", 'T.min_value("float8_e4m3fn")'),
        ("sum", "int32", "0"),
    ],
)
def test_the_fill_is_a_value_that_the_type_has(kind, dtype, fill):
    reduce = {"max": T.reduce_max, "min": T.reduce_min, "sum": T.reduce_sum}[kind]

    @T.prim_func
    def main(A: T.Tensor((4, 200), dtype), B: T.Tensor((4,), dtype)):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((4, 200), dtype)
            b = T.alloc_fragment((4,), dtype)
            T.copy(A, a)
            reduce(a, b, dim=1)
            T.copy(b, B)

    [rows] = uneven_rows(Program(main).view)
    assert f"with {fill}, which leaves the {kind}" in rows.hint
    assert fill == "0" or eval(fill, {"T": T}) is not None
