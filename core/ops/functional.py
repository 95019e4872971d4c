"""The operators as functions of torch tensors: `functional.gemm(a, b)`, `functional.softmax(x)`.

A kernel is compiled for the shapes, the dtype and the target of a call, tile parameters by the chip's rules, and
remembered: the first call of a kind compiles, the others look it up. The target is the tensors' device, or `target=`;
with `simulate=True` it runs on the chip's CPU simulator. Other keywords are tile parameters of the operator's factory
(`block_M=128`). Everything is forward only, and runs on the current stream.

Tensors are packed in the order the operator reads them; a matrix operand of a product may be transposed
(`gemm(x, weight.mT)`). Nothing is copied or broadcast behind the caller's back: what does not fit is a `ShapeMismatch`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.errors import ShapeMismatch
from core.ops._calling import described, dtype_name, forget, kernels, matrix, on_rows, packed, run, stored

if TYPE_CHECKING:
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
    """
    if a.dim() < 2 or b.dim() < 2 or a.shape[-1] != b.shape[-2] or (b.dim() > 2 and a.shape[:-2] != b.shape[:-2]):
        raise ShapeMismatch(
            f"gemm: {described(a)} @ {described(b)} is no product of matrices",
            hint="a is (..., M, K) and b (K, N), or (..., K, N) with the same leading dimensions; pass weight.mT for a "
            "weight that is stored as (N, K)",
        )
    lead, M, K, N = a.shape[:-2], a.shape[-2], a.shape[-1], b.shape[-1]
    shape = (*lead, M, N)
    # With one b for all, the rows of all matrices are the rows of one.
    batch = lead.numel() if b.dim() > 2 else None
    first = () if batch is None else (batch,)
    rows = M if batch is not None else M * lead.numel()
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
    if out_dtype is not None:
        arguments["out_dtype"] = str(out_dtype).removeprefix("torch.")
    extra = [tensor for tensor in (bias,) if tensor is not None]
    if residual is not None:
        extra.append(packed("gemm", "residual", residual, shape, whole))
    memory = None if out is None else packed("gemm", "out", out, shape, whole)
    result = run("gemm.gemm", arguments, [a_stored, b_stored, *extra], memory, options)[0]
    return result.view(shape) if out is None else out


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, **options: Any) -> Tensor:
    """`x @ weightᵀ + bias`, as `torch.nn.functional.linear`: x (..., K), weight (N, K); options as for :func:`gemm`."""
    if x.dim() == 1:
        return gemm(x[None], weight.mT, bias=bias, **options)[0]
    return gemm(x, weight.mT, bias=bias, **options)


def grouped_gemm(a: Tensor, b: Tensor, offsets: Tensor, *, out: Tensor | None = None, **options: Any) -> Tensor:
    """The rows `offsets[g] <= i < offsets[g + 1]` of `a` times `b[g]`, for each group g: the experts of a mixture.

    Args:
        a: (M, K).
        b: (groups, K, N), or transposed (`weight.mT` of (groups, N, K)).
        offsets: (groups + 1), int32, ascending from 0 to M.
        out: the result's memory, (M, N).
        options: `target`, `simulate`, tile parameters.

    Raises:
        ShapeMismatch: as for :func:`gemm`.
    """
    if a.dim() != 2 or b.dim() != 3 or a.shape[1] != b.shape[1] or offsets.shape != (b.shape[0] + 1,):
        raise ShapeMismatch(
            f"grouped_gemm: a is {described(a)}, b {described(b)}, offsets {described(offsets)}",
            hint="they are (M, K), (groups, K, N) and (groups + 1)",
        )
    (M, K), (groups, _, N) = a.shape, b.shape
    b_stored, trans_b = stored("grouped_gemm", "b", b, tuple(b.shape))
    arguments = {"groups": groups, "M": M, "N": N, "K": K, "dtype": dtype_name(a), "trans_b": trans_b}
    return run("grouped_gemm.grouped_gemm", arguments, [a, b_stored, offsets], out, options)[0]


def softmax(x: Tensor, *, out: Tensor | None = None, **options: Any) -> Tensor:
    """Softmax along the last dimension of `x` (..., N), computed in float32; options `target`, `simulate`, tiles."""
    return on_rows("softmax.softmax", x, [], {}, out, options)


