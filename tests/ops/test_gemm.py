"""`core.ops.gemm.gemm`: every layout and type, tails, split rows; on the CPU and in both simulators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ops.gemm import gemm
from tests.kernels.case import torch_dtype
from tests.ops import references

TILES = {"block_M": 32, "block_N": 32, "block_K": 32, "num_stages": 2, "threads": 128, "panel": 0, "policy": 0}
CASES: list[tuple[tuple[int, int, int], dict[str, Any]]] = [
    ((64, 64, 64), {}),
    ((70, 50, 90), {"trans_b": True}),
    ((17, 40, 100), {"trans_a": True}),
    ((33, 40, 72), {"trans_a": True, "trans_b": True}),
    ((1, 64, 200), {"block_M": 16}),
    ((96, 100, 64), {"panel": 2}),
    ((40, 64, 64), {"dtype": "bfloat16", "out_dtype": "float32"}),
    ((48, 64, 96), {"dtype": "int8"}),
    ((40, 64, 64), {"dtype": "float8_e4m3fn", "trans_b": True}),
]


def operands(M: int, N: int, K: int, dtype: str, trans_a: bool, trans_b: bool) -> list[torch.Tensor]:
    shapes = ((K, M) if trans_a else (M, K), (N, K) if trans_b else (K, N))
    if dtype == "int8":
        return [torch.randint(-128, 128, shape, dtype=torch.int8) for shape in shapes]
    return [torch.randn(shape).to(torch_dtype(dtype)) for shape in shapes]


def run(target: str, shape: tuple[int, int, int], options: dict[str, Any], **more: Any) -> None:
    kernel = gemm.compile(*shape, target=target, **{**TILES, **options}, **more)
    layout = (bool(options.get("trans_a")), bool(options.get("trans_b")))
    dtype = options.get("dtype", "float16")
    a, b = operands(*shape, dtype, *layout)
    poisoned = torch.empty(shape[:2], dtype=kernel(a, b).dtype)
    poisoned.fill_(float("nan") if poisoned.is_floating_point() else -(2**30))
    kernel(a, b, poisoned)
    tolerance = references.gemm_tolerance(dtype, shape[2], str(poisoned.dtype).removeprefix("torch."))
    references.assert_near(poisoned, references.gemm(a, b, *layout), tolerance)


@pytest.mark.parametrize(("shape", "options"), CASES)
def test_on_the_cpu(shape, options):
    run("cpu", shape, options)


@pytest.mark.parametrize("target", ["metax:c500", "ascend:910b3"])
@pytest.mark.parametrize(("shape", "options"), [CASES[1], CASES[2], CASES[4], CASES[7]])
def test_in_the_simulators(target, shape, options):
    run(target, shape, options, simulate=True)


@pytest.mark.parametrize(
    "options", [{}, {"trans_a": True, "trans_b": True}, {"dtype": "float8_e4m3fn", "trans_b": True}]
)
def test_warpgroup_instructions_and_tma_on_hopper(options):
    tiles = {"block_M": 128, "block_N": 128, "block_K": 64, "threads": 256, "num_stages": 3, "panel": 8, "policy": 1}
    source = gemm.compile(256, 256, 256, target="cuda:h200", **tiles, **options, build=False).get_kernel_source()
    assert "wgmma_ss" in source
    assert "tma_load" in source
    assert "tma_store" in source  # the tile of C leaves through shared memory


@given(
    M=st.integers(1, 70), N=st.integers(1, 70), K=st.integers(1, 150), layout=st.sampled_from(["nn", "nt", "tn", "tt"])
)
@settings(max_examples=8, deadline=None)
def test_any_shape(M, N, K, layout):
    run("cpu", (M, N, K), {"trans_a": layout[0] == "t", "trans_b": layout[1] == "t"})


def test_chosen_by_rule():
    kernel = gemm.compile(48, 80, 64, target="cpu")
    a, b = operands(48, 80, 64, "float16", False, False)
    references.assert_near(kernel(a, b), references.gemm(a, b), references.gemm_tolerance("float16", 64, "float16"))


def test_the_reference_tells_a_wrong_product():
    a, b = operands(32, 32, 32, "float16", False, False)
    wrong = (a.float() @ b.float()).half()
    wrong[3, 5] += 0.5
    with pytest.raises(AssertionError):
        references.assert_near(wrong, references.gemm(a, b), references.gemm_tolerance("float16", 32, "float16"))
