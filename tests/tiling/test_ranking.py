"""Ranking: what is refused and why, what the order is made of, and how many traces it takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import tilelang.language as T

import core
from core.tiling import KernelShape, Prediction, TileRule, rank
from core.tiling.profile import Profile
from tests.tiling.kernels import product, traced

H200 = core.chip("cuda:h200")
ARGUMENTS = product.arguments((4096, 4096, 4096), {})
VALUES = TileRule(
    "values", "a few", values={"M": (64, 128), "N": (64, 128), "K": (32, 64), "stages": (2, 3), "threads": (128, 256)}
)


def ranked(*rules: TileRule, chip: core.Chip = H200, arguments: Mapping[str, Any] = ARGUMENTS, **given: Any) -> Any:
    return rank(product, arguments, chip, rules, given)


def test_the_order_is_by_predicted_time() -> None:
    ranking = ranked(VALUES)
    times = [verdict.prediction.seconds for verdict in ranking.candidates]
    assert len(times) == 32
    assert times == sorted(times)
    assert times[0] < times[-1]
    assert ranking.refused == []
    assert ranking.candidates[0].reason == f"bound by {ranking.candidates[0].prediction.bound}"
    assert ranking.reasons == {"values": "a few"}


def test_every_candidate_says_what_it_takes_of_each_memory() -> None:
    verdict = ranked(VALUES, block_M=128, block_N=128, block_K=64, num_stages=3, threads=256).candidates[0]
    declared = 3 * 2 * 128 * 64 * 2
    assert declared <= verdict.prediction.memory_bytes["shared"] <= 1.35 * declared
    assert verdict.prediction.memory_bytes["registers"] == 128 * 128 * 4
    assert verdict.prediction.blocks == 32 * 32


def test_a_rule_weighs_the_predicted_time_and_is_named_where_it_does() -> None:
    def weigh(kernel: KernelShape, tiles: Mapping[str, Any], prediction: Prediction) -> float:
        assert prediction.seconds > 0
        return 0.01 if tiles["M"] == 64 and kernel.operator == "gemm" else 1.0

    plain, weighed = ranked(VALUES), ranked(VALUES, TileRule("taste", "x", weigh=weigh))
    assert plain.candidates[0].tiles["block_M"] == 128
    first = weighed.candidates[0]
    assert first.tiles["block_M"] == 64
    assert first.reason.endswith("x 0.01 by taste")
    assert first.rules == ("values", "taste")
    assert first.seconds == pytest.approx(0.01 * first.prediction.seconds)
    assert weighed.candidates[-1].rules == ("values",)


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_a_fault_of_the_rule(factor: float) -> None:
    rule = TileRule("odd", "x", weigh=lambda *_: factor)
    with pytest.raises(core.BackendHookError, match="tile rule odd") as caught:
        ranked(VALUES, rule, block_M=64)
    assert caught.value.details["part"] == "weigh"


def test_a_rule_inspects_what_a_candidate_does() -> None:
    def inspect(kernel: KernelShape, tiles: Mapping[str, Any], profile: Profile) -> str | None:
        (launch,) = profile.launches
        (gemm,) = launch.products
        assert (gemm.m, gemm.n, gemm.k) == (tiles["M"], tiles["N"], tiles["K"])
        return "few threads for many rows" if gemm.m == 128 and launch.threads == 128 else None

    ranking = ranked(VALUES, TileRule("law", "x", inspect=inspect))
    assert len(ranking.refused) == 8
    assert {(v.reason, v.rules) for v in ranking.refused} == {
        ("law: few threads for many rows", ("values", "law")),
    }
    assert not any(v.tiles["block_M"] == 128 and v.tiles["threads"] == 128 for v in ranking.candidates)


def test_what_a_rule_prefers_goes_first_however_slow_it_is() -> None:
    table = TileRule("table", "measured", prefer=({"M": 16, "N": 16, "K": 16}, {"M": 64, "N": 64, "threads": 128}))
    ranking = ranked(table, VALUES)
    first, second = ranking.candidates[0], ranking.candidates[4]
    assert [first.tiles[name] for name in ("block_M", "block_N", "block_K")] == [16, 16, 16]
    assert first.reason.startswith("a rule prefers it; bound by")
    assert first.seconds > second.seconds
    # What the table leaves open is ranked: 2 x 2 of the first, then 2 x 2 of the second.
    assert [v.preferred for v in ranking.candidates[:9]] == [0, 0, 0, 0, 1, 1, 1, 1, None]
    for start in (0, 4):
        times = [v.seconds for v in ranking.candidates[start : start + 4]]
        assert times == sorted(times)
    assert first.chosen_by == {
        "block_M": "rule:table",
        "block_N": "rule:table",
        "block_K": "rule:table",
        "num_stages": "rule:values",
        "threads": "rule:values",
    }


LARGE = TileRule("large", "x", values={"M": (256,), "N": (256,), "K": (128,), "stages": (1, 2), "threads": (256,)})


def test_what_does_not_fit_is_refused_with_the_buffers_their_bytes_and_the_limit() -> None:
    ranking = ranked(LARGE)
    (refused,) = ranking.refused
    assert refused.tiles["num_stages"] == 2
    limit = H200.memory("shared").block_limit_bytes
    needed, words = refused.reason.split(" ", 1)
    assert words == f"bytes of shared memory, a block may have {limit:,}: a 2 x 65,536, b 2 x 65,536"
    assert refused.excess_bytes == int(needed.replace(",", "")) - limit >= 262144 - limit
    assert [v.tiles["num_stages"] for v in ranking.candidates] == [1]


def test_a_what_if_chip_with_more_memory_takes_what_the_real_one_refuses() -> None:
    assert ranked(LARGE, chip=core.chip("cuda:h200+shared=512KiB")).refused == []


def test_threads_the_chip_cannot_launch_are_refused() -> None:
    ranking = ranked(TileRule("r", "x", values={"M": (64,), "N": (64,), "K": (32,), "threads": (128, 2048)}))
    assert {v.reason for v in ranking.refused} == {"2048 threads, a block may have 1024"}


# -- Nothing fits --

HUGE = TileRule("huge", "x", values={"M": (512,), "N": (512,), "K": (256,), "stages": (3,), "threads": (256,)})


def test_where_nothing_fits_stages_go_first_then_k_then_m_and_n() -> None:
    (found,) = ranked(HUGE).candidates
    # One stage of 512 x 512 x 256 is 512 KiB; of 512 x 512 x 64, 128 KiB.
    assert found.tiles == {"block_M": 512, "block_N": 512, "block_K": 64, "num_stages": 1, "threads": 256}
    assert found.chosen_by == {
        "block_M": "rule:huge",
        "block_N": "rule:huge",
        "block_K": "shrunk",
        "num_stages": "shrunk",
        "threads": "rule:huge",
    }
    assert found.reason.startswith("block_K 256 -> 64, num_stages 3 -> 1, so that it fits (")


def test_m_and_n_give_way_where_stages_and_k_cannot() -> None:
    (found,) = ranked(HUGE, block_K=256, num_stages=2).candidates
    assert (found.tiles["block_K"], found.tiles["num_stages"]) == (256, 2)
    assert found.tiles["block_M"] * found.tiles["block_N"] == 128 * 64
    assert {found.chosen_by["block_K"], found.chosen_by["num_stages"]} == {"user"}


def test_numbers_of_the_users_that_cannot_fit_leave_nothing() -> None:
    ranking = ranked(HUGE, block_M=512, block_N=512, block_K=256, num_stages=3)
    assert ranking.candidates == ()
    assert [v.excess_bytes is not None for v in ranking.refused] == [True]


def test_a_preferred_configuration_that_is_too_large_is_made_to_fit_and_keeps_its_place() -> None:
    table = TileRule("table", "x", prefer=({"M": 256, "N": 256, "K": 64, "stages": 4, "threads": 256},))
    ranking = ranked(table, VALUES)
    first = ranking.candidates[0]
    assert (first.tiles["block_M"], first.tiles["num_stages"], first.preferred) == (256, 3, 0)
    assert first.chosen_by["num_stages"] == "shrunk"
    assert [v.tiles["num_stages"] for v in ranking.passed_over] == [4]


def test_a_smaller_one_that_a_rule_forbids_is_passed_by() -> None:
    law = TileRule("law", "x", forbid=lambda kernel, tiles: "not 64" if tiles["K"] == 64 else None)
    (found,) = ranked(HUGE, law).candidates
    assert found.tiles["block_K"] == 32


# -- What it costs --

MANY = TileRule(
    "many",
    "x",
    values={
        "M": (64, 128, 256),
        "N": (64, 128, 256),
        "K": (32, 64, 128),
        "stages": (2, 3, 4),
        "threads": (128, 256, 384),
    },
)


def test_hundreds_of_candidates_take_a_handful_of_traces() -> None:
    before = traced["product"]
    ranking = ranked(MANY)
    assert len(ranking.verdicts) == 243
    assert ranking.effort.traces == traced["product"] - before <= 24
    assert ranking.effort.predictions == len(ranking.candidates) > 150


def test_a_symbolic_dimension_is_ranked_at_a_size_that_fills_a_chip_and_it_is_said() -> None:
    arguments = {**ARGUMENTS, "M": T.dynamic("m")}
    ranking = ranked(VALUES, arguments=arguments)
    assert ranking.notes[0] == "M is symbolic: ranked as if it were 4096"
    assert ranking.shape.dimensions == {"N": 4096, "K": 4096}
    assert [v.tiles for v in ranking.candidates] == [v.tiles for v in ranked(VALUES).candidates]
    assert ranking.fingerprint == product_fingerprint(arguments, ranking.candidates[0].tiles)
    assert ranking.fingerprint != ranked(VALUES).fingerprint


@core.kernel(out=["B"])
def doubled_images(images: int, lines: int, *, block_M: int = core.tile("lines", maximum=64)) -> Any:
    @T.prim_func
    def main(A: T.Tensor((images, lines, 64), "float32"), B: T.Tensor((images, lines, 64), "float32")):
        with T.Kernel(1, images * T.ceildiv(lines, block_M), threads=64) as (_, by):
            image, first = by // T.ceildiv(lines, block_M), by % T.ceildiv(lines, block_M) * block_M
            for i, j in T.Parallel(block_M, 64):
                B[image, first + i, j] = A[image, first + i, j] * 2.0

    return main


def test_a_grid_of_sizes_that_are_assumed_refuses_nothing() -> None:
    """4096 images of 4096 lines are too many blocks along one axis; nobody said that there are so many."""
    given = doubled_images.rank(4096, 4096, target="cuda:a100")
    assert not given.candidates
    assert any("blocks along y" in verdict.reason for verdict in given.refused)
    assert doubled_images.rank(T.dynamic("n"), T.dynamic("h"), target="cuda:a100").candidates


def product_fingerprint(arguments: Mapping[str, Any], tiles: Mapping[str, Any]) -> str:
    from core.program import Program

    kernel = product.trace(arguments, tiles)
    return Program(kernel.prim_func, kernel.out_idx).fingerprint()


def test_every_vendor_ranks_the_same_kernel() -> None:
    for target in ("metax:c500", "ascend:910b3", "cpu"):
        ranking = product.rank(1024, 1024, 1024, target=target)
        assert ranking.candidates, target
        first = ranking.candidates[0]
        assert first.prediction.seconds > 0, target
        assert re.fullmatch("matrix|vector|memory|l2|shared|latency|launch", first.prediction.bound), target


def test_too_many_blocks_are_what_refuses_whatever_else_does() -> None:
    narrow = TileRule("narrow", "x", leave_out=lambda kernel, tiles: "too narrow" if tiles["N"] == 64 else None)
    deep = TileRule("deep", "x", values={"K": (1024,)})  # four times the shared memory there is
    ranking = ranked(narrow, deep, VALUES, arguments=product.arguments((2**24, 4096, 4096), {}))
    assert ranking.candidates == ()
    reasons = [verdict.reason for verdict in ranking.refused]
    said = [re.fullmatch(r"[\d,]+ blocks along y, a grid may have 65,535", reason) is not None for reason in reasons]
    # First all that the chip refused, then what a rule left out.
    assert said == [True] * 24 + [False] * 24
    assert {verdict.excess_bytes for verdict in ranking.refused} == {None}
