"""Decoding with multi-head latent attention (DeepSeek-V2): one query a head, all heads over one compressed cache."""

from collections.abc import Callable
from typing import Any

from core._tilelang import import_tilelang
from core.tiling import choice, kernel, split, stages, threads, tile

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

from core.ops._attention_steps import in_base_two, online_softmax  # noqa: E402
from core.ops._dtypes import FLOATS  # noqa: E402
from core.ops._mla_launch import Shapes, decode  # noqa: E402
from core.ops.attention import PASS_CONFIGS  # noqa: E402
from core.ops.mla_hopper import check, two_groups  # noqa: E402


@kernel(out=["O", "partial", "lse"], pass_configs=PASS_CONFIGS, dtypes={"dtype": FLOATS}, symbolic=("batch", "N"))
def mla_decode(
    batch: int,
    M: int,
    N: int,
    dim: int = 512,
    rope: int = 64,
    *,
    scale: float | None = None,
    dtype: str = "float16",
    block_M: int = tile("M", multiple=16),
    block_N: int = tile("N", multiple=16),
    num_stages: int = stages(),
    threads: int = threads(),
    variant: str = choice("variant", "pipelined", "two_groups", "two_groups_in_turn", by_rule=True),
    splits: int = split("N"),
) -> Any:
    """`O[b, h] = softmax((Q[b, h] · KV[b] + Q_rope[b, h] · K_rope[b]) · scale) KV[b]`, keys up to lengths[b].

    Q and O are (batch, M, dim) and Q_rope (batch, M, rope), where M is the heads; KV is (batch, N, dim) and K_rope
    (batch, N, rope): the compressed cache and its rotated part, one for all heads; lengths is (batch), int32, from 1 to
    N. Sums are in float32. What lies behind a sequence's length counts for nothing but must be numbers, because 0 times
    NaN is NaN.

    A block keeps `block_M` heads and walks over the keys, each tile read once for both products. With `splits > 1`
    several blocks share the keys of a sequence, and a second launch combines what they found; `partial`
    (splits, batch, M, dim) and `lse` (splits, batch, M), both float32, hold it in between. With one they are not
    touched and have one element a row.

    Variants: `pipelined` leaves copies and products to TileLang and is for every chip; `two_groups` and
    `two_groups_in_turn` are scheduled by hand for Hopper (`core.ops.mla_hopper`) and have one tile: 64 heads (of fewer,
    all: `block_M` may be any size that covers them), 64 keys, 2 stages, 256 threads.

    Args:
        batch: sequences, with one query each; it and N may be symbolic (`T.dynamic`).
        M, N: heads, and rows of the cache of a sequence.
        dim, rope: elements of the compressed part (512 in DeepSeek-V2 and V3) and of the rotated one (64).
        scale: of the scores; None is 1 / sqrt(dim + rope). Models that fold a projection into Q give their own.
        dtype: of Q, KV and O, float16, bfloat16 or float32.

    Raises:
        ShapeMismatch: it is not computed of `dtype`.
        KernelError: the scale is not above 0, or float32 does not hold it; a variant does not have the tile, or is not
            for such a cache.
    """
    base2 = in_base_two(scale, dim + rope)
    shapes = Shapes(batch, M, N, dim, rope, splits, dtype)
    if variant == "pipelined":
        return decode(shapes, _pipelined(shapes, base2, block_M, block_N, num_stages, threads))
    check(shapes, block_M, block_N, num_stages, threads)
    return decode(shapes, two_groups(shapes, base2=base2, in_turn=variant == "two_groups_in_turn"))


def _pipelined(
    shapes: Shapes, base2: float, block_M: int, block_N: int, num_stages: int, threads: int
) -> Callable[..., Any]:
    """A macro with the launch that any chip can run."""
    batch, M, N, dim, rope, splits, dtype = shapes
    lowest = -T.infinity("float32")
    columns = T.GemmWarpPolicy.FullCol
    # A share of the keys may be empty, and its maximum nothing that could be subtracted.
    advance = online_softmax(block_M, block_N, base2, floor=-1e30)

    @T.macro
    def macro(Q, Q_rope, KV, K_rope, lengths, O, partial, lse):  # noqa: E741  (the papers' letter)
        with T.Kernel(T.ceildiv(M, block_M), splits, batch, threads=threads) as (x, s, b):
            q = T.alloc_shared((block_M, dim), dtype)
            q_rope = T.alloc_shared((block_M, rope), dtype)
            kv = T.alloc_shared((block_N, dim), dtype)
            k_rope = T.alloc_shared((block_N, rope), dtype)
            weights = T.alloc_shared((block_M, block_N), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            output = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            old_max = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            length = T.min(lengths[b], N)
            tiles = T.ceildiv(length, block_N)
            share = T.ceildiv(tiles, splits)
            start = s * share
            # Once at least, which adds nothing where there is no key: the loop is where a bulk copy of the queries is
            # waited for, and a block must not end before one has arrived.
            count = T.max(1, T.min(share, tiles - start))

            T.copy(Q[b, x * block_M : (x + 1) * block_M, :], q)
            T.copy(Q_rope[b, x * block_M : (x + 1) * block_M, :], q_rope)
            T.fill(output, 0)
            T.fill(row_sum, 0)
            T.fill(row_max, lowest)
            for t in T.Pipelined(count, num_stages=num_stages):
                first = (start + t) * block_N
                T.copy(KV[b, first : first + block_N, :], kv)
                T.copy(K_rope[b, first : first + block_N, :], k_rope)
                T.gemm(q, kv, scores, transpose_B=True, clear_accum=True, policy=columns)
                T.gemm(q_rope, k_rope, scores, transpose_B=True, policy=columns)
                if first + block_N > length:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(first + j < length, scores[i, j], lowest)
                advance(scores, row_max, old_max, rescale, tile_sum, row_sum)
                T.copy(scores, weights)
                for i, j in T.Parallel(block_M, dim):
                    output[i, j] *= rescale[i]
                T.gemm(weights, kv, output, policy=columns)
            # A share without keys adds nothing: zero, with a weight of exp2(-inf).
            for i, j in T.Parallel(block_M, dim):
                output[i, j] = T.if_then_else(row_sum[i] > 0, output[i, j] / row_sum[i], 0)
            if splits == 1:
                T.copy(output, q)
                T.copy(q, O[b, x * block_M : (x + 1) * block_M, :])
            else:
                T.copy(output, partial[s, b, x * block_M : (x + 1) * block_M, :])
                for i in T.Parallel(block_M):
                    row_sum[i] = T.log2(row_sum[i]) + row_max[i] * base2
                T.copy(row_sum, lse[s, b, x * block_M : (x + 1) * block_M])

    launch: Callable[..., Any] = macro
    return launch