def layernorm(
    x: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5, out: Tensor | None = None, **options: Any
) -> Tensor:
    """`(x - mean) / sqrt(variance + eps) * weight + bias` along the last dimension; weight and bias are (N)."""
    return on_rows("layernorm.layernorm", x, [weight, bias], {"eps": eps}, out, options)


def rmsnorm(x: Tensor, weight: Tensor, *, eps: float = 1e-6, out: Tensor | None = None, **options: Any) -> Tensor:
    """`x / sqrt(mean(x²) + eps) * weight` along the last dimension; weight is (N)."""
    return on_rows("rmsnorm.rmsnorm", x, [weight], {"eps": eps}, out, options)


def add_rmsnorm(
    x: Tensor, residual: Tensor, weight: Tensor, *, eps: float = 1e-6, **options: Any
) -> tuple[Tensor, Tensor]:
    """The normalised sum `s = x + residual` and `s` itself, both as x: see :func:`rmsnorm`."""
    rows, columns = matrix("add_rmsnorm", "x", x)
    flat = (rows, columns)
    tensors = [packed("add_rmsnorm", "x", x, x.shape, flat)]
    tensors += [packed("add_rmsnorm", "residual", residual, x.shape, flat), weight]
    arguments = {"M": rows, "N": columns, "dtype": dtype_name(x), "eps": eps}
    normalised, total = run("rmsnorm.add_rmsnorm", arguments, tensors, None, options)
    return normalised.view(x.shape), total.view(x.shape)


def activation(x: Tensor, name: str, *, out: Tensor | None = None, **options: Any) -> Tensor:
    """The function `name` (a key of `core.ops.activations.ACTIVATIONS`) of each element of `x`, of any shape."""
    flat = (x.numel(),)
    memory = None if out is None else packed(name, "out", out, x.shape, flat)
    arguments = {"N": x.numel(), "name": name, "dtype": dtype_name(x)}
    result = run("activations.activation", arguments, [packed(name, "x", x, x.shape, flat)], memory, options)[0]
    return result.view(x.shape) if out is None else out


def gated_activation(x: Tensor, name: str, *, out: Tensor | None = None, **options: Any) -> Tensor:
    """The function `name` of the first half of each row times the second half: x (..., 2 N), result (..., N)."""
    rows, columns = matrix("gated_activation", "x", x)
    if columns % 2:
        raise ShapeMismatch(f"gated_activation: the rows of {described(x)} have no halves", hint="x is (..., 2 N)")
    N = columns // 2
    shape = (*x.shape[:-1], N)
    memory = None if out is None else packed(name, "out", out, shape, (rows, N))
    arguments = {"M": rows, "N": N, "name": name, "dtype": dtype_name(x)}
    tensor = packed("gated_activation", "x", x, x.shape, (rows, 2, N))
    result = run("activations.gated_activation", arguments, [tensor], memory, options)[0]
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


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """`softmax(q kᵀ · scale) v` for each head.

    Args:
        q: (batch, heads, M, dim), float16 or bfloat16.
        k, v: (batch, key heads, N, dim); the key heads divide the heads, and each serves as many in turn.
        causal: query i sees the keys up to i + N - M; needs N >= M.
        scale: of the scores; None is 1 / sqrt(dim).
        out: the result's memory, as q.
        options: `target`, `simulate`, tile parameters.

    Raises:
        ShapeMismatch: shapes, dtypes, strides or devices do not go together.
        KernelError: the heads cannot be shared, or causal queries would see no key.
    """
    if q.dim() != 4 or k.dim() != 4 or k.shape != v.shape or (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise ShapeMismatch(
            f"attention: q is {described(q)}, k {described(k)}, v {described(v)}",
            hint="they are (batch, heads, M, dim) and twice (batch, key heads, N, dim)",
        )
    batch, heads, M, dim = q.shape
    arguments: dict[str, Any] = {
        "batch": batch,
        "heads": heads,
        "kv_heads": k.shape[1],
        "M": M,
        "N": k.shape[2],
        "dim": dim,
    }
    arguments |= {"causal": causal, "scale": scale, "dtype": dtype_name(q)}
    return run("attention.attention", arguments, [q, k, v], out, options)[0]


def attention_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_offsets: Tensor,
    k_offsets: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    out: Tensor | None = None,
    **options: Any,
) -> Tensor:
    """:func:`attention` for each of several sequences, which lie one behind the other.

    Args:
        q: (queries, heads, dim) of all sequences, float16 or bfloat16; `dim` is a multiple of 16.
        k, v: (keys, key heads, dim).
        q_offsets, k_offsets: (sequences + 1), int32: where each begins, ascending from 0 to the number of all.
        causal: query i of a sequence sees the keys up to i + keys - queries of its own; those that see none give 0.
        scale: of the scores; None is 1 / sqrt(dim).
        out: the result's memory, as q.
        options: `target`, `simulate`, tile parameters.

    Raises:
        ShapeMismatch: shapes, dtypes, strides or devices do not go together.
        KernelError: the heads cannot be shared.
    """
    if q.dim() != 3 or k.dim() != 3 or k.shape != v.shape or q.shape[2] != k.shape[2] or q_offsets.dim() != 1:
        raise ShapeMismatch(
            f"attention_varlen: q is {described(q)}, k {described(k)}, v {described(v)}, "
            f"q_offsets {described(q_offsets)}",
            hint="they are (queries, heads, dim), twice (keys, key heads, dim), and (sequences + 1)",
        )
    M, heads, dim = q.shape
    arguments: dict[str, Any] = {"batch": q_offsets.shape[0] - 1, "heads": heads, "kv_heads": k.shape[1], "M": M}
    arguments |= {"N": k.shape[0], "dim": dim, "causal": causal, "scale": scale, "dtype": dtype_name(q)}
    return run("attention_varlen.attention_varlen", arguments, [q, k, v, q_offsets, k_offsets], out, options)[0]


