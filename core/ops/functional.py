"""The operators as functions of torch tensors: `functional.gemm(a, b)`, `functional.softmax(x)`.

A kernel is compiled for the shapes, the dtype and the target of a call, tile parameters by the chip's rules, and
remembered: the first call of a kind compiles, the others look it up. The target is the tensors' device, or `target=`;
with `simulate=True` it runs on the chip's CPU simulator. Other keywords are tile parameters of the operator's factory
(`block_M=128`). Everything is forward only, and runs on the current stream.

Tensors are packed in the order the operator reads them; a matrix operand of a product may be transposed
(`gemm(x, weight.mT)`). Nothing is copied or broadcast behind the caller's back: what does not fit is a `ShapeMismatch`.
"""

from __future__ import annotations

from inspect import unwrap
from math import prod
from typing import TYPE_CHECKING, Any

from core.errors import ShapeMismatch
from core.ops._attending import attention, attention_varlen, mla_decode
from core.ops._calling import forget, kernels, on_rows, run
from core.ops._convolution import output_extents
from core.ops._dtypes import result_dtype
from core.ops._graph_ops import graph_operator
from core.ops._operands import (
    apart,
    ascending,
    described,
    dtype_name,
    expect,
    matrix,
    number,
    packed,
    stored,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch
    from torch import Tensor

__all__ = [
    "activation",
    "add_rmsnorm",
    "attention",
    "attention_varlen",
    "conv2d",
    "forget",
    "gated_activation",
    "gelu",
    "gelu_and_mul",
    "gemm",
    "grouped_gemm",
    "kernels",
    "layernorm",
    "linear",
    "mla_decode",
    "relu",
    "rmsnorm",
    "silu",
    "silu_and_mul",
    "softmax",
]


@graph_operator
def gemm(
    a: Tensor,
    b: Tensor,
    *,
    bias: Tensor | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """`activation(a @ b + bias) + residual`, rounded once.

    Args:
        a: (..., M, K); float16, bfloat16, float32, float8_e4m3fn, float8_e5m2 or int8.
        b: (K, N) for all of `a`, or (..., K, N) with the same leading dimensions.
        bias: (N), of the result's dtype.
        activation: a key of `core.ops.activations.ACTIVATIONS`.
        residual: of the result's shape and dtype.
        out_dtype: None is the dtype of `a`, int32 for int8 and float16 for 8-bit floats.
        out: the result's memory, (..., M, N).
        options: `target`, `simulate`, `accum_dtype`, tile parameters.

    Raises:
        ShapeMismatch: shapes, dtypes, strides or devices do not go together.
        KernelError: there is no such activation.
        LaunchError: `out` shares memory with an operand, or what should be a tensor is none.
    """
    expect("gemm", {"a": a, "b": b}, {"bias": bias, "residual": residual, "out": out})
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2] or (b.dim() > 2 and a.shape[:-2] != b.shape[:-2]):
        raise ShapeMismatch(
            f"gemm: {described(a)} @ {described(b)} is no product of matrices",
            hint="a is (..., M, K) and b (K, N), or (..., K, N) with the same leading dimensions; pass weight.mT for a "
            "weight that is stored as (N, K)",
        )
    lead, M, K, N = a.shape[:-2], a.shape[-2], a.shape[-1], b.shape[-1]
    shape = (*lead, M, N)
    # With one b for all, the rows of all matrices are the rows of one.
    batch = prod(lead) if b.dim() > 2 else None
    first = () if batch is None else (batch,)
    rows = M if batch is not None else M * prod(lead)
    a_stored, trans_a = stored("gemm", "a", a, (*first, rows, K))
    b_stored, trans_b = stored("gemm", "b", b, (*first, K, N))
    whole = (*first, rows, N)
    arguments = {
        "M": rows,
        "N": N,
        "K": K,
        "dtype": dtype_name(a),
        "trans_a": trans_a,
        "trans_b": trans_b,
        "batch": batch,
    }
    arguments |= {"bias": bias is not None, "activation": activation, "residual": residual is not None}
    stored_as = result_dtype(dtype_name(a)) if out_dtype is None else str(out_dtype).removeprefix("torch.")
    if out_dtype is not None:
        arguments["out_dtype"] = stored_as
    extra = [] if bias is None else [packed("gemm", "bias", bias, (N,), (N,))]
    if residual is not None:
        extra.append(packed("gemm", "residual", residual, shape, whole))
    memory = None if out is None else packed("gemm", "out", out, shape, whole)
    apart("gemm", out, {"a": a, "b": b})
    operands = [a_stored, b_stored, *extra]
    result = run("gemm.gemm", arguments, operands, memory, options, shapes=[whole], dtype=stored_as)[0]
    return result.view(shape) if out is None else out


#: For functions that are operators of torch themselves.
_gemm: Callable[..., Tensor] = unwrap(gemm)


@graph_operator
def linear(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    activation: str | None = None,
    residual: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    out: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """`x @ weightᵀ + bias`, as `torch.nn.functional.linear`: x (..., K), weight (N, K); else as :func:`gemm`."""
    expect("linear", {"x": x, "weight": weight}, {"bias": bias, "residual": residual, "out": out})
    if x.dim() < 1 or weight.dim() != 2 or x.shape[-1] != weight.shape[1]:
        raise ShapeMismatch(
            f"linear: x is {described(x)} and weight {described(weight)}", hint="they are (..., K) and (N, K)"
        )
    more = {"bias": bias, "activation": activation, "out_dtype": out_dtype, **options}
    if x.dim() > 1:
        return _gemm(x, weight.mT, residual=residual, out=out, **more)
    row = {name: tensor[None] for name, tensor in (("residual", residual), ("out", out)) if tensor is not None}
    return _gemm(x[None], weight.mT, **row, **more)[0]


@graph_operator
def grouped_gemm(a: Tensor, b: Tensor, offsets: Tensor, *, out: Tensor | None = None, **options: Any) -> Tensor:
    """The rows `offsets[g] <= i < offsets[g + 1]` of `a` times `b[g]`, for each group g: the experts of a mixture.

    Args:
        a: (M, K).
        b: (groups, K, N), or transposed (`weight.mT` of (groups, N, K)).
        offsets: (groups + 1), int32, ascending from 0 to M.
        out: the result's memory, (M, N).
        options: `target`, `simulate`, tile parameters.

    Raises:
        ShapeMismatch: as for :func:`gemm`, and offsets on the CPU that do not ascend; elsewhere nobody looks at them.
    """
    expect("grouped_gemm", {"a": a, "b": b, "offsets": offsets}, {"out": out})
    if a.dim() != 2 or b.dim() != 3 or a.shape[1] != b.shape[1] or offsets.shape != (b.shape[0] + 1,):
        raise ShapeMismatch(
            f"grouped_gemm: a is {described(a)}, b {described(b)}, offsets {described(offsets)}",
            hint="they are (M, K), (groups, K, N) and (groups + 1)",
        )
    (M, K), (groups, _, N) = a.shape, b.shape
    ascending("grouped_gemm", "offsets", offsets, M)
    apart("grouped_gemm", out, {"a": a, "b": b})
    b_stored, trans_b = stored("grouped_gemm", "b", b, tuple(b.shape))
    arguments = {"groups": groups, "M": M, "N": N, "K": K, "dtype": dtype_name(a), "trans_b": trans_b}
    operands, dtype = [a, b_stored, offsets], options.get("out_dtype")
    return run("grouped_gemm.grouped_gemm", arguments, operands, out, options, shapes=[(M, N)], dtype=dtype)[0]


@graph_operator
def softmax(x: Tensor, *, out: Tensor | None = None, **options: Any) -> Tensor:
    """Softmax along the last dimension of `x` (..., N), computed in float32; options `target`, `simulate`, tiles."""
    return on_rows("softmax.softmax", x, {}, {}, out, options)


@graph_operator
def layernorm(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5, out: Tensor | None = None, **options: Any
) -> Tensor:
    """`(x - mean) / sqrt(variance + eps) * weight + bias` along the last dimension; weight and bias are (N)."""
    more = {"eps": number("layernorm", "eps", eps, zero=True)}
    return on_rows("layernorm.layernorm", x, {"weight": weight, "bias": bias}, more, out, options)


@graph_operator
def rmsnorm(x: Tensor, weight: Tensor, *, eps: float = 1e-6, out: Tensor | None = None, **options: Any) -> Tensor:
    """`x / sqrt(mean(x²) + eps) * weight` along the last dimension; weight is (N)."""
    more = {"eps": number("rmsnorm", "eps", eps, zero=True)}
    return on_rows("rmsnorm.rmsnorm", x, {"weight": weight}, more, out, options)


@graph_operator
def add_rmsnorm(
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    *,
    eps: float = 1e-6,
    out: tuple[Tensor, Tensor] | None = None,
    **options: Any,
) -> tuple[Tensor, Tensor]:
    """The normalised sum `s = x + residual`, and `s`; see :func:`rmsnorm`. `out` is memory for both, in this order."""
    memory = dict(zip(("out[0]", "out[1]"), out, strict=True)) if out is not None else {}
    expect("add_rmsnorm", {"x": x, "residual": residual, "weight": weight, **memory}, {})
    flat = matrix("add_rmsnorm", "x", x)
    tensors = [packed("add_rmsnorm", "x", x, x.shape, flat)]
    tensors += [packed("add_rmsnorm", "residual", residual, x.shape, flat)]
    tensors += [packed("add_rmsnorm", "weight", weight, flat[1:], flat[1:])]
    results = [packed("add_rmsnorm", name, tensor, x.shape, flat) for name, tensor in memory.items()] or None
    arguments = {"M": flat[0], "N": flat[1], "dtype": dtype_name(x)}
    arguments["eps"] = number("add_rmsnorm", "eps", eps, zero=True)
    normalised, total = run("rmsnorm.add_rmsnorm", arguments, tensors, results, options, shapes=[flat, flat])
    return out if out is not None else (normalised.view(x.shape), total.view(x.shape))


@graph_operator
def activation(x: Tensor, name: str, *, out: Tensor | None = None, **options: Any) -> Tensor:
    """The function `name` (a key of `core.ops.activations.ACTIVATIONS`) of each element of `x`, of any shape."""
    expect("activation", {"x": x}, {"out": out})
    flat = (x.numel(),)
    memory = None if out is None else packed(name, "out", out, x.shape, flat)
    arguments = {"N": x.numel(), "name": name, "dtype": dtype_name(x)}
    tensor = packed(name, "x", x, x.shape, flat)
    result = run("activations.activation", arguments, [tensor], memory, options, shapes=[flat])[0]
    return result.view(x.shape) if out is None else out


@graph_operator
def gated_activation(x: Tensor, name: str, *, out: Tensor | None = None, **options: Any) -> Tensor:
    """The function `name` of the first half of each row times the second half: x (..., 2 N), result (..., N)."""
    expect("gated_activation", {"x": x}, {"out": out})
    rows, columns = matrix("gated_activation", "x", x)
    if columns % 2:
        raise ShapeMismatch(f"gated_activation: the rows of {described(x)} have no halves", hint="x is (..., 2 N)")
    N = columns // 2
    shape = (*x.shape[:-1], N)
    memory = None if out is None else packed(name, "out", out, shape, (rows, N))
    arguments = {"M": rows, "N": N, "name": name, "dtype": dtype_name(x)}
    tensor = packed("gated_activation", "x", x, x.shape, (rows, 2, N))
    apart("gated_activation", out, {"x": x})
    result = run("activations.gated_activation", arguments, [tensor], memory, options, shapes=[(rows, N)])[0]
    return result.view(shape) if out is None else out


def relu(x: Tensor, **options: Any) -> Tensor:
    """`max(x, 0)` of each element; see :func:`activation`."""
    return activation(x, "relu", **options)


def gelu(x: Tensor, *, approximate: str = "none", **options: Any) -> Tensor:
    """Gaussian error linear unit of each element; `approximate` is "none" or "tanh"."""
    return activation(x, "gelu" if approximate == "none" else f"gelu_{approximate}", **options)


def silu(x: Tensor, **options: Any) -> Tensor:
    """`x * sigmoid(x)` of each element; see :func:`activation`."""
    return activation(x, "silu", **options)


def silu_and_mul(x: Tensor, **options: Any) -> Tensor:
    """`silu(x[..., :N]) * x[..., N:]`; see :func:`gated_activation`."""
    return gated_activation(x, "silu", **options)


def gelu_and_mul(x: Tensor, **options: Any) -> Tensor:
    """`gelu(x[..., :N]) * x[..., N:]`; see :func:`gated_activation`."""
    return gated_activation(x, "gelu", **options)


@graph_operator
def conv2d(
    x: Tensor,
    weight: Tensor,
    *,
    stride: int = 1,
    padding: int = 0,
    dilation: int = 1,
    out: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """Convolution of images, channels last.

    Args:
        x: (batch, height, width, channels).
        weight: (size, size, channels, filters).
        stride, padding, dilation: elements, the same in both directions; padding is with zeros.
        out: the result's memory, (batch, height', width', filters).
        options: `target`, `simulate`, tile parameters.

    Raises:
        ShapeMismatch: shapes, dtypes, strides or devices do not go together.
        KernelError: the images are smaller than the weight, or a number is none of elements.
    """
    expect("conv2d", {"x": x, "weight": weight}, {"out": out})
    apart("conv2d", out, {"x": x, "weight": weight})
    if x.dim() != 4 or weight.dim() != 4 or weight.shape[0] != weight.shape[1] or weight.shape[2] != x.shape[3]:
        raise ShapeMismatch(
            f"conv2d: x is {described(x)} and weight {described(weight)}",
            hint="they are (batch, height, width, channels) and (size, size, channels, filters)",
        )
    names = ("batch", "height", "width", "channels")
    arguments: dict[str, Any] = dict(zip(names, x.shape, strict=True))
    arguments |= {"filters": weight.shape[3], "size": weight.shape[0], "dtype": dtype_name(x)}
    arguments |= {"stride": stride, "padding": padding, "dilation": dilation}
    batch, height, width, _ = x.shape
    pixels = output_extents(height, width, weight.shape[0], stride=stride, padding=padding, dilation=dilation)
    shape, dtype = (batch, *pixels, weight.shape[3]), options.get("out_dtype")
    return run("conv2d.conv2d", arguments, [x, weight], out, options, shapes=[shape], dtype=dtype)[0]
