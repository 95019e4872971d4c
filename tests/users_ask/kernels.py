"""The kernels of this folder's specifications; the line at fault is marked."""

import tilelang
import tilelang.language as T


def add(n: int, block: int = 256, threads: int = 128):
    """C = A + B over n elements, whose last block hangs over the end."""

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32"), C: T.Tensor((n,), "float32")):
        with T.Kernel(T.ceildiv(n, block), threads=threads) as b:
            for i in T.Parallel(block):
                C[b * block + i] = A[b * block + i] + B[b * block + i]

    return main


def in_shared(kib: int):
    """Moves `kib` KiB through one shared buffer."""
    n = kib * 256

    @T.prim_func
    def main(A: T.Tensor((n,), "float32"), B: T.Tensor((n,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((n,), "float32")  # the buffer
            T.copy(A, s)
            T.copy(s, B)

    return main


def pipelined_product(size: int, stages: int):
    """size x size x 64 per step, float16, `stages` deep."""

    @T.prim_func
    def main(
        A: T.Tensor((size, 1024), "float16"), B: T.Tensor((1024, size), "float16"), C: T.Tensor((size, size), "float32")
    ):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((size, 64), "float16")
            b = T.alloc_shared((64, size), "float16")
            c = T.alloc_fragment((size, size), "float32")
            T.clear(c)
            for k in T.Pipelined(16, num_stages=stages):
                T.copy(A[0, k * 64], a)
                T.copy(B[k * 64, 0], b)
                T.gemm(a, b, c)
            T.copy(c, C)

    return main


def fill_past_the_end():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((8,), "float32")
            T.fill(s[6:12], 0)  # past the end
            T.copy(s, A)

    return main


def reduce_over(dim: int):
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float32"), B: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((64, 32), "float32")
            b = T.alloc_fragment((64,), "float32")
            T.copy(A, a)
            T.reduce_sum(a, b, dim=dim)  # over `dim`
            T.copy(b, B)

    return main


def thirty_three_threads():
    @T.prim_func
    def main(A: T.Tensor((33,), "float32")):
        with T.Kernel(1, threads=33):  # 33
            for i in T.Parallel(33):
                A[i] = A[i] + 1.0

    return main


def slice_past_the_end():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32"), B: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((8,), "float32")
            T.copy(A[64:72], s)  # wholly outside
            T.copy(s, B)

    return main


def lanes_of_32():
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            if tx % 32 == 0:  # takes waves of 32
                A[tx] = A[tx] + 1.0

    return main


def writes_only():
    """No input at all: nothing a device could be guessed from."""

    @T.prim_func
    def main(A: T.Tensor((100,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(100):
                A[i] = T.cast(i, "float32")

    return main


@tilelang.jit(out_idx=[-1])
def softmax(M: int, N: int):
    """Row softmax as articles write it."""

    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 4), threads=128) as b:
            x = T.alloc_fragment((4, N), "float32")
            m = T.alloc_fragment((4,), "float32")
            s = T.alloc_fragment((4,), "float32")
            T.copy(X[b * 4, 0], x)
            T.reduce_max(x, m, dim=1)
            for i, j in T.Parallel(4, N):
                x[i, j] = T.exp(x[i, j] - m[i])
            T.reduce_sum(x, s, dim=1)
            for i, j in T.Parallel(4, N):
                x[i, j] = x[i, j] / s[i]
            T.copy(x, Y[b * 4, 0])

    return main
