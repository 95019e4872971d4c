"""A kernel to try the backend with: ordinary TileLang, nothing of Nova in it."""

from __future__ import annotations

from typing import Any

import tilelang.language as T

import core


@core.kernel(out=["C"])
def add(N: int, *, block_N: int = core.tile("N"), threads: int = core.threads()) -> Any:
    """C = A + B for float32 vectors of N elements."""

    @T.prim_func
    def main(A: T.Tensor((N,), "float32"), B: T.Tensor((N,), "float32"), C: T.Tensor((N,), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), threads=threads) as bx:
            for i in T.Parallel(block_N):
                C[bx * block_N + i] = A[bx * block_N + i] + B[bx * block_N + i]

    return main
