"""`core.ops.gemm.gemm`: every layout and type, tails, epilogues, batches; on the CPU and in both simulators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import core
from core.ops.gemm import gemm
from tests.kernels.case import torch_dtype
from tests.ops import references
from tests.properties import compiling

TILES = {"block_M": 32, "block_N": 32, "block_K": 32, "num_stages": 2, "threads": 128, "panel": 0, "policy": 0}
CASES: list[tuple[tuple[int, int, int], dict[str, Any]]] = [
    ((70, 50, 90), {"trans_b": True, "bias": True, "activation": "gelu", "residual": True}),
    ((17, 40, 100), {"trans_a": True, "panel": 2}),
    ((33, 40, 72), {"trans_a": True, "trans_b": True, "batch": 3, "residual": True}),
    ((1, 64, 200), {"block_M": 16, "bias": True, "activation": "silu"}),
    ((40, 64, 64), {"dtype": "bfloat16", "out_dtype": "float32", "batch": 2}),
    ((48, 50, 96), {"dtype": "int8", "bias": True, "activation": "relu"}),
    ((40, 64, 64), {"dtype": "float8_e4m3fn", "trans_b": True}),
]


def random(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    if dtype == "int8":
        return torch.randint(-128, 128, shape, dtype=torch.int8)
    return torch.randn(shape).to(torch_dtype(dtype))


def operands(M: int, N: int, K: int, options: dict[str, Any]) -> list[torch.Tensor]:
    dtype, lead = options.get("dtype", "float16"), (options["batch"],) if "batch" in options else ()
    a = random((*lead, *((K, M) if options.get("trans_a") else (M, K))), dtype)
    return [a, random((*lead, *((N, K) if options.get("trans_b") else (K, N))), dtype)]


def run(target: str, shape: tuple[int, int, int], options: dict[str, Any], device: str = "cpu", **more: Any) -> None:
    """Compiles, calls with poisoned outputs, and compares."""
    check(gemm.compile(*shape, target=target, **{**TILES, **options}, **more), shape, options, device)


def check(kernel: core.Kernel, shape: tuple[int, int, int], options: dict[str, Any], device: str = "cpu") -> None:
    a, b = operands(*shape, options)
    expected = references.gemm(a, b, bool(options.get("trans_a")), bool(options.get("trans_b")))
    result = torch_dtype(kernel.program.signature.arguments[-1].dtype)
    extra = []
    if options.get("bias"):
        extra.append((torch.randn(shape[1]) * 3).to(result))
        expected = expected + extra[-1].double()
    if "activation" in options:
        expected = references.ACTIVATIONS[options["activation"]](expected)
    if options.get("residual"):
        extra.append(torch.randn(expected.shape).to(result))
        expected = expected + extra[-1].double()
    poisoned = torch.full(expected.shape, float("nan") if result.is_floating_point else -(2**30), dtype=result)
    poisoned = poisoned.to(device)
    kernel(*(tensor.to(device) for tensor in (a, b, *extra)), poisoned)
    name = str(result).removeprefix("torch.")
    tolerance = references.gemm_tolerance(options.get("dtype", "float16"), shape[2], name)
    references.assert_near(poisoned.cpu(), expected, tolerance)


@pytest.mark.parametrize(("shape", "options"), CASES)
def test_on_the_cpu(shape, options):
    run("cpu", shape, options)


@pytest.mark.parametrize("target", ["metax:c500", "ascend:910b3"])
@pytest.mark.parametrize(("shape", "options"), [CASES[0], CASES[5]])
def test_in_the_simulators(target, shape, options):
    run(target, shape, options, simulate=True)


def test_a_float_activation_of_integers_is_refused():
    with pytest.raises(core.KernelError, match="gelu cannot be computed of sums in int32"):
        gemm.compile(64, 64, 64, target="cpu", dtype="int8", activation="gelu", **TILES)


@given(
    M=st.integers(1, 70), N=st.integers(1, 70), K=st.integers(1, 150), layout=st.sampled_from(["nn", "nt", "tn", "tt"])
)
@compiling(3)
def test_any_shape(M, N, K, layout):
    run("cpu", (M, N, K), {"trans_a": layout[0] == "t", "trans_b": layout[1] == "t"})


def test_chosen_by_rule():
    check(gemm.compile(48, 80, 64, target="cpu"), (48, 80, 64), {})


def test_the_reference_tells_a_wrong_product():
    a, b = operands(32, 32, 32, {})
    wrong = (a.float() @ b.float()).half()
    wrong[3, 5] += 0.5
    with pytest.raises(AssertionError):
        references.assert_near(wrong, references.gemm(a, b), references.gemm_tolerance("float16", 32, "float16"))
