"""Matrix products: every layout and type, from one portable source."""

from typing import Any

from core._tilelang import import_tilelang
from core.ops._gemm_warp_specialized import warp_specialized
from core.tiling import choice, kernel, stages, swizzle, threads, tile, warp_policy, workers

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

#: What a product of these operands is accumulated in and stored as, unless said otherwise.
_ACCUMULATOR = {"int8": "int32", "uint8": "int32"}
_RESULT = {"int8": "int32", "uint8": "int32", "float8_e4m3fn": "float16", "float8_e5m2": "float16"}


@kernel(out=["C"])
def gemm(
    M: Any,
    N: Any,
    K: Any,
    *,
    dtype: str = "float16",
    out_dtype: str | None = None,
    accum_dtype: str | None = None,
    trans_a: bool = False,
    trans_b: bool = False,
    block_M: int = tile("M", multiple=16),
    block_N: int = tile("N", multiple=16),
    block_K: int = tile("K", multiple=16),
    num_stages: int = stages(),
    threads: int = threads(),
    panel: int = swizzle(),
    policy: int = warp_policy(),
    variant: str = choice("variant", "tiled", "warp_specialized"),
    cluster: int = choice("cluster", 1, 2),
    workers: int = workers(),
) -> Any:
    """`C = op(A) @ op(B)`.

    A block computes `block_M` x `block_N` of C. The tile of C leaves through shared memory, in whole rows. The variant
    `warp_specialized` is for chips with bulk copies and warpgroup instructions (`core/ops/_gemm_warp_specialized.py`);
    `cluster` and `workers` are its own.

    Args:
        M, N, K: extents, elements; `M` may be symbolic (`T.dynamic`).
        dtype: of A and B: float16, bfloat16, float32, float8_e4m3fn, float8_e5m2, int8.
        out_dtype: of C; None is `dtype`, int32 for 8-bit integers and float16 for 8-bit floats.
        accum_dtype: of the sums; None is float32, int32 for integers.
        trans_a, trans_b: A is stored as K x M, B as N x K.
    """
    accum_dtype = accum_dtype or _ACCUMULATOR.get(dtype, "float32")
    out_dtype = out_dtype or _RESULT.get(dtype, dtype)
    warps = T.GemmWarpPolicy(policy)
    if variant == "warp_specialized":
        return warp_specialized(
            M,
            N,
            K,
            dtype=dtype,
            out_dtype=out_dtype,
            accum_dtype=accum_dtype,
            trans_a=trans_a,
            trans_b=trans_b,
            block_M=block_M,
            block_N=block_N,
            block_K=block_K,
            num_stages=num_stages,
            threads=threads,
            panel=panel,
            policy=policy,
            cluster=cluster,
            workers=workers,
        )

    @T.macro
    def product(A, B, accumulator, row, column):
        A_tile = T.alloc_shared((block_K, block_M) if trans_a else (block_M, block_K), dtype)
        B_tile = T.alloc_shared((block_N, block_K) if trans_b else (block_K, block_N), dtype)
        T.clear(accumulator)
        for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
            if trans_a:
                T.copy(A[k * block_K, row], A_tile)
            else:
                T.copy(A[row, k * block_K], A_tile)
            if trans_b:
                T.copy(B[column, k * block_K], B_tile)
            else:
                T.copy(B[k * block_K, column], B_tile)
            T.gemm(A_tile, B_tile, accumulator, transpose_A=trans_a, transpose_B=trans_b, policy=warps)

    @T.prim_func
    def main(
        A: T.Tensor((K, M) if trans_a else (M, K), dtype),
        B: T.Tensor((N, K) if trans_b else (K, N), dtype),
        C: T.Tensor((M, N), out_dtype),
    ):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            C_tile = T.alloc_shared((block_M, block_N), out_dtype)
            accumulator = T.alloc_fragment((block_M, block_N), accum_dtype)
            T.use_swizzle(panel, enable=panel > 0)
            product(A, B, accumulator, by * block_M, bx * block_N)
            T.copy(accumulator, C_tile)
            T.copy(C_tile, C[by * block_M, bx * block_N])

    return main
