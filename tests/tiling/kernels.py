"""Kernels whose tiles the tests choose. Each counts how often it is traced."""

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
