"""Small kernels for this backend's tests."""

from __future__ import annotations

from typing import Any

import tilelang.language as T


def matmul(
    M: int = 128,
    N: int = 128,
    K: int = 96,
    dtype: str = "float16",
    accumulator: str = "float32",
    block: tuple[int, int, int] = (64, 64, 32),
    stages: int = 2,
    threads: int = 128,
) -> Any:
    bm, bn, bk = block

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), accumulator)):
        with T.Kernel(T.ceildiv(N, bn), T.ceildiv(M, bm), threads=threads) as (bx, by):
            a = T.alloc_shared((bm, bk), dtype)
            b = T.alloc_shared((bk, bn), dtype)
            c = T.alloc_fragment((bm, bn), accumulator)
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, bk), num_stages=stages):
                T.copy(A[by * bm, k * bk], a)
                T.copy(B[k * bk, bx * bn], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * bm, bx * bn])

    return main


def scaled_rows() -> Any:
    """C = A + s A[0]: symbolic rows, scalars, a workspace and two launches, of which the second is conditional."""
    M = T.dynamic("M")

    @T.prim_func
    def main(
        A: T.Tensor((M, 64), "float32"),
        n: T.int32,
        s: T.float32,
        D: T.Tensor((64,), "float32"),
        C: T.Tensor((M, 64), "float32"),
    ):
        with T.Kernel(1, threads=64):
            W = T.alloc_global((64,), "float32")
            for j in T.Parallel(64):
                W[j] = A[0, j] * s
            for j in T.Parallel(64):
                D[j] = W[j]
        if n > 3:
            with T.Kernel(M, threads=64) as bx:
                for j in T.Parallel(64):
                    C[bx, j] = A[bx, j] + D[j]

    return main


def doubled_rows() -> Any:
    """C = 2 A, one block a row."""
    M = T.dynamic("M")

    @T.prim_func
    def main(A: T.Tensor((M, 64), "float32"), C: T.Tensor((M, 64), "float32")):
        with T.Kernel(M, threads=64) as bx:
            for j in T.Parallel(64):
                C[bx, j] = A[bx, j] * 2.0

    return main
