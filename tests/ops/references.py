"""What the operators must compute, in float64 with torch, and how far rounding may take them from it."""

from __future__ import annotations

import torch

from tests.kernels.case import EXACT, Tolerance, summed, summed_fp8, torch_dtype


def gemm(a: torch.Tensor, b: torch.Tensor, trans_a: bool = False, trans_b: bool = False) -> torch.Tensor:
    """op(A) @ op(B)."""
    return (a.double().mT if trans_a else a.double()) @ (b.double().mT if trans_b else b.double())


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
