"""What a chip cannot hold or launch is refused with the table, the line, and what would fit."""

import pytest
import tilelang.language as T

from core.errors import ResourceExceeded, UnsupportedOp
from core.hardware import Chip, ComputeUnit, ExecutionLimits, MatrixInstruction, MemorySpace
from core.program import Program
from core.program.capacity import check
from tests.timing import within

KIB = 1024

#: 227 KiB of shared memory per block and warps of 32 that may be partly filled, as an H200 has.
WIDE = Chip(
    vendor="cuda",
    name="wide",
    title="227 KiB",
    units=(ComputeUnit(kind="SM", count=1),),
    memories=(
        MemorySpace(name="shared", scopes=("shared",), owner="block", per_block_bytes=227 * KIB),
        MemorySpace(name="registers", scopes=("fragment", "local"), owner="unit", per_block_bytes=256 * KIB),
    ),
    limits=ExecutionLimits(threads_per_block=1024, block_dim=(1024, 1024, 64), grid_dim=(2**31 - 1, 65535, 65535)),
    matrix_instructions=(
        MatrixInstruction(
            name="mma", m=16, n=8, k=16, a_dtype="float16", b_dtype="float16", accumulator_dtype="float32", unit="SM"
        ),
    ),
)

#: 64 KiB of shared memory and waves of 64, as a C500 has.
NARROW = Chip(
    vendor="metax",
    name="narrow",
    title="64 KiB",
    memories=(MemorySpace(name="shared", scopes=("shared",), owner="block", per_block_bytes=64 * KIB),),
    limits=ExecutionLimits(threads_per_block=1024, thread_multiple=64),
)

#: Two memories for one scope: vectors in one, operands of the matrix unit in the other.
SPLIT = Chip(
    vendor="ascend",
    name="split",
    title="UB and L1",
    memories=(
        MemorySpace(name="ub", scopes=("shared", "fragment"), owner="unit", capacity_bytes=64 * KIB),
        MemorySpace(name="l1", scopes=("shared",), owner="unit", capacity_bytes=512 * KIB),
        MemorySpace(name="l0c", scopes=("fragment",), owner="unit", capacity_bytes=128 * KIB),
    ),
)


def tile(rows, columns, dtype="float32", threads=128, blocks=1):
    @T.prim_func
    def main(A: T.Tensor((rows, columns), dtype)):
        with T.Kernel(blocks, threads=threads):
            s = T.alloc_shared((rows, columns), dtype)
            T.copy(A, s)
            T.copy(s, A)

    return main


