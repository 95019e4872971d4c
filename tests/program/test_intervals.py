"""Bounds of index expressions and their evaluation, against brute force."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from core.conformance.interpreter.machine import Machine
from core.program import Binary, BinaryOp, Const, Expr, Load, Scope, Storage, Var, VarKind
from core.program.evaluate import evaluate
from core.program.expressions import add, constant, multiply, to_python
from core.program.intervals import Interval, bounds, loop_range
from core.program.nodes import Buffer
from tests.properties import examples

VARIABLES = tuple(Var("int32", name, VarKind.LOOP) for name in "ijk")
SIZES = (3, 4, 5)
RANGES = {var: Interval(0, size - 1, True, frozenset({var})) for var, size in zip(VARIABLES, SIZES, strict=True)}

leaves = st.one_of(st.integers(-4, 6).map(constant), st.sampled_from(VARIABLES))
operators = st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.MIN, BinaryOp.MAX])
divisions = st.sampled_from([BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD])
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda op, a, b: Binary("int32", op, a, b), operators, inner, inner),
        st.builds(lambda op, a, b: Binary("int32", op, a, constant(b)), divisions, inner, st.integers(1, 5)),
    ),
    max_leaves=6,
)


def brute_force(expr: Expr) -> list[int]:
    machine = Machine(backwards=False)
    taken = []
    for point in itertools.product(*(range(size) for size in SIZES)):
        machine.variables.update(zip(VARIABLES, point, strict=True))
        taken.append(int(machine.value(expr)))
    return taken


@examples(300)
@given(trees)
def test_bounds_hold_and_exact_ones_are_reached(expr):
    taken = brute_force(expr)
    interval = bounds(expr, RANGES)
    assert interval is not None
    assert interval.low <= min(taken)
    assert max(taken) <= interval.high
    if interval.exact:
        assert (interval.low, interval.high) == (min(taken), max(taken))


@examples(200)
@given(trees)
def test_evaluation_and_python_text_agree_with_the_interpreter(expr):
    taken = brute_force(expr)
    text = compile(to_python(expr), "<expression>", "eval")
    for point, expected in zip(itertools.product(*(range(size) for size in SIZES)), taken, strict=True):
        assert evaluate(expr, dict(zip(VARIABLES, point, strict=True))) == expected
        assert eval(text, dict(zip("ijk", point, strict=True))) == expected


def test_a_variable_used_twice_is_not_exact():
    i = VARIABLES[0]
    interval = bounds(Binary("int32", BinaryOp.SUB, i, i), RANGES)
    assert (interval.low, interval.high, interval.exact) == (-2, 2, False)


def test_what_reads_memory_has_no_bounds():
    storage = Storage("A", Scope.GLOBAL, "global")
    buffer = Buffer("A", "int32", (constant(4),), (constant(1),), storage)
    assert bounds(Load("int32", buffer, (constant(0),)), RANGES) is None
    assert evaluate(Load("int32", buffer, (constant(0),)), {}) is None


def test_loops_that_may_not_run_have_no_range():
    i = VARIABLES[0]
    assert loop_range(i, Interval(0, 0, True), Interval(0, 3, True)) is None
    assert loop_range(i, Interval(2, 2, True), Interval(3, 3, True)) == Interval(2, 4, True, frozenset({i}))


@given(st.integers(-9, 9), st.integers(-9, 9))
def test_folding(a, b):
    assert add(constant(a), constant(b)) == constant(a + b)
    assert multiply(constant(a), constant(b)) == constant(a * b)
    assert add(VARIABLES[0], constant(0)) is VARIABLES[0]
    assert multiply(constant(1), VARIABLES[0]) is VARIABLES[0]
    assert multiply(constant(0), VARIABLES[0]) == Const("int32", 0)
