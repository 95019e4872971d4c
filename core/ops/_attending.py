"""The forms of attention as functions of torch tensors, for `core.ops.functional`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from core.errors import ShapeMismatch
from core.ops._calling import run
from core.ops._graph_ops import graph_operator
from core.ops._operands import apart, ascending, between, described, dtype_name, expect, number

if TYPE_CHECKING:
    from torch import Tensor


@graph_operator
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
        q: (batch, heads, M, dim), float16, bfloat16 or float32.
        k, v: (batch, key heads, N, dim); the key heads divide the heads, and each serves as many in turn.
        causal: query i sees the keys up to i + N - M; needs N >= M.
        scale: of the scores; None is 1 / sqrt(dim).
        out: the result's memory, as q.
        options: `target`, `simulate`, tile parameters.

    Raises:
        ShapeMismatch: shapes, dtypes, strides or devices do not go together.
        KernelError: the heads cannot be shared, causal queries would see no key, or `scale` is not above 0.
        LaunchError: `out` shares memory with the keys or values.
    """
    expect("attention", {"q": q, "k": k, "v": v}, {"out": out})
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
    arguments |= {"causal": causal, "scale": _scale("attention", scale), "dtype": dtype_name(q)}
    apart("attention", out, {"q": q, "k": k, "v": v})
    return run("attention.attention", arguments, [q, k, v], out, options, shapes=[q.shape])[0]


@graph_operator
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
        q: (queries, heads, dim) of all sequences, float16, bfloat16 or float32; `dim` is a multiple of 16.
        k, v: (keys, key heads, dim).
        q_offsets, k_offsets: (sequences + 1), int32: where each begins, ascending from 0 to the number of all.
        causal: query i of a sequence sees the keys up to i + keys - queries of its own; those that see none give 0.
        scale: of the scores; None is 1 / sqrt(dim).
        out: the result's memory, as q.
        options: `target`, `simulate`, tile parameters.

    Raises:
        ShapeMismatch: shapes, dtypes, strides or devices do not go together; offsets on the CPU do not ascend (on a
            device nobody looks at them).
        KernelError: the heads cannot be shared, or `scale` is not above 0.
        LaunchError: `out` shares memory with the keys or values.
    """
    given = {"q": q, "k": k, "v": v, "q_offsets": q_offsets, "k_offsets": k_offsets}
    expect("attention_varlen", given, {"out": out})
    heads_fit = q.dim() == 3 and k.dim() == 3 and k.shape == v.shape and q.shape[2] == k.shape[2]
    if not heads_fit or q_offsets.dim() != 1 or q_offsets.shape != k_offsets.shape or q_offsets.numel() < 2:
        raise ShapeMismatch(
            f"attention_varlen: q is {described(q)}, k {described(k)}, v {described(v)}, "
            f"q_offsets {described(q_offsets)}, k_offsets {described(k_offsets)}",
            hint="they are (queries, heads, dim), twice (keys, key heads, dim), and twice (sequences + 1)",
        )
    M, heads, dim = q.shape
    ascending("attention_varlen", "q_offsets", q_offsets, M)
    ascending("attention_varlen", "k_offsets", k_offsets, k.shape[0])
    apart("attention_varlen", out, {"q": q, "k": k, "v": v})
    arguments: dict[str, Any] = {"batch": q_offsets.shape[0] - 1, "heads": heads, "kv_heads": k.shape[1], "M": M}
    arguments |= {"N": k.shape[0], "dim": dim, "causal": causal, "dtype": dtype_name(q)}
    arguments["scale"] = _scale("attention_varlen", scale)
    tensors = [q, k, v, q_offsets, k_offsets]
    return run("attention_varlen.attention_varlen", arguments, tensors, out, options, shapes=[q.shape])[0]


@graph_operator
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
        q, q_rope: (batch, heads, dim) and (batch, heads, rope dim), float16, bfloat16 or float32.
        kv, k_rope: (batch, N, dim) and (batch, N, rope dim): the compressed cache, shared by the heads.
        lengths: (batch), int32: keys that count, at least 1.
        scale: of the scores; None is 1 / sqrt(dim + rope dim).
        options: `target`, `simulate`, tile parameters.

    Raises:
        ShapeMismatch: shapes, dtypes, strides or devices do not go together; a length on the CPU is not from 1 to N (on
            a device nobody looks at them).
        KernelError: `scale` is not above 0.
    """
    expect("mla_decode", {"q": q, "q_rope": q_rope, "kv": kv, "k_rope": k_rope, "lengths": lengths}, {})
    if q.dim() != 3 or kv.dim() != 3 or q_rope.dim() != 3:
        raise ShapeMismatch(
            f"mla_decode: q is {described(q)}, q_rope {described(q_rope)}, kv {described(kv)}",
            hint="they are (batch, heads, dim), (batch, heads, rope dim) and (batch, N, dim)",
        )
    arguments: dict[str, Any] = {"batch": q.shape[0], "M": q.shape[1], "N": kv.shape[1], "dim": q.shape[2]}
    arguments |= {"rope": q_rope.shape[2], "scale": _scale("mla_decode", scale), "dtype": dtype_name(q)}
    between("mla_decode", "lengths", lengths, 1, kv.shape[1])
    tensors = [q, q_rope, kv, k_rope, lengths]
    return run("mla.mla_decode", arguments, tensors, None, options, shapes=[q.shape])[0]


def _scale(operator: str, scale: float | None) -> float | None:
    """Scores are masked before they are scaled, so a factor that is not above 0 would turn them round."""
    return None if scale is None else number(operator, "scale", scale, zero=False)
