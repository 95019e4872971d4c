"""What is written for another chip is refused by its name and at its line."""

import inspect
from typing import Any

import pytest
import tilelang.language as T

import core

CUDA = '__device__ float twice(float x) { asm volatile(""); return 2 * x; }'


def imported_source() -> Any:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            T.import_source(CUDA)
            for i in T.Parallel(64):
                A[i] = T.call_extern("float32", "twice", A[i])

    return main


def cuda_instructions() -> Any:
    from tilelang.cuda.intrinsics.macro.mma_macro_generator import TensorCoreIntrinEmitter

    emitter = TensorCoreIntrinEmitter(
        a_dtype="float16",
        b_dtype="float16",
        accum_dtype="float32",
        b_transposed=True,
        block_row_warps=2,
        block_col_warps=1,
        warp_row_tiles=16,
        warp_col_tiles=16,
        chunk=16,
    )

    @T.prim_func
    def main(A: T.Tensor((32, 16), "float16")):
        with T.Kernel(1, threads=64):
            tile = T.alloc_shared((32, 16), "float16")
            registers = T.alloc_local((8,), "float16")
            T.copy(A, tile)
            for step in T.serial(1):
                emitter.ldmatrix_a(registers, tile, step)

    return main


def random_numbers() -> Any:
    @T.prim_func
    def main(A: T.Tensor((64,), "uint32")):
        with T.Kernel(1, threads=64):
            T.rng_init(1, 0, 0)
            for i in T.Parallel(64):
                A[i] = T.rng_rand()

    return main


def half_bytes() -> Any:
    @T.prim_func
    def main(
        A: T.Tensor((64,), "int4"),
        B: T.Tensor((64,), "int32"),
    ):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                B[i] = T.cast(A[i], "int32")

    return main


@pytest.mark.parametrize(
    ("kernel", "message", "hint", "line"),
    [
        (imported_source, "T.import_source is CUDA source", "in TileLang", "T.import_source(CUDA)"),
        (cuda_instructions, "calls tl.ptx_ldmatrix", "write T.gemm", "for step in T.serial(1)"),
        (random_numbers, "calls tl.rng_init", "arithmetic", "T.rng_init(1, 0, 0)"),
        (half_bytes, "A has elements of int4", "packed in int8 or uint8", 'A: T.Tensor((64,), "int4")'),
    ],
)
def test_what_no_simt_chip_has_is_refused_at_its_line(kernel: Any, message: str, hint: str, line: str) -> None:
    with pytest.raises(core.UnsupportedOp) as caught:
        core.compile(kernel(), target="metax:c500", build=False)
    text = str(caught.value)
    assert message in text
    assert "ir.Op(" not in text
    assert hint in caught.value.hint
    lines, first = inspect.getsourcelines(kernel)
    assert caught.value.location == core.errors.Location(
        __file__, first + next(index for index, content in enumerate(lines) if line in content)
    )
