"""Every kernel of the corpus computes what torch does on the CPU backend, and compiles to source for an H200."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import core
from tests.kernels import (
    EXACT,
    Case,
    Tolerance,
    all_kernels,
    compare,
    construct,
    elementwise,
    gemm,
    reduction,
    silent_kernels,
)
from tests.kernels.case import randn, summed, torch_dtype
from tests.kernels.silent import Silent, silent_cases
from tests.properties import compiling, first_of_each

CASES = all_kernels()
SILENT = silent_cases()


def fresh_generator() -> torch.Generator:
    """A generator that gives the numbers of this test and this run."""
    return torch.Generator().manual_seed(torch.initial_seed())


def agree_on_the_cpu(case: Case) -> None:
    """Compiles for the CPU, runs with fresh data, compares with torch."""
    inputs = case.inputs(fresh_generator())
    case.check(case.run(case.compile("cpu"), inputs), inputs)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_agrees_with_torch_on_the_cpu(case: Case) -> None:
    agree_on_the_cpu(case)


@pytest.mark.parametrize(
    "case",
    first_of_each([case for case in CASES if not case.stock_refusal], construct),
    ids=lambda case: case.name,
)
def test_compiles_to_source_for_an_h200(case: Case) -> None:
    assert "__global__" in case.compile("cuda:h200").get_kernel_source()


@pytest.mark.parametrize("case", [case for case in CASES if case.stock_refusal], ids=lambda case: case.name)
def test_what_stock_refuses_is_refused_with_its_reason_or_works_on_an_h200(case: Case) -> None:
    refusal: core.TileHALError | None = None
    source = ""
    try:
        source = case.compile("cuda:h200").get_kernel_source()
    except core.TileHALError as error:
        refusal = error
    if refusal is None:
        assert "__global__" in source
    else:
        assert case.stock_refusal in f"{refusal} {refusal.details} {refusal.__cause__}"
        assert refusal.hint


def test_the_corpus_is_as_wide_as_promised() -> None:
    kernels = {id(case.kernel) for case in CASES}
    assert len(kernels) >= 45
    assert {case.style for case in CASES} == {"factory", "lazy", "eager"}
    tags = set().union(*(case.tags for case in CASES))
    promised = """
        elementwise tail broadcast cast condition gemm nn nt tn tt float16 bfloat16 int8 float32 float8_e4m3fn batched
        grouped atomics dynamic persistent epilogue accumulate-float16 gemv softmax online norm rope cumsum cummax
        reverse top-k pool conv im2col attention causal gqa sink masked linear-attention retention int4 quantise
        block-sparse transpose reduce sum abssum max absmax min bitand bitor bitxor keep-old non-power-of-two histogram
        scatter gather argmax while variable view scalar reducer rank-3 rank-4 3d-grid several-launches indirect strided
        macro
    """.split()
    assert not set(promised) - tags


def test_inputs_are_fresh_and_repeatable() -> None:
    for case in CASES:
        again = [case.inputs(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)]
        same = [torch.equal(a, b) for a, b in zip(*again[:2], strict=True) if isinstance(a, torch.Tensor)]
        changed = [not torch.equal(a, b) for a, b in zip(*again[1:], strict=True) if isinstance(a, torch.Tensor)]
        assert all(same), case.name
        assert any(changed), case.name


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_wrong_result_is_noticed(case: Case) -> None:
    """The check is a real one: it accepts the reference and refuses it with one element off by twice the allowance."""
    inputs = case.inputs(fresh_generator())
    expected = [output.double().contiguous() for output in case.expected(inputs)]
    assert case.check(expected, inputs) == 0.0
    for position, output in enumerate(expected):
        wrong = [other.clone() for other in expected]
        flat = wrong[position].view(-1)
        place = output.numel() // 2
        flat[place] += 1e-3 + 2.0 * (case.tolerance.atol + case.tolerance.rtol * flat[place].abs())
        with pytest.raises(AssertionError, match=f"output {position}"):
            case.check(wrong, inputs)


def test_comparison_treats_nan_and_infinity_exactly() -> None:
    special = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    loose = Tolerance(10.0, 10.0, "anything finite")
    assert compare(special, special, EXACT, "same") == 0.0
    for wrong in ([0.0, 3.4e38, -3.4e38, float("nan")], [float("inf"), -float("inf"), float("inf"), 1.0]):
        with pytest.raises(AssertionError, match=r"[34] of 4"):
            compare(torch.tensor(wrong), special, loose, "special values")
    with pytest.raises(AssertionError, match="shape"):
        compare(special[:3], special, loose, "shapes")


@pytest.mark.parametrize("silent", [entry for entry in SILENT if not entry.refusal], ids=lambda entry: entry.name)
def test_silent_difference_has_its_honest_value_on_the_cpu(silent: Silent) -> None:
    agree_on_the_cpu(silent.case)


@pytest.mark.parametrize("target", ["cpu", "cuda:h200"])
@pytest.mark.parametrize("silent", [entry for entry in SILENT if entry.refusal], ids=lambda entry: entry.name)
def test_silent_difference_without_a_value_is_refused_with_its_line(silent: Silent, target: str) -> None:
    with pytest.raises(getattr(core, silent.refusal)) as caught:
        silent.case.compile(target)
    assert caught.value.location is not None
    assert caught.value.location.file == silent_kernels.__file__
    assert caught.value.hint


@pytest.mark.parametrize("silent", [entry for entry in SILENT if not entry.refusal], ids=lambda entry: entry.name)
def test_silent_difference_compiles_or_is_refused_with_its_line_on_an_h200(silent: Silent) -> None:
    """Whether the source computes the right value needs a device: scripts/gpu_corpus.py."""
    refusal: core.TileHALError | None = None
    try:
        assert "__global__" in silent.case.compile("cuda:h200").get_kernel_source()
    except core.TileHALError as error:
        refusal = error
    if refusal is not None:
        assert refusal.location is not None
        assert refusal.location.file == silent_kernels.__file__
        assert refusal.hint


# Any size and tile, not only those of the corpus: few examples, since each is a kernel of its own to build.
FEW = compiling(8)


@FEW
@given(
    length=st.integers(1, 3000), block=st.integers(1, 600), dtype=st.sampled_from(["float32", "float16", "bfloat16"])
)
def test_addition_of_any_length_in_any_tile(length: int, block: int, dtype: str) -> None:
    agree_on_the_cpu(
        Case(
            "property.add",
            elementwise.add,
            lambda gen: [randn(gen, length, dtype=torch_dtype(dtype)) for _ in range(2)],
            torch.add,
            EXACT,
            args=(length,),
            kwargs={"block_N": block, "dtype": dtype},
        )
    )


@FEW
@given(
    sizes=st.tuples(*[st.integers(1, 150)] * 3),
    tiles=st.tuples(*[st.sampled_from([16, 32, 48, 64, 128])] * 3),
    transposed=st.tuples(st.booleans(), st.booleans()),
    dtype=st.sampled_from(["float16", "bfloat16", "float32"]),
)
def test_product_of_any_shape_in_any_tile(
    sizes: tuple[int, int, int], tiles: tuple[int, int, int], transposed: tuple[bool, bool], dtype: str
) -> None:
    (M, N, K), (block_M, block_N, block_K), (a_is_t, b_is_t) = sizes, tiles, transposed
    shapes = ((K, M) if a_is_t else (M, K), (N, K) if b_is_t else (K, N))
    options = {"block_M": block_M, "block_N": block_N, "block_K": block_K, "dtype": dtype, "out_dtype": "float32"}
    agree_on_the_cpu(
        Case(
            "property.gemm",
            gemm.gemm,
            lambda gen: [randn(gen, *shape, dtype=torch_dtype(dtype)) for shape in shapes],
            lambda a, b: (a.mT if a_is_t else a).double() @ (b.mT if b_is_t else b).double(),
            summed(max(K, 16)),
            args=(M, N, K, a_is_t, b_is_t),
            kwargs=options,
        )
    )


@FEW
@given(
    rows=st.integers(1, 40),
    columns=st.integers(1, 300),
    block=st.integers(1, 20),
    kind=st.sampled_from(["sum", "abssum", "max", "absmax", "min"]),
)
def test_reduction_of_any_shape_in_any_tile(rows: int, columns: int, block: int, kind: str) -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        values = x.double().abs() if kind.startswith("abs") else x.double()
        return {"sum": values.sum, "max": values.amax, "min": values.amin}[kind.removeprefix("abs")](1)

    agree_on_the_cpu(
        Case(
            "property.reduce",
            reduction.reduce_rows,
            lambda gen: [randn(gen, rows, columns)],
            reference,
            summed(max(columns, 16)) if kind.endswith("sum") else EXACT,
            args=(rows, columns, kind),
            kwargs={"block_M": block, "ragged": True},
        )
    )
