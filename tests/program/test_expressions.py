"""Widths, literals, names, and the text of a view."""

import math

import pytest
import tilelang.language as T
from hypothesis import given
from hypothesis import strategies as st

from core.program import Cast, Const, Program, view_text
from core.program.expressions import cast, constant, dtype_bits, is_float, is_integer
from core.program.tir.names import Names


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("bool", 8),
        ("int8", 8),
        ("uint16", 16),
        ("float32", 32),
        ("bfloat16", 16),
        ("float64", 64),
        ("float8_e4m3fn", 8),
        ("float4_e2m1fn", 4),
        ("handle", 64),
    ],
)
def test_widths(dtype, bits):
    assert dtype_bits(dtype) == bits


def test_a_dtype_without_a_width_is_an_error():
    with pytest.raises(ValueError, match="no width"):
        dtype_bits("void")


def test_families():
    assert [d for d in ("bool", "int8", "uint8", "float16", "bfloat16", "float8_e5m2") if is_float(d)] == [
        "float16",
        "bfloat16",
        "float8_e5m2",
    ]
    assert [d for d in ("bool", "int8", "uint8", "float16") if is_integer(d)] == ["int8", "uint8"]


@pytest.mark.parametrize(
    ("literal", "dtype", "expected"),
    [
        (constant(0), "float16", Const("float16", 0.0)),
        (constant(-math.inf, "float32"), "float16", Const("float16", -math.inf)),
        (constant(5), "int8", Const("int8", 5)),
        (constant(2), "bool", Const("bool", True)),
        (constant(3.0, "float32"), "float32", Const("float32", 3.0)),
    ],
)
def test_literals_are_converted_when_that_loses_nothing(literal, dtype, expected):
    assert cast(literal, dtype) == expected


@pytest.mark.parametrize(
    ("literal", "dtype"),
    [
        (constant(0.1, "float32"), "float16"),
        (constant(4097), "float16"),
        (constant(300), "int8"),
        (constant(2.5, "float32"), "int32"),
        (constant(-0.0, "float32"), "float16"),
        (constant(math.inf, "float32"), "float8_e4m3fn"),
    ],
)
def test_other_literals_keep_their_conversion(literal, dtype):
    assert cast(literal, dtype) == Cast(dtype, literal)


@given(
    st.lists(
        st.one_of(st.sampled_from(["", "for", "int", "x", "x_1", "1st", "_t", "ä", "a.b"]), st.text()), max_size=30
    )
)
def test_names_are_unique_identifiers(wanted):
    names = Names()
    given_out = [names.unique(name) for name in wanted]
    assert len(set(given_out)) == len(given_out)
    assert all(name.isidentifier() and name.isascii() and not name.startswith("_") for name in given_out)
    assert not {"for", "int", "exp"}.intersection(given_out)


def test_the_text_of_a_view():
    M = T.dynamic("M")

    @T.prim_func
    def main(A: T.Tensor((M, 64), "float16"), s: T.float32, C: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, 32), threads=128) as b:
            tile = T.alloc_fragment((32, 64), "float32")
            total = T.alloc_fragment((32,), "float32")
            T.copy(A[b * 32, 0], tile)
            T.reduce_sum(tile, total, dim=1)
            for i in T.Parallel(32):
                if s > 0:
                    C[b * 32 + i] = total[i] * s

    assert view_text(Program(main).view).splitlines() == [
        "main(A: float16[M, 64], s: float32, C: float32[M]) over M",
        "  launch bx < ((M + 32) - 1) // 32 threads (128, 1, 1); "
        "tile: fragment float32[32, 64]; total: fragment float32[32]",
        "    copy A[bx * 32:+32, 0:+64] -> tile[0:+32, 0:+64] guard src[0] else 0.0",
        "    reduce sum tile[0:+32, 0:+64] dim 1 -> total[0:+32]",
        "    parallel i < 32",
        "      if s > 0.0",
        "        C[(bx * 32) + i] = total[i] * s guard [0]",
    ]
