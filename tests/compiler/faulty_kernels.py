"""Kernels with one fault each, on the line marked `# fault` where TileLang still knows it."""

import tilelang
import tilelang.language as T


def gemm_wrong_k(a_k: int = 64, b_k: int = 32):
    @T.prim_func
    def main(
        A: T.Tensor((128, a_k), "float16"), B: T.Tensor((b_k, 128), "float16"), C: T.Tensor((128, 128), "float32")
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128, a_k), "float16")
            b = T.alloc_shared((b_k, 128), "float16")
            c = T.alloc_fragment((128, 128), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, b, c)  # fault
            T.copy(c, C)

    return main


def gemm_wrong_m():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((128, 64), "float32")
            T.copy(A, a)
            T.gemm(a, a, c)  # fault
            T.copy(c, C)

    return main


def gemm_rank_one():
    @T.prim_func
    def main(A: T.Tensor((64,), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64,), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.gemm(a, a, c)  # fault
            T.copy(c, C)

    return main


def copy_unequal():
    @T.prim_func
    def main(A: T.Tensor((128, 64), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128, 32), "float16")
            T.copy(A[0:128, 0:64], a[0:128, 0:32])  # fault
            T.copy(a, A[0:128, 0:32])

    return main


def copy_whole_unequal():
    @T.prim_func
    def main(A: T.Tensor((128, 64), "float16")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128, 32), "float16")
            b = T.alloc_shared((64, 32), "float16")
            T.copy(a, b)  # fault
            T.copy(b, A[0:64, 0:32])

    return main


