"""What a kernel needs and does: bytes with lifetimes and stages, registers, operations, traffic."""

import pytest
import tilelang.language as T

from core import _tilelang
from core.program import Program


def gemm(M, N, K, block_M, block_N, block_K, stages, threads=128):
    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((K, N), "float16"), C: T.Tensor((M, N), "float16")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            a = T.alloc_shared((block_M, block_K), "float16")
            b = T.alloc_shared((block_K, block_N), "float16")
            c = T.alloc_fragment((block_M, block_N), "float32")
            out = T.alloc_shared((block_M, block_N), "float16")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=stages):
                T.copy(A[by * block_M, k * block_K], a)
                T.copy(B[k * block_K, bx * block_N], b)
                T.gemm(a, b, c)
            T.copy(c, out)
            T.copy(out, C[by * block_M, bx * block_N])

    return main


def shared(prim_func) -> tuple[int, int]:
    """(bytes with memory of its own for each buffer, peak bytes with reuse) of dynamic shared memory."""
    (launch,) = Program(prim_func).footprint().launches
    return launch.bytes["shared.dyn"], launch.peak_bytes["shared.dyn"]


@pytest.mark.parametrize(("stages", "versions"), [(0, 1), (1, 1), (2, 2), (3, 3), (4, 4)])
def test_stages_multiply_what_copies_fill_and_the_epilogue_reuses_it(stages, versions):
    tile = 128 * 32 * 2 * 2
    epilogue = 128 * 128 * 2
    assert shared(gemm(1024, 1024, 1024, 128, 128, 32, stages)) == (
        tile * versions + epilogue,
        max(tile * versions, epilogue),
    )


@pytest.mark.parametrize("stages", [0, 2, 3, 4])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_the_peak_is_what_tilelang_allocates(stages, arch):
    kernel = gemm(1024, 1024, 1024, 128, 128, 32, stages)
    (function,) = _tilelang.lower_native(kernel, {"kind": "cuda", "arch": arch}, {}).functions
    assert shared(kernel)[1] == function.dynamic_shared_bytes


