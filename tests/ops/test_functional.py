"""`core.ops.functional`: what the operators compute from torch tensors, what is remembered, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as reference

import core
from core.ops import functional

TILES = {"block_M": 16, "block_N": 32, "threads": 128}
PRODUCT = {**TILES, "block_K": 32, "num_stages": 1, "panel": 0, "policy": 0}


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape).half()


def near(got: torch.Tensor, expected: torch.Tensor) -> None:
    """One rounding to float16 of values up to a few dozen."""
    torch.testing.assert_close(got.double(), expected.double(), atol=4e-3, rtol=2e-3)


def test_products_of_matrices_and_batches():
    a, b, weight = half(2, 3, 20, 64), half(2, 3, 48, 64), half(48, 64)
    bias, residual = half(48), half(2, 3, 20, 48)
    near(functional.gemm(a, b.mT, **PRODUCT), a.double() @ b.double().mT)
    got = functional.gemm(a, weight.mT, bias=bias, activation="silu", residual=residual, **PRODUCT)
    near(got, reference.silu(reference.linear(a.double(), weight.double(), bias.double())) + residual.double())
    out = torch.full((48, 48), float("nan"), dtype=torch.float16)
    assert functional.gemm(weight, weight.mT, out=out, **PRODUCT) is out
    near(out, weight.double() @ weight.double().mT)


def test_rows_of_any_rank():
    x, weight = half(3, 5, 100), half(100)
    wide, scale = x.double(), weight.double()
    near(functional.softmax(x, **TILES), wide.softmax(-1))
    near(functional.layernorm(x, weight, weight, **TILES), reference.layer_norm(wide, (100,), scale, scale))
    normalised, total = functional.add_rmsnorm(x, x, weight, **TILES)
    near(total, wide + wide)
    near(normalised, reference.rms_norm(wide + wide, (100,), scale, 1e-6))


def test_activations_of_any_rank():
    x = half(3, 5, 100)
    near(
        functional.gelu(x, approximate="tanh", block_N=128, threads=128), reference.gelu(x.double(), approximate="tanh")
    )
    near(functional.silu_and_mul(x, **TILES), reference.silu(x[..., :50].double()) * x[..., 50:].double())


def test_attention_with_shared_keys():
    q, k, v = half(1, 4, 20, 32), half(1, 2, 33, 32), half(1, 2, 33, 32)
    wide = [tensor.double() for tensor in (q, k.repeat_interleave(2, 1), v.repeat_interleave(2, 1))]
    got = functional.attention(q, k, v, block_M=16, block_N=16, num_stages=1, threads=128)
    near(got, reference.scaled_dot_product_attention(*wide))
    offsets = torch.tensor([0, 7, 20], dtype=torch.int32), torch.tensor([0, 20, 33], dtype=torch.int32)
    rows = [tensor[0].transpose(0, 1).contiguous() for tensor in (q, k, v)]
    got = functional.attention_varlen(*rows, *offsets, block_M=16, block_N=16, num_stages=1, threads=128)
    for queries, keys in ((slice(0, 7), slice(0, 20)), (slice(7, 20), slice(20, 33))):
        own = [tensor[0][:, part] for tensor, part in zip(wide, (queries, keys, keys), strict=True)]
        near(got[queries].transpose(0, 1), reference.scaled_dot_product_attention(*own))


def test_a_kernel_is_remembered_for_its_shape_dtype_and_target():
    functional.forget()
    x = half(4, 64)
    for tensor in (x, x.clone(), x.view(2, 2, 64)):
        functional.softmax(tensor, **TILES)
    (kernel,) = functional.kernels()
    assert kernel.target.startswith("cpu")
    functional.softmax(x.float(), **TILES)
    functional.softmax(x[:2], **TILES)
    functional.softmax(x, target="ascend:910b3", simulate=True, **TILES)
    assert len(functional.kernels()) == 4
    assert {one.simulated for one in functional.kernels()} == {False, True}


REFUSED: list[tuple[str, type[core.TileHALError], str]] = [
    ("gemm(a, a)", core.ShapeMismatch, r"float16\[20, 64\] @ float16\[20, 64\] is no product"),
    ("gemm(a[:, ::2], a[:, :32].contiguous().mT)", core.ShapeMismatch, r"a \(float16\[20, 32\]\) has strides"),
    ("gemm(a, a.mT, residual=a)", core.ShapeMismatch, r"residual is float16\[20, 64\], expected \(20, 20\)"),
    ("gemm(a, a.mT, activation='swish')", core.KernelError, "no activation 'swish'"),
    ("gemm(a, a.float().mT, **PRODUCT)", core.ShapeMismatch, "is float16, got float32"),
    ("softmax(a.mT)", core.ShapeMismatch, r"x \(float16\[64, 20\]\) has strides"),
    ("softmax(a[:0])", core.ShapeMismatch, "which has no rows"),
    ("softmax(a, out=a[0])", core.ShapeMismatch, r"out is float16\[64\], expected \(20, 64\)"),
    ("silu_and_mul(a[:, :33].contiguous())", core.ShapeMismatch, "have no halves"),
    ("relu(a.float().requires_grad_())", core.LaunchError, "activation has no backward"),
    ("attention(a, a, a)", core.ShapeMismatch, r"attention: q is float16\[20, 64\]"),
    ("grouped_gemm(a, a, a)", core.ShapeMismatch, r"grouped_gemm: a is float16\[20, 64\]"),
    ("attention_varlen(a, a, a, a, a)", core.ShapeMismatch, r"attention_varlen: q is float16\[20, 64\]"),
    ("conv2d(a, a)", core.ShapeMismatch, r"conv2d: x is float16\[20, 64\]"),
    ("mla_decode(a, a, a, a, a)", core.ShapeMismatch, r"mla_decode: q is float16\[20, 64\]"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_does_not_fit_is_refused(call: str, error: type[core.TileHALError], message: str):
    names: dict[str, Any] = {name: getattr(functional, name) for name in functional.__all__}
    with pytest.raises(error, match=message) as caught:
        eval(call, {**names, "a": half(20, 64), "PRODUCT": PRODUCT})
    assert caught.value.hint
