"""A second SIMT vendor needs a dialect, a platform header and a descriptor, and no change to core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tilelang.language as T
import torch

from core.errors import UnsupportedOp
from core.hardware import Chip
from tests.codegen.simt import zephyr


def matmul(M: int, N: int, K: int, stages: int = 2, policy: Any = None, from_registers: bool = False) -> Any:
    policy = T.GemmWarpPolicy.Square if policy is None else policy

    @T.prim_func
    def main(A: T.Tensor((M, K), "float16"), B: T.Tensor((N, K), "float16"), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, 32), T.ceildiv(M, 64), threads=128) as (bx, by):
            a = T.alloc_shared((64, 32), "float16")
            left = T.alloc_fragment((64, 32), "float16")
            b = T.alloc_shared((32, 32), "float16")
            c = T.alloc_fragment((64, 32), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, 32), num_stages=stages):
                T.copy(A[by * 64, k * 32], a)
                T.copy(B[bx * 32, k * 32], b)
                if from_registers:
                    T.copy(a, left)
                    T.gemm(left, b, c, transpose_B=True, policy=policy)
                else:
                    T.gemm(a, b, c, transpose_B=True, policy=policy)
            T.copy(c, C[by * 64, bx * 32])

    return main


def softmax(M: int, N: int) -> Any:
    @T.prim_func
    def main(X: T.Tensor((M, N), "float32"), Y: T.Tensor((M, N), "float32")):
        with T.Kernel(M, threads=128) as bx:
            x = T.alloc_fragment((1, N), "float32")
            top = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(X[bx, 0], x)
            T.reduce_max(x, top, dim=1)
            for i, j in T.Parallel(1, N):
                x[i, j] = T.exp(x[i, j] - top[i])
            T.reduce_sum(x, total, dim=1)
            for i, j in T.Parallel(1, N):
                x[i, j] = x[i, j] / total[i]
            T.copy(x, Y[bx, 0])

    return main


def product_error(chip: Chip, prim_func: Any, M: int, N: int, K: int) -> float:
    gen = torch.Generator().manual_seed(1)
    a = torch.randn(M, K, generator=gen).half()
    b = torch.randn(N, K, generator=gen).half()
    c = torch.full((M, N), torch.nan)
    zephyr.run(zephyr.lowered(prim_func, chip), chip, a, b, c)
    return float((c - a.float() @ b.float().T).abs().max())


@pytest.mark.parametrize("chip", [zephyr.WITH_MATRIX_UNIT, zephyr.WITHOUT_MATRIX_UNIT], ids=lambda chip: chip.name)
@pytest.mark.parametrize("stages", [0, 2, 3])
def test_a_product_with_tails_is_right_on_both_chips(chip: Chip, stages: int) -> None:
    assert product_error(chip, matmul(100, 40, 72, stages), 100, 40, 72) < 1e-4


@pytest.mark.parametrize("chip", [zephyr.WITH_MATRIX_UNIT, zephyr.WITHOUT_MATRIX_UNIT], ids=lambda chip: chip.name)
def test_an_operand_in_registers_is_right_on_both_chips(chip: Chip) -> None:
    prim_func = matmul(64, 32, 64, policy=T.GemmWarpPolicy.FullRow, from_registers=True)
    assert product_error(chip, prim_func, 64, 32, 64) < 1e-4


def test_the_instruction_is_the_descriptors_and_its_operands_the_dialects() -> None:
    kernel = zephyr.lowered(matmul(64, 32, 64), zephyr.WITH_MATRIX_UNIT)
    assert "c_lane = __builtin_zeph_mma8x8x16(a_lane, b_lane, c_lane);" in kernel.source
    assert "tilehal::platform::f16x4 a_lane" in kernel.source
    assert "tilehal::platform::f32x2 c_lane" in kernel.source
    assert kernel.metadata["matrix_instructions"] == ["__builtin_zeph_mma8x8x16"]


def test_without_a_matrix_unit_the_product_is_multiply_adds() -> None:
    kernel = zephyr.lowered(matmul(64, 32, 64), zephyr.WITHOUT_MATRIX_UNIT)
    assert "mma" not in kernel.source
    assert any("as multiply-add loops: zephyr:z0 has no matrix instruction" in line for line in kernel.rewrites)


def test_every_name_is_the_vendors() -> None:
    source = zephyr.lowered(softmax(8, 256), zephyr.WITHOUT_MATRIX_UNIT).source
    for stock in ("hip", "amdgcn", "__global__", "threadIdx", "blockIdx", "__syncthreads", "__expf", "tl::"):
        assert stock not in source, stock
    assert 'extern "C" zeph_entry void zeph_bounds(128)' in source
    assert "zeph_exp(" in source
    assert "#define TILEHAL_WAVE_LANES 32" in source


def test_reductions_cross_waves_of_32_lanes() -> None:
    x = torch.randn(8, 256, generator=torch.Generator().manual_seed(2))
    y = torch.full_like(x, torch.nan)
    chip = zephyr.WITHOUT_MATRIX_UNIT
    zephyr.run(zephyr.lowered(softmax(8, 256), chip), chip, x, y)
    torch.testing.assert_close(y, torch.softmax(x, 1), atol=1e-6, rtol=1e-5)


def test_a_name_outside_the_dialect_is_refused_with_the_line() -> None:
    @T.prim_func
    def main(A: T.Tensor((64,), "float32")):
        with T.Kernel(1, threads=64):
            for i in T.Parallel(64):
                A[i] = T.call_extern("float32", "hipFancy", A[i])

    with pytest.raises(UnsupportedOp, match=r"hipFancy.*zephyr:z0") as caught:
        zephyr.lowered(main, zephyr.WITHOUT_MATRIX_UNIT)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    assert "hipFancy" in Path(__file__).read_text().splitlines()[caught.value.location.line - 1]


def test_a_chip_whose_waves_nobody_has_measured_is_refused() -> None:
    unknown = zephyr.WITHOUT_MATRIX_UNIT.model_copy(
        update={"units": (zephyr.WITHOUT_MATRIX_UNIT.units[0].model_copy(update={"lanes_per_wave": None}),)}
    )
    with pytest.raises(UnsupportedOp, match="width of its waves is unknown"):
        zephyr.lowered(softmax(8, 256), unknown)
