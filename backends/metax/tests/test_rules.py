"""Tile rules: what is considered suits the chip, and what is not says why."""

from __future__ import annotations

from typing import Any

import pytest
import tilelang.language as T

import core
from backends.metax.rules import tile_rules
from core.ops.attention import attention
from core.ops.mla import mla_decode
from core.tiling import KernelShape, TileParameter, candidates

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


PARAMETERS = {
    "block_M": TileParameter("tile", "M", 16, 16),
    "block_N": TileParameter("tile", "N", 8, 8),
    "block_K": TileParameter("tile", "K", 16, 16),
    "stages": TileParameter("stages"),
    "threads": TileParameter("threads"),
}


def shape(operator: str = "gemm", dtype: str = "float16", **dimensions: int) -> KernelShape:
    return KernelShape("k", operator, dimensions, (dtype, dtype, "float32"), PARAMETERS)


def values(name: str, kernel: KernelShape) -> set[Any]:
    return {candidate.tiles[name] for candidate in candidates(kernel, tile_rules(C500, kernel))[0]}


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("size", [64, 512, 4096])
def test_the_first_choice_lowers_with_matrix_instructions(size: int, dtype: str) -> None:
    kernel = product.compile(size, size, size, target="metax:c500", dtype=dtype)
    assert not kernel.config.rejected
    assert "__builtin_mxc_mma_16x16x" in kernel.get_kernel_source()
    assert (kernel.resources.predicted.memory_bytes or {})["shared"] <= 65536


def test_a_small_product_is_given_smaller_tiles_and_a_few_rows_small_ones() -> None:
    assert min(values("block_M", shape(M=8192, N=8192, K=8192))) == 64
    assert min(values("block_M", shape(M=512, N=512, K=512))) == 32
    assert values("block_M", shape(M=1, N=4096, K=4096)) == {16}


def test_the_depth_follows_the_bytes_of_the_operands() -> None:
    assert values("block_K", shape(M=8192, N=8192, K=8192)) == {32, 64}
    assert values("block_K", shape(M=8192, N=8192, K=8192, dtype="float32")) == {16, 32}


@pytest.mark.parametrize(
    ("tiles", "reason"),
    [
        ({"block_N": 40}, "N tile 40 is not a multiple of the instruction's 16: plain multiply-adds"),
        ({"block_M": 16, "block_N": 16, "threads": 128}, "2 waves cannot share a 16 x 16 tile"),
        ({"block_M": 256, "block_N": 256}, "256 x 256 sums are 256 registers a thread"),
    ],
)
def test_tiles_that_do_without_the_matrix_unit_are_left_out(tiles: dict[str, int], reason: str) -> None:
    kernel = shape(M=4096, N=4096, K=4096)
    leave_out = tile_rules(C500, kernel)[1].leave_out
    assert leave_out is not None
    given = {"M": 64, "N": 64, "threads": 256, **{PARAMETERS[name].key: value for name, value in tiles.items()}}
    assert reason in str(leave_out(kernel, given))


def test_what_is_considered_is_shared_by_its_waves_and_leaves_registers() -> None:
    kernel = shape(M=4096, N=4096, K=4096)
    accepted, _ = candidates(kernel, tile_rules(C500, kernel))
    assert len(accepted) >= 50
    for tiles in (candidate.tiles for candidate in accepted):
        m, n, threads = (int(tiles[name]) for name in ("block_M", "block_N", "threads"))
        assert (m // 16) * (n // 16) % (threads // 64) == 0
        assert m * n // threads <= 128


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


def test_attention_is_refused_exactly_where_its_weights_would_have_to_move_between_waves() -> None:
    arguments = {"batch": 1, "heads": 2, "kv_heads": 2, "M": 256, "N": 256, "dim": 64}
    for threads, fits in ((256, True), (512, False)):
        tiles = {"block_M": 64, "block_N": 64, "num_stages": 1, "threads": threads}
        ranking = attention.rank(**arguments, **tiles, target="metax:c500")
        assert bool(ranking.candidates) is fits
        prim_func = attention(**arguments, **tiles, variant="pipelined", workers=0)
        if fits:
            core.compile(prim_func, target="metax:c500")
        else:
            assert any("stays where its rows are" in verdict.reason for verdict in ranking.refused)
            with pytest.raises(core.TileHALError, match="conflict between scores and weights"):
                core.compile(prim_func, target="metax:c500")


@pytest.mark.parametrize("target", ["metax:c500", "metax:c550", "metax:c600", "metax:c600-u"])
@pytest.mark.parametrize("heads", [48, 64, 128])
def test_heads_over_a_wide_cache_share_columns_in_both_products_and_stay_in_registers(target: str, heads: int) -> None:
    tiles = mla_decode.rank(4, heads, 2048, target=target).candidates[0].tiles
    rows, keys, waves = tiles["block_M"], tiles["block_N"], int(tiles["threads"]) // 64
    assert keys % (16 * waves) == 0
    assert rows * (keys + 512) // tiles["threads"] <= 128


def test_attention_with_wide_heads_has_a_tile_for_64_kib_too() -> None:
    ranking = attention.rank(batch=1, heads=4, kv_heads=4, M=128, N=4096, dim=512, target="metax:c500")
    assert [ranking.candidates[0].tiles[name] for name in ("block_M", "threads")] == [16, 64]


def test_a_chip_with_twice_the_shared_memory_gets_another_tile_which_uses_it() -> None:
    now, twice = (
        product.rank(4096, 4096, 4096, target=target).candidates[0]
        for target in ("metax:c500", "metax:c500+shared=128KiB")
    )
    assert now.tiles != twice.tiles
    assert now.prediction is not None
    assert twice.prediction is not None
    assert now.prediction.memory_bytes["shared"] < twice.prediction.memory_bytes["shared"] <= 128 * 1024


def test_a_number_the_user_gives_is_used() -> None:
    kernel = product.compile(512, 512, 512, target="metax:c500", block_M=32, threads=64)
    assert kernel.config.entries["block_M"].effective == 32
    assert kernel.config.entries["threads"].effective == 64
