"""Tile rules: what is considered fills cores and memories, and what cannot be held is refused before lowering."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import core
from backends.ascend.rules import tile_rules
from core.ops.attention import attention
from core.ops.gemm import gemm
from core.ops.layernorm import layernorm
from core.ops.softmax import softmax
from core.program import Program
from core.tiling import KernelShape, TileParameter, candidates

PARAMETERS = {
    "block_M": TileParameter("tile", "M", 1, 1),
    "block_N": TileParameter("tile", "N", 1, 1),
    "block_K": TileParameter("tile", "K", 1, 1),
    "stages": TileParameter("stages"),
    "threads": TileParameter("threads"),
}
CHIP = core.chip("ascend:910b3")


def found(operator: str, dtype: str = "float16", overrides: Mapping[str, Any] | None = None, **dimensions: int) -> Any:
    shape = KernelShape("k", operator, dimensions, (dtype, dtype), PARAMETERS)
    return candidates(shape, tile_rules(CHIP, shape), overrides)


def values(name: str, accepted: list[Any]) -> list[Any]:
    return list(dict.fromkeys(candidate.tiles[name] for candidate in accepted))


def test_parameters_that_mean_nothing_to_the_compiler_have_one_value() -> None:
    accepted, _ = found("gemm", M=4096, N=4096, K=4096)
    assert values("stages", accepted) == [2]
    assert values("threads", accepted) == [128]
    assert 10 <= len(accepted) <= 40


@pytest.mark.parametrize(
    ("dtype", "depths"),
    [
        ("float16", [256, 128, 64]),
        ("float32", [128, 64, 32]),
        ("int8", [512, 256, 128]),
        ("float8_e4m3fn", [256, 128, 64]),
    ],
)
def test_the_depth_follows_the_bytes_of_the_operands_as_they_are_multiplied(dtype: str, depths: list[int]) -> None:
    assert values("block_K", found("gemm", dtype, M=4096, N=4096, K=4096)[0]) == depths


def test_a_small_grid_and_few_rows_get_small_tiles() -> None:
    assert min(values("block_M", found("gemm", M=512, N=512, K=512)[0])) == 16
    assert values("block_M", found("gemm", M=1, N=4096, K=4096)[0]) == [16]


def test_parts_of_fractals_are_left_out_and_can_be_asked_for() -> None:
    reasons = {v.reason for v in found("gemm", M=4096, N=4096, K=4096, overrides={"block_M": 40})[1]}
    assert reasons == set()  # nothing but the user's number is there
    rules = tile_rules(CHIP, KernelShape("k", "gemm", {}, ("int8", "int8"), PARAMETERS))
    assert rules[0].leave_out is not None
    shape = KernelShape("k", "gemm", {}, ("int8", "int8"), PARAMETERS)
    assert rules[0].leave_out(shape, {"M": 40, "N": 64, "K": 64}) == "M tile 40 is not whole fractals of 16"
    assert rules[0].leave_out(shape, {"M": 64, "N": 64, "K": 48}) == "K tile 48 is not whole fractals of 32"
    assert "for both operands twice" in str(rules[0].leave_out(shape, {"M": 256, "N": 256, "K": 1024}))


@pytest.mark.parametrize(
    ("tiles", "reason"),
    [
        ({"block_M": 256, "block_N": 256, "block_K": 64}, "262,144 bytes of sums, L0C has 131,072"),
        ({"block_M": 128, "block_N": 128, "block_K": 2048}, "1,048,576 bytes of operands, L1 has 524,288"),
    ],
)
def test_what_the_cubes_memories_cannot_hold_is_refused(tiles: dict[str, int], reason: str) -> None:
    ranking = gemm.rank(4096, 4096, 4096, target="ascend:910b3", **tiles)
    assert not ranking.candidates
    assert any(reason in verdict.reason for verdict in ranking.refused)


def test_a_row_that_ub_cannot_hold_whole_is_walked_over() -> None:
    ranking = softmax.rank(1024, 32768, target="ascend:910b3")
    assert ranking.candidates[0].tiles["block_N"] < 32768
    assert any("196,608" in verdict.reason and "UB" in verdict.reason for verdict in ranking.refused)


@pytest.mark.parametrize("target", ["ascend:910b3", "ascend:950pr_9589"])
@pytest.mark.parametrize(
    ("factory", "arguments"),
    [
        (gemm, {"M": 512, "N": 512, "K": 512}),
        (gemm, {"M": 16, "N": 4096, "K": 4096}),
        (gemm, {"M": 4096, "N": 4096, "K": 4096, "dtype": "int8", "trans_b": True}),
        (attention, {"batch": 4, "heads": 32, "kv_heads": 32, "M": 2048, "N": 2048, "dim": 128}),
        (attention, {"batch": 1, "heads": 32, "kv_heads": 8, "M": 8192, "N": 8192, "dim": 64, "causal": True}),
        (softmax, {"M": 1024, "N": 32768}),
        (layernorm, {"M": 65536, "N": 512}),
    ],
    ids=lambda value: value.name if hasattr(value, "name") else None,
)
def test_the_first_choice_lowers(target: str, factory: Any, arguments: dict[str, Any]) -> None:
    kernel = factory.compile(**arguments, target=target, build=False)
    assert not kernel.config.rejected
    assert kernel.config.choice.place == 1


def test_a_chip_with_half_the_l0c_gets_smaller_sums() -> None:
    now, half = (gemm.rank(4096, 4096, 4096, target=f"ascend:910b3{change}") for change in ("", "+l0c=64KiB"))
    areas = [r.candidates[0].tiles["block_M"] * r.candidates[0].tiles["block_N"] for r in (now, half)]
    assert areas[0] * 4 == 128 * 1024
    assert areas[1] * 4 <= 64 * 1024


def test_an_operand_that_a_kernel_keeps_in_a_fragment_counts_for_l1() -> None:
    tiles = {"block_M": 64, "block_N": 128, "num_stages": 1, "threads": 128, "variant": "pipelined", "workers": 0}
    program = Program(attention(batch=1, heads=1, kv_heads=1, M=64, N=128, dim=64, **tiles))
    memory = program.footprint().resources(CHIP).memory_bytes
    queries, keys, weights = 64 * 64 * 2, 128 * 64 * 2, 64 * 128 * 2
    assert memory["l1"] == queries + 2 * keys + weights
    assert memory["l0c"] == 64 * 128 * 4 + 64 * 64 * 4
