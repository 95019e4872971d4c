"""CPU tile rules: products and rows by the size of the private cache."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import core
from backends.cpu.rules import tile_rules
from core.ops.gemm import gemm
from core.ops.softmax import softmax
from core.tiling import KernelShape, TileParameter, candidates

PARAMETERS = {
    "block_M": TileParameter("tile", "M"),
    "block_N": TileParameter("tile", "N"),
    "block_K": TileParameter("tile", "K"),
    "threads": TileParameter("threads"),
}
CPU = core.chip("cpu+l2=1MiB")


def accepted(operator: str, chip: core.Chip = CPU, **dimensions: int) -> list[Any]:
    shape = KernelShape("k", operator, dimensions, ("float32", "float32"), PARAMETERS)
    return candidates(shape, tile_rules(chip, shape))[0]


def most_rows(columns: int) -> int:
    return max(candidate.tiles["block_M"] for candidate in accepted("reduction", M=4096, N=columns))


def test_longer_rows_mean_fewer_of_them() -> None:
    assert most_rows(64) == 16
    assert most_rows(1 << 22) == 1
    assert [most_rows(1 << n) for n in range(6, 23)] == sorted((most_rows(1 << n) for n in range(6, 23)), reverse=True)


def test_a_row_that_the_cache_does_not_hold_is_also_walked_over() -> None:
    assert {candidate.tiles["block_N"] for candidate in accepted("reduction", M=16, N=4096)} == {4096}
    assert {candidate.tiles["block_N"] for candidate in accepted("reduction", M=16, N=1 << 20)} == {
        4096,
        16384,
        1 << 20,
    }


def test_a_block_of_a_product_fits_the_cache_of_its_core() -> None:
    sizes = [
        2 * (c.tiles["block_M"] + c.tiles["block_N"]) * c.tiles["block_K"] * 4
        + 4 * c.tiles["block_M"] * c.tiles["block_N"]
        for c in accepted("gemm", M=4096, N=4096, K=4096)
    ]
    assert len(sizes) >= 10
    assert max(sizes) <= 1 << 20
    smaller = accepted("gemm", core.chip("cpu+l2=256KiB"), M=4096, N=4096, K=4096)
    assert max(c.tiles["block_M"] * c.tiles["block_N"] for c in smaller) < 256 * 256


@pytest.mark.parametrize("operator", ["gemm", "attention", "elementwise", "reduction"])
def test_every_operator_has_a_candidate_and_one_value_for_what_does_not_matter(operator: str) -> None:
    found = accepted(operator, M=64, N=64, K=64)
    assert {candidate.tiles["threads"] for candidate in found} == {128}


@pytest.mark.parametrize(("m", "n", "k"), [(5, 96, 70), (300, 200, 100)])
def test_the_first_choice_computes_a_product(m: int, n: int, k: int) -> None:
    kernel = gemm.compile(m, n, k, target="cpu", dtype="float32")
    a, b = torch.randn(m, k), torch.randn(k, n)
    torch.testing.assert_close(kernel(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert not kernel.config.rejected


def test_the_first_choice_computes_rows() -> None:
    kernel = softmax.compile(7, 5000, target="cpu", dtype="float32")
    x = torch.randn(7, 5000)
    torch.testing.assert_close(kernel(x), torch.softmax(x, 1))
    assert not kernel.config.rejected
