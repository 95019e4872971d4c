"""Random expression trees: the compiled C++ against the NumPy interpreter, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backends.cpu.build import build
from backends.cpu.chips import host_chip
from backends.cpu.launcher import CpuLauncher
from core.codegen import cpp
from core.compiler import CompileOptions, LoweredKernel
from core.conformance.interpreter import interpret
from core.plugins import BuildRequest
from core.program import (
    Binary,
    BinaryOp,
    Cast,
    Choose,
    Compare,
    CompareOp,
    Const,
    Expr,
    Launch,
    Let,
    Load,
    Logical,
    LogicalOp,
    Math,
    Not,
    Parallel,
    Parameter,
    Scope,
    Storage,
    Store,
    Var,
    VarKind,
    View,
)
from core.program.nodes import Buffer
from core.runtime import Signature
from tests.properties import compiling

ELEMENTS, BLOCK = 53, 20
INTEGERS = ("int8", "uint8", "int16", "int32", "uint32", "int64")
FLOATS = ("float32", "float16", "float64")

BX, I = Var("int32", "bx", VarKind.BLOCK), Var("int32", "i", VarKind.PARALLEL)  # noqa: E741  # the index
INPUTS = {
    dtype: Buffer(
        f"X_{dtype}", dtype, (Const("int32", ELEMENTS),), (Const("int32", 1),),
        Storage(f"X_{dtype}", Scope.GLOBAL, "global"), parameter=number,
    )
    for number, dtype in enumerate((*INTEGERS, *FLOATS))
}  # fmt: skip


def index() -> Expr:
    return Binary("int32", BinaryOp.ADD, Binary("int32", BinaryOp.MUL, BX, Const("int32", BLOCK)), I)


def constants(dtype: str) -> st.SearchStrategy[Expr]:
    if dtype in FLOATS:
        return st.sampled_from([0.0, 1.0, -1.5, 0.1, 3e4, 1e-7, float("inf")]).map(lambda v: Const(dtype, v))
    low, high = (0, 255) if dtype.startswith("u") else (-128, 127)
    return st.integers(low, high).map(lambda v: Const(dtype, v))


@st.composite
def loads(draw: st.DrawFn, dtype: str) -> Expr:
    """An element: at the index, shifted and guarded, or wherever a hash of the index says."""
    form = draw(st.sampled_from(["plain", "shifted", "hashed"]))
    buffer = INPUTS[dtype]
    if form == "hashed":
        hashed = Binary("int32", BinaryOp.MUL, index(), Const("int32", draw(st.sampled_from([7, 1103515245]))))
        at: Expr = Binary("int32", BinaryOp.FLOOR_MOD, hashed, Const("int32", ELEMENTS))
        return Load(dtype, buffer, (at,))
    shift = draw(st.integers(-9, 9)) if form == "shifted" else 0
    at = Binary("int32", BinaryOp.ADD, index(), Const("int32", shift))
    return Load(dtype, buffer, (at,), (0,), draw(constants(dtype)))


def positive(expr: Expr) -> Expr:
    """A divisor: 1 to 8."""
    low = Binary(expr.dtype, BinaryOp.BIT_AND, expr, Const(expr.dtype, 7))
    return Binary(expr.dtype, BinaryOp.ADD, low, Const(expr.dtype, 1))


@st.composite
def values(draw: st.DrawFn, dtype: str, depth: int) -> Expr:
    """A random expression of a dtype, with no undefined behaviour in it."""
    if depth == 0:
        return draw(st.one_of(loads(dtype), constants(dtype)))
    kind = draw(st.sampled_from(["arithmetic", "arithmetic", "minmax", "choose", "cast", "special", "leaf"]))
    if kind == "leaf":
        return draw(loads(dtype))
    a = draw(values(dtype, depth - 1))
    if kind == "choose":
        test = draw(conditions(depth - 1))
        return Choose(dtype, test, a, draw(values(dtype, depth - 1)), draw(st.booleans()))
    if kind == "cast":
        source = draw(st.sampled_from(INTEGERS if dtype in INTEGERS else (*INTEGERS, *FLOATS)))
        inner = draw(values(source, depth - 1))
        return inner if source == dtype else Cast(dtype, inner)
    b = draw(values(dtype, depth - 1))
    if kind == "minmax":
        return Binary(dtype, draw(st.sampled_from([BinaryOp.MIN, BinaryOp.MAX])), a, b)
    if dtype in FLOATS:
        if kind == "special":
            function = draw(st.sampled_from(["floor", "ceil", "trunc", "round", "abs", "sqrt"]))
            return Math(dtype, function, (a,))
        return Binary(dtype, draw(st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL, BinaryOp.DIV])), a, b)
    if kind == "special":
        operation = draw(st.sampled_from(["div", "bits", "shift", "not"]))
        if operation == "div":
            ops = [BinaryOp.DIV, BinaryOp.MOD, BinaryOp.FLOOR_DIV, BinaryOp.FLOOR_MOD]
            divisor = draw(st.one_of(st.integers(1, 100).map(lambda v: Const(dtype, v)), st.just(positive(b))))
            return Binary(dtype, draw(st.sampled_from(ops)), a, divisor)
        if operation == "shift":
            ops = [BinaryOp.SHIFT_LEFT, BinaryOp.SHIFT_RIGHT]
            return Binary(dtype, draw(st.sampled_from(ops)), a, Const(dtype, draw(st.integers(0, 7))))
        if operation == "not":
            return Not(dtype, a)
        return Binary(dtype, draw(st.sampled_from([BinaryOp.BIT_AND, BinaryOp.BIT_OR, BinaryOp.BIT_XOR])), a, b)
    return Binary(dtype, draw(st.sampled_from([BinaryOp.ADD, BinaryOp.SUB, BinaryOp.MUL])), a, b)


@st.composite
def conditions(draw: st.DrawFn, depth: int) -> Expr:
    if depth > 0 and draw(st.booleans()):
        a, b = draw(conditions(depth - 1)), draw(conditions(depth - 1))
        return draw(st.sampled_from([Not("bool", a), Logical("bool", draw(st.sampled_from(list(LogicalOp))), a, b)]))
    dtype = draw(st.sampled_from([*INTEGERS, *FLOATS, "index"]))
    op = draw(st.sampled_from(list(CompareOp)))
    if dtype == "index":
        return Compare("bool", op, index(), Const("int32", draw(st.integers(-5, ELEMENTS))))
    return Compare("bool", op, draw(values(dtype, depth)), draw(values(dtype, depth)))


@dataclass(frozen=True)
class Example:
    """A program that prints as its source: the tree itself fills pages."""

    view: View

    def __repr__(self) -> str:
        text = cpp.generate(self.view, title="random").text
        return text[-6000:]


@st.composite
def programs(draw: st.DrawFn) -> Example:
    """A kernel that stores several random expressions of each dtype it draws, some through a binding."""
    body: list[Any] = []
    parameters = [Parameter(buffer.name, buffer) for buffer in INPUTS.values()]
    for number in range(6):
        dtype = draw(st.sampled_from((*INTEGERS, *FLOATS)))
        out = Buffer(
            f"Y_{number}", dtype, (Const("int32", ELEMENTS),), (Const("int32", 1),),
            Storage(f"Y_{number}", Scope.GLOBAL, "global"), parameter=len(parameters),
        )  # fmt: skip
        parameters.append(Parameter(out.name, out, is_output=True, writes=True))
        value = draw(values(dtype, 4))
        if draw(st.booleans()):
            bound = Var(dtype, f"bound_{number}", VarKind.LET)
            body.append(Let(bound, value))
            value = Binary(dtype, BinaryOp.ADD, bound, bound)
        body.append(Store(out, (index(),), value, (0,)))
    blocks = Const("int32", -(-ELEMENTS // BLOCK))
    loop = Parallel((I,), (Const("int32", BLOCK),), tuple(body))
    return Example(View("random", tuple(parameters), (), (Launch(((BX, blocks),), None, (), (loop,)),)))


def arrays(view: View, seed: int) -> list[np.ndarray[Any, Any]]:
    random = np.random.default_rng(seed)
    made = []
    for parameter in view.parameters:
        assert parameter.buffer is not None
        kind = np.dtype(parameter.buffer.dtype)
        if parameter.is_output:
            made.append(np.zeros(ELEMENTS, kind))
        elif kind.kind == "f":
            x = (random.standard_normal(ELEMENTS) * 10.0 ** random.integers(-3, 4, ELEMENTS)).astype(kind)
            x[:5] = [np.nan, np.inf, -0.0, -np.inf, 65504]
            made.append(x)
        else:
            info = np.iinfo(kind)
            made.append(random.integers(info.min, info.max, ELEMENTS, dtype=kind, endpoint=True))
    return made


@compiling(12)
@given(example=programs(), seed=st.integers(0, 2**16))
def test_compiled_expressions_are_the_interpreter_s(
    tmp_path_factory: pytest.TempPathFactory, example: Example, seed: int
) -> None:
    view = example.view
    folder: Path = tmp_path_factory.mktemp("random")
    source = cpp.generate(view, title="random")
    lowered = LoweredKernel(
        "cpu:host", "cpp", "c++", source.text, source.launches, Signature("random", ()),
        metadata={"function": source.function, "call": {"name": source.call, "types": list(source.call_types)}},
    )  # fmt: skip
    launcher = CpuLauncher(build(host_chip(), lowered, BuildRequest(folder, CompileOptions())))
    want = arrays(view, seed)
    got = [array.copy() for array in want]
    with np.errstate(all="ignore"):
        interpret(view, want)
    launcher(*map(torch.from_numpy, got))
    for parameter, ours, theirs in zip(view.parameters, got, want, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=f"{parameter.name}\n{source.text[-6000:]}")
