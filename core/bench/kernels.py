"""The kernels whose launches are timed."""

from typing import Any

from core._tilelang import import_tilelang

import_tilelang()

import tilelang.language as T  # noqa: E402  (tilelang goes before anybody's tvm)

ROWS, COLUMNS = 128, 1024


def scale(rows: int | None = ROWS) -> Any:
    """y = 2 x: two tensors, one launch; symbolic rows for None."""
    M = T.dynamic("M") if rows is None else rows

    @T.prim_func
    def main(X: T.Tensor((M, COLUMNS), "float16"), Y: T.Tensor((M, COLUMNS), "float16")):
        with T.Kernel(M, threads=128) as row:
            for j in T.Parallel(COLUMNS):
                Y[row, j] = X[row, j] * T.float16(2)

    return main


def matmul(n: int = 512) -> Any:
    """Three tensors, and on Hopper a tensor map for each operand."""

    @T.prim_func
    def main(A: T.Tensor((n, n), "float16"), B: T.Tensor((n, n), "float16"), C: T.Tensor((n, n), "float16")):
        with T.Kernel(T.ceildiv(n, 128), T.ceildiv(n, 128), threads=128) as (bx, by):
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(n, 64), num_stages=3):
                T.copy(A[by * 128, k * 64], a)
                T.copy(B[k * 64, bx * 128], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * 128, bx * 128])

    return main
