"""What the C++ family knows about integer expressions."""

from __future__ import annotations

import pytest

from core.codegen.cpp.ranges import Ranges, affine_coefficient
from core.program import Binary, BinaryOp, Cast, Const, Expr, Load, Var, VarKind
from core.program.nodes import Buffer, Scope, Storage


def var(name: str, kind: VarKind = VarKind.LOOP, dtype: str = "int32") -> Var:
    return Var(dtype, name, kind)


def num(value: int, dtype: str = "int32") -> Const:
    return Const(dtype, value)


def op(operator: BinaryOp, a: Expr, b: Expr) -> Binary:
    return Binary(a.dtype, operator, a, b)


ADD, SUB, MUL, FLOOR_DIV, FLOOR_MOD = (
    BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD,
)  # fmt: skip


def test_bounds_follow_loops_through_arithmetic() -> None:
    ranges, i, b = Ranges(), var("i"), var("b", VarKind.BLOCK)
    ranges.enter_loop(b, num(0), num(8))
    ranges.enter_loop(i, num(2), num(10))
    index = op(ADD, op(MUL, b, num(16)), i)
    assert ranges.bounds(index) == (2, 7 * 16 + 11)
    assert ranges.bounds(op(SUB, i, b)) == (2 - 7, 11)
    assert ranges.bounds(op(FLOOR_DIV, op(SUB, i, num(5)), num(4))) == (-1, 1)
    assert ranges.bounds(op(FLOOR_MOD, index, num(16))) == (0, 15)
    assert ranges.bounds(op(FLOOR_MOD, i, num(64))) == (2, 11)


@pytest.mark.parametrize(("start", "extent"), [(0, 5), (-3, 4), (7, 1)])
def test_bounds_are_the_values_a_loop_takes(start: int, extent: int) -> None:
    ranges, i = Ranges(), var("i")
    ranges.enter_loop(i, num(start), num(extent))
    taken = range(start, start + extent)
    expr = op(SUB, op(MUL, i, num(-3)), num(2))
    values = [v * -3 - 2 for v in taken]
    assert ranges.bounds(expr) == (min(values), max(values))


def test_symbolic_sizes_are_not_negative() -> None:
    ranges, n = Ranges(), var("N", VarKind.SYMBOL)
    assert ranges.is_nonnegative(op(SUB, op(ADD, n, num(64)), num(1)))  # T.ceildiv's dividend
    assert not ranges.is_nonnegative(op(SUB, n, num(1)))
    assert ranges.bounds(n) is None


def test_a_hash_is_no_index() -> None:
    ranges, i = Ranges(), var("i", VarKind.PARALLEL)
    ranges.enter_loop(i, num(0), num(100000))
    assert ranges.counts(op(ADD, op(MUL, i, num(128)), num(5)))
    assert not ranges.counts(op(ADD, op(MUL, i, num(1103515245)), num(12345)))
    symbolic = var("bx", VarKind.BLOCK)
    assert ranges.counts(op(MUL, symbolic, num(4096)))
    assert not ranges.counts(op(MUL, symbolic, num(1664525)))


def test_data_is_no_index() -> None:
    storage = Storage("A", Scope.GLOBAL, "global")
    data = Buffer("A", "int32", (num(4),), (num(1),), storage)
    assert not Ranges().counts(Load("int32", data, (num(0),)))


def test_a_let_of_an_index_is_an_index_with_its_bounds() -> None:
    ranges, i, row = Ranges(), var("i"), var("row", VarKind.LET)
    ranges.enter_loop(i, num(0), num(16))
    assert not ranges.is_index(row)
    ranges.enter_let(row, op(ADD, i, num(3)))
    assert ranges.is_index(row)
    assert ranges.bounds(row) == (3, 18)


def test_fits_looks_at_every_step() -> None:
    ranges, i = Ranges(), var("i", dtype="int8")
    ranges.enter_loop(i, num(0, "int8"), num(100, "int8"))
    assert ranges.fits(op(ADD, i, num(28, "int8")))
    assert not ranges.fits(op(ADD, i, num(29, "int8")))
    down_again = op(SUB, op(ADD, i, num(60, "int8")), num(60, "int8"))
    assert not ranges.fits(down_again)


def test_coefficients_of_linear_indices() -> None:
    i, j, k = var("i"), var("j"), var("k")
    loops = frozenset({id(i), id(j)})
    index = op(ADD, op(SUB, op(MUL, i, num(8)), j), op(MUL, k, num(3)))
    assert affine_coefficient(index, loops) == {id(i): 8, id(j): -1}
    assert affine_coefficient(Cast("int64", index), loops) == {id(i): 8, id(j): -1}
    assert affine_coefficient(op(FLOOR_DIV, i, num(2)), loops) is None
    assert affine_coefficient(op(MUL, i, j), loops) is None
    assert affine_coefficient(op(FLOOR_DIV, k, num(2)), loops) == {}
