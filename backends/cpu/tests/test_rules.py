"""CPU tile rules: rows by the size of the private cache."""

import pytest

import core
from backends.cpu.rules import tile_rules
from core.tiling import KernelShape, TileParameter

ROWS = {"block_M": TileParameter("tile", "M")}


def preferred_rows(columns: int) -> int:
    shape = KernelShape("softmax", "reduction", {"M": 4096, "N": columns}, ("float16",), ROWS)
    return tile_rules(core.chip("cpu"), shape)[0].prefer[0]["M"]


def test_longer_rows_mean_fewer_of_them() -> None:
    assert preferred_rows(64) == 16
    assert preferred_rows(1 << 22) == 1
    assert [preferred_rows(1 << n) for n in range(6, 23)] == sorted(
        (preferred_rows(1 << n) for n in range(6, 23)), reverse=True
    )


@pytest.mark.parametrize("operator", ["gemm", "attention", "elementwise", "reduction"])
def test_every_operator_has_a_preference(operator: str) -> None:
    shape = KernelShape("k", operator, {"M": 64, "N": 64, "K": 64}, ("float16",), ROWS)
    assert tile_rules(core.chip("cpu"), shape)[0].prefer
