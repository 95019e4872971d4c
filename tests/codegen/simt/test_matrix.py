"""Choosing a matrix instruction and splitting a tile over waves."""

from __future__ import annotations

import pytest

import core
from core.codegen.simt.matrix import MatrixPlan, Product, choose

C500, C600 = core.chip("metax:c500"), core.chip("metax:c600")


def plan(chip: core.Chip, product: Product, threads: int = 128, policy: int = 0, **options: bool) -> MatrixPlan:
    found = choose(chip, product, threads, policy, **options)
    assert isinstance(found, MatrixPlan), found
    return found


@pytest.mark.parametrize(
    ("chip", "dtype", "accumulator", "name"),
    [
        (C500, "float16", "float32", "__builtin_mxc_mma_16x16x16f16"),
        (C500, "bfloat16", "float32", "__builtin_mxc_mma_16x16x16bf16"),
        (C500, "float32", "float32", "__builtin_mxc_mma_16x16x4f32"),
        (C500, "float64", "float64", "__builtin_mxc_mma_16x16x4f64"),
        (C500, "int8", "int32", "__builtin_mxc_mma_16x16x16i8"),  # xcore1000 has no K = 32
        (C600, "int8", "int32", "__builtin_mxc_mma_16x16x32i8"),
        (C600, "float8_e4m3fn", "float32", "__builtin_mxc_mma_16x16x32f8"),
        (C600, "float8_e5m2", "float32", "__builtin_mxc_mma_16x16x32bf8"),
    ],
)
def test_the_instruction_for_each_type(chip: core.Chip, dtype: str, accumulator: str, name: str) -> None:
    assert plan(chip, Product(dtype, dtype, accumulator, 64, 64, 32)).instruction.name == name


def test_a_k_the_longest_instruction_does_not_divide_takes_a_shorter_one() -> None:
    found = plan(C600, Product("int8", "int8", "int32", 64, 64, 48))
    assert found.instruction.name == "__builtin_mxc_mma_16x16x16i8"
    assert found.steps == 3


@pytest.mark.parametrize(
    "product",
    [
        Product("float16", "float16", "float16", 64, 64, 32),
        Product("float8_e4m3fn", "float8_e4m3fn", "float32", 64, 64, 32),
        Product("float16", "bfloat16", "float32", 64, 64, 32),
    ],
)
def test_what_the_matrix_unit_of_a_c500_cannot_do(product: Product) -> None:
    reason = choose(C500, product, 128, 0)
    assert isinstance(reason, str)
    assert "has no matrix instruction" in reason


def test_tf32_is_used_only_when_allowed_and_nothing_is_exact() -> None:
    product = Product("float32", "float32", "float32", 64, 64, 32)
    assert isinstance(choose(C600, product, 128, 0), str)
    assert plan(C600, product, allow_tf32=True).instruction.name == "__builtin_mxc_mma_16x16x8tf32"
    assert plan(C500, product, allow_tf32=True).instruction.name == "__builtin_mxc_mma_16x16x4f32"


@pytest.mark.parametrize(
    ("m", "n", "threads", "policy", "waves"),
    [
        (128, 128, 256, 0, (2, 2)),
        (128, 128, 256, 1, (4, 1)),
        (128, 128, 256, 2, (1, 4)),
        (16, 128, 128, 0, (1, 2)),
        (128, 16, 128, 0, (2, 1)),
        (16, 128, 256, 1, (1, 4)),  # all waves along m do not fit
    ],
)
def test_waves_get_equal_shares(m: int, n: int, threads: int, policy: int, waves: tuple[int, int]) -> None:
    found = plan(C500, Product("float16", "float16", "float32", m, n, 32), threads, policy)
    assert (found.waves_m, found.waves_n) == waves
    assert found.rows * found.waves_m * found.tile_m == m
    assert found.columns * found.waves_n * found.tile_n == n


def test_a_tile_the_waves_cannot_share_says_so() -> None:
    reason = choose(C500, Product("float16", "float16", "float32", 16, 16, 32), 128, 0)
    assert reason == "a tile of 16x16x32 cannot be cut into 16x16x16 instructions for 2 waves"


def test_operands_are_swapped_so_that_a_lane_holds_neighbours_of_a_row() -> None:
    found = plan(C500, Product("float16", "float16", "float32", 64, 64, 32))
    assert found.swapped
    assert found.layout("a") is found.instruction.b_layout
    assert found.layout("c") is found.instruction.c_layout
