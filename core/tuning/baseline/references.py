"""The right outputs of the operators, by torch in float32. Each is called with the inputs and the case's parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def gemm(a: torch.Tensor, b: torch.Tensor, *, trans_a: bool = False, trans_b: bool = False) -> torch.Tensor:
    """The product of A and B, either stored transposed. 8-bit integers are exact, their sums being below 2**53."""
    import torch

    exact = torch.float32 if a.dtype.is_floating_point else torch.float64
    left, right = a.to(exact), b.to(exact)
    return (left.T if trans_a else left) @ (right.T if trans_b else right)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Softmax of each row."""
    return x.float().softmax(dim=-1)


def layernorm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, *, eps: float = 1e-5) -> torch.Tensor:
    """Each row to mean 0 and variance 1, times the weight, plus the bias."""
    import torch

    return torch.nn.functional.layer_norm(x.float(), x.shape[-1:], weight.float(), bias.float(), eps)


def rmsnorm(x: torch.Tensor, weight: torch.Tensor, *, eps: float = 1e-6) -> torch.Tensor:
    """Each row over its root mean square, times the weight."""
    values = x.float()
    return values * (values.square().mean(dim=-1, keepdim=True) + eps).rsqrt() * weight.float()


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """Softmax of the scores times V, for (batch, heads, length, width); query i of M sees keys up to N - M + i."""
    import torch

    group = q.shape[1] // k.shape[1]
    rows: list[Any] = []
    for batch in range(q.shape[0]):  # one at a time: the scores of all of them need not fit
        keys, values = (tensor[batch].float().repeat_interleave(group, dim=0) for tensor in (k, v))
        scores = q[batch].float() @ keys.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
        if causal:
            seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).tril(
                scores.shape[-1] - scores.shape[-2]
            )
            scores = scores.masked_fill(~seen, float("-inf"))
        rows.append(scores.softmax(dim=-1) @ values)
    return torch.stack(rows)
