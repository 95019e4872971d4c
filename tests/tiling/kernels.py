"""Kernels for tests: a factory whose tiles are chosen, counting how often it is traced, and PrimFuncs with tiles."""

from collections import Counter
from typing import Any

import tilelang.language as T

import core

traced: Counter[str] = Counter()


@core.kernel(out=["C"])
def product(
    M: Any,
    N: int,
    K: int,
    *,
    dtype: str = "float16",
    block_M: int = core.tile("M", multiple=16),
    block_N: int = core.tile("N", multiple=16),
    block_K: int = core.tile("K", multiple=16),
    num_stages: int = core.stages(minimum=1),
    threads: int = core.threads(),
) -> Any:
    traced["product"] += 1

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            a = T.alloc_shared((block_M, block_K), dtype)
            b = T.alloc_shared((block_K, block_N), dtype)
            c = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], a)
                T.copy(B[k * block_K, bx * block_N], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block_M, bx * block_N])

    return main


def gemm(
    M: int,
    N: int,
    K: int,
    bm: int = 128,
    bn: int = 256,
    bk: int = 64,
    stages: int = 3,
    threads: int = 256,
    panel: int = 8,
) -> Any:
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=threads) as (bx, by):
            a = T.alloc_shared((bm, bk), "float16")
            b = T.alloc_shared((bk, bn), "float16")
            c = T.alloc_fragment((bm, bn), "float32")
            T.use_swizzle(panel, enable=panel > 0)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=stages):
                T.copy(A[by * bm, k * bk], a)
                T.copy(B[k * bk, bx * bn], b)
                T.gemm(a, b, c, policy=T.GemmWarpPolicy.FullRow)
            T.copy(c, C[by * bm, bx * bn])

    return main


def causal_scores(L: int, D: int, bm: int, bn: int) -> Any:
    @T.prim_func
    def main(Q: T.Tensor((L, D), "float16"), K: T.Tensor((L, D), "float16"), O: T.Tensor((L, bn), "float32")):  # noqa: E741
        with T.Kernel(T.ceildiv(L, bm), threads=128) as bx:
            q = T.alloc_shared((bm, D), "float16")
            k = T.alloc_shared((bn, D), "float16")
            s = T.alloc_fragment((bm, bn), "float32")
            m = T.alloc_fragment((bm,), "float32")
            T.copy(Q[bx * bm, 0], q)
            T.clear(s)
            for t in T.Pipelined(T.ceildiv((bx + 1) * bm, bn), num_stages=2):
                T.copy(K[t * bn, 0], k)
                T.gemm(q, k, s, transpose_B=True)
                T.reduce_max(s, m, dim=1)
                for i, j in T.Parallel(bm, bn):
                    s[i, j] = T.exp2(s[i, j] * 0.5 - m[i] * 0.5)
            T.copy(s, O[bx * bm, 0])

    return main
