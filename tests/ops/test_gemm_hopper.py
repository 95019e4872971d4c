"""The products scheduled by hand for Hopper: what they are made of, and on a device what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import core
from core.ops._product import Product
from core.ops.gemm import gemm
from core.ops.gemm_split import split_gemm
from core.ops.gemm_warpgroups import WarpgroupTile, warpgroup_gemm
from tests.ops.test_gemm import check

Compiled = Callable[..., core.Kernel]


def specialized(shape: tuple[int, int, int], options: dict[str, Any], **tiles: Any) -> core.Kernel:
    given = {"block_M": 128, "block_N": 128, "block_K": 64, "num_stages": 3, "threads": 256, "panel": 8, "policy": 1}
    given |= {"cluster": 2, "workers": 132, **tiles}
    return gemm.compile(*shape, target="cuda:h200", variant="warp_specialized", **given, **options)


def product(shape: tuple[int, int, int], options: dict[str, Any]) -> Product:
    return Product.typed(*shape, "float16", None, None, **options)


def warpgroups(shape: tuple[int, int, int], options: dict[str, Any], **tiles: Any) -> core.Kernel:
    tile = WarpgroupTile(
        **{"block_M": 128, "block_N": 128, "block_K": 64, "num_stages": 3, "cluster": 2, "blocks": 8, **tiles}
    )
    return core.compile(warpgroup_gemm(product(shape, options), tile), target="cuda:h200", out_idx=[-1])


def split(shape: tuple[int, int, int], options: dict[str, Any], **tiles: Any) -> core.Kernel:
    given = {"block_M": 64, "block_N": 64, "block_K": 64, "num_stages": 4, "splits": 4, **tiles}
    return core.compile(split_gemm(product(shape, options), **given), target="cuda:h200", out_idx=[-1])


def test_loads_and_products_have_warps_of_their_own():
    source = specialized((512, 512, 256), {"bias": True, "activation": "relu"}).get_kernel_source()
    assert "warpgroup_reg_dealloc<40>" in source
    assert "tma_load_multicast(B_desc" in source
    assert "tl::tma_load(A_desc" in source
    assert "const half_t* bias" in source
    assert "tma_store(C_desc" in source


def test_chunks_of_a_tile_leave_while_the_next_is_made():
    source = warpgroups((512, 512, 256), {}, alternate=True, chunk=64, blocks=4).get_kernel_source()
    # Two chunks a warpgroup and two warpgroups: each waits until no more than one store is on its way.
    assert source.count("tl::tma_store(C_desc") == 4
    assert source.count("tl::tma_store_wait<1") == 4


@pytest.mark.parametrize("splits", [1, 4, 7])
def test_parts_go_through_the_cluster_where_there_is_one(splits):
    source = split((64, 512, 512), {}, splits=splits).get_kernel_source()
    # A launch without a cluster may not copy between blocks, not even to itself: the device calls it illegal.
    assert source.count("tl::tma_store_cluster") == splits - 1


def test_parts_take_the_place_of_tiles():
    tiles = {"block_M": 128, "block_N": 128, "num_stages": 6, "splits": 8}
    predicted = split((128, 512, 4096), {}, **tiles).resources.predicted
    assert predicted.dynamic_shared_bytes == 6 * (128 + 128) * 64 * 2


def test_rows_that_blocks_do_not_share_evenly_stop_at_the_tile():
    # Of 64 rows, 7 blocks have 10 each, and the last one 4: the other 6 of its C are the next tile's.
    guarded = {}
    for rows, splits in ((64, 7), (64, 8), (16, 7), (16, 8)):
        source = split((128, 512, 4096), {}, block_M=rows, splits=splits).get_kernel_source()
        guarded[rows, splits] = "if (" in source[source.rindex("arrived[0].wait") :]
    assert guarded == {(64, 7): True, (64, 8): False, (16, 7): True, (16, 8): False}


def test_more_blocks_than_a_portable_cluster_has_are_refused():
    with pytest.raises(core.KernelError, match="cannot be computed transposed by 9 blocks"):
        split((64, 512, 512), {}, splits=9)


def test_a_tile_without_whole_instructions_is_refused():
    with pytest.raises(core.KernelError, match="whole instructions of 64 rows"):
        warpgroups((512, 512, 256), {}, block_M=64)


def test_rows_for_one_warpgroup_only_are_refused():
    with pytest.raises(core.KernelError, match="70 rows leave the second warpgroup"):
        warpgroups((70, 512, 256), {}, block_M=256)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("compiled", "tiles"),
    [
        (specialized, {}),
        (specialized, {"cluster": 1, "workers": 0}),
        (specialized, {"block_M": 64, "threads": 128, "cluster": 1}),
        (warpgroups, {}),
        (warpgroups, {"block_M": 256, "chunk": 32, "cluster": 1}),
        (warpgroups, {"alternate": True}),
        (split, {"splits": 1}),
        (split, {"splits": 4}),
        (split, {"block_M": 128, "block_N": 128, "num_stages": 3, "splits": 8}),
        (split, {"block_M": 128, "block_N": 128, "num_stages": 6, "splits": 7}),
        (split, {"block_M": 176, "block_N": 128, "num_stages": 5, "splits": 8}),
        (split, {"splits": 3}),
    ],
)
@pytest.mark.parametrize(
    ("shape", "options"),
    [
        ((512, 768, 512), {}),
        ((130, 200, 264), {"bias": True, "activation": "gelu", "residual": True}),
        ((392, 136, 520), {"trans_a": True, "trans_b": True, "batch": 3, "residual": True}),
        ((200, 520, 1032), {"trans_b": True, "bias": True}),
    ],
)
def test_what_it_computes(compiled: Compiled, tiles: dict[str, Any], shape: Any, options: dict[str, Any]):
    check(compiled(shape, options, **tiles), shape, options, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 16, 50])
@pytest.mark.parametrize(
    "tiles", [{"splits": 1}, {"splits": 4}, {"block_M": 16, "splits": 7}, {"block_M": 16, "splits": 8}]
)
def test_few_rows(rows: int, tiles: dict[str, Any]):
    shape, options = (rows, 520, 1032), {"bias": True, "activation": "silu", "residual": True}
    check(split(shape, options, **tiles), shape, options, "cuda")
