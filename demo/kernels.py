"""The demo's kernels: one ordinary TileLang source each, nothing in them names a chip.

A module with kernels must not say `from __future__ import annotations`: TileLang evaluates the parameters' annotations,
and as strings they lose sight of the factory's local names.
"""

import tilelang.language as T

import core


@core.kernel(out=["C"])
def matmul(
    M: int,
    N: int,
    K: int,
    *,
    block_M: int = core.tile("M", multiple=16),
    block_N: int = core.tile("N", multiple=16),
    block_K: int = core.tile("K", multiple=16),
    num_stages: int = core.stages(),
    threads: int = core.threads(),
    dtype: str = "float16",
):
    """`C = A @ B`, accumulated in float32."""

    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            A_tile = T.alloc_shared((block_M, block_K), dtype)
            B_tile = T.alloc_shared((block_K, block_N), dtype)
            C_tile = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(C_tile)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], A_tile)
                T.copy(B[k * block_K, bx * block_N], B_tile)
                T.gemm(A_tile, B_tile, C_tile)
            T.copy(C_tile, C[by * block_M, bx * block_N])

    return main


@core.kernel(out=["Y"])
def softmax(M: int, N: int, *, block_M: int = core.tile("M"), threads: int = core.threads(), dtype: str = "float16"):
    """Softmax of each row of X, computed in float32; a block holds `block_M` whole rows."""

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            largest = T.alloc_fragment((block_M,), "float32")
            total = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_max(x, largest, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = T.exp(x[i, j] - largest[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx * block_M, 0])

    return main


@core.kernel(out=["Y"])
def layernorm(
    M: int,
    N: int,
    *,
    block_M: int = core.tile("M"),
    threads: int = core.threads(),
    dtype: str = "float16",
    eps: float = 1e-5,
):
    """Layer normalisation of each row of X, scaled by G and shifted by B, in float32 with a two-pass variance."""

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        G: T.Tensor((N,), dtype),
        B: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            x = T.alloc_fragment((block_M, N), "float32")
            square = T.alloc_fragment((block_M, N), "float32")
            mean = T.alloc_fragment((block_M,), "float32")
            variance = T.alloc_fragment((block_M,), "float32")
            T.copy(X[bx * block_M, 0], x)
            T.reduce_sum(x, mean, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] - mean[i] / N
            for i, j in T.Parallel(block_M, N):
                square[i, j] = x[i, j] * x[i, j]
            T.reduce_sum(square, variance, dim=1)
            for i, j in T.Parallel(block_M, N):
                x[i, j] = x[i, j] * T.rsqrt(variance[i] / N + eps) * G[j] + B[j]
            T.copy(x, Y[bx * block_M, 0])

    return main
