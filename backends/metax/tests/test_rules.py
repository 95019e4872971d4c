"""Tile rules: what they prefer fits the chip, and what they forbid says why."""

from __future__ import annotations

from typing import Any

import pytest
import tilelang.language as T

import core
from backends.metax.rules import resident_waves, shared_limit_bytes, tile_rules
from core.tiling import KernelShape

C500, C550 = core.chip("metax:c500"), core.chip("metax:c550")


@core.kernel(out=["C"])
def product(
    M: int,
    N: int,
    K: int,
    *,
    block_M: int = core.tile("M", multiple=16),
    block_N: int = core.tile("N", multiple=16),
    block_K: int = core.tile("K", multiple=16),
    num_stages: int = core.stages(),
    threads: int = core.threads(),
    dtype: str = "float16",
) -> Any:
    @T.prim_func
    def main(A: T.Tensor((M, K), dtype), B: T.Tensor((K, N), dtype), C: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(N, block_N), T.ceildiv(M, block_M), threads=threads) as (bx, by):
            a = T.alloc_shared((block_M, block_K), dtype)
            b = T.alloc_shared((block_K, block_N), dtype)
            c = T.alloc_fragment((block_M, block_N), "float32")
            T.clear(c)
            for k in T.Pipelined(T.ceildiv(K, block_K), num_stages=num_stages):
                T.copy(A[by * block_M, k * block_K], a)
                T.copy(B[k * block_K, bx * block_N], b)
                T.gemm(a, b, c)
            T.copy(c, C[by * block_M, bx * block_N])

    return main


def shape(operator: str = "gemm", **dimensions: int) -> KernelShape:
    return KernelShape("k", operator, dimensions, ("float16", "float16", "float32"), {})


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("size", [64, 512, 4096])
def test_the_first_choice_lowers_with_matrix_instructions(size: int, dtype: str) -> None:
    kernel = product.compile(size, size, size, target="metax:c500", dtype=dtype)
    assert not kernel.config.rejected
    assert "__builtin_mxc_mma_16x16x" in kernel.get_kernel_source()
    assert (kernel.resources.predicted.memory_bytes or {})["shared"] <= 65536


def test_a_large_product_gets_a_large_tile_and_a_small_one_a_small() -> None:
    large = tile_rules(C500, shape(M=8192, N=8192, K=8192))[1].prefer[0]
    small = tile_rules(C500, shape(M=512, N=512, K=512))[1].prefer[0]
    assert large["M"] * large["N"] == 128 * 128
    assert small["M"] * small["N"] < 128 * 128


def test_every_preference_fits_shared_memory_with_its_stages() -> None:
    limit = shared_limit_bytes(C500)
    assert limit == 65536
    for tiles in tile_rules(C500, shape(M=4096, N=4096, K=4096))[1].prefer:
        assert (tiles["M"] + tiles["N"]) * tiles["K"] * 2 * tiles["stages"] <= limit


@pytest.mark.parametrize(
    ("tiles", "reason"),
    [
        ({"M": 64, "N": 40, "threads": 128}, "N tile 40 is not a multiple of the instruction's 16"),
        ({"M": 16, "N": 16, "threads": 128}, "2 waves cannot share them"),
    ],
)
def test_tiles_the_instructions_do_not_divide_are_forbidden(tiles: dict[str, int], reason: str) -> None:
    forbid = tile_rules(C500, shape(M=512, N=512, K=512))[1].forbid
    assert forbid is not None
    assert reason in str(forbid(shape(), tiles))


def test_launch_limits_are_the_chips() -> None:
    for chip, threads, reason in (
        (C500, 96, "not whole waves of 64"),
        (C550, 1024, "the chip allows 512 a block"),
        (C500, 1024, None),
    ):
        forbid = tile_rules(chip, shape("elementwise"))[0].forbid
        assert forbid is not None
        answer = forbid(shape("elementwise"), {"threads": threads})
        assert answer is None if reason is None else reason in str(answer)


def test_occupancy_is_bounded_by_shared_memory_registers_and_threads() -> None:
    # 64 KiB / ((128 + 128) * 32 * 2 * 2) = 2 blocks, 131072 / ((64 + 64) * 256) = 4: shared memory allows 2 of 4 waves.
    assert resident_waves(C500, (128, 128, 32, 2, 256), 2) == 8
    # 131072 / ((4 + 64) * 64) = 30 blocks of one wave, by registers.
    assert resident_waves(C500, (16, 16, 16, 1, 64), 2) == 30
    assert resident_waves(core.chip("metax:c600-u"), (128, 128, 32, 2, 256), 2) == 8


def test_a_number_the_user_gives_is_used() -> None:
    kernel = product.compile(512, 512, 512, target="metax:c500", block_M=32, threads=64)
    assert kernel.config.entries["block_M"].effective == 32
    assert kernel.config.entries["threads"].effective == 64
