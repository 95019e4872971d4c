"""Which arguments of a factory may be symbolic sizes, and what those may be while they are measured."""

from typing import Any

import numpy as np
import pytest
import tilelang.language as T
import torch

import core


def twice(
    rows: int,
    pairs: int,
    partners: int,
    width: int,
    *,
    batch: int | None = None,
    block: int = core.tile("rows", maximum=16),
    threads: int = core.threads(),
) -> Any:
    shape = (rows, pairs + partners, width)

    @T.prim_func
    def main(A: T.Tensor(shape, "float32"), P: T.Tensor((pairs,), "float32"), B: T.Tensor(shape, "float32")):
        with T.Kernel(T.ceildiv(rows, block), pairs + partners, threads=threads) as (bx, by):
            for i, j in T.Parallel(block, width):
                B[bx * block + i, by, j] = A[bx * block + i, by, j] + A[bx * block + i, by, j]

    return main


SYMBOLIC = ("rows", ("pairs", "partners"))
declared = core.kernel(twice, out=["B"], symbolic=SYMBOLIC)
nothing = core.kernel(twice, out=["B"], symbolic=())
undeclared = core.kernel(twice, out=["B"])
FIXED = {"rows": 20, "pairs": 2, "partners": 2, "width": 8}


def test_what_is_declared_is_computed_for_any_size() -> None:
    size = T.dynamic("size")
    kernel = declared.compile(T.dynamic("rows"), size, size, 8, target="cpu")
    for rows, pairs in ((3, 1), (40, 3)):
        a = torch.randn(rows, 2 * pairs, 8)
        assert torch.equal(kernel(a, torch.ones(pairs)), 2 * a)


def test_what_is_not_declared_is_refused() -> None:
    allowed = "symbolic may be rows, pairs and partners (as one size)"
    with pytest.raises(core.KernelError) as caught:
        declared.compile(**{**FIXED, "width": T.dynamic("w")}, target="cpu")
    assert caught.value.message == f"twice: width is symbolic, and its kernels are made for one width: {allowed}"
    assert "--param width=NUMBER" in caught.value.hint
    assert caught.value.details["argument"] == "width"
    for name, other in (("pairs", "partners"), ("partners", "pairs")):
        # A size of the same name is another size.
        for beside in (2, T.dynamic(name)):
            with pytest.raises(core.KernelError) as caught:
                declared.rank(**{**FIXED, name: T.dynamic(name), other: beside}, target="cuda:h200")
            assert allowed in caught.value.message
            assert "is symbolic, and" in caught.value.message
            assert "pairs=size, partners=size" in caught.value.hint
    with pytest.raises(core.KernelError, match=r"rows is symbolic.*no argument may be symbolic"):
        nothing.compile(**{**FIXED, "rows": T.dynamic("rows")}, target="cpu")


def test_a_factory_that_declares_nothing_is_asked_for_nothing() -> None:
    kernel = undeclared.compile(**{**FIXED, "pairs": T.dynamic("pairs")}, target="cpu")
    a = torch.randn(20, 5, 8)
    assert torch.equal(kernel(a, torch.ones(3)), 2 * a)


def test_a_declaration_names_arguments() -> None:
    with pytest.raises(core.KernelError, match="symbolic names 'row', which is not an argument"):
        core.kernel(twice, symbolic=("rows", ("pairs", "row")))


@core.kernel(out=["B"])
def between(parts: int, *, threads: int = core.threads()) -> Any:
    """Elements between the `parts + 1` ends of parts: the number of parts is the extent of no tensor."""

    @T.prim_func
    def main(A: T.Tensor((parts + 1,), "float32"), B: T.Tensor((parts + 1,), "float32")):
        with T.Kernel(parts, threads=threads) as bx:
            B[bx] = A[bx + 1]

    return main


@pytest.mark.parametrize("target", ["cpu", "cuda:h200", "metax:c500", "ascend:910b3"])
def test_a_size_that_no_call_says_is_refused_when_it_is_traced(target: str) -> None:
    with pytest.raises(core.ShapeMismatch, match="between: no argument's shape determines parts") as caught:
        between.rank(T.dynamic("parts"), target=target)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert between.rank(7, target=target).candidates


@pytest.mark.parametrize("extent", [0, -4, True, 2.0, "64", None])
def test_a_size_is_measured_at_a_number_of_elements(extent: Any) -> None:
    with pytest.raises(core.KernelError, match=r"twice: rows cannot be .* while it is measured") as caught:
        declared.tune(**{**FIXED, "rows": T.dynamic("rows")}, symbols={"rows": extent}, target="cpu")
    assert "symbols={'rows': 4096}" in caught.value.hint


def test_an_optional_int_is_an_int() -> None:
    assert declared.arguments((), {**FIXED, "batch": np.int64(3)})["batch"] == 3
    assert type(declared.arguments((), {**FIXED, "batch": np.int64(3)})["batch"]) is int
    assert declared.arguments((), FIXED)["batch"] is None
    with pytest.raises(core.KernelError, match="batch='3', and batch is an int"):
        declared.arguments((), {**FIXED, "batch": "3"})