def mla_decode(
    q: Tensor,
    q_rope: Tensor,
    kv: Tensor,
    k_rope: Tensor,
    lengths: Tensor,
    *,
    scale: float | None = None,
    **options: Any,
) -> Tensor:
    """One step of decoding with multi-head latent attention: `softmax((q kvᵀ + q_rope k_ropeᵀ) · scale) kv`.

    Args:
        q, q_rope: (batch, heads, dim) and (batch, heads, rope dim), float16 or bfloat16.
        kv, k_rope: (batch, N, dim) and (batch, N, rope dim): the compressed cache, shared by the heads.
        lengths: (batch), int32: keys that count, at least 1.
        scale: of the scores; None is 1 / sqrt(dim + rope dim).
        options: `target`, `simulate`, tile parameters.

    Raises:
        ShapeMismatch: shapes, dtypes, strides or devices do not go together.
    """
    if q.dim() != 3 or kv.dim() != 3 or q_rope.dim() != 3:
        raise ShapeMismatch(
            f"mla_decode: q is {described(q)}, q_rope {described(q_rope)}, kv {described(kv)}",
            hint="they are (batch, heads, dim), (batch, heads, rope dim) and (batch, N, dim)",
        )
    arguments: dict[str, Any] = {"batch": q.shape[0], "M": q.shape[1], "N": kv.shape[1], "dim": q.shape[2]}
    arguments |= {"rope": q_rope.shape[2], "scale": scale, "dtype": dtype_name(q)}
    return run("mla.mla_decode", arguments, [q, q_rope, kv, k_rope, lengths], None, options)[0]


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
    """
    if x.dim() != 4 or weight.dim() != 4 or weight.shape[0] != weight.shape[1] or weight.shape[2] != x.shape[3]:
        raise ShapeMismatch(
            f"conv2d: x is {described(x)} and weight {described(weight)}",
            hint="they are (batch, height, width, channels) and (size, size, channels, filters)",
        )
    names = ("batch", "height", "width", "channels")
    arguments: dict[str, Any] = dict(zip(names, x.shape, strict=True))
    arguments |= {"filters": weight.shape[3], "size": weight.shape[0], "dtype": dtype_name(x)}
    arguments |= {"stride": stride, "padding": padding, "dilation": dilation}
    return run("conv2d.conv2d", arguments, [x, weight], out, options)[0]
