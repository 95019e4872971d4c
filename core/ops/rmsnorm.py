"""Root-mean-square normalisation of the rows of a matrix, alone and after adding a residual."""

from typing import Any

from core._tilelang import import_tilelang
from core.ops._rows import padded
from core.tiling import kernel, threads, tile

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)


@kernel(out=["Y"])
def rmsnorm(
    M: Any,
    N: int,
    *,
    dtype: str = "float16",
    eps: float = 1e-6,
    block_M: int = tile("M"),
    block_N: int = tile("N"),
    threads: int = threads(),
) -> Any:
    """`Y = X / sqrt(mean(X^2) + eps) * weight` over each row, computed in float32.

    A block holds `block_M` rows: whole when `block_N` is at least N, else `block_N` columns at a time, in two passes.

    Args:
        M: rows; may be symbolic (`T.dynamic`).
        N: elements of a row and of `weight`.
        dtype: of X, `weight` and Y.
        eps: added to the mean of the squares.
    """
    width = padded(N) if block_N >= N else block_N

    @T.prim_func
    def main(X: T.Tensor((M, N), dtype), weight: T.Tensor((N,), dtype), Y: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            tile = T.alloc_shared((block_M, width), dtype)
            x = T.alloc_fragment((block_M, width), "float32")
            square = T.alloc_fragment((block_M, width), "float32")
            w = T.alloc_fragment((width,), dtype)
            part = T.alloc_fragment((block_M,), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            T.clear(scale)
            if width >= N:
                # Read early: nothing waits for it until the scale is known.
                T.copy(weight[0], w)
            for k in T.serial(T.ceildiv(N, width)):
                T.copy(X[bx * block_M, k * width], tile)
                T.copy(tile, x)
                for i, j in T.Parallel(block_M, width):
                    square[i, j] = x[i, j] * x[i, j]
                T.reduce_sum(square, part, dim=1)
                for i in T.Parallel(block_M):
                    scale[i] += part[i]
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for k in T.serial(T.ceildiv(N, width)):
                if width < N:
                    T.copy(X[bx * block_M, k * width], tile)
                    T.copy(tile, x)
                    T.copy(weight[k * width], w)
                for i, j in T.Parallel(block_M, width):
                    x[i, j] = x[i, j] * scale[i] * w[j]
                T.copy(x, tile)
                T.copy(tile, Y[bx * block_M, k * width])

    return main


@kernel(out=["Y", "S"])
def add_rmsnorm(
    M: Any,
    N: int,
    *,
    dtype: str = "float16",
    eps: float = 1e-6,
    block_M: int = tile("M"),
    block_N: int = tile("N"),
    threads: int = threads(),
) -> Any:
    """`S = X + R`, `Y = S / sqrt(mean(S^2) + eps) * weight` over each row: a residual is added on the way.

    S is rounded to `dtype` before it is squared, so that Y belongs to the S that is stored. Arguments are as for
    :func:`rmsnorm`.
    """
    width = padded(N) if block_N >= N else block_N

    @T.prim_func
    def main(
        X: T.Tensor((M, N), dtype),
        R: T.Tensor((M, N), dtype),
        weight: T.Tensor((N,), dtype),
        Y: T.Tensor((M, N), dtype),
        S: T.Tensor((M, N), dtype),
    ):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as bx:
            tile = T.alloc_shared((block_M, width), dtype)
            other = T.alloc_shared((block_M, width), dtype)
            x = T.alloc_fragment((block_M, width), "float32")
            square = T.alloc_fragment((block_M, width), "float32")
            w = T.alloc_fragment((width,), dtype)
            part = T.alloc_fragment((block_M,), "float32")
            scale = T.alloc_fragment((block_M,), "float32")
            T.clear(scale)
            if width >= N:
                # Read early: nothing waits for it until the scale is known.
                T.copy(weight[0], w)
            for k in T.serial(T.ceildiv(N, width)):
                T.copy(X[bx * block_M, k * width], tile)
                T.copy(R[bx * block_M, k * width], other)
                for i, j in T.Parallel(block_M, width):
                    x[i, j] = T.cast(tile[i, j], "float32") + T.cast(other[i, j], "float32")
                T.copy(x, tile)
                T.copy(tile, S[bx * block_M, k * width])
                T.copy(tile, x)
                for i, j in T.Parallel(block_M, width):
                    square[i, j] = x[i, j] * x[i, j]
                T.reduce_sum(square, part, dim=1)
                for i in T.Parallel(block_M):
                    scale[i] += part[i]
            for i in T.Parallel(block_M):
                scale[i] = T.rsqrt(scale[i] / N + eps)
            for k in T.serial(T.ceildiv(N, width)):
                if width < N:
                    T.copy(S[bx * block_M, k * width], tile)
                    T.copy(tile, x)
                    T.copy(weight[k * width], w)
                for i, j in T.Parallel(block_M, width):
                    x[i, j] = x[i, j] * scale[i] * w[j]
                T.copy(x, other)
                T.copy(other, Y[bx * block_M, k * width])

    return main
