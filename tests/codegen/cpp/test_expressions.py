"""C++ spelling of expressions."""

from __future__ import annotations

import math

import pytest

from core.codegen.cpp.expressions import Expressions
from core.codegen.cpp.names import Names
from core.codegen.cpp.ranges import Ranges
from core.codegen.cpp.usage import element_span
from core.errors import Location, UnsupportedOp
from core.program import (
    Binary,
    BinaryOp,
    Cast,
    Choose,
    Compare,
    CompareOp,
    Const,
    Expr,
    Load,
    Math,
    OpaqueExpr,
    Var,
    VarKind,
)
from core.program.nodes import Buffer, Scope, Storage

COUNTER, SIZE = Var("int32", "i", VarKind.PARALLEL), Var("int32", "N", VarKind.SYMBOL)


def num(value: float, dtype: str = "int32") -> Const:
    return Const(dtype, value)


def buffer(name: str, dtype: str, *shape: Expr, scope: Scope = Scope.GLOBAL) -> Buffer:
    strides: list[Expr] = [num(1)]
    for extent in reversed(shape[1:]):
        strides.insert(0, Binary("int32", BinaryOp.MUL, strides[0], extent) if strides[0] != num(1) else extent)
    return Buffer(name, dtype, shape, tuple(strides), Storage(name, scope, scope.value))


@pytest.fixture
def cpp() -> Expressions:
    return Expressions(Names(), Ranges(), wide_indices=False)


def test_grouping_of_floating_point_is_the_tree_s(cpp: Expressions) -> None:
    a, b, c = (Load("float32", buffer(n, "float32", num(4)), (num(0),)) for n in "abc")
    plus = Binary("float32", BinaryOp.ADD, b, c)
    assert cpp.value(Binary("float32", BinaryOp.ADD, a, plus)) == "a[0] + (b[0] + c[0])"
    assert cpp.value(Binary("float32", BinaryOp.ADD, plus, a)) == "b[0] + c[0] + a[0]"
    assert cpp.value(Binary("float32", BinaryOp.SUB, a, plus)) == "a[0] - (b[0] + c[0])"


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        ("float32", 0.1, "0.1f"),
        ("float32", 1.0, "1.0f"),
        ("float32", 1 / 3, "0.33333334f"),
        ("float32", 1e-45, "1e-45f"),
        ("float32", -0.0, "-0.0f"),
        ("float32", 1e39, "tile::infinity"),
        ("float32", -math.inf, "-tile::infinity"),
        ("float64", 0.1, "0.1"),
        ("float16", 0.1, "float16(0.1)"),
        ("bfloat16", math.nan, "bfloat16(tile::nan)"),
        ("int32", -(2**31), "INT32_MIN"),
        ("int64", 5, "int64_t(5)"),
        ("uint64", 2**64 - 1, "uint64_t(18446744073709551615ull)"),
        ("int8", -3, "int8_t(-3)"),
        ("bool", True, "true"),
    ],
)
def test_literals(cpp: Expressions, dtype: str, value: float, text: str) -> None:
    assert cpp.value(num(value, dtype)) == text


def test_indices_use_plain_operators_and_data_wraps(cpp: Expressions) -> None:
    data = Load("int32", buffer("x", "int32", num(64)), (COUNTER,))
    product = Binary("int32", BinaryOp.MUL, data, num(3))
    assert cpp.index(Binary("int32", BinaryOp.ADD, product, COUNTER)) == "x[i] * 3 + i"
    assert cpp.value(product) == "tile::mul<int32_t>(x[i], 3)"
    # Under a remainder an index wraps too: where it overflows, it is a hash.
    assert cpp.index(Binary("int32", BinaryOp.FLOOR_MOD, product, num(64))) == (
        "tile::floor_mod<int32_t>(tile::mul<int32_t>(x[i], 3), 64)"
    )
    assert cpp.index(Binary("int32", BinaryOp.FLOOR_MOD, COUNTER, num(64))) == "i % 64"


def test_offsets_fold_literals_and_widen_where_the_size_is_symbolic(cpp: Expressions) -> None:
    tile = buffer("t", "float32", num(8), num(16), scope=Scope.SHARED)
    tensor = buffer("A", "float32", SIZE, SIZE)
    start = Binary("int32", BinaryOp.MUL, COUNTER, num(4))
    assert cpp.access(tile, (num(2), num(3))) == "t[35]"
    assert cpp.access(tile, (start, COUNTER)) == "t[i * 64 + i]"
    assert cpp.access(tensor, (COUNTER, num(7))) == "A[int64_t(i) * N + 7]"
    assert element_span(tile) == 128
    assert element_span(tensor) is None


def test_only_guarded_dimensions_are_tested(cpp: Expressions) -> None:
    tensor = buffer("A", "float32", SIZE, num(64))
    before = Binary("int32", BinaryOp.SUB, COUNTER, num(1))
    load = Load("float32", tensor, (COUNTER, before), (0, 1), num(0.0, "float32"))
    assert cpp.value(load) == "i < N && i - 1 >= 0 && i - 1 < 64 ? A[int64_t(i) * 64 + i - 1] : 0.0f"
    cpp.proved_guards = True
    assert cpp.value(load) == "A[int64_t(i) * 64 + i - 1]"


def test_casts(cpp: Expressions) -> None:
    x = Load("float32", buffer("x", "float32", num(4)), (num(0),))
    assert cpp.value(Cast("float16", x)) == "float16(x[0])"
    assert cpp.value(Cast("int8", x)) == "tile::to_integer<int8_t>(x[0])"
    assert cpp.value(Cast("bool", x)) == "tile::convert<bool>(x[0])"
    assert cpp.value(Cast("float32", x)) == "x[0]"


def test_conditions_and_choices(cpp: Expressions) -> None:
    x = Load("float32", buffer("x", "float32", num(4)), (num(0),))
    test = Compare("bool", CompareOp.LT, COUNTER, num(5))
    assert cpp.value(Choose("float32", test, x, num(1.0, "float32"))) == "i < 5 ? x[0] : 1.0f"
    inner = Choose("float32", test, x, x)
    total = Binary("float32", BinaryOp.ADD, inner, x)
    assert cpp.value(total) == "(i < 5 ? x[0] : x[0]) + x[0]"


def test_mathematics_is_the_preamble_s(cpp: Expressions) -> None:
    x = Load("float16", buffer("x", "float16", num(4)), (num(0),))
    assert cpp.value(Math("float16", "exp", (x,))) == "tile::exp(x[0])"
    assert (
        cpp.value(Binary("float16", BinaryOp.MAX, x, num(0.0, "float16"))) == "tile::max<float16>(x[0], float16(0.0))"
    )


def test_counters_of_huge_tensors_have_64_bits() -> None:
    wide = Expressions(Names(), Ranges(), wide_indices=True)
    tensor = buffer("A", "int8", num(3), num(2**31))
    assert wide.index_type("int32") == "int64_t"
    assert wide.access(tensor, (COUNTER, num(5))) == "A[i * 2147483648 + 5]"


def test_what_has_no_meaning_is_refused_with_the_line(cpp: Expressions) -> None:
    cpp.location = Location("kernel.py", 12)
    with pytest.raises(UnsupportedOp, match="some_dialect") as caught:
        cpp.value(OpaqueExpr("float32", "tl.some_dialect"))
    assert caught.value.location == Location("kernel.py", 12)
    with pytest.raises(UnsupportedOp, match="int4"):
        cpp.value(num(1, "int4"))
