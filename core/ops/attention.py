"""Attention forward: softmax(Q Kᵀ · scale) V in one pass over tiles of keys, the scores never stored."""

from typing import Any

from core._tilelang import import_tilelang
from core.errors import KernelError
from core.tiling import choice, kernel, stages, threads, tile, workers

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

from core.ops._attention_schedule import Schedule  # noqa: E402
from core.ops._attention_steps import alike, in_base_two, mask, online_softmax, sharing  # noqa: E402
from core.ops._dtypes import FLOATS  # noqa: E402
from core.ops.attention_hopper import warp_specialised  # noqa: E402

#: A softmax's exponentials are at most 1 and below 2**-126 nothing: where one instruction gives that, it is enough.
#: Exact exponentials cost three instructions more a score, which on NVIDIA's chips is a tenth of the time.
PASS_CONFIGS = {"tl.enable_fast_math": True}

#: Matrix instructions take their reduction dimension in steps of this; a tile's width is rounded up to it.
_STEP = 16


@kernel(
    out=["O"],
    pass_configs=PASS_CONFIGS,
    dtypes={"dtype": FLOATS},
    symbolic=("batch", ("heads", "kv_heads"), "M", "N"),
)
def attention(
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
    variant: str = choice("variant", "pipelined", "overlapped", "ping_pong", by_rule=True),
    workers: int = workers(),
) -> Any:
    """`O[b, h, i] = Σ_j softmax_j(Q[b, h, i] · K[b, h // group, j] · scale) V[b, h // group, j]`, sums in float32.

    Q and O are (batch, heads, M, dim), K and V (batch, kv_heads, N, dim), all packed: a head's rows follow one another,
    so that a tile is one contiguous piece of memory, and torch's `scaled_dot_product_attention` has the same order.

    A block keeps `block_M` queries of one head and walks over the keys in tiles of `block_N`, with a running maximum
    and sum per query. Only tiles that the diagonal or the end of the keys cuts are masked. Causal blocks stop at the
    diagonal and start with the longest, so that the last wave is made of short ones.

    Variants: `pipelined` leaves copies and products to TileLang and is for every chip; `overlapped` and `ping_pong` are
    scheduled by hand for Hopper (`core.ops.attention_hopper`), whose blocks may be persistent (`workers`).

    Args:
        batch: sequences; may be symbolic (`T.dynamic`).
        heads, kv_heads: `group = heads // kv_heads` query heads share a key head; may be symbolic as one size.
        M, N: queries and keys per sequence; may be symbolic.
        dim: elements of a head, any number.
        causal: query i sees the keys up to i + N - M (the last query sees every key); needs N >= M. Where a call says
            what one of them is, queries that see no key give 0.
        scale: of the scores; None is 1 / sqrt(dim).
        dtype: of the tensors, float16, bfloat16 or float32; the weights are rounded to it before the second product.

    Raises:
        ShapeMismatch: it is not computed of `dtype`.
        KernelError: heads cannot be shared evenly, a causal query would see no key, or `scale` is not above 0.
    """
    group = sharing("attention", heads, kv_heads)
    known = isinstance(M, int) and isinstance(N, int)
    if causal and known and N < M:
        raise KernelError(
            f"attention: causal with {M} queries and {N} keys leaves queries that see nothing",
            hint="give at least as many keys as queries",
        )
    base2 = in_base_two(scale, dim)
    if variant != "pipelined":
        schedule = Schedule(block_M, block_N, num_stages, threads, workers, variant == "ping_pong")
        return warp_specialised(batch, heads, kv_heads, M, N, dim, schedule, causal=causal, base2=base2, dtype=dtype)
    # A query sees at least one key, unless a call can say that there are fewer keys than queries.
    sighted = known or not causal or alike(M, N)
    past = 0 if alike(M, N) else N - M
    width = -(-dim // _STEP) * _STEP
    rows = T.GemmWarpPolicy.FullRow
    hide = mask(block_M, block_N, N, past, causal=causal)
    advance = online_softmax(block_M, block_N, base2, floor=None if sighted else -1e30)

    @T.prim_func
    def main(
        Q: T.Tensor((batch, heads, M, dim), dtype),
        K: T.Tensor((batch, kv_heads, N, dim), dtype),
        V: T.Tensor((batch, kv_heads, N, dim), dtype),
        O: T.Tensor((batch, heads, M, dim), dtype),  # noqa: E741  (the papers' letter)
    ):
        with T.Kernel(T.ceildiv(M, block_M), heads, batch, threads=threads) as (x, h, b):
            q = T.alloc_shared((block_M, width), dtype)
            k = T.alloc_shared((block_N, width), dtype)
            v = T.alloc_shared((block_N, width), dtype)
            scores = T.alloc_fragment((block_M, block_N), "float32")
            weights = T.alloc_fragment((block_M, block_N), dtype)
            output = T.alloc_fragment((block_M, width), "float32")
            row_max = T.alloc_fragment((block_M,), "float32")
            old_max = T.alloc_fragment((block_M,), "float32")
            rescale = T.alloc_fragment((block_M,), "float32")
            tile_sum = T.alloc_fragment((block_M,), "float32")
            row_sum = T.alloc_fragment((block_M,), "float32")
            first = (T.ceildiv(M, block_M) - 1 - x if causal else x) * block_M
            tiles = T.ceildiv(N, block_N)
            if causal:
                tiles = T.min(tiles, T.ceildiv(first + block_M + past, block_N))
            if not sighted:
                # Once at least, which adds nothing where no key is seen: in the loop a bulk copy of the queries is
                # waited for.
                tiles = T.max(1, tiles)

            T.copy(Q[b, h, first : first + block_M, 0:width], q)
            T.fill(output, 0)
            T.fill(row_sum, 0)
            T.fill(row_max, -T.infinity("float32"))
            for t in T.Pipelined(tiles, num_stages=num_stages):
                T.copy(K[b, h // group, t * block_N : (t + 1) * block_N, 0:width], k)
                T.gemm(q, k, scores, transpose_B=True, clear_accum=True, policy=rows)
                hide(scores, first, t)
                advance(scores, row_max, old_max, rescale, tile_sum, row_sum)
                for i, j in T.Parallel(block_M, width):
                    output[i, j] *= rescale[i]
                T.copy(scores, weights)
                T.copy(V[b, h // group, t * block_N : (t + 1) * block_N, 0:width], v)
                T.gemm(weights, v, output, policy=rows)
            for i, j in T.Parallel(block_M, width):
                if sighted:
                    output[i, j] /= row_sum[i]
                else:
                    output[i, j] = T.if_then_else(row_sum[i] > 0, output[i, j] / row_sum[i], 0)
            # Through shared memory, so that rows leave whole.
            T.copy(output, q)
            T.copy(q, O[b, h, first : first + block_M, 0:width])

    return main