def test_operations_and_traffic_of_a_product():
    footprint = Program(gemm(512, 256, 1024, 128, 64, 32, 2)).footprint()
    assert footprint.flops == 2 * 512 * 256 * 1024
    assert footprint.bytes_read == 2 * (512 * 1024 * (256 // 64) + 1024 * 256 * (512 // 128))
    assert footprint.bytes_written == 2 * 512 * 256
    moved = footprint.bytes_read + footprint.bytes_written
    assert footprint.arithmetic_intensity == footprint.flops / moved


def test_registers_of_fragments():
    (launch,) = Program(gemm(512, 512, 512, 128, 128, 32, 2, threads=256)).footprint().launches
    assert launch.fragment_registers == 128 * 128 * 4 // (256 * 4)


def softmax(M, N):
    @T.prim_func
    def main(X: T.Tensor((M, N), "float16"), Y: T.Tensor((M, N), "float16")):
        with T.Kernel(M, threads=128) as row:
            x = T.alloc_fragment((N,), "float32")
            peak = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[row, 0:N], x)
            T.reduce_max(x, peak, dim=0)
            for i in T.Parallel(N):
                x[i] = T.exp2(x[i] - peak[0])
            T.reduce_sum(x, total, dim=0)
            for i in T.Parallel(N):
                x[i] = x[i] / total[0]
            T.copy(x, Y[row, 0:N])

    return main


def test_operations_and_traffic_of_a_softmax():
    footprint = Program(softmax(64, 256)).footprint()
    assert footprint.bytes_read == footprint.bytes_written == 64 * 256 * 2
    assert footprint.flops == 64 * 256 * (1 + 2 + 1 + 1)  # max, subtract and exp2, sum, divide


def test_loads_count_once_per_distinct_index():
    @T.prim_func
    def main(A: T.Tensor((32, 64), "float32"), V: T.Tensor((64,), "float32"), C: T.Tensor((32, 64), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(32, 64):
                C[i, j] = A[i, j] * A[i, j] + V[j]

    footprint = Program(main).footprint()
    assert footprint.bytes_read == 4 * (32 * 64 + 64)
    assert footprint.bytes_written == 4 * 32 * 64
    assert footprint.flops == 2 * 32 * 64


def test_loops_that_depend_on_the_block_count_their_mean():
    @T.prim_func
    def main(A: T.Tensor((16, 64), "float32"), B: T.Tensor((16,), "float32")):
        with T.Kernel(16, threads=32) as b:
            x = T.alloc_fragment((64,), "float32")
            for k in T.serial(b + 1):
                T.copy(A[k, 0:64], x)
            B[b] = x[0]

    assert Program(main).footprint().bytes_read == 64 * 4 * sum(range(1, 17))


def test_symbolic_sizes_are_unknown_until_given():
    M = T.dynamic("M")

    @T.prim_func
    def main(A: T.Tensor((M, 64), "float32"), B: T.Tensor((M, 64), "float32")):
        with T.Kernel(T.ceildiv(M, 32), threads=32) as b:
            s = T.alloc_shared((32, 64), "float32")
            T.copy(A[b * 32, 0], s)
            T.copy(s, B[b * 32, 0])

    unknown = Program(main).footprint()
    assert (unknown.flops, unknown.bytes_read, unknown.arithmetic_intensity) == (None, None, None)
    assert unknown.launches[0].grid == (None,)
    assert unknown.launches[0].peak_bytes == {"shared.dyn": 32 * 64 * 4}
    known = Program(main).footprint({"M": 64})
    assert known.bytes_read == known.bytes_written == 64 * 64 * 4
    assert known.launches[0].grid == (2,)


def test_lifetimes_end_with_the_last_use_unless_a_loop_brings_it_back():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            first = T.alloc_shared((64,), "float32")
            second = T.alloc_shared((64,), "float32")
            carried = T.alloc_shared((64,), "float32")
            T.copy(A, first)
            T.copy(first, A)
            T.fill(carried, 0)
            for _ in T.serial(4):
                for i in T.Parallel(64):
                    carried[i] = carried[i] + 1
                T.copy(carried, second)
                T.copy(second, A)

    (launch,) = Program(main).footprint().launches
    use = {u.buffer.name: (u.first, u.last) for u in launch.uses}
    assert use["first"][1] < use["carried"][0]
    assert use["carried"][1] >= use["second"][1]
    assert launch.peak_bytes["shared.dyn"] == 2 * 64 * 4
    assert launch.bytes["shared.dyn"] == 3 * 64 * 4


def test_shared_tiles_of_one_loop_do_not_share_memory_and_those_of_two_do():
    @T.prim_func
    def main(A: T.Tensor((64, 64), "float32"), B: T.Tensor((64, 64), "float32"), n: T.int32):
        with T.Kernel(1, threads=32):
            first = T.alloc_shared((64,), "float32")
            second = T.alloc_shared((64,), "float32")
            third = T.alloc_shared((64,), "float32")
            for k in T.serial(64):
                T.copy(A[k, 0], first)
                T.copy(first, B[k, 0])
                T.copy(B[k, 0], second)
                T.copy(second, A[k, 0])
            if n > 0:
                T.copy(A[0, 0], third)
                T.copy(third, B[0, 0])

    (launch,) = Program(main).footprint().launches
    assert launch.peak_bytes["shared.dyn"] == 2 * 64 * 4
    (function,) = _tilelang.lower_native(main, {"kind": "cuda", "arch": "sm_80"}, {}).functions
    assert function.dynamic_shared_bytes == 2 * 64 * 4


def test_workspaces_and_aliases():
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=32):
            w = T.alloc_global((64,), "float32")
            s = T.alloc_shared((64,), "float32")
            bits = T.view(s, (64,), "int32")
            T.copy(A, s)
            T.copy(s, w)
            for i in T.Parallel(64):
                bits[i] = 0
            T.copy(w, A)

    footprint = Program(main).footprint()
    assert footprint.workspace_bytes == 64 * 4
    assert footprint.launches[0].bytes["shared.dyn"] == 64 * 4
