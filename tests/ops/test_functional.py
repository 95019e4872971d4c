"""`core.ops.functional`: what the operators compute from torch tensors, what is remembered, and what is refused."""

from __future__ import annotations

import re
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.nn import functional as reference

import core
from core.ops import functional
from core.ops._operands import apart

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


def test_results_go_where_they_are_told_to():
    x, weight, bias = half(5, 64), half(48, 64), half(48)
    row, residual, out = x[0], half(48), torch.empty(48).half()
    got = functional.linear(row, weight, bias, residual=residual, out=out, **PRODUCT)
    assert (got.shape, got.data_ptr()) == ((48,), out.data_ptr())
    near(out, reference.linear(row.double(), weight.double(), bias.double()) + residual.double())
    pair = torch.full((3, 5, 100), float("nan")).half(), torch.full((3, 5, 100), float("nan")).half()
    y = half(3, 5, 100)
    assert functional.add_rmsnorm(y, y, half(100), out=pair, **TILES) is pair
    near(pair[1], y.double() * 2)
    # A row is read before it is written, so these may be in place.
    z = y.clone()
    near(functional.softmax(z, out=z, **TILES), y.double().softmax(-1))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64])
def test_products_are_summed_in_a_type_that_holds_them(dtype: torch.dtype):
    a, b = (torch.randn(20, 32, dtype=torch.float64) * 2**16).to(dtype), torch.randn(32, 20, dtype=torch.float64)
    b = (b * 2**16).to(dtype)
    got = functional.gemm(a, b, **PRODUCT)
    assert got.dtype == dtype
    # Sums near 2**35 in float32 would be off by 2**10.
    torch.testing.assert_close(got, a @ b, rtol=0, atol=2.0**-10)


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
    # Rows of several matrices are one matrix only where they lie one behind the other.
    ("gemm(t.mT, g[0])", core.ShapeMismatch, r"gemm: a \(float16\[2, 20, 64\]\) has strides \(1280, 1, 20\)"),
    ("gemm(t[:, ::2].mT, t[:, ::2])", core.ShapeMismatch, r"gemm: a \(float16\[2, 20, 32\]\) has strides"),
    ("gemm(t.mT, t[:, :, ::2])", core.ShapeMismatch, r"gemm: b \(float16\[2, 64, 10\]\) has strides"),
    ("gemm(a, a.mT, residual=a)", core.ShapeMismatch, r"residual is float16\[20, 64\], expected \(20, 20\)"),
    ("gemm(a, a.mT, activation='swish')", core.KernelError, "no activation 'swish'"),
    ("gemm(a, a.float().mT, **PRODUCT)", core.ShapeMismatch, "is float16, got float32"),
    ("softmax(a.mT)", core.ShapeMismatch, r"x \(float16\[64, 20\]\) has strides"),
    ("softmax(a[:0])", core.ShapeMismatch, "which has no rows"),
    ("softmax(a, out=a[0])", core.ShapeMismatch, r"out is float16\[64\], expected \(20, 64\)"),
    ("silu_and_mul(a[:, :33].contiguous())", core.ShapeMismatch, "have no halves"),
    ("relu(a.float().requires_grad_())", core.LaunchError, "activation has no backward"),
    ("relu(a.float(), out=a.float().requires_grad_())", core.LaunchError, "activation has no backward"),
    # What is no tensor.
    ("gemm(None, a)", core.LaunchError, "gemm: a is a tensor, got NoneType"),
    ("gemm(a, a.mT, bias=1.0)", core.LaunchError, "gemm: bias is a tensor, got float"),
    ("softmax([[1.0]])", core.LaunchError, "softmax: x is a tensor, got list"),
    ("layernorm(a, None, None)", core.LaunchError, "layernorm: weight is a tensor, got NoneType"),
    ("linear(a, a.numpy())", core.LaunchError, "linear: weight is a tensor, got ndarray"),
    ("grouped_gemm(a, a[None], [0, 20])", core.LaunchError, "grouped_gemm: offsets is a tensor, got list"),
    ("attention_varlen(a, a, a, [0], [0])", core.LaunchError, "attention_varlen: q_offsets is a tensor, got list"),
    # What would lose digits, or has no such function.
    ("softmax(a.double())", core.ShapeMismatch, "softmax has no dtype float64: it is one of float16, bfloat16"),
    ("silu(a.int())", core.ShapeMismatch, "activation has no dtype int32 with these arguments: it is one of float16"),
    ("relu(a.bool())", core.ShapeMismatch, "activation has no dtype bool"),
    ("silu_and_mul(a.long())", core.ShapeMismatch, "gated_activation has no dtype int64"),
    ("attention(*[a.double().view(1, 1, 20, 64)] * 3)", core.ShapeMismatch, "attention has no dtype float64"),
    ("conv2d(i.int(), w.int())", core.ShapeMismatch, "conv2d has no dtype int32 with these arguments"),
    # Vectors and shapes by the names that the caller knows.
    ("gemm(a, a.mT, bias=a[0])", core.ShapeMismatch, r"gemm: bias is float16\[64\], expected \(20,\)"),
    ("layernorm(a, a[0], a[0, ::2])", core.ShapeMismatch, r"layernorm: bias is float16\[32\], expected \(64,\)"),
    ("rmsnorm(a, a.mT[:20].mT[0])", core.ShapeMismatch, r"rmsnorm: weight is float16\[20\], expected \(64,\)"),
    ("linear(a, a[0])", core.ShapeMismatch, r"linear: x is float16\[20, 64\] and weight float16\[64\]"),
    ("linear(a[0, 0], a)", core.ShapeMismatch, r"linear: x is float16\[\] and weight"),
    # Numbers that would give others or NaN in silence.
    ("layernorm(a, a[0], a[0], eps=-1e-5)", core.KernelError, "layernorm: eps=-1e-05, and it is a number of 0 or more"),
    ("rmsnorm(a, a[0], eps=float('nan'))", core.KernelError, "rmsnorm: eps=nan"),
    ("rmsnorm(a, a[0], eps=None)", core.KernelError, "rmsnorm: eps=None"),
    ("add_rmsnorm(a, a, a[0], eps=a[0, 0])", core.KernelError, r"add_rmsnorm: eps=tensor\("),
    (
        "attention(*[a.view(1, 1, 20, 64)] * 3, scale=0)",
        core.KernelError,
        "attention: scale=0, and it is a number above",
    ),
    ("attention(*[a.view(1, 1, 20, 64)] * 3, scale=-0.5)", core.KernelError, "attention: scale=-0.5"),
    ("attention_varlen(*q, o, o, scale=float('inf'))", core.KernelError, "attention_varlen: scale=inf"),
    ("mla_decode(*m, o[1:], scale='1')", core.KernelError, "mla_decode: scale='1'"),
    ("conv2d(i, w, stride=0)", core.KernelError, "conv2d: stride=0, and it is an integer of 1 or more"),
    ("conv2d(i, w, stride=(1, 1))", core.KernelError, r"conv2d: stride=\(1, 1\)"),
    ("conv2d(i, w, padding=-1)", core.KernelError, "conv2d: padding=-1, and it is an integer of 0 or more"),
    ("conv2d(i, w, dilation=0)", core.KernelError, "conv2d: dilation=0"),
    ("conv2d(i[:, :2], w)", core.KernelError, "images of 2 x 6 with padding 0 are smaller than a weight of 3 x 3"),
    # Offsets and lengths, which a kernel takes as addresses.
    (
        "grouped_gemm(a, g, o + 1)",
        core.ShapeMismatch,
        "grouped_gemm: offsets go from 1 to 21, and must ascend from 0 to 20",
    ),
    ("grouped_gemm(a, h, p)", core.ShapeMismatch, "grouped_gemm: offsets go from 0 to 20, and must ascend"),
    ("grouped_gemm(a, g, o.flip(0))", core.ShapeMismatch, "grouped_gemm: offsets go from 20 to 0"),
    ("attention_varlen(*q, o, o * 2)", core.ShapeMismatch, "attention_varlen: k_offsets go from 0 to 40"),
    ("attention_varlen(*q, o, o[:1])", core.ShapeMismatch, r"k_offsets int32\[1\]"),
    ("attention_varlen(*q, o[:1], o[:1])", core.ShapeMismatch, r"q_offsets int32\[1\]"),
    ("mla_decode(*m, o[:1])", core.ShapeMismatch, "mla_decode: lengths are from 0 to 0, and must be from 1 to 20"),
    ("mla_decode(*m, o[1:] + 1)", core.ShapeMismatch, "mla_decode: lengths are from 21 to 21"),
    # What is read after it was written.
    ("gemm(s, s, out=s)", core.LaunchError, "gemm: out shares memory with a, which is still read"),
    ("gemm(s, s.clone().mT, out=s)", core.LaunchError, "gemm: out shares memory with a"),
    (
        "silu_and_mul(a, out=a.view(-1)[:640].view(20, 32))",
        core.LaunchError,
        "gated_activation: out shares memory with x",
    ),
    ("attention(*r, out=r[1])", core.LaunchError, "attention: out shares memory with k"),
    ("attention(a, a, a)", core.ShapeMismatch, r"attention: q is float16\[20, 64\]"),
    ("grouped_gemm(a, a, a)", core.ShapeMismatch, r"grouped_gemm: a is float16\[20, 64\]"),
    ("attention_varlen(a, a, a, a, a)", core.ShapeMismatch, r"attention_varlen: q is float16\[20, 64\]"),
    ("conv2d(a, a)", core.ShapeMismatch, r"conv2d: x is float16\[20, 64\]"),
    ("mla_decode(a, a, a, a, a)", core.ShapeMismatch, r"mla_decode: q is float16\[20, 64\]"),
]


