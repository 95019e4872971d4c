"""Kernels in TileLang's own Ascend dialect."""

from typing import Any

import tilelang.ascend.language as T


def vector_add(n: int, block: int = 1024) -> Any:
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(n // block) as bx:
            a = T.alloc_shared((block,), "float32")
            b = T.alloc_shared((block,), "float32")
            T.copy(A[bx * block], a)
            T.copy(B[bx * block], b)
            with T.SimtVF(threads=128):
                for i in T.Parallel(block):
                    a[i] = a[i] + b[i]
            T.copy(a, C[bx * block])

    return main


def matmul_nt(M: int, N: int, K: int, bm: int = 128, bn: int = 128, bk: int = 64) -> Any:
    @T.prim_func
    def main(A: T.Tensor((M, K), "bfloat16"), B: T.Tensor((N, K), "bfloat16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel((M // bm) * (N // bn)) as t:
            m = t // (N // bn) * bm
            n = t % (N // bn) * bn
            a = T.alloc_l1((bm, bk), "bfloat16")
            b = T.alloc_l1((bn, bk), "bfloat16")
            c = T.alloc_l0c((bm, bn), "float32")
            for k in T.Pipelined(K // bk, num_stages=2):
                T.copy(A[m, k * bk], a)
                T.copy(B[n, k * bk], b)
                T.gemm(a, b, c, transpose_B=True, clear_accum=(k == 0))
            T.copy(c, C[m : m + bm, n : n + bn])

    return main