def reduce_bad_dim():
    @T.prim_func
    def main(A: T.Tensor((128, 64), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((128, 64), "float32")
            b = T.alloc_fragment((128,), "float32")
            T.copy(A, a)
            T.reduce_sum(a, b, dim=2)  # fault
            T.copy(b, B)

    return main


def reduce_bad_shape():
    @T.prim_func
    def main(A: T.Tensor((128, 64), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((128, 64), "float32")
            b = T.alloc_fragment((128,), "float32")
            T.copy(A, a)
            T.reduce_sum(a, b, dim=0)  # fault
            T.copy(b, B)

    return main


def cumsum_bad_dim():
    @T.prim_func
    def main(A: T.Tensor((128, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128, 64), "float32")
            T.copy(A, a)
            T.cumsum(a, dim=2)  # fault
            T.copy(a, A)

    return main


@tilelang.jit
def missing_const(A):
    N = T.const("N")
    A: T.Tensor[[N], T.float32]
    B = T.empty((N,), "float32")
    with T.Kernel(1, threads=128):
        for i in T.Parallel(N):
            B[i] = A[i]
    return B


def unsupported_dtype():
    @T.prim_func
    def main(A: T.Tensor((128,), "float17")):  # fault
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((128,), "float17")
            T.copy(A, a)

    return main


def no_warp_partition():
    @T.prim_func
    def main(A: T.Tensor((16, 16), "float16"), C: T.Tensor((16, 16), "float32")):
        with T.Kernel(1, threads=512):
            a = T.alloc_shared((16, 16), "float16")
            c = T.alloc_fragment((16, 16), "float32")
            T.copy(A, a)
            T.clear(c)
            T.gemm(a, a, c)  # fault
            T.copy(c, C)

    return main


def gemm_tiny():
    @T.prim_func
    def main(A: T.Tensor((8, 8), "float16"), C: T.Tensor((8, 8), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((8, 8), "float16")
            c = T.alloc_fragment((8, 8), "float32")
            T.copy(A, a)
            T.clear(c)
            T.gemm(a, a, c)  # fault
            T.copy(c, C)

    return main


def unknown_op():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            T.copyy(A, A)  # fault

    return main


def unknown_name():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            T.copy(A, not_defined)  # noqa: F821  # fault

    return main


def thread_overflow():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=2048):  # fault
            for i in T.Parallel(128):
                A[i] = A[i] + 1.0

    return main


def negative_threads():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=-1):  # fault
            for i in T.Parallel(128):
                A[i] = A[i] + 1.0

    return main


def python_abs():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                A[i] = abs(A[i])  # fault

    return main


def symbolic_choice():
    N = T.dynamic("N")
    rounds = 1 if 4 < N < 8 else 2  # fault

    @T.prim_func
    def main(A: T.Tensor((N,), "float32")):
        with T.Kernel(rounds, threads=128):
            A[0] = 1.0

    return main


def int_division():
    @T.prim_func
    def main(A: T.Tensor((128,), "int32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                A[i] = A[i] / 2  # fault

    return main


def wrong_rank_index():
    @T.prim_func
    def main(A: T.Tensor((128, 4), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                A[i, 0, 0] = 1.0  # fault

    return main


def literal_overflow():
    @T.prim_func
    def main(A: T.Tensor((128,), "uint8")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(128):
                A[i] = 300  # fault

    return main


def shared_in_global_reduce():
    @T.prim_func
    def main(A: T.Tensor((128, 64), "float32"), B: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            T.reduce_sum(A, B, dim=1)  # fault

    return main


def fragment_constant_index():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            for i in T.Parallel(64):
                A[i] = a[5]  # fault

    return main


def transposed_fragment():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((64, 64), "float32")
            b = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.transpose(a, b)  # fault
            T.copy(b, A)

    return main


def return_in_kernel():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as b:
            if b > 0:
                return  # fault
            A[b] = 1.0

    return main


def reshape_size():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            s = T.alloc_shared((64,), "float32")
            T.reshape(s, [8, 9])  # fault
            T.copy(A, s)

    return main


def symbolic_parallel_fragment():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((64,), "float32")
            for i in T.Parallel(n):
                a[i] = A[i]  # fault
            T.copy(a, A)

    return main


def slice_whole():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            a = T.alloc_fragment((64,), "float32")
            a[:] = 0.0  # fault
            T.copy(a, A)

    return main


def variable_of_branch():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64) as b:
            if b > 0:
                x = A[0]
            A[1] = x  # fault

    return main


def gemm_dtypes_differ():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((64, 64), "bfloat16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_fragment((64, 64), "bfloat16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)  # fault
            T.copy(c, C)

    return main


def gemm_global():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            c = T.alloc_fragment((64, 64), "float32")
            T.clear(c)
            T.gemm(A, A, c)  # fault
            T.copy(c, C)

    return main


def gemm_k_odd():
    @T.prim_func
    def main(A: T.Tensor((64, 24), "float16"), B: T.Tensor((24, 64), "float16"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 24), "float16")
            b = T.alloc_shared((24, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)  # fault
            T.copy(c, C)

    return main


def gemm_m_odd():
    @T.prim_func
    def main(A: T.Tensor((50, 32), "float16"), B: T.Tensor((32, 64), "float16"), C: T.Tensor((50, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((50, 32), "float16")
            b = T.alloc_shared((32, 64), "float16")
            c = T.alloc_fragment((50, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.clear(c)
            T.gemm(a, b, c)  # fault
            T.copy(c, C)

    return main


def two_gemms_one_too_small():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), B: T.Tensor((24, 64), "float16"), C: T.Tensor((24, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            b = T.alloc_shared((24, 64), "float16")
            c = T.alloc_fragment((64, 64), "float32")
            d = T.alloc_fragment((24, 64), "float32")
            T.copy(A, a)
            T.copy(B, b)
            T.gemm(a, a, c, clear_accum=True)
            T.gemm(b, a, d, clear_accum=True)  # fault
            T.copy(d, C)

    return main


def uneven_rows():
    @T.prim_func
    def main(A: T.Tensor((64, 200), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(16, threads=128) as bx:
            a = T.alloc_fragment((4, 200), "float32")
            b = T.alloc_fragment((4,), "float32")
            T.copy(A[bx * 4, 0], a)
            T.reduce_max(a, b, dim=1)  # fault
            T.copy(b, B[bx * 4])

    return main


def uneven_single_row():
    @T.prim_func
    def main(A: T.Tensor((200,), "float32"), B: T.Tensor((1,), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((200,), "float32")
            b = T.alloc_fragment((1,), "float32")
            T.copy(A, a)
            T.reduce_sum(a, b, dim=0)  # fault
            T.copy(b, B)

    return main


def uneven_lanes():
    @T.prim_func
    def main(A: T.Tensor((64, 3), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(16, threads=128) as bx:
            a = T.alloc_fragment((4, 3), "float32")
            b = T.alloc_fragment((4,), "float32")
            T.copy(A[bx * 4, 0], a)
            T.reduce_max(a, b, dim=1)  # fault
            T.copy(b, B[bx * 4])

    return main


def kept_dimension():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float32"), B: T.Tensor((64, 1), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((64, 32), "float32")
            b = T.alloc_fragment((64, 1), "float32")
            T.copy(A, a)
            T.reduce_sum(a, b, dim=1)  # fault
            T.copy(b, B)

    return main


def part_of_a_fragment():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float16"), C: T.Tensor((64, 128), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 64), "float16")
            c = T.alloc_fragment((64, 128), "float32")
            T.copy(A, a)
            T.clear(c)
            T.gemm(a, a, c[0:64, 0:64])  # fault
            T.copy(c, C)

    return main


def sized(M: int = 64, N: int = 64, dtype: str = "float32", scale: float = 0.5, rows: int = 4):
    """Sound with these arguments; faulty with some others."""

    @T.prim_func
    def main(A: T.Tensor((M, N), dtype), B: T.Tensor((M, N), dtype)):
        with T.Kernel(T.ceildiv(M, rows), threads=128) as bx:
            a = T.alloc_fragment((rows, N), dtype)
            T.copy(A[bx * rows, 0], a)
            for i, j in T.Parallel(rows, N):
                a[i, j] = a[i, j] * scale
            T.copy(a, B[bx * rows, 0])

    return main
