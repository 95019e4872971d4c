"""Tile rules: what is preferred for which operator, and what no launch on the chip may have."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import core
from backends.cuda.rules import tile_rules
from core.tiling import Candidate, KernelShape, TileParameter, Verdict, candidates

GEMM = {
    "block_M": TileParameter("tile", "M", 16, 16),
    "block_N": TileParameter("tile", "N", 8, 8),
    "block_K": TileParameter("tile", "K", 16, 16),
    "stages": TileParameter("stages"),
    "threads": TileParameter("threads"),
}


def source(
    operator: str,
    dimensions: Mapping[str, int],
    overrides: Mapping[str, int] | None = None,
    target: str = "cuda:h200",
) -> tuple[list[Candidate], list[Verdict]]:
    shape = KernelShape("kernel", operator, dimensions, ("float16",), GEMM)
    return candidates(shape, tile_rules(core.chip(target), shape), overrides or {})


def test_large_products_get_large_tiles_and_small_ones_a_grid_that_fills_the_chip() -> None:
    large = source("gemm", {"M": 8192, "N": 8192, "K": 8192})[0][0].tiles
    small = source("gemm", {"M": 512, "N": 512, "K": 512})[0][0].tiles
    assert large["block_M"] * large["block_N"] == 128 * 256
    assert small["block_M"] * small["block_N"] < 128 * 128


def test_the_rule_that_chose_is_named() -> None:
    assert set(source("gemm", {"M": 4096, "N": 4096, "K": 4096})[0][0].chosen_by.values()) == {"rule:cuda.matrix-tile"}


@pytest.mark.parametrize("threads", [33, 48, 2048])
def test_threads_are_whole_warps_within_the_limit(threads: int) -> None:
    accepted, refused = source("gemm", {"M": 512, "N": 512, "K": 512}, {"threads": threads})
    assert accepted == []
    assert {verdict.reason.partition(":")[0] for verdict in refused} == {"cuda.launch"}


def test_an_n_tile_of_8_modulo_16_is_never_chosen_beside_64_rows() -> None:
    found, refused = source("gemm", {"M": 512, "N": 512, "K": 512}, {"block_N": 72})
    assert all(candidate.tiles["block_M"] < 64 for candidate in found)
    assert any("8 modulo 16" in verdict.reason for verdict in refused)
    without_warpgroups, _ = source("gemm", {"M": 512, "N": 512, "K": 512}, {"block_N": 72}, "cuda:a100")
    assert any(candidate.tiles["block_M"] >= 64 for candidate in without_warpgroups)


@pytest.mark.parametrize("operator", ["gemm", "attention", "reduction", "elementwise"])
def test_every_operator_has_a_candidate(operator: str) -> None:
    tiles = source(operator, {"M": 100, "N": 40, "K": 70})[0][0].tiles
    assert tiles["block_M"] <= 128
    assert tiles["block_N"] <= 64
