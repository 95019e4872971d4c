"""Small kernels whose lowering the tests read."""

from typing import Any

import tilelang.language as T


def add(n: int, block: int, m: int | None = None) -> Any:
    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=128) as bx:
            for i in T.Parallel(block):
                B[bx * block + i] = A[bx * block + i] + 1.0

    return main


def clearing_gemm(clear_first: bool) -> Any:
    @T.prim_func
    def main(A: T.Tensor((64, 256), "float16"), B: T.Tensor((256, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128) as _:
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c, clear_accum=(k == 0) if clear_first else (k == 1))
            T.copy(c, C)

    return main


def gather() -> Any:
    @T.prim_func
    def main(X: T.Tensor((50, 64), "float32"), rows: T.Tensor((16,), "int32"), Y: T.Tensor((16, 64), "float32")):
        with T.Kernel(1, threads=128) as _:
            for i, j in T.Parallel(16, 64):
                Y[i, j] = X[rows[i], j]

    return main


def masked_store() -> Any:
    @T.prim_func
    def main(X: T.Tensor((64,), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128) as _:
            for i in T.Parallel(64):
                if X[i] > 0.0:
                    Y[i] = X[i]

    return main


def reads_thread_index() -> Any:
    @T.prim_func
    def main(Y: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128) as _:
            t = T.get_thread_binding()
            Y[t] = t

    return main


def many_blocks(n: int) -> Any:
    @T.prim_func
    def main(X: T.Tensor((n, 32), "float32"), Y: T.Tensor((n, 32), "float32")):
        with T.Kernel(n, threads=128) as bx:
            for j in T.Parallel(32):
                Y[bx, j] = X[bx, j] * 2.0

    return main


def running_sum() -> Any:
    @T.prim_func
    def main(X: T.Tensor((8, 64), "float32"), Y: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128) as _:
            tile = T.alloc_fragment((64,), "float32")
            scratch = T.alloc_fragment((64,), "float32")
            T.clear(tile)
            for k in T.serial(8):
                T.copy(X[k, 0], scratch)
                for j in T.Parallel(64):
                    tile[j] = tile[j] + scratch[j]
            T.copy(tile, Y)

    return main


def first_negative() -> Any:
    @T.prim_func
    def main(X: T.Tensor((64,), "int32"), Y: T.Tensor((1,), "int32")):
        with T.Kernel(1, threads=128) as _:
            place = T.alloc_var("int32", init=-1)
            for j in range(64):
                if X[j] < 0:
                    place = j
                    break
            Y[0] = place

    return main


def cut_by_a_variable(moved: bool) -> Any:
    """Stores the rows before a bound that is kept in a variable; `moved` changes it inside the branch, before."""

    @T.prim_func
    def main(A: T.Tensor((64, 32), "float32"), E: T.Tensor((4,), "int32"), C: T.Tensor((64, 32), "float32")):
        with T.Kernel(4, threads=64) as bx:
            tile = T.alloc_fragment((16, 32), "float32")
            end = T.alloc_var("int32", init=0)
            end = E[bx]
            T.copy(A[bx * 16, 0], tile)
            for i, j in T.Parallel(16, 32):
                if bx * 16 + i < end:
                    if moved:
                        end = 0
                    C[bx * 16 + i, j] = tile[i, j]

    return main


def bits_of_a_tensor(viewed: str) -> Any:
    """A view of a tensor as integers, read or written."""

    @T.prim_func
    def read(A: T.Tensor((64,), "float32"), B: T.Tensor((128,), "int16")):
        with T.Kernel(1):
            bits = T.Tensor((128,), "int16", A.data)
            for i in T.Parallel(128):
                B[i] = bits[i]

    @T.prim_func
    def written(A: T.Tensor((64,), "int32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1):
            bits = T.Tensor((64,), "int32", B.data)
            tile = T.alloc_shared((64,), "int32")
            T.copy(A, tile)
            T.copy(tile, bits)

    return read if viewed == "A" else written
