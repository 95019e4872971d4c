"""The kernels of this folder's specifications; lines are found by their marks."""

from pathlib import Path

import tilelang.language as T

import core


def line_of(mark: str) -> int:
    """The number of the one line of this file that ends with the comment `# <mark>`."""
    [line] = [n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if text.endswith(f"# {mark}")]
    return line


def product(dtype: str, accumulator: str = "float32", stages: int = 2):
    @T.prim_func
    def main(A: T.Tensor((64, 256), dtype), B: T.Tensor((256, 64), dtype), C: T.Tensor((64, 64), accumulator)):
        with T.Kernel(1, threads=128):
            a = T.alloc_shared((64, 32), dtype)
            b = T.alloc_shared((32, 64), dtype)
            c = T.alloc_fragment((64, 64), accumulator)
            T.clear(c)
            for k in T.Pipelined(8, num_stages=stages):  # pipelined
                T.copy(A[0, k * 32], a)  # copied
                T.copy(B[k * 32, 0], b)
                T.gemm(a, b, c)  # multiplied
            T.copy(c, C)

    return main


def product_from_fragment():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float32"), C: T.Tensor((64, 64), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((64, 32), "float32")
            b = T.alloc_shared((32, 64), "float32")
            c = T.alloc_fragment((64, 64), "float32")
            T.copy(A, a)
            T.clear(b)
            T.clear(c)
            T.gemm(a, b, c)  # from a fragment
            T.copy(c, C)

    return main


def sliced_reduce():
    @T.prim_func
    def main(A: T.Tensor((64, 32), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(1, threads=128):
            a = T.alloc_fragment((64, 32), "float32")
            b = T.alloc_fragment((16,), "float32")
            T.copy(A, a)
            T.reduce_sum(a[16:32, 0:32], b, dim=1)  # sliced
            T.copy(b, B)

    return main


def safe_value():
    @T.prim_func
    def main(A: T.Tensor((50, 64), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            T.annotate_safe_value({A: 1.0})
            s = T.alloc_shared((64, 64), "float16")
            T.copy(A[0, 0], s)  # with a safe value
            T.copy(s, B)

    return main


def narrow_integers():
    @T.prim_func
    def main(A: T.Tensor((64,), "uint8"), B: T.Tensor((64,), "int32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = T.cast(A[i] + A[i], "int32")  # narrow

    return main


def per_thread(width: int):
    @T.prim_func
    def main(A: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            tx = T.get_thread_binding()
            warp = tx // width  # split
            A[tx] = T.shfl_xor(A[tx], 16)  # shuffled
            A[warp] = 1.0

    return main


def scaled(width: int):
    """A 32 that has nothing to do with threads."""

    @T.prim_func
    def main(A: T.Tensor((1024,), "float32")):
        with T.Kernel(1, threads=128):
            for i in T.Parallel(1024):
                A[i] = A[i // width * width]

    return main


def past_the_end():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((8,), "float32")
            T.fill(s[6:12], 0)  # past the end
            T.copy(s, A)  # still judged

    return main


def four_bit():
    @T.prim_func
    def main(A: T.Tensor((64,), "int4")):  # four bits
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                A[i] = T.cast(0, "int4")

    return main


def symbolic():
    n = T.dynamic("n")

    @T.prim_func
    def main(A: T.Tensor((64, n), "float16"), B: T.Tensor((64, 64), "float16")):
        with T.Kernel(1, threads=128):
            s = T.alloc_shared((64, 64), "float16")
            T.copy(A[0, 0], s)  # symbolic rows
            T.copy(s, B)

    return main


@core.kernel(out=["C"])
def tiled(M: int, *, block_M: int = core.tile("M", multiple=64), threads: int = core.threads()):
    @T.prim_func
    def main(A: T.Tensor((M,), "float32"), C: T.Tensor((M,), "float32")):
        with T.Kernel(T.ceildiv(M, block_M), threads=threads) as b:
            s = T.alloc_shared((block_M,), "float32")
            T.copy(A[b * block_M], s)
            T.copy(s, C[b * block_M])

    return main
