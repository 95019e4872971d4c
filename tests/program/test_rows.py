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
    assert "-T.infinity(dtype), which leaves the max as it is" in rows.hint
