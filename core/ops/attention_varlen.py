"""Attention forward over sequences of different lengths that lie one behind the other in memory: nothing is padded."""

from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError
from core.tiling import kernel, stages, threads, tile

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

from core.ops._attention_steps import in_base_two, online_softmax, sharing  # noqa: E402
from core.ops._dtypes import FLOATS  # noqa: E402
from core.ops.attention import PASS_CONFIGS  # noqa: E402


@kernel(out=["O"], pass_configs=PASS_CONFIGS, dtypes={"dtype": FLOATS}, symbolic=(("heads", "kv_heads"), "M", "N"))
def attention_varlen(
    batch: int,
    heads: int,
    kv_heads: int,
    M: int,
    N: int,
    dim: int,
    *,
    causal: bool = False,
    scale: float | None = None,
    dtype: str = "float16",
    block_M: int = tile("M", multiple=16),
    block_N: int = tile("N", multiple=16),
    num_stages: int = stages(),
    threads: int = threads(),
) -> Any:
    """`core.ops.attention.attention` for each sequence by itself.

    Q and O are (M, heads, dim), K and V (N, kv_heads, dim): the tokens of all sequences, in order. Sequence s has the
    queries `q_offsets[s] <= i < q_offsets[s + 1]` and the keys `k_offsets[s] <= j < k_offsets[s + 1]`; both are
    (batch + 1), int32, ascend from 0 and end with M and N.

    A tile of queries belongs to one sequence, which the block looks up: there are at most `M / block_M + batch` tiles
    whatever the lengths, so no length has to be known when the kernel is launched. The last tile of keys reaches into
    the next sequence, whose keys count for nothing; they must be numbers all the same, because 0 times NaN is NaN.

    Args:
        batch: sequences; any may be empty.
        heads, kv_heads: `heads // kv_heads` query heads share a key head; may be symbolic (`T.dynamic`) as one size.
        M, N: queries and keys of all sequences together; may be symbolic.
        dim: elements of a head, a multiple of 16.
        causal: query i of a sequence sees the keys up to i + keys - queries of its own; those that see none give 0.
        scale: of the scores; None is 1 / sqrt(dim).
        dtype: of the tensors, float16, bfloat16 or float32; sums are in float32.

    Raises:
        ShapeMismatch: it is not computed of `dtype`.
        KernelError: heads cannot be shared evenly, `dim` is no multiple of 16, or `scale` is not above 0.
    """
    group = sharing("attention_varlen", heads, kv_heads)
    if dim % 16:
        raise KernelError(
            f"attention_varlen: heads of {dim} elements", hint="a head has a multiple of 16 elements: pad it with zeros"
        )
    base2 = in_base_two(scale, dim)
    rows = T.GemmWarpPolicy.FullRow
    lowest = -T.infinity("float32")
    # A query that has seen nothing yet has no maximum to subtract.
    advance = online_softmax(block_M, block_N, base2, floor=-1e30)

    @T.prim_func
    def main(
        Q: T.Tensor((M, heads, dim), dtype),
        K: T.Tensor((N, kv_heads, dim), dtype),
        V: T.Tensor((N, kv_heads, dim), dtype),
        q_offsets: T.Tensor((batch + 1,), "int32"),
        k_offsets: T.Tensor((batch + 1,), "int32"),
        O: T.Tensor((M, heads, dim), dtype),  # noqa: E741  (the papers' letter)
    ):
        with T.Kernel(T.ceildiv(M, block_M) + batch, heads, threads=threads) as (x, h):
            q = T.alloc_shared((block_M, dim), dtype)
            k = T.alloc_shared((block_N, dim), dtype)
            v = T.alloc_shared((block_N, dim), dtype)
            o = T.alloc_shared((block_M, dim), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            output = T.alloc_fragment((block_M, dim), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            old_max = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            # The sequence a tile belongs to; one past the last for the tiles left over, which have no queries or keys.
            owner = T.alloc_var("int32", init=batch)
            row = T.alloc_var("int32", init=0)
            before = T.alloc_var("int32", init=0)
            for s in T.serial(batch):
                own = T.ceildiv(q_offsets[s + 1] - q_offsets[s], block_M)
                if x >= before and x < before + own:
                    owner = s
                    row = (x - before) * block_M
                before = before + own
            # Computed, not set by the search: warp specialisation puts some variables' first values behind it.
            next_owner = T.min(owner + 1, batch)
            first = q_offsets[owner] + row
            end = q_offsets[next_owner]
            first_key = k_offsets[owner]
            keys = k_offsets[next_owner] - first_key
            # A query's place in the tile plus this is the last key it sees.
            past = keys - (end - first) if causal else keys
            seen = T.max(0, T.min(keys, past + block_M)) if causal else keys

            T.copy(Q[first : first + block_M, h, :], q)
            T.fill(output, 0)
            T.fill(row_sum, 0)
            T.fill(row_max, lowest)
            # Once at least, which adds nothing where no key is seen: the loop is where a bulk copy of the queries is
            # waited for, and a block must not end before one has arrived.
            for t in T.Pipelined(T.max(1, T.ceildiv(seen, block_N)), num_stages=num_stages):
                start = first_key + t * block_N
                T.copy(K[start : start + block_N, h // group, :], k)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True, policy=rows)
                if causal:
                    for i, j in T.Parallel(block_M, block_N):
                        visible = (t * block_N + j <= i + past) & (t * block_N + j < keys)
                        scores[i, j] = T.if_then_else(visible, scores[i, j], lowest)
                else:
                    if (t + 1) * block_N > keys:
                        for i, j in T.Parallel(block_M, block_N):
                            scores[i, j] = T.if_then_else(t * block_N + j < keys, scores[i, j], lowest)
                advance(scores, row_max, old_max, rescale, tile_sum, row_sum)
                for i, j in T.Parallel(block_M, dim):
                    output[i, j] *= rescale[i]
                T.copy(scores, weights)
                T.copy(V[start : start + block_N, h // group, :], v)
                T.gemm(weights, v, output, policy=rows)
            for i, j in T.Parallel(block_M, dim):
                output[i, j] = T.if_then_else(row_sum[i] > 0, output[i, j] / row_sum[i], 0)
            T.copy(output, o)
            for i, j in T.Parallel(block_M, dim):
                if first + i < end:
                    O[first + i, h, j] = o[i, j]

    return main
