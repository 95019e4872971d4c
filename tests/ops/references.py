"""What the operators must compute, in float64 with torch, and how far rounding may take them from it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.kernels.case import EXACT, Tolerance, summed, summed_fp8, torch_dtype


def gemm(a: torch.Tensor, b: torch.Tensor, trans_a: bool = False, trans_b: bool = False) -> torch.Tensor:
    """op(A) @ op(B)."""
    return (a.double().mT if trans_a else a.double()) @ (b.double().mT if trans_b else b.double())


#: The activations by name.
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
}


def gemm_tolerance(dtype: str, K: int, out_dtype: str) -> Tolerance:
    """Exact for integers; for floats what a sum of K products in float32 may lose."""
    if dtype == "int8":
        return EXACT
    return summed_fp8(K, out_dtype) if dtype.startswith("float8") else summed(K, out_dtype)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Along the last dimension; a row of nothing but minus infinity is NaN."""
    return torch.softmax(x.double(), -1)


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
    """Along the last dimension, with the variance that divides by N."""
    return torch.nn.functional.layer_norm(x.double(), (x.shape[-1],), weight.double(), bias.double(), eps)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    """Along the last dimension."""
    wide = x.double()
    return wide / torch.sqrt((wide * wide).mean(-1, keepdim=True) + eps) * weight.double()


def rows_tolerance(dtype: str) -> Tolerance:
    """Row operators compute in float32 and round once; values are of the order of 1 to 10."""
    rounding = torch.finfo(torch_dtype(dtype)).eps
    return Tolerance(2e-6 + rounding / 64, rounding, f"float32 throughout, rounded once to {dtype}")


def assert_near(got: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> None:
    """Every element within the tolerance, NaN where NaN is expected."""
    torch.testing.assert_close(
        got.double(), expected.double(), atol=tolerance.atol, rtol=tolerance.rtol, equal_nan=True
    )


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """softmax(Q Kᵀ · scale) V by head; causal queries end with the keys."""
    group = q.shape[1] // k.shape[1]
    k, v = (x.double().repeat_interleave(group, 1) for x in (k, v))
    scores = q.double() @ k.mT * (q.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        hidden = torch.ones_like(scores, dtype=torch.bool).triu(k.shape[2] - q.shape[2] + 1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(-1) @ v


def mla_decode(
    q: torch.Tensor, q_rope: torch.Tensor, kv: torch.Tensor, k_rope: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    """One query a head over the first `lengths` rows of a cache that all heads share."""
    scores = q.double() @ kv.double().mT + q_rope.double() @ k_rope.double().mT
    scores = scores * (q.shape[-1] + q_rope.shape[-1]) ** -0.5
    beyond = torch.arange(kv.shape[1], device=kv.device) >= lengths[:, None, None]
    return scores.masked_fill(beyond, -torch.inf).softmax(-1) @ kv.double()


def attention_tolerance(dtype: str) -> Tolerance:
    """Weights at most 1 and results of the order of 1, both rounded to `dtype`; sums in float32."""
    rounding = torch.finfo(torch_dtype(dtype)).eps
    return Tolerance(2 * rounding, 2 * rounding, f"weights and result rounded to {dtype}")


def conv2d(x: torch.Tensor, weight: torch.Tensor, stride: int, padding: int, dilation: int) -> torch.Tensor:
    """Channels last; weights as (size, size, channels, filters)."""
    y = torch.nn.functional.conv2d(
        x.double().permute(0, 3, 1, 2),
        weight.double().permute(3, 2, 0, 1),
        stride=stride,
        padding=padding,
        dilation=dilation,
    )
    return y.permute(0, 2, 3, 1)
