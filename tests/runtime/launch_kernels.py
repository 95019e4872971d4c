"""Kernels whose launches differ: symbolic sizes, scalars, tensor maps, clusters, barriers, several launches."""

from __future__ import annotations

from typing import Any

import tilelang.language as T


def scaled() -> Any:
    M = T.dynamic("M")

    @T.prim_func
    def scaled(A: T.Tensor((M, 64), "float32"), s: T.float32, n: T.int32, C: T.Tensor((M, 64), "float32")):
        with T.Kernel(T.ceildiv(M, 4), n, threads=64) as (bx, by):
            for i, j in T.Parallel(4, 64):
                C[bx * 4 + i, j] = A[bx * 4 + i, j] * s + T.cast(by, "float32")

    return scaled


def product() -> Any:
    """On Hopper both operands come through tensor maps, one of which has a symbolic extent."""
    M = T.dynamic("M")

    @T.prim_func
    def product(A: T.Tensor((M, 256), "float16"), B: T.Tensor((256, 128), "float16"), C: T.Tensor((M, 128), "float16")):
        with T.Kernel(T.ceildiv(M, 128), threads=128) as bx:
            a = T.alloc_shared((128, 64), "float16")
            b = T.alloc_shared((64, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.clear(c)
            for k in T.Pipelined(4, num_stages=3):
                T.copy(A[bx * 128, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            for i, j in T.Parallel(128, 128):
                c[i, j] = T.max(c[i, j], 0)
            T.copy(c, C[bx * 128, 0])

    return product


def several() -> Any:
    """Two launches, the second under a condition."""
    M = T.dynamic("M")

    @T.prim_func
    def several(A: T.Tensor((M,), "float32"), n: T.int32):
        with T.Kernel(T.ceildiv(M, 128), threads=128) as b:
            for i in T.Parallel(128):
                A[b * 128 + i] = A[b * 128 + i] + 1.0
        if n > 3:
            with T.Kernel(T.ceildiv(M, 64) * n, threads=64) as b:
                for i in T.Parallel(64):
                    A[b * 64 + i] = A[b * 64 + i] * 2.0

    return several


def clustered() -> Any:
    @T.prim_func
    def clustered(A: T.Tensor((1024,), "float32")):
        with T.Kernel(8, threads=128, cluster_dims=(2, 1, 1)) as b:
            for i in T.Parallel(128):
                A[b * 128 + i] = A[b * 128 + i] + 1.0

    return clustered


def whole_grid() -> Any:
    """A barrier over the grid: every block must be there at once."""

    @T.prim_func
    def whole_grid(A: T.Tensor((1024,), "float32")):
        with T.Kernel(8, threads=128) as b:
            T.sync_grid()
            for i in T.Parallel(128):
                A[b * 128 + i] = A[b * 128 + i] + 1.0

    return whole_grid


def dependent() -> Any:
    """It waits for the launch in front of it by itself."""

    @T.prim_func
    def dependent(A: T.Tensor((1024,), "float32")):
        with T.Kernel(8, threads=128) as b:
            T.pdl_sync()
            for i in T.Parallel(128):
                A[b * 128 + i] = A[b * 128 + i] + 1.0

    return dependent


def handed_on():
    """Halves of rows (M, 128) that go through scratch memory of the call to a second launch, which adds them up."""
    M = T.dynamic("M")

    @T.prim_func
    def handed_on(A: T.Tensor((M, 128), "float32"), C: T.Tensor((M, 64), "float32")):
        odd = T.alloc_global((M, 3), "int8")
        halves = T.alloc_global((M, 2, 64), "float32")
        with T.Kernel(M, 2, threads=64) as (bx, by):
            tile = T.alloc_shared((1, 64), "float32")
            T.copy(A[bx, by * 64], tile)
            T.copy(tile, halves[bx, by, 0])
            for i in T.Parallel(3):
                odd[bx, i] = T.cast(1, "int8")
        with T.Kernel(M, threads=64) as bx:
            for i in T.Parallel(64):
                C[bx, i] = (halves[bx, 0, i] + halves[bx, 1, i]) * T.cast(odd[bx, 1], "float32")

    return handed_on