def product(block, stages, accumulator="float32", block_K=64, threads=128, dtype="float16"):
    @T.prim_func
    def main(A: T.Tensor((1024, 1024), dtype), B: T.Tensor((1024, 1024), dtype)):
        with T.Kernel(1024 // block, 1024 // block, threads=threads) as (bx, by):
            a = T.alloc_shared((block, block_K), dtype)
            b = T.alloc_shared((block_K, block), dtype)
            c = T.alloc_fragment((block, block), accumulator)
            T.clear(c)
            for k in T.Pipelined(1024 // block_K, num_stages=stages):
                T.copy(A[by * block, k * block_K], a)
                T.copy(B[k * block_K, bx * block], b)
                T.gemm(a, b, c)
            T.copy(c, A[by * block, bx * block])

    return main


def refused(prim_func, chip, error=ResourceExceeded):
    with within(1.0), pytest.raises(error) as caught:
        check(Program(prim_func), chip)
    assert caught.value.hint
    assert caught.value.location is not None
    return caught.value


def test_512_kib_of_shared_memory_on_a_chip_with_227():
    error = refused(tile(256, 512), WIDE)
    assert "227 KiB of shared memory per block; this kernel needs 512 KiB, 285 KiB too much" in error.message
    assert "s       256 x 512  float32  524,288       1  524,288" in error.message
    assert error.details["buffers"][0]["line"] == error.location.line
    assert error.details["excess_bytes"] == 285 * KIB
    with open(error.location.file) as source:
        assert "T.alloc_shared" in source.readlines()[error.location.line - 1]


def test_96_kib_of_shared_memory_on_a_chip_with_64():
    error = refused(tile(96, 256), NARROW)
    assert "64 KiB of shared memory per block; this kernel needs 96 KiB" in error.message
    assert "48 in place of 96, or 128 in place of 256" in error.hint


@pytest.mark.parametrize(
    ("shape", "hint"),
    [
        ((64, 4096), "for example 4 in place of 64, or 256 in place of 4096"),
        ((4, 8192), "for example 2 in place of 4, or 4096 in place of 8192"),
        ((1, 32768), "for example 16384 in place of 32768"),
    ],
)
def test_a_whole_row_is_not_the_first_to_be_halved(shape, hint):
    assert hint in refused(tile(*shape), NARROW).hint
    check(Program(tile(96, 128)), NARROW)


def test_the_stage_count_that_fits_is_named_and_does_fit():
    error = refused(product(128, 4), NARROW)
    assert error.details["fitting_stages"] == 2
    assert "num_stages=2 instead of 4" in error.hint
    check(Program(product(128, 2)), NARROW)
    refused(product(128, 3), NARROW)


def test_when_no_stage_count_fits_smaller_tiles_are_named():
    error = refused(product(512, 2), NARROW)
    assert "even with num_stages=1" in error.hint
    assert "in place of 512" in error.hint
    assert error.details["fitting_stages"] is None


def test_fragments_in_registers_are_not_a_capacity():
    check(Program(product(256, 1, threads=128)), WIDE)


def test_operands_of_products_go_to_the_second_memory_of_their_scope():
    check(Program(product(128, 4)), SPLIT)
    refused(tile(96, 256), SPLIT)


def test_33_threads_on_waves_of_64():
    error = refused(tile(8, 8, threads=33), NARROW)
    assert "33 threads per block" in error.message
    assert error.hint == "use threads=64"
    check(Program(tile(8, 8, threads=33)), WIDE)


def test_96_threads_on_waves_of_64_names_both_neighbours():
    assert refused(tile(8, 8, threads=96), NARROW).hint == "use threads=64 or 128"


def test_too_many_threads():
    assert "2048 threads per block; cuda:wide allows 1024" in refused(tile(8, 8, threads=2048), WIDE).message


def test_too_large_a_grid():
    @T.prim_func
    def main(A: T.Tensor((8,), "float32")):
        with T.Kernel(1, 70000, threads=32):
            T.fill(A, 0)

    assert "70000 blocks along y; cuda:wide allows 65535" in refused(main, WIDE).message


def test_symbolic_sizes_are_not_judged():
    M = T.dynamic("M")

    @T.prim_func
    def main(A: T.Tensor((8,), "float32"), B: T.Tensor((M,), "float32")):
        with T.Kernel(1, M, threads=32):
            T.fill(A, 0)

    check(Program(main), WIDE)


def test_accumulators_the_matrix_unit_does_not_have():
    error = refused(product(64, 1, accumulator="float16"), WIDE, UnsupportedOp)
    assert "float16 and float16 into float16" in error.message
    assert "float32" in error.hint
    check(Program(product(64, 1)), WIDE)


def test_8_bit_floats_on_a_chip_without_instructions_for_them():
    error = refused(product(64, 1, dtype="float8_e4m3fn"), WIDE, UnsupportedOp)
    assert "cuda:wide has no matrix instruction for it" in error.message


def test_other_operand_types_are_the_backends_business():
    check(Program(product(64, 1, dtype="float32")), WIDE)


def test_a_chip_that_describes_nothing_refuses_nothing():
    check(Program(product(512, 4, threads=33)), Chip(vendor="x", name="y", title="z"))
