"""Index expressions taken apart: what an axis contributes, what stays, what divides."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.codegen.mlir.affine import Indices
from core.program.evaluate import evaluate
from core.program.intervals import Interval
from core.program.nodes import Binary, BinaryOp, Const, Expr, Var, VarKind
from core.program.walk import subexpressions

ROW, COLUMN = (Var("int32", name, VarKind.PARALLEL) for name in "ij")
BLOCK, SIZE = Var("int32", "b", VarKind.BLOCK), Var("int32", "n", VarKind.SYMBOL)
EXTENTS = {ROW: 6, COLUMN: 8}


def indices() -> Indices:
    axes = {ROW: 0, COLUMN: 1}
    ranges = {var: Interval(0, extent - 1, True, frozenset({var})) for var, extent in EXTENTS.items()}
    ranges[BLOCK] = Interval(0, 9, True, frozenset({BLOCK}))
    return Indices(
        lambda var: axes.get(var),
        lambda var: None,
        lambda expr: any(item in axes for item in subexpressions(expr) if isinstance(item, Var)),
        lambda axis: (6, 8)[axis],
        ranges,
    )


def op(kind: BinaryOp, a: Expr, b: Expr) -> Binary:
    return Binary("int32", kind, a, b)


def const(value: int) -> Const:
    return Const("int32", value)


@pytest.mark.parametrize(
    ("expr", "factors"),
    [
        (op(BinaryOp.ADD, op(BinaryOp.MUL, BLOCK, const(16)), ROW), {0: 1}),
        (op(BinaryOp.SUB, const(15), ROW), {0: -1}),
        (op(BinaryOp.ADD, op(BinaryOp.MUL, ROW, const(8)), COLUMN), {0: 8, 1: 1}),
        (op(BinaryOp.SUB, op(BinaryOp.ADD, ROW, COLUMN), ROW), {1: 1}),
        (op(BinaryOp.FLOOR_DIV, op(BinaryOp.ADD, op(BinaryOp.MUL, BLOCK, const(32)), COLUMN), const(8)), {}),
        (op(BinaryOp.FLOOR_MOD, op(BinaryOp.ADD, op(BinaryOp.MUL, BLOCK, const(32)), COLUMN), const(8)), {1: 1}),
        (op(BinaryOp.FLOOR_DIV, op(BinaryOp.MUL, ROW, const(4)), const(2)), {0: 2}),
    ],
)
def test_forms(expr: Expr, factors: dict[int, int]) -> None:
    found = indices().affine(expr)
    assert found is not None
    assert dict(found.factors) == factors


@pytest.mark.parametrize(
    "expr",
    [
        op(BinaryOp.MUL, ROW, COLUMN),
        op(BinaryOp.MUL, ROW, SIZE),
        op(BinaryOp.FLOOR_DIV, COLUMN, const(3)),
        op(BinaryOp.MIN, ROW, const(3)),
    ],
)
def test_what_is_no_sum_of_axes(expr: Expr) -> None:
    assert indices().affine(expr) is None


EXPRESSIONS = st.recursive(
    st.sampled_from([ROW, COLUMN, BLOCK]) | st.integers(-20, 40).map(const),
    lambda inner: (
        st.builds(
            op,
            st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD]),
            inner,
            inner,
        )
        | st.builds(lambda a, c: op(BinaryOp.FLOOR_DIV, a, const(c)), inner, st.integers(1, 9))
        | st.builds(lambda a, c: op(BinaryOp.DIV, a, const(c)), inner, st.integers(1, 9))
    ),
    max_leaves=6,
)


@given(EXPRESSIONS)
def test_the_parts_add_up_to_the_expression(expr: Expr) -> None:
    found = indices().affine(expr)
    if found is None:
        return
    for i, j, b in itertools.product(range(EXTENTS[ROW]), (0, 3, 7), (0, 1, 9)):
        wanted = evaluate(expr, {ROW: i, COLUMN: j, BLOCK: b})
        rest = evaluate(found.rest, {BLOCK: b})
        if wanted is None or rest is None:
            continue  # a division by zero
        assert rest + found.factors.get(0, 0) * i + found.factors.get(1, 0) * j == wanted
