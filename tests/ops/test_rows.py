"""Softmax and the normalisations: whole rows and tiles of them, any width, on the CPU and in both simulators."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.ops.layernorm import layernorm
from core.ops.rmsnorm import add_rmsnorm, rmsnorm
from core.ops.softmax import softmax
from tests.kernels.case import torch_dtype
from tests.ops import references

FACTORIES = {"softmax": softmax, "layernorm": layernorm, "rmsnorm": rmsnorm, "add_rmsnorm": add_rmsnorm}
#: Rows, columns, and the tile: whole rows, and tiles of which the last is partial.
WHOLE, TILED = (7, 100, 4, 128), (6, 200, 2, 64)


def inputs(name: str, M: int, N: int, dtype: str) -> list[torch.Tensor]:
    rows = [torch.randn(M, N) * 2 + 1 for _ in range(2 if name == "add_rmsnorm" else 1)]
    vectors = [torch.randn(N) for _ in range({"softmax": 0, "layernorm": 2}.get(name, 1))]
    return [x.to(torch_dtype(dtype)) for x in (*rows, *vectors)]


def expected(name: str, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    if name == "add_rmsnorm":
        x, residual, weight = tensors
        total = (x.float() + residual.float()).to(x.dtype)
        return [references.rmsnorm(total, weight), total]
    return [getattr(references, name)(*tensors)]


def run(target: str, name: str, shape: tuple[int, int, int, int], dtype: str = "float16", **more: Any) -> None:
    M, N, block_M, block_N = shape
    kernel = FACTORIES[name].compile(
        M, N, target=target, dtype=dtype, block_M=block_M, block_N=block_N, threads=128, **more
    )
    tensors = inputs(name, M, N, dtype)
    wanted = expected(name, tensors)
    outputs = [torch.full((M, N), float("nan"), dtype=torch_dtype(dtype)) for _ in wanted]
    kernel(*tensors, *outputs)
    for got, value in zip(outputs, wanted, strict=True):
        references.assert_near(got, value, references.rows_tolerance(dtype))


@pytest.mark.parametrize("name", FACTORIES)
@pytest.mark.parametrize(("shape", "dtype"), [(WHOLE, "bfloat16"), (TILED, "float32")])
def test_on_the_cpu(name, shape, dtype):
    run("cpu", name, shape, dtype)


@pytest.mark.parametrize(
    ("target", "name", "shape"),
    [
        ("metax:c500", "softmax", WHOLE),
        ("ascend:910b3", "softmax", TILED),
        ("ascend:910b3", "layernorm", WHOLE),
        ("metax:c500", "add_rmsnorm", TILED),
        ("ascend:910b3", "rmsnorm", TILED),
    ],
)
def test_in_the_simulators(target, name, shape):
    run(target, name, shape, simulate=True)


@given(name=st.sampled_from(sorted(FACTORIES)), M=st.integers(1, 9), N=st.integers(1, 300), tiled=st.booleans())
@settings(max_examples=3, deadline=None)
def test_any_shape(name, M, N, tiled):
    run("cpu", name, (M, N, 2, 32 if tiled else 512))


@pytest.mark.parametrize("block_N", [64, 256])
def test_softmax_of_rows_that_are_partly_or_wholly_masked(block_N):
    x = torch.randn(3, 200).half()
    x[0, :130] = x[1, 70:] = x[2] = -torch.inf
    y = softmax.compile(3, 200, target="cpu", block_M=2, block_N=block_N, threads=128)(x)
    references.assert_near(y, references.softmax(x), references.rows_tolerance("float16"))
    assert y[2].isnan().all()


def test_layernorm_of_rows_far_from_zero_keeps_its_variance():
    x = (torch.randn(4, 256) * 0.01 + 100).float()
    weight, bias = torch.ones(256), torch.zeros(256)
    for block_N in (256, 32):
        kernel = layernorm.compile(4, 256, target="cpu", dtype="float32", block_M=2, block_N=block_N, threads=128)
        # The input itself is known to 2^-17 only: 100 has an ulp of 7.6e-6, 1/1300 of the deviation.
        torch.testing.assert_close(
            kernel(x, weight, bias).double(), references.layernorm(x, weight, bias), atol=2e-3, rtol=0
        )


@pytest.mark.parametrize("name", ["softmax", "add_rmsnorm"])
def test_rows_leave_an_h200_in_whole_vectors(name):
    kernel = FACTORIES[name].compile(4096, 4096, target="cuda:h200", block_M=1, block_N=4096, threads=256, build=False)
    source = kernel.get_kernel_source()
    assert "tma_store" in source
    assert "*(uint4*)(X + " in source
