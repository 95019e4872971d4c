"""Decoding with multi-head latent attention (DeepSeek-V2): one query a head, all heads over one compressed cache."""

from typing import Any

from core._tilelang import import_tilelang
from core.tiling import kernel, split, stages, threads, tile

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

from core.ops.attention import LOG2_E, PASS_CONFIGS  # noqa: E402


@kernel(out=["O", "partial", "lse"], pass_configs=PASS_CONFIGS)
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

    Args:
        batch: sequences, with one query each.
        M, N: heads, and rows of the cache of a sequence.
        dim, rope: elements of the compressed part (512 in DeepSeek-V2 and V3) and of the rotated one (64).
        scale: of the scores; None is 1 / sqrt(dim + rope). Models that fold a projection into Q give their own.
        dtype: of Q, KV and O, float16 or bfloat16.
    """
    base2 = ((dim + rope) ** -0.5 if scale is None else scale) * LOG2_E
    lowest = -T.infinity("float32")
    columns = T.GemmWarpPolicy.FullCol
    kept = (splits, batch, M) if splits > 1 else (1, 1, 1)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, M, dim), dtype),
        Q_rope: T.Tensor((batch, M, rope), dtype),
        KV: T.Tensor((batch, N, dim), dtype),
        K_rope: T.Tensor((batch, N, rope), dtype),
        lengths: T.Tensor((batch,), "int32"),
        O: T.Tensor((batch, M, dim), dtype),  # noqa: E741  (the papers' letter)
        partial: T.Tensor((*kept, dim), "float32"),
        lse: T.Tensor(kept, "float32"),
    ):
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
            tiles = T.ceildiv(lengths[b], block_N)
            share = T.ceildiv(tiles, splits)
            start = s * share
            count = T.max(0, T.min(share, tiles - start))

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
                if first + block_N > lengths[b]:
                    for i, j in T.Parallel(block_M, block_N):
                        scores[i, j] = T.if_then_else(first + j < lengths[b], scores[i, j], lowest)
                T.copy(row_max, old_max)
                T.reduce_max(scores, row_max, dim=1, clear=False)
                for i in T.Parallel(block_M):
                    rescale[i] = T.exp2(old_max[i] * base2 - row_max[i] * base2)
                for i, j in T.Parallel(block_M, block_N):
                    scores[i, j] = T.exp2(scores[i, j] * base2 - row_max[i] * base2)
                T.reduce_sum(scores, tile_sum, dim=1)
                for i in T.Parallel(block_M):
                    row_sum[i] = row_sum[i] * rescale[i] + tile_sum[i]
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
        if splits > 1:
            with T.Kernel(M, batch, threads=128) as (h, b):
                total = T.alloc_fragment((dim,), "float32")
                largest = T.alloc_var("float32")
                weight = T.alloc_var("float32")
                weight_sum = T.alloc_var("float32")
                largest = lowest
                for s in T.serial(splits):
                    largest = T.max(largest, lse[s, b, h])
                weight_sum = 0.0
                T.clear(total)
                for s in T.serial(splits):
                    weight = T.exp2(lse[s, b, h] - largest)
                    weight_sum = weight_sum + weight
                    for j in T.Parallel(dim):
                        total[j] += weight * partial[s, b, h, j]
                for j in T.Parallel(dim):
                    O[b, h, j] = total[j] / weight_sum

    return main