def operands() -> dict[str, Any]:
    """What the calls above name."""
    return {
        "PRODUCT": PRODUCT,
        "a": half(20, 64),
        "s": half(16, 16),
        "t": half(2, 64, 20),
        "g": half(1, 64, 16),
        "h": half(3, 64, 16),
        "p": torch.tensor([0, 12, 8, 20], dtype=torch.int32),
        "o": torch.tensor([0, 20], dtype=torch.int32),
        "q": [half(20, 1, 16), half(20, 1, 16), half(20, 1, 16)],
        "r": [half(1, 1, 20, 16), half(1, 1, 20, 16), half(1, 1, 20, 16)],
        "m": [half(1, 1, 64), half(1, 1, 16), half(1, 20, 64), half(1, 20, 16)],
        "i": half(1, 5, 6, 4),
        "w": half(3, 3, 4, 8),
    }


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_does_not_fit_is_refused(call: str, error: type[core.TileHALError], message: str):
    names: dict[str, Any] = {name: getattr(functional, name) for name in functional.__all__}
    with pytest.raises(error, match=message) as caught:
        eval(call, {**names, **operands()})
    assert caught.value.hint


def test_an_operand_reaches_from_its_first_element_to_its_last_whatever_its_strides():
    memory = torch.zeros(64)
    operand = memory.as_strided((2, 3), (20, 8), 4)  # elements 4, 12, 20, 24, 32 and 40
    for first, end, shares in ((0, 4, False), (0, 5, True), (40, 41, True), (41, 64, False), (5, 12, True)):
        with pytest.raises(core.LaunchError, match="shares memory with x") if shares else nullcontext():
            apart("copy", memory[first:end], {"x": operand})


@pytest.mark.parametrize(
    ("call", "message", "hint"),
    [
        (
            lambda x: functional.softmax(x, dim=0),
            "softmax has no option 'dim'",
            r"softmax\(x, out\) is: .* last dimension",
        ),
        (lambda x: functional.softmax(x, block_m=4), "softmax has no option 'block_m'", "did you mean 'block_M'"),
        (lambda x: functional.relu(x, targt="cpu"), "activation has no option 'targt'", "did you mean 'target'"),
    ],
)
def test_a_keyword_that_no_option_has_is_answered_with_what_the_function_takes(call, message, hint):
    with pytest.raises(core.KernelError, match=message) as caught:
        call(torch.zeros(4, 8))
    assert re.search(hint, caught.value.hint)
